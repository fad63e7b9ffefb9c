"""Serve a scenario on a loopback port: the Messages API, and others that the caller gives.

The only state between requests is how often the same request came, so that a reply can fail twice
and then succeed. Only the headers of an allow-list are logged, so no key gets into a log.
"""

import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from msgspec import Struct

from flightlog.agents.dialects.anthropic_messages import AGENT_ID, SESSION_ID
from flightlog.agents.scripted import messages_api, wire
from flightlog.agents.scripted.scenario import Failure, Reply, Scenario, choose_reply
from flightlog.agents.scripted.wire import ApiDialect

LOGGED_HEADERS = (
    *"anthropic-beta anthropic-version content-type user-agent x-app".split(),
    AGENT_ID,
    SESSION_ID,
    *"x-stainless-retry-count session-id thread-id x-session-id x-openai-subagent".split(),
)
_MODEL = "scripted"
_NO_RULE = Failure(status=400, message="no rule of the scenario matches this request")


class ServedApi(NamedTuple):
    """An API, and the end of the paths of its requests; `count_tokens` answers those that count."""

    path: str
    name: str
    dialect: ApiDialect
    count_tokens: Callable[[Mapping[str, Any]], dict[str, int]] | None = None


MESSAGES = ServedApi(r"/messages$", "messages", messages_api)
_COUNTING = ServedApi(r"/messages/count_tokens$", "", messages_api, messages_api.count_tokens)


class ServedRequest(Struct, frozen=True):
    """One request, and the rule, status and token counts of its response.

    `usage` is the object that was sent, in the words of the API; a response that failed or was cut
    has none. `dialect` is the name of the API, such as "messages", or "" for all else.
    """

    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    rule: str
    status: int
    dialect: str = ""
    model: str = ""
    usage: dict[str, Any] = {}


class ScriptedModel(Struct, frozen=True):
    """A running scripted model: its address, and its requests (none unless `keep`)."""

    url: str
    requests: list[ServedRequest]


@contextmanager
def serve_scenario(
    scenario: Scenario, *, keep: bool = True, apis: Sequence[ServedApi] = (MESSAGES,)
) -> Iterator[ScriptedModel]:
    """Serve `scenario` on a free loopback port for the length of a `with` block."""
    state = _ServerState(scenario, (*apis, _COUNTING), keep=keep)
    server = ThreadingHTTPServer(("127.0.0.1", 0), lambda *arguments: _Handler(state, *arguments))
    server.daemon_threads = True
    often = {"poll_interval": 0.02}
    thread = threading.Thread(target=server.serve_forever, kwargs=often, daemon=True)
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

    def __init__(self, scenario: Scenario, apis: Sequence[ServedApi], *, keep: bool) -> None:
        self.scenario = scenario
        self.apis = apis
        self.requests: list[ServedRequest] = []
        self.closing = threading.Event()
        self._keep = keep
        self._attempts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def count_attempt(self, body: Mapping[str, Any]) -> int:
        """Return how often the same request came before."""
        # A client that retries may drop a parameter, but not the messages or the session.
        keys = ("model", "metadata", "messages", "input", "contents")
        name = wire.hash_request({key: body.get(key) for key in keys}, 0)
        with self._lock:
            self._attempts[name] += 1
            return self._attempts[name] - 1

    def record_request(self, request: ServedRequest) -> None:
        if self._keep:
            with self._lock:
                self.requests.append(request)


class _Exchange(NamedTuple):
    """What the log needs to know of a request before its response; `name` is its digest."""

    body: dict[str, Any]
    rule: str
    dialect: str = ""
    model: str = ""
    name: str = ""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60

    def __init__(self, state: _ServerState, *arguments: Any) -> None:
        self.state = state
        super().__init__(*arguments)

    def handle(self) -> None:
        """Answer requests until the client closes or resets the connection."""
        with suppress(ConnectionError):
            super().handle()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Write no log to stderr."""

    def do_HEAD(self) -> None:
        """Answer the client's connectivity check."""
        self._send_json(200, {}, rule="probe")

    def do_GET(self) -> None:
        """Answer a probe, or list the one model."""
        path = self.path.partition("?")[0]
        if path.endswith("/models"):
            return self._send_json(200, _list_models(path), rule="models")
        is_probe = self.path.startswith(("/api/hello", "/?")) or self.path == "/"
        return self._send_json(200 if is_probe else 404, {}, rule="probe")

    def do_POST(self) -> None:
        """Answer a request to one of the APIs."""
        body = self._read_body()
        path = self.path.partition("?")[0]
        api = next((api for api in self.state.apis if re.search(api.path, path)), None)
        if body is None:
            failure = Failure(status=400, message="the body is not a JSON object")
            dialect = api.dialect if api else messages_api
            self._send_failure(dialect, failure, _Exchange({}, "unreadable"))
        elif api and api.count_tokens:
            self._send_json(200, api.count_tokens(body), body=body, rule="count_tokens")
        elif api:
            self._answer_request(path, body, api)
        else:
            failure = Failure(status=404, message=f"nothing at {path}")
            self._send_failure(messages_api, failure, _Exchange(body, "unknown path"))

    def _answer_request(self, path: str, body: dict[str, Any], served: ServedApi) -> None:
        api = served.dialect
        attempt = self.state.count_attempt(body)
        name = wire.hash_request(body, attempt)
        headers = {key.lower(): value for key, value in self.headers.items()}
        request = api.decode_request(path, headers, body)
        choice = choose_reply(self.state.scenario, request)
        rule = choice.rule if choice else "none"
        exchange = _Exchange(body, rule, served.name, request.model, name)
        if choice is None:
            return self._send_failure(api, _NO_RULE, exchange)
        reply = choice.reply
        self.state.closing.wait(reply.delay_s)
        failure = _failure_of_attempt(reply, attempt)
        if failure is not None and failure.cut_after is None:
            return self._send_failure(api, failure, exchange)
        filled = wire.fill_results(reply, body)
        response = api.build_response(filled, request.model or _MODEL, body, name)
        usage = api.response_usage(response)
        head = {"request-id": wire.request_id(name), **reply.headers}
        if not (body.get("stream") or path.endswith(":streamGenerateContent")):
            self._record_request(exchange, 200, usage)
            return self._write_json(200, response, head)
        cut_after = failure.cut_after if failure else None
        self._record_request(exchange, 200, usage if cut_after is None else {})
        events = api.iter_events(response, reply.chunk_chars)
        return self._send_stream(reply, events, head, cut_after)

    def _send_stream(
        self,
        reply: Reply,
        events: Iterator[bytes],
        headers: Mapping[str, str],
        cut_after: int | None,
    ) -> None:
        self.close_connection = True
        kind = {"content-type": "text/event-stream", "connection": "close"}
        self._send_headers(200, {**kind, **headers})
        with suppress(OSError):  # a killed agent closes the connection in the middle
            for at, event in enumerate(events):
                if at == cut_after or self.state.closing.is_set():
                    return
                self.wfile.write(event)
                if reply.chunk_delay_s:
                    self.state.closing.wait(reply.chunk_delay_s)

    def _send_failure(self, api: ApiDialect, failure: Failure, exchange: _Exchange) -> None:
        request_id = wire.request_id(exchange.name)
        headers = {"request-id": request_id, **failure.headers}
        if failure.retry_after_s is not None:
            headers["retry-after"] = f"{failure.retry_after_s:g}"
        self._record_request(exchange, failure.status)
        self._write_json(failure.status, api.error_body(failure, request_id), headers)

    def _send_json(
        self,
        status: int,
        answer: Mapping[str, Any],
        *,
        rule: str,
        body: dict[str, Any] | None = None,
    ) -> None:
        self._record_request(_Exchange(body or {}, rule), status)
        self._write_json(status, answer, {})

    def _write_json(
        self, status: int, answer: Mapping[str, Any], headers: Mapping[str, str]
    ) -> None:
        data = b"" if self.command == "HEAD" else json.dumps(answer).encode()
        kind = {"content-type": "application/json", "content-length": str(len(data))}
        self._send_headers(status, {**kind, **headers})
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

    def _record_request(
        self, exchange: _Exchange, status: int, usage: dict[str, Any] | None = None
    ) -> None:
        headers = {name: self.headers[name] for name in LOGGED_HEADERS if name in self.headers}
        self.state.record_request(
            ServedRequest(
                method=self.command,
                path=self.path,
                headers=headers,
                body=exchange.body,
                rule=exchange.rule,
                status=status,
                dialect=exchange.dialect,
                model=exchange.model,
                usage=usage or {},
            )
        )


def _list_models(path: str) -> dict[str, Any]:
    if "/v1beta/" in path:
        return {"models": [{"name": f"models/{_MODEL}", "displayName": _MODEL}]}
    model = {"id": _MODEL, "object": "model", "created": wire.CREATED_S, "owned_by": "flightlog"}
    return {"object": "list", "data": [{**model, "type": "model", "display_name": _MODEL}]}


def _failure_of_attempt(reply: Reply, attempt: int) -> Failure | None:
    """Return the failure of this attempt; without content the last error repeats."""
    if attempt < len(reply.errors):
        return reply.errors[attempt]
    return None if reply.content else reply.errors[-1]
