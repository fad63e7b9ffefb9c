"""Build the capture files of a session from its exchanges: `api_captures.jsonl` and `raw_dumps/`.

They are complete unless `full_bytes` limits them: request bodies repeat each other. A dump beyond the
limit names the limit, the exchange and the digest instead.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec.structs import asdict

from flightlog.agents.claude_code.rebuild import RebuiltRequest
from flightlog.agents.dialects import anthropic_messages
from flightlog.model.errors import FlightlogError
from flightlog.model.exchange import Exchange, RequestOrigin
from flightlog.model.output_files import OutputFile, Tier
from flightlog.sources.foreign_json import parse_object
from flightlog.store.exchanges import ExchangeStore

_CONTEXTS = {
    RequestOrigin.MAIN: "main",
    RequestOrigin.SUBAGENT: "subagent",
    RequestOrigin.SIDE: "sdk_internal",
}
_SAMPLING = ("temperature", "max_tokens", "top_p", "top_k")
_USAGE = tuple(
    "input_tokens output_tokens cache_creation_input_tokens cache_read_input_tokens cache_creation "
    "service_tier".split()
)


def build_dump_files(
    exchanges: ExchangeStore, *, full_bytes: float = math.inf
) -> Iterator[OutputFile]:
    """Yield the files of every recorded exchange; all of them are private."""
    rows = []
    seen: set[str] = set()
    left = full_bytes
    for exchange in exchanges.read_exchanges():
        sent = _read_or_empty(exchanges.sent_body, exchange)
        received = _read_or_empty(exchanges.response_body, exchange)
        rows.append(json.dumps(_dump_row(exchange, sent, received, seen), ensure_ascii=False))
        is_full = len(sent) + len(received) <= left
        left -= len(sent) + len(received) if is_full else len(received)
        number = f"{exchange.index:03d}"
        request, response = f"raw_dumps/request_{number}", f"raw_dumps/response_{number}"
        text = _decode_text(sent) if is_full else _body_reference(exchange, full_bytes)
        yield _private_file(f"{request}.json", text)
        yield _private_file(f"{request}_headers.json", _to_json(_request_head(exchange)))
        yield _private_file(f"{response}.txt", _decode_text(received))
        yield _private_file(f"{response}_headers.json", _to_json(_response_head(exchange)))
    yield _private_file("api_captures.jsonl", "".join(row + "\n" for row in rows))


def build_rebuilt_files(
    requests: Iterable[RebuiltRequest], *, full_bytes: float = math.inf
) -> Iterator[OutputFile]:
    """Yield the files of requests rebuilt from the transcript's log, each with its fidelity."""
    rows = []
    seen: set[str] = set()
    left = full_bytes
    for index, request in enumerate(requests, 1):
        rows.append(json.dumps(_rebuilt_row(index, request, seen), ensure_ascii=False))
        text = json.dumps(request.body, ensure_ascii=False)
        left -= len(text)
        if left < 0:
            about = {"rebuilt_from": request.id, "request_digest": request.digest}
            text = _to_json({**about, "characters": len(text)})
        yield _private_file(f"raw_dumps/request_{index:03d}.json", text)
    if rows:
        yield _private_file("api_captures.jsonl", "".join(row + "\n" for row in rows))


def _rebuilt_row(index: int, request: RebuiltRequest, seen: set[str]) -> dict[str, Any]:
    body = request.body
    row: dict[str, Any] = {
        "timestamp": request.timestamp,
        "request_index": index,
        "agent_context": _CONTEXTS[
            RequestOrigin.SUBAGENT if request.agent_id else RequestOrigin.MAIN
        ],
        "agent_id": request.agent_id or None,
        "session_id": request.session_id or None,
        "request_id": request.request_ids[-1] if request.request_ids else None,
        "model": body.get("model"),
        "sampling_params": {name: body.get(name) for name in _SAMPLING},
        "message_count": len(body.get("messages") or ()),
        "rebuilt": {"fidelity": request.fidelity.value, "missing": list(request.missing_parts)},
    }
    return row | _prompt_and_tools(body, seen)


def _dump_row(exchange: Exchange, sent: bytes, received: bytes, seen: set[str]) -> dict[str, Any]:
    request, response = exchange.request, exchange.response
    body = parse_object(sent) or {}
    response_message = anthropic_messages.decode_response(received)
    message = response_message.message or {}
    row: dict[str, Any] = {
        "timestamp": exchange.timestamp,
        "request_index": exchange.index,
        "agent_context": _CONTEXTS[request.agent_context],
        "agent_id": request.agent_id or None,
        "session_id": request.session_id or None,
        "request_id": response.request_id if response else None,
        "message_id": message.get("id"),
        "status": response.status if response else None,
        "ending": response.ending.value if response else "open",
        "model": request.model,
        "sampling_params": {name: body.get(name) for name in _SAMPLING},
        "message_count": request.message_count,
        "is_compaction": request.is_compaction,
    }
    if request.is_compaction:
        row["compacted_messages"] = max(0, request.message_count - 1)
    if body.get("context_management") is not None:
        row["context_management"] = body["context_management"]
    row |= _prompt_and_tools(body, seen)
    row["usage"] = {name: response_message.usage.get(name) for name in _USAGE}
    row["stop_reason"] = message.get("stop_reason")
    return row


def _prompt_and_tools(body: dict[str, Any], seen: set[str]) -> dict[str, Any]:
    """Return the system prompt and the tools, in full at their first occurrence, then by hash."""
    fields: dict[str, Any] = {}
    for name, value in (("system_prompt", body.get("system")), ("tools", body.get("tools"))):
        if value is None:
            fields[f"{name}_hash"] = None
            continue
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        digest = "sha256:" + hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
        if digest not in seen:
            seen.add(digest)
            fields[name] = value
        fields[f"{name}_hash"] = digest
    return fields


def _request_head(exchange: Exchange) -> dict[str, Any]:
    request = exchange.request
    return {
        "method": request.method,
        "path": request.path,
        "target": request.url or request.path,
        "headers": request.headers,
    }


def _response_head(exchange: Exchange) -> dict[str, Any]:
    response = exchange.response
    if response is None:
        return {"status": None, "headers": {}, "ending": "open"}
    fields = asdict(response)
    names = ("status", "headers", "encoding", "first_byte_ms", "total_ms", "notes")
    return {name: fields[name] for name in names} | {"ending": response.ending.value}


def _body_reference(exchange: Exchange, limit_bytes: float) -> str:
    sent = exchange.request.sent_body
    size = {"bytes": sent.size_bytes, "limit_bytes": limit_bytes}
    return _to_json({"flightlog_exchange": exchange.index, "sha256": sent.digest, **size})


def _read_or_empty(read_body: Callable[[Exchange], bytes], exchange: Exchange) -> bytes:
    """Return a body, or b"" if it is damaged: the other files are still useful."""
    try:
        return bytes(read_body(exchange))
    except FlightlogError:
        return b""


def _private_file(path: str, body: str) -> OutputFile:
    return OutputFile(path, Tier.PRIVATE, body)


def _decode_text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _to_json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"
