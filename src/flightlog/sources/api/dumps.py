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

from flightlog.model.damage import UNREADABLE
from flightlog.model.errors import FlightlogError
from flightlog.model.exchange import Context, Exchange
from flightlog.model.pages import Page, Tier
from flightlog.sources.api import sse
from flightlog.sources.api.rebuild import Rebuilt
from flightlog.store.exchanges import Exchanges

FULL_BYTES = 8 << 20
_CONTEXTS = {Context.MAIN: "main", Context.SUBAGENT: "subagent", Context.SIDE: "sdk_internal"}
_SAMPLING = ("temperature", "max_tokens", "top_p", "top_k")
_USAGE = (
    *("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"),
    *("cache_creation", "service_tier"),
)


def pages(exchanges: Exchanges, *, full_bytes: int = FULL_BYTES) -> Iterator[Page]:
    """Lay out every exchange on record; all of it is private."""
    rows = []
    seen: set[str] = set()
    left = full_bytes
    for exchange in exchanges.read():
        sent, received = _read(exchanges.sent, exchange), _read(exchanges.received, exchange)
        rows.append(json.dumps(_row(exchange, sent, received, seen), ensure_ascii=False))
        name = f"raw_dumps/{{}}_{exchange.index:03d}"
        is_full = len(sent) + len(received) <= left
        left -= len(sent) + len(received) if is_full else len(received)
        yield _page(name.format("request") + ".json", _text(sent) if is_full else _reference(exchange))
        yield _page(name.format("request") + "_headers.json", _json(_request_head(exchange)))
        yield _page(name.format("response") + ".txt", _text(received))
        yield _page(name.format("response") + "_headers.json", _json(_response_head(exchange)))
    yield _page("api_captures.jsonl", "".join(row + "\n" for row in rows))


def rebuilt_pages(requests: Iterable[Rebuilt], *, full_bytes: int = FULL_BYTES) -> Iterator[Page]:
    """Lay out requests nobody captured, as the transcript's own log gives them, each with its grade."""
    rows = []
    seen: set[str] = set()
    left = full_bytes
    for index, request in enumerate(requests, 1):
        rows.append(json.dumps(_rebuilt_row(index, request, seen), ensure_ascii=False))
        text = json.dumps(request.body, ensure_ascii=False)
        left -= len(text)
        if left < 0:
            text = _json({"rebuilt_from": request.id, "request_digest": request.digest, "characters": len(text)})
        yield _page(f"raw_dumps/request_{index:03d}.json", text)
    if rows:
        yield _page("api_captures.jsonl", "".join(row + "\n" for row in rows))


def _rebuilt_row(index: int, request: Rebuilt, seen: set[str]) -> dict[str, Any]:
    body = request.body
    row: dict[str, Any] = {
        "timestamp": request.at,
        "request_index": index,
        "agent_context": _CONTEXTS[Context.SUBAGENT if request.agent_id else Context.MAIN],
        "agent_id": request.agent_id or None,
        "session_id": request.session_id or None,
        "request_id": request.request_ids[-1] if request.request_ids else None,
        "model": body.get("model"),
        "sampling_params": {name: body.get(name) for name in _SAMPLING},
        "message_count": len(body.get("messages") or ()),
        "rebuilt": {"fidelity": request.fidelity.value, "missing": list(request.missing)},
    }
    for name, hashed, key in (("system_prompt", "system_prompt_hash", "system"), ("tools", "tools_hash", "tools")):
        row |= _once(name, hashed, body.get(key), seen)
    return row


def _row(exchange: Exchange, sent: bytes, received: bytes, seen: set[str]) -> dict[str, Any]:
    request, response = exchange.request, exchange.response
    body = _object(sent)
    answer = sse.answer(received)
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
        row |= _once(name, hashed, body.get(key), seen)
    row["usage"] = {name: answer.usage.get(name) for name in _USAGE}
    row["stop_reason"] = (answer.message or {}).get("stop_reason")
    return row


def _once(name: str, hashed: str, value: Any, seen: set[str]) -> dict[str, Any]:
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


def _reference(exchange: Exchange) -> str:
    sent = exchange.request.sent
    return _json({"flightlog_exchange": exchange.index, "sha256": sent.digest, "bytes": sent.size})


def _read(body: Any, exchange: Exchange) -> bytes:
    """A body, or nothing where it is damaged: the other files are still worth having."""
    try:
        return bytes(body(exchange))
    except FlightlogError:
        return b""


def _object(data: bytes) -> dict[str, Any]:
    try:
        said = msgspec.json.decode(data)
    except UNREADABLE:
        return {}
    return said if isinstance(said, dict) else {}


def _page(path: str, body: str) -> Page:
    return Page(path, Tier.PRIVATE, body)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"
