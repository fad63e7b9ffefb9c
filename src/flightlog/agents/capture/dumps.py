"""The capture files of a session, as views of its exchanges: `api_captures.jsonl` and `raw_dumps/`.

    for page in pages(exchanges):     # store.pages.publish puts them on disk
        …

Bodies repeat each other, so dumps are written out in full only while they fit in `full_bytes`;
a request past that names its exchange and digest instead.
Knows the source document's names for things; writes nothing.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec.structs import asdict

from flightlog.agents.capture.rebuild import RebuiltRequest
from flightlog.agents.dialects import anthropic_messages
from flightlog.model.errors import UNREADABLE, FlightlogError
from flightlog.model.exchange import Exchange, RequestOrigin
from flightlog.model.output_files import OutputFile, Tier
from flightlog.store.exchanges import ExchangeStore

FULL_BYTES = 8 << 20
_CONTEXTS = {RequestOrigin.MAIN: "main", RequestOrigin.SUBAGENT: "subagent", RequestOrigin.SIDE: "sdk_internal"}
_SAMPLING = ("temperature", "max_tokens", "top_p", "top_k")
_USAGE = (
    *("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"),
    *("cache_creation", "service_tier"),
)


def build_dump_files(exchanges: ExchangeStore, *, full_bytes: int = FULL_BYTES) -> Iterator[OutputFile]:
    """Lay out every exchange on record; all of it is private."""
    rows = []
    seen: set[str] = set()
    left = full_bytes
    for exchange in exchanges.read_exchanges():
        sent, received = (
            _read_or_empty(exchanges.sent_body, exchange),
            _read_or_empty(exchanges.response_body, exchange),
        )
        rows.append(json.dumps(_dump_row(exchange, sent, received, seen), ensure_ascii=False))
        name = f"raw_dumps/{{}}_{exchange.index:03d}"
        is_full = len(sent) + len(received) <= left
        left -= len(sent) + len(received) if is_full else len(received)
        yield _private_file(
            name.format("request") + ".json", _decode_text(sent) if is_full else _body_reference(exchange)
        )
        yield _private_file(name.format("request") + "_headers.json", _to_json(_request_head(exchange)))
        yield _private_file(name.format("response") + ".txt", _decode_text(received))
        yield _private_file(name.format("response") + "_headers.json", _to_json(_response_head(exchange)))
    yield _private_file("api_captures.jsonl", "".join(row + "\n" for row in rows))


def build_rebuilt_files(requests: Iterable[RebuiltRequest], *, full_bytes: int = FULL_BYTES) -> Iterator[OutputFile]:
    """Lay out requests nobody captured, as the transcript's own log gives them, each with its grade."""
    rows = []
    seen: set[str] = set()
    left = full_bytes
    for index, request in enumerate(requests, 1):
        rows.append(json.dumps(_rebuilt_row(index, request, seen), ensure_ascii=False))
        text = json.dumps(request.body, ensure_ascii=False)
        left -= len(text)
        if left < 0:
            text = _to_json({"rebuilt_from": request.id, "request_digest": request.digest, "characters": len(text)})
        yield _private_file(f"raw_dumps/request_{index:03d}.json", text)
    if rows:
        yield _private_file("api_captures.jsonl", "".join(row + "\n" for row in rows))


def _rebuilt_row(index: int, request: RebuiltRequest, seen: set[str]) -> dict[str, Any]:
    body = request.body
    row: dict[str, Any] = {
        "timestamp": request.at,
        "request_index": index,
        "agent_context": _CONTEXTS[RequestOrigin.SUBAGENT if request.agent_id else RequestOrigin.MAIN],
        "agent_id": request.agent_id or None,
        "session_id": request.session_id or None,
        "request_id": request.request_ids[-1] if request.request_ids else None,
        "model": body.get("model"),
        "sampling_params": {name: body.get(name) for name in _SAMPLING},
        "message_count": len(body.get("messages") or ()),
        "rebuilt": {"fidelity": request.fidelity.value, "missing": list(request.missing)},
    }
    for name, hashed, key in (("system_prompt", "system_prompt_hash", "system"), ("tools", "tools_hash", "tools")):
        row |= _value_or_hash(name, hashed, body.get(key), seen)
    return row


def _dump_row(exchange: Exchange, sent: bytes, received: bytes, seen: set[str]) -> dict[str, Any]:
    request, response = exchange.request, exchange.response
    body = _decode_object(sent)
    answer = anthropic_messages.decode_response(received)
    row: dict[str, Any] = {
        "timestamp": exchange.at,
        "request_index": exchange.index,
        "agent_context": _CONTEXTS[request.context],
        "agent_id": request.agent_id or None,
        "session_id": request.session_id or None,
        "request_id": response.request_id if response else None,
        "message_id": (answer.message or {}).get("id"),
        "status": response.status if response else None,
        "ending": response.ending.value if response else "open",
        "model": request.model,
        "sampling_params": {name: body.get(name) for name in _SAMPLING},
        "message_count": request.messages,
        "is_compaction": request.is_compaction,
    }
    if request.is_compaction:
        row["compacted_messages"] = max(0, request.messages - 1)
    if body.get("context_management") is not None:
        row["context_management"] = body["context_management"]
    for name, hashed, key in (("system_prompt", "system_prompt_hash", "system"), ("tools", "tools_hash", "tools")):
        row |= _value_or_hash(name, hashed, body.get(key), seen)
    row["usage"] = {name: answer.usage.get(name) for name in _USAGE}
    row["stop_reason"] = (answer.message or {}).get("stop_reason")
    return row


def _value_or_hash(name: str, hashed: str, value: Any, seen: set[str]) -> dict[str, Any]:
    """A prompt or tool list in full the first time it occurs, then by its hash."""
    if value is None:
        return {hashed: None}
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    digest = "sha256:" + hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
    if digest in seen:
        return {hashed: digest}
    seen.add(digest)
    return {name: value, hashed: digest}


def _request_head(exchange: Exchange) -> dict[str, Any]:
    request = exchange.request
    return {"method": request.method, "path": request.path, "target": request.path, "headers": request.headers}


def _response_head(exchange: Exchange) -> dict[str, Any]:
    response = exchange.response
    if response is None:
        return {"status": None, "headers": {}, "ending": "open"}
    kept = asdict(response)
    names = ("status", "headers", "encoding", "first_byte_ms", "total_ms", "notes")
    return {name: kept[name] for name in names} | {"ending": response.ending.value}


def _body_reference(exchange: Exchange) -> str:
    sent = exchange.request.sent
    return _to_json({"flightlog_exchange": exchange.index, "sha256": sent.digest, "bytes": sent.size})


def _read_or_empty(body: Any, exchange: Exchange) -> bytes:
    """A body, or nothing where it is damaged: the other files are still worth having."""
    try:
        return bytes(body(exchange))
    except FlightlogError:
        return b""


def _decode_object(data: bytes) -> dict[str, Any]:
    try:
        said = msgspec.json.decode(data)
    except UNREADABLE:
        return {}
    return said if isinstance(said, dict) else {}


def _private_file(path: str, body: str) -> OutputFile:
    return OutputFile(path, Tier.PRIVATE, body)


def _decode_text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _to_json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"
