"""Write a scripted reply as Messages API JSON and as server-sent events.

Ids are derived from a digest of the request, so the same request gets the same bytes; token counts
are derived from its size, as a warm prompt cache would report them.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from flightlog.agents.scripted.scenario import Failure, Reply, ScriptedBlock

_CHARS_PER_TOKEN = 4  # a usual estimate for English text
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
    """Return a digest of a request's content and of how often the same content came before."""
    text = json.dumps([body, attempt], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def build_message(reply: Reply, body: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the reply as one JSON object; `name` is the digest of the request."""
    content = [_build_block(block, f"{name}/{at}") for at, block in enumerate(reply.content)]
    calls_tool = any(block["type"] == "tool_use" for block in content)
    return {
        "id": _derive_id("msg_", name),
        "type": "message",
        "role": "assistant",
        "model": str(body.get("model", "scripted")),
        "content": content,
        "stop_reason": reply.stop_reason or ("tool_use" if calls_tool else "end_turn"),
        "stop_sequence": None,
        "usage": build_usage(body, content, reply.usage),
    }


def build_usage(
    body: Mapping[str, Any], content: object, overrides: Mapping[str, int]
) -> dict[str, Any]:
    """Return token counts; all before the last reply is cached, and written by the first request."""
    messages = body.get("messages") or []
    roles = [message.get("role") if isinstance(message, dict) else "" for message in messages]
    is_first = "assistant" not in roles
    cut = 0 if is_first else len(roles) - roles[::-1].index("assistant")
    cached = _estimate_tokens([body.get("system"), body.get("tools"), messages[:cut]])
    counts = {
        "input_tokens": _estimate_tokens(messages[cut:]),
        "cache_creation_input_tokens": cached if is_first else 0,
        "cache_read_input_tokens": 0 if is_first else cached,
        "output_tokens": _estimate_tokens(content),
    } | dict(overrides)
    writes = {
        "ephemeral_5m_input_tokens": counts["cache_creation_input_tokens"],
        "ephemeral_1h_input_tokens": 0,
    }
    return {**counts, "cache_creation": writes, "service_tier": "standard"}


def iter_events(message: Mapping[str, Any], chunk_chars: int) -> Iterator[dict[str, Any]]:
    """Yield a message as the events of a stream."""
    usage = message["usage"] | {"output_tokens": 1}
    yield {
        "type": "message_start",
        "message": {**message, "content": [], "stop_reason": None, "usage": usage},
    }
    yield {"type": "ping"}
    for index, block in enumerate(message["content"]):
        start = {**block, **_EMPTY_FIELDS.get(block["type"], {})}
        yield {"type": "content_block_start", "index": index, "content_block": start}
        for delta in _iter_deltas(block, chunk_chars):
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": message["usage"]}
    yield {"type": "message_stop"}


def encode_event(event: Mapping[str, Any]) -> bytes:
    """Return one event as the bytes of a stream."""
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def error_body(failure: Failure, request_id: str) -> dict[str, Any]:
    """Return the response body of a failed request."""
    kind = failure.type or _ERROR_TYPES.get(failure.status, "api_error")
    detail = {"type": kind, "message": failure.message or f"scripted {kind}"}
    return {"type": "error", "error": detail, "request_id": request_id}


def request_id(name: str) -> str:
    """Return the value of the `request-id` header, which agents write into their transcripts."""
    return _derive_id("req_", name)


def count_tokens(body: Mapping[str, Any]) -> int:
    """Return the tokens of a request to `count_tokens`."""
    return _estimate_tokens([body.get("system"), body.get("tools"), body.get("messages")])


def _build_block(block: ScriptedBlock, name: str) -> dict[str, Any]:
    if block.tool is not None:
        call_id = block.id or _derive_id("toolu_", name)
        return {"type": "tool_use", "id": call_id, "name": block.tool, "input": block.input}
    if block.thinking is not None:
        signature = block.signature or _derive_id("scripted-signature-", name)
        return {"type": "thinking", "thinking": block.thinking, "signature": signature}
    if block.redacted is not None:
        return {"type": "redacted_thinking", "data": block.redacted}
    return {"type": "text", "text": block.text}


# What the first event of a block leaves empty, because the deltas carry it.
_EMPTY_FIELDS: dict[str, dict[str, Any]] = {
    "text": {"text": ""},
    "thinking": {"thinking": "", "signature": ""},
    "tool_use": {"input": {}},
}


def _iter_deltas(block: Mapping[str, Any], chunk_chars: int) -> Iterator[dict[str, Any]]:
    match block["type"]:
        case "text":
            yield from _split_text("text_delta", "text", block["text"], chunk_chars)
        case "thinking":
            yield from _split_text("thinking_delta", "thinking", block["thinking"], chunk_chars)
            yield {"type": "signature_delta", "signature": block["signature"]}
        case "tool_use":
            yield {"type": "input_json_delta", "partial_json": ""}
            yield from _split_text(
                "input_json_delta", "partial_json", json.dumps(block["input"]), chunk_chars
            )


def _split_text(kind: str, field: str, text: str, size: int) -> Iterator[dict[str, Any]]:
    return ({"type": kind, field: text[at : at + size]} for at in range(0, len(text), size))


def _estimate_tokens(value: object) -> int:
    return max(1, len(json.dumps(value)) // _CHARS_PER_TOKEN)


def _derive_id(prefix: str, name: str) -> str:
    return prefix + hashlib.sha256(f"{prefix}{name}".encode()).hexdigest()[:24]
