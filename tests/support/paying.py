"""A model's API that keeps a till: it answers on loopback, and knows what every sample was charged for."""

import hashlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Say = Callable[["PaidRequest"], "PaidReply"]


@dataclass
class PaidRequest:
    """One request: which sample it is for, how often that came, and what it said."""

    key: str
    time: int
    headers: dict[str, str]
    body: dict[str, Any]
    path: str


@dataclass
class PaidReply:
    """What is answered."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0


@dataclass
class Till:
    """What came in."""

    url: str = ""
    paid: Counter[str] = field(default_factory=Counter)
    came: list[PaidRequest] = field(default_factory=list)
    at: list[float] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0


def message(asked: PaidRequest, text: str = "", **more: Any) -> dict[str, Any]:
    """An answer that is the same for the same sample, whoever asks for it and when."""
    name = hashlib.sha256(asked.key.encode()).hexdigest()[:12]
    return {
        "id": f"msg_{name}",
        "type": "message",
        "role": "assistant",
        "model": asked.body.get("model"),
        "content": [{"type": "text", "text": text or f"said {name}"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1000, "output_tokens": 100},
    } | more


@contextmanager
def paying(say: Say | None = None) -> Iterator[Till]:
    """Serve on loopback; without `say` every sample gets its own answer at once."""
    till = Till()
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            headers = {name.lower(): value for name, value in self.headers.items()}
            with lock:
                key = headers.get("idempotency-key", "")
                asked = PaidRequest(
                    key,
                    1 + sum(request.key == key for request in till.came),
                    headers,
                    body,
                    self.path,
                )
                till.came.append(asked)
                till.at.append(time.monotonic())
                till.at_once += 1
                till.most_at_once = max(till.most_at_once, till.at_once)
            reply = say(asked) if say else PaidReply()
            time.sleep(reply.delay_s)
            data = (
                reply.body
                if isinstance(reply.body, bytes)
                else json.dumps(reply.body or message(asked)).encode()
            )
            with lock:
                till.paid[key] += reply.status == 200
                till.at_once -= 1
            try:
                self.send_response(reply.status)
                for name, value in {"content-length": str(len(data)), **reply.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)
            except OSError:
                self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    )
    thread.start()
    till.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield till
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
