"""What goes over the wire: a reply as Messages API JSON, and as server-sent events.

Pure. Ids are made from a digest of the request, so the same request gets the same bytes;
token counts are made from its size, as a warm prompt cache would report them.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from flightlog.agents.scripted.scenario import Failure, Reply, ScriptedBlock

_CHARS_A_TOKEN = 4
_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}


def hash_request(body: Mapping[str, Any], attempt: int) -> str:
    """Name a request by its content and by how often the same content came before."""
    text = json.dumps([body, attempt], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def build_message(reply: Reply, body: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The whole reply as one JSON object, `name` being the digest of the request."""
    content = [_build_block(block, f"{name}/{at}") for at, block in enumerate(reply.content)]
    called = any(block["type"] == "tool_use" for block in content)
    return {
        "id": _derive_id("msg_", name),
        "type": "message",
        "role": "assistant",
        "model": str(body.get("model", "scripted")),
        "content": content,
        "stop_reason": reply.stop_reason or ("tool_use" if called else "end_turn"),
        "stop_sequence": None,
        "usage": build_usage(body, content, reply.usage),
    }


def build_usage(body: Mapping[str, Any], content: object, given: Mapping[str, int]) -> dict[str, Any]:
    """Token counts: what stands before the last reply is read from the cache, or written at first."""
    messages = body.get("messages") or []
    replied = [at for at, one in enumerate(messages) if isinstance(one, dict) and one.get("role") == "assistant"]
    fresh = messages[replied[-1] + 1 :] if replied else messages
    kept = _estimate_tokens([body.get("system"), body.get("tools"), messages[: len(messages) - len(fresh)]])
    counts = {
        "input_tokens": _estimate_tokens(fresh),
        "cache_creation_input_tokens": 0 if replied else kept,
        "cache_read_input_tokens": kept if replied else 0,
        "output_tokens": _estimate_tokens(content),
    } | dict(given)
    written = counts["cache_creation_input_tokens"]
    split = {"ephemeral_5m_input_tokens": written, "ephemeral_1h_input_tokens": 0}
    return {**counts, "cache_creation": split, "service_tier": "standard"}


def iter_events(whole: Mapping[str, Any], chunk_chars: int) -> Iterator[dict[str, Any]]:
    """The same reply as the events of a stream."""
    opened = whole["usage"] | {"output_tokens": 1}
    yield {
        "type": "message_start",
        "message": {**whole, "content": [], "stop_reason": None, "usage": opened},
    }
    yield {"type": "ping"}
    for index, block in enumerate(whole["content"]):
        yield {"type": "content_block_start", "index": index, "content_block": _block_start(block)}
        for delta in _iter_deltas(block, chunk_chars):
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    ended = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": ended, "usage": whole["usage"]}
    yield {"type": "message_stop"}


def encode_event(event: Mapping[str, Any]) -> bytes:
    """One event as it stands in the stream."""
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def error_body(failure: Failure, request_id: str) -> dict[str, Any]:
    """The body of a failed request."""
    kind = failure.type or _ERROR_TYPES.get(failure.status, "api_error")
    detail = {"type": kind, "message": failure.message or f"scripted {kind}"}
    return {"type": "error", "error": detail, "request_id": request_id}


def request_id(name: str) -> str:
    """The value of the `request-id` header, which agents write into their transcripts."""
    return _derive_id("req_", name)


def count_tokens(body: Mapping[str, Any]) -> int:
    """Tokens of a request that is only counted."""
    return _estimate_tokens([body.get("system"), body.get("tools"), body.get("messages")])


def _build_block(block: ScriptedBlock, name: str) -> dict[str, Any]:
    if block.tool is not None:
        return {
            "type": "tool_use",
            "id": block.id or _derive_id("toolu_", name),
            "name": block.tool,
            "input": block.input,
        }
    if block.thinking is not None:
        signature = block.signature or _derive_id("scripted-signature-", name)
        return {"type": "thinking", "thinking": block.thinking, "signature": signature}
    if block.redacted is not None:
        return {"type": "redacted_thinking", "data": block.redacted}
    return {"type": "text", "text": block.text}


def _block_start(block: Mapping[str, Any]) -> dict[str, Any]:
    match block["type"]:
        case "text":
            return {**block, "text": ""}
        case "thinking":
            return {**block, "thinking": "", "signature": ""}
        case "tool_use":
            return {**block, "input": {}}
        case _:
            return dict(block)


def _iter_deltas(block: Mapping[str, Any], chunk_chars: int) -> Iterator[dict[str, Any]]:
    match block["type"]:
        case "text":
            for text in _split_text(block["text"], chunk_chars):
                yield {"type": "text_delta", "text": text}
        case "thinking":
            for text in _split_text(block["thinking"], chunk_chars):
                yield {"type": "thinking_delta", "thinking": text}
            yield {"type": "signature_delta", "signature": block["signature"]}
        case "tool_use":
            yield {"type": "input_json_delta", "partial_json": ""}
            for text in _split_text(json.dumps(block["input"]), chunk_chars):
                yield {"type": "input_json_delta", "partial_json": text}


def _split_text(text: str, size: int) -> Iterator[str]:
    return (text[at : at + size] for at in range(0, len(text), size))


def _estimate_tokens(value: object) -> int:
    return max(1, len(json.dumps(value)) // _CHARS_A_TOKEN)


def _derive_id(prefix: str, name: str) -> str:
    return prefix + hashlib.sha256(f"{prefix}{name}".encode()).hexdigest()[:24]
