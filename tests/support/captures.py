"""A capture as a test asks for it: a folder of exchanges, a proxy before an upstream, requests of real clients."""

import itertools
import json
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from flightlog.agents.capture.proxy import ProxySettings
from flightlog.agents.capture.recorder import ExchangeRecorder
from flightlog.agents.capture.server import capture_in_thread
from flightlog.model.exchange import (
    ApiRequest,
    ApiResponse,
    BodyRef,
    RequestOrigin,
    ResponseOutcome,
)
from flightlog.store.compression import zstd
from flightlog.store.exchanges import EXCHANGES, ExchangeStore
from support.recordings import config_dir
from support.upstream import answering, call, parts

TOKEN = "word-in-the-path"
REQUESTS = Path(__file__).parents[1] / "recordings" / "claude-code-requests.jsonl.zst"


def exchanges(folder: Path) -> ExchangeStore:
    """Open a folder of exchanges with a clock that stands still."""
    return ExchangeStore(
        folder, now=lambda: "2026-11-15T12:00:00.000Z", new_id=lambda: uuid.uuid4().hex
    )


@contextmanager
def running_proxy(
    upstream: str, folder: Path, **settings: object
) -> Iterator[tuple[str, ExchangeRecorder]]:
    """Run a proxy before `upstream`; all of it is on disk when the block ends."""
    recorder = ExchangeRecorder(exchanges(folder))
    made = itertools.count(1)
    with capture_in_thread(
        ProxySettings(upstream, TOKEN, lambda: f"req_made_{next(made)}", **settings), recorder
    ) as url:
        yield url, recorder


def captured_requests() -> list[dict]:
    """The requests of every recorded run: version, case, headers, request_id, body."""
    data = zstd.decompress(REQUESTS.read_bytes())
    return [json.loads(line) for line in data.splitlines()]


def bytes_on_disk(folder: Path) -> bytes:
    """Every byte of every file below a folder, names too."""
    return b"\n".join(
        str(path).encode() + b"\n" + (path.read_bytes() if path.is_file() else b"")
        for path in sorted(folder.rglob("*"))
    )


KEY = "sk-" + "canary-" + "k3y" * 8
ASKED = {
    "model": "m",
    "messages": [{"role": "user", "content": "hi"}],
    "metadata": {"user_id": "device-1"},
}
BODY = json.dumps(ASKED).encode()
EVENTS = b"".join(b'event: ping\ndata: {"n":%d}\n\n' % at for at in range(500))


def plain(body, *, status="200 OK", headers=""):
    head = f"HTTP/1.1 {status}\r\n{headers}content-length: {len(body)}\r\n\r\n".encode()
    return lambda connection, _: connection.sendall(head + body)


def answer_in_chunks(body, *, size=700, headers="", end=b"0\r\n\r\n"):
    def answer(connection, _):
        connection.sendall(
            f"HTTP/1.1 200 OK\r\n{headers}transfer-encoding: chunked\r\n\r\n".encode()
        )
        for at in range(0, len(body), size):
            part = body[at : at + size]
            connection.sendall(b"%x\r\n%s\r\n" % (len(part), part))
        connection.sendall(end)
        if not end:
            connection.shutdown(socket.SHUT_RDWR)

    return answer


@contextmanager
def open_sent_call(url, body=BODY):
    """A connection on which a call was sent; leaving the block is leaving the proxy."""
    host, _, token = url.removeprefix("http://").partition("/")
    name, _, port = host.partition(":")
    head = f"POST /{token}/v1/messages HTTP/1.1\r\nhost: {host}\r\ncontent-length: {len(body)}"
    with socket.create_connection((name, int(port)), timeout=10) as connection:
        connection.sendall(f"{head}\r\n\r\n".encode() + body)
        yield connection


def send_both_ways(answer, tmp_path, body=BODY, **settings):
    """One call, direct and through the proxy; both answers, and the exchange."""
    with answering(answer) as upstream:
        direct = parts(call(upstream, body))
        with running_proxy(upstream, tmp_path / "x", **settings) as (url, recorder):
            through = parts(call(url, body, f"x-api-key: {KEY}\r\n"))
    store = exchanges(tmp_path / "x")
    assert recorder.losses == []
    return direct, through, store, store.read_exchanges()[0]


def capture_case(config: Path, case: str, change: Callable[[dict], None] | None = None) -> Path:
    """Lay out a recorded case with its exchanges beside each transcript; return the directory.

    `change` may change an exchange before it is stored: headers, request_id and body.
    """
    own = [json.loads(json.dumps(one)) for one in captured_requests()
           if f"{one['version']}/{one['case']}" == case]  # fmt: skip
    for sent in own if change else ():
        change(sent)
    for folder in {path.parent for path in config_dir(config, case).glob("projects/**/*.jsonl")}:
        store = exchanges(folder / EXCHANGES)
        for index, sent in enumerate(own, 1):
            request = ApiRequest(
                index, RequestOrigin.MAIN, "POST", "/v1/messages", sent["headers"], BodyRef("", 0)
            )
            store.record_request(request, json.dumps(sent["body"]).encode())
            end = ResponseOutcome.COMPLETE
            store.record_response(ApiResponse(index, 200, {}, sent["request_id"] or "", end), b"")
    return config


def count_anew(config, counts):
    """Write other counts of the cache into the responses of a transcript."""
    for path in config.glob("projects/**/*.jsonl"):
        records = [json.loads(line) for line in path.read_text().splitlines()]
        for record in records:
            message = record.get("message") or {}
            if record["type"] == "assistant" and message.get("id") in counts:
                read, write = counts[message["id"]]
                message["usage"] |= {"input_tokens": 10, "cache_read_input_tokens": read}
                message["usage"]["cache_creation_input_tokens"] = write
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
