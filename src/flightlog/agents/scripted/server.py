"""Serve a scenario as the Messages API on a loopback port.

The only state between requests is how often the same request came, so that a reply can fail twice
and then succeed. Only the headers of an allow-list are logged, so no key gets into a log.
"""

import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from msgspec import Struct

from flightlog.agents.dialects.anthropic_messages import AGENT_ID, SESSION_ID
from flightlog.agents.scripted import responses, scenario
from flightlog.agents.scripted.scenario import Failure, Reply, Scenario

LOGGED_HEADERS = (
    *("anthropic-beta", "anthropic-version", "content-type", "user-agent", "x-app"),
    *(AGENT_ID, SESSION_ID, "x-stainless-retry-count"),
)
_NO_RULE = Failure(status=400, message="no rule of the scenario matches this request")


class ServedRequest(Struct, frozen=True):
    """One request, and the rule and status of its response."""

    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    rule: str
    status: int


class ScriptedModel(Struct, frozen=True):
    """A running scripted model: its address, and its requests (none unless `keep`)."""

    url: str
    requests: list[ServedRequest]


@contextmanager
def serve_scenario(scenario: Scenario, *, keep: bool = True) -> Iterator[ScriptedModel]:
    """Serve `scenario` on a free loopback port for the length of a `with` block."""
    state = _ServerState(scenario, keep=keep)
    server = ThreadingHTTPServer(("127.0.0.1", 0), lambda *arguments: _Handler(state, *arguments))
    server.daemon_threads = True
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    )
    thread.start()
    try:
        yield ScriptedModel(f"http://127.0.0.1:{server.server_port}", state.requests)
    finally:
        state.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _ServerState:
    """What the handler threads share."""

    def __init__(self, scenario: Scenario, *, keep: bool) -> None:
        self.scenario = scenario
        self.requests: list[ServedRequest] = []
        self.closing = threading.Event()
        self._keep = keep
        self._attempts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def count_attempt(self, body: Mapping[str, Any]) -> int:
        """Return how often the same request came before."""
        # A client that retries may drop a parameter, but not the messages or the session.
        name = responses.hash_request(
            {key: body.get(key) for key in ("model", "metadata", "messages")}, 0
        )
        with self._lock:
            self._attempts[name] += 1
            return self._attempts[name] - 1

    def record_request(self, request: ServedRequest) -> None:
        if self._keep:
            with self._lock:
                self.requests.append(request)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60

    def __init__(self, state: _ServerState, *arguments: Any) -> None:
        self.state = state
        super().__init__(*arguments)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Write no log to stderr."""

    def do_HEAD(self) -> None:
        """Answer the client's connectivity check."""
        self._send_json(200, {}, rule="probe")

    def do_GET(self) -> None:
        """Answer a probe."""
        is_probe = self.path.startswith(("/api/hello", "/?")) or self.path == "/"
        self._send_json(200 if is_probe else 404, {}, rule="probe")

    def do_POST(self) -> None:
        """Answer a request to the Messages API."""
        body = self._read_body()
        path = self.path.partition("?")[0]
        if body is None:
            self._send_failure(
                Failure(status=400, message="the body is not a JSON object"), {}, "unreadable", ""
            )
        elif path.endswith("/messages/count_tokens"):
            self._send_json(
                200, {"input_tokens": responses.count_tokens(body)}, body=body, rule="count_tokens"
            )
        elif path.endswith("/messages"):
            self._answer_messages(path, body)
        else:
            self._send_failure(
                Failure(status=404, message=f"nothing at {path}"), body, "unknown path", ""
            )

    def _answer_messages(self, path: str, body: dict[str, Any]) -> None:
        attempt = self.state.count_attempt(body)
        name = responses.hash_request(body, attempt)
        headers = {key.lower(): value for key, value in self.headers.items()}
        choice = scenario.choose_reply(
            self.state.scenario, scenario.decode_request(path, headers, body)
        )
        if choice is None:
            return self._send_failure(_NO_RULE, body, "none", name)
        reply = choice.reply
        self.state.closing.wait(reply.delay_s)
        failure = _failure_of_attempt(reply, attempt)
        if failure is not None and failure.cut_after is None:
            return self._send_failure(failure, body, choice.rule, name)
        message = responses.build_message(reply, body, name)
        head = {"request-id": responses.request_id(name), **reply.headers}
        if not body.get("stream"):
            return self._send_json(200, message, body=body, rule=choice.rule, headers=head)
        self._record_request(body, choice.rule, 200)
        return self._send_stream(reply, message, head, failure.cut_after if failure else None)

    def _send_stream(
        self,
        reply: Reply,
        message: dict[str, Any],
        headers: Mapping[str, str],
        cut_after: int | None,
    ) -> None:
        self.close_connection = True
        self._send_headers(
            200, {"content-type": "text/event-stream", "connection": "close", **headers}
        )
        with suppress(OSError):  # a killed agent closes the connection in the middle
            for at, event in enumerate(responses.iter_events(message, reply.chunk_chars)):
                if at == cut_after or self.state.closing.is_set():
                    return
                self.wfile.write(responses.encode_event(event))
                if reply.chunk_delay_s:
                    self.state.closing.wait(reply.chunk_delay_s)

    def _send_failure(self, failure: Failure, body: dict[str, Any], rule: str, name: str) -> None:
        request_id = responses.request_id(name)
        headers = {"request-id": request_id, **failure.headers}
        if failure.retry_after_s is not None:
            headers["retry-after"] = f"{failure.retry_after_s:g}"
        answer = responses.error_body(failure, request_id)
        self._send_json(failure.status, answer, body=body, rule=rule, headers=headers)

    def _send_json(
        self,
        status: int,
        answer: Mapping[str, Any],
        *,
        rule: str,
        body: dict[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        data = b"" if self.command == "HEAD" else json.dumps(answer).encode()
        self._record_request(body or {}, rule, status)
        length = str(len(data))
        self._send_headers(
            status,
            {"content-type": "application/json", "content-length": length, **(headers or {})},
        )
        try:
            self.wfile.write(data)
        except OSError:
            self.close_connection = True

    def _send_headers(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _read_body(self) -> dict[str, Any] | None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        try:
            body = json.loads(raw)
        except ValueError:
            return None
        return body if isinstance(body, dict) else None

    def _record_request(self, body: dict[str, Any], rule: str, status: int) -> None:
        headers = {name: self.headers[name] for name in LOGGED_HEADERS if name in self.headers}
        self.state.record_request(
            ServedRequest(self.command, self.path, headers, body, rule, status)
        )


def _failure_of_attempt(reply: Reply, attempt: int) -> Failure | None:
    """Return the failure of this attempt; without content the last error repeats."""
    if attempt < len(reply.errors):
        return reply.errors[attempt]
    return None if reply.content else reply.errors[-1]
