"""The Messages API as Claude Code calls it. This module is an `ApiDialect`."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from flightlog.agents.dialects.anthropic_messages import AGENT_ID
from flightlog.agents.scripted import wire
from flightlog.agents.scripted.scenario import Failure, Reply, ScriptedBlock, ScriptedRequest
from flightlog.agents.scripted.wire import ScriptedTurn

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


def decode_request(
    path: str, headers: Mapping[str, str], body: Mapping[str, Any]
) -> ScriptedRequest:
    """Return the parts of a request that rules test; `headers` has lower-case names."""
    system = "\n".join(wire.content_texts(body.get("system")))
    turns = [
        ScriptedTurn(str(message.get("role")), wire.content_texts(message.get("content")))
        for message in wire.list_objects(body.get("messages"))
    ]
    request = wire.describe_request(path, str(body.get("model", "")), system, turns)
    from_client = headers.get("user-agent", "").startswith("claude-cli")
    return msgspec.structs.replace(
        request,
        subagent=AGENT_ID in headers or "cc_is_subagent=true" in system,
        side=from_client and not body.get("tools"),
    )


def build_response(reply: Reply, model: str, body: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the reply as one JSON object; `name` is the digest of the request."""
    content = [build_block(block, f"{name}/{at}") for at, block in enumerate(reply.content)]
    calls_tool = any(block["type"] == "tool_use" for block in content)
    return {
        "id": wire.derive_id("msg_", name),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": reply.stop_reason or ("tool_use" if calls_tool else "end_turn"),
        "stop_sequence": None,
        "usage": _build_usage(reply, body, content),
    }


def iter_events(response: Mapping[str, Any], chunk_chars: int) -> Iterator[bytes]:
    """Yield a message as the events of a stream."""
    events = _list_events(response, chunk_chars)
    return (wire.encode_event(event, event["type"]) for event in events)


def response_usage(response: Mapping[str, Any]) -> dict[str, Any]:
    """Return the token counts of a message."""
    return dict(response["usage"])


def error_body(failure: Failure, request_id: str) -> dict[str, Any]:
    """Return the response body of a failed request."""
    kind = failure.type or _ERROR_TYPES.get(failure.status, "api_error")
    detail = {"type": kind, "message": failure.message or f"scripted {kind}"}
    return {"type": "error", "error": detail, "request_id": request_id}


def count_tokens(body: Mapping[str, Any]) -> dict[str, int]:
    """Return the answer to a request to `count_tokens`."""
    parts = [body.get("system"), body.get("tools"), body.get("messages")]
    return {"input_tokens": wire.estimate_tokens(parts)}


def _build_usage(reply: Reply, body: Mapping[str, Any], content: object) -> dict[str, Any]:
    """Return token counts; all before the last reply is cached, and written by the first request."""
    messages = body.get("messages") or []
    roles = [message.get("role") if isinstance(message, dict) else "" for message in messages]
    is_first = "assistant" not in roles
    cut = 0 if is_first else len(roles) - roles[::-1].index("assistant")
    cached = wire.estimate_tokens([body.get("system"), body.get("tools"), messages[:cut]])
    usage = reply.usage
    counts = {
        "input_tokens": usage.get("input", wire.estimate_tokens(messages[cut:])),
        "cache_creation_input_tokens": usage.get("cache_write", cached if is_first else 0),
        "cache_read_input_tokens": usage.get("cache_read", 0 if is_first else cached),
        "output_tokens": usage.get("output", wire.estimate_tokens(content)),
    } | wire.wire_overrides(reply)
    written = counts["cache_creation_input_tokens"]
    writes = {"ephemeral_5m_input_tokens": written, "ephemeral_1h_input_tokens": 0}
    return {**counts, "cache_creation": writes, "service_tier": "standard"}


def build_block(block: ScriptedBlock, name: str) -> dict[str, Any]:
    """Return one block of a message; ids follow from `name`."""
    if block.tool is not None:
        call_id = block.id or wire.derive_id("toolu_", name)
        return {"type": "tool_use", "id": call_id, "name": block.tool, "input": block.input}
    if block.thinking is not None:
        signature = block.signature or wire.derive_id("scripted-signature-", name)
        return {"type": "thinking", "thinking": block.thinking, "signature": signature}
    if block.redacted is not None:
        return {"type": "redacted_thinking", "data": block.redacted}
    return {"type": "text", "text": block.text}


def _list_events(message: Mapping[str, Any], chunk_chars: int) -> Iterator[dict[str, Any]]:
    usage = message["usage"] | {"output_tokens": 1}
    begun = {**message, "content": [], "stop_reason": None, "usage": usage}
    yield {"type": "message_start", "message": begun}
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
            text = json.dumps(block["input"])
            yield from _split_text("input_json_delta", "partial_json", text, chunk_chars)


def _split_text(kind: str, field: str, text: str, size: int) -> Iterator[dict[str, Any]]:
    return ({"type": kind, field: piece} for piece in wire.split_text(text, size))
