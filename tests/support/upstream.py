"""An upstream of raw sockets: it answers each connection with exactly the bytes it is told to.

Nothing between the test and the wire, so that a test can send what no server library would:
half a chunk, a reset, a header twice.
"""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Answer = Callable[[socket.socket, bytes], None]


@contextmanager
def answering(answer: Answer) -> Iterator[str]:
    """Serve on loopback; `answer` gets the socket and the whole request, once for each request."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=_serve, args=(connection, answer), daemon=True))
            threads[-1].start()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        accepting.join(5)
        for thread in threads:
            thread.join(5)


def reset(connection: socket.socket) -> None:
    """End a connection with a reset."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def call(
    url: str,
    body: bytes = b"{}",
    headers: str = "",
    *,
    method: str = "POST",
    path: str = "/v1/messages",
) -> bytes:
    """Make one call on a raw connection and return every byte that came back; a reset ends it too."""
    host, _, rest = url.removeprefix("http://").partition("/")
    prefix = f"/{rest}" if rest else ""
    name, _, port = host.partition(":")
    with socket.create_connection((name, int(port)), timeout=30) as connection:
        head = f"{method} {prefix}{path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{headers}"
        connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        came = []
        try:
            while data := connection.recv(1 << 20):
                came.append(data)
        except ConnectionResetError:
            pass
    return b"".join(came)


def parts(answer: bytes) -> tuple[int, dict[str, str], bytes, bool]:
    """Take an answer apart: status, headers, body without its chunks, and whether its end was said."""
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    headers = {
        name.lower(): value.strip()
        for name, _, value in (line.partition(":") for line in lines[1:])
    }
    status = int(lines[0].split(" ")[1]) if lines[0] else 0
    if headers.get("transfer-encoding") == "chunked":
        body, whole = _decode_chunks(body)
        return status, headers, body, whole
    length = headers.get("content-length")
    return status, headers, body, length is None or int(length) == len(body)


def _decode_chunks(data: bytes) -> tuple[bytes, bool]:
    out = []
    while True:
        size, mark, rest = data.partition(b"\r\n")
        if not mark:
            return b"".join(out), False
        count = int(size, 16)
        if not count:
            return b"".join(out), rest == b"\r\n"
        out.append(rest[:count])
        if len(rest) < count + 2:
            return b"".join(out), False
        data = rest[count + 2 :]


def _serve(connection: socket.socket, answer: Answer) -> None:
    with connection:
        connection.settimeout(10)
        waiting = b""
        while True:
            try:
                while b"\r\n\r\n" not in waiting:
                    data = connection.recv(1 << 16)
                    if not data:
                        return
                    waiting += data
                head, _, body = waiting.partition(b"\r\n\r\n")
                lengths = [
                    line[15:]
                    for line in head.lower().split(b"\r\n")
                    if line.startswith(b"content-length:")
                ]
                length = int(lengths[0]) if lengths else 0
                while len(body) < length:
                    body += connection.recv(1 << 20)
                answer(connection, head + b"\r\n\r\n" + body[:length])
                if b"connection: close" in head.lower():
                    return
                waiting = body[length:]
            except OSError:
                return
