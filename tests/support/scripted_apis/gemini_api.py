"""The Gemini API as Gemini CLI calls it. This module is an `ApiDialect`."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from flightlog.agents.scripted import wire
from flightlog.agents.scripted.scenario import Failure, Reply, ScriptedBlock, ScriptedRequest
from flightlog.agents.scripted.wire import ScriptedTurn
from support.scripted_apis import counts

_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}
_ROLES = {"model": "assistant"}


def decode_request(
    path: str,
    headers: Mapping[str, str],
    body: Mapping[str, Any],
) -> ScriptedRequest:
    """Return the parts of a request that rules test; the model is part of the path."""
    turns = [
        ScriptedTurn(_content_role(content), wire.content_texts(content.get("parts")))
        for content in wire.list_objects(body.get("contents"))
    ]
    instruction = body.get("systemInstruction")
    parts = instruction.get("parts") if isinstance(instruction, dict) else instruction
    model = re.search(r"models/([^/:]+)", path)
    system = "\n".join(wire.content_texts(parts))
    request = wire.describe_request(path, model[1] if model else "", system, turns)
    return msgspec.structs.replace(request, side=not body.get("tools"))


def build_response(reply: Reply, model: str, body: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the reply as one JSON object; `name` is the digest of the request."""
    parts = [
        _build_part(block, f"{name}/{at}")
        for at, block in enumerate(reply.content)
        if block.redacted is None  # this API has no such part
    ]
    stop = reply.stop_reason or "STOP"
    candidate = {
        "index": 0,
        "content": {"role": "model", "parts": parts},
        "finishReason": "MAX_TOKENS" if stop == "max_tokens" else stop,
    }
    return {
        "candidates": [candidate],
        "usageMetadata": _build_usage(reply, body, parts),
        "modelVersion": model,
        "responseId": wire.derive_id("resp-", name),
    }


def iter_events(response: Mapping[str, Any], chunk_chars: int) -> Iterator[bytes]:
    """Yield a response as the events of a stream; the last one has the reason and the usage."""
    (candidate,) = response["candidates"]
    chunk = {key: value for key, value in response.items() if key != "usageMetadata"}
    for part in candidate["content"]["parts"]:
        texts = wire.split_text(part["text"], chunk_chars) if "text" in part else ()
        for piece in [{**part, "text": text} for text in texts] or [part]:
            content = {"role": "model", "parts": [piece]}
            yield wire.encode_event({**chunk, "candidates": [{"index": 0, "content": content}]})
    last = {**candidate, "content": {"role": "model", "parts": [{"text": ""}]}}
    yield wire.encode_event({**response, "candidates": [last]})


def response_usage(response: Mapping[str, Any]) -> dict[str, Any]:
    """Return the token counts of a response."""
    return dict(response["usageMetadata"])


def error_body(failure: Failure, request_id: str) -> dict[str, Any]:
    """Return the response body of a failed request."""
    status = failure.type or _STATUS.get(failure.status, "UNKNOWN")
    message = f"{failure.message or f'scripted {status}'} ({request_id})"
    return {"error": {"code": failure.status, "message": message, "status": status}}


def count_tokens(body: Mapping[str, Any]) -> dict[str, int]:
    """Return the answer to a request to `countTokens`."""
    return {"totalTokens": wire.estimate_tokens(body.get("contents"))}


def _content_role(content: Mapping[str, Any]) -> str:
    role = str(content.get("role") or "user")
    return _ROLES.get(role, role)


def _build_part(block: ScriptedBlock, name: str) -> dict[str, Any]:
    if block.tool is not None:
        call_id = block.id or wire.derive_id("call_", name)
        return {"functionCall": {"id": call_id, "name": block.tool, "args": block.input}}
    if block.thinking is not None:
        return {"text": block.thinking, "thought": True}
    return {"text": block.text}


def _build_usage(reply: Reply, body: Mapping[str, Any], parts: object) -> dict[str, Any]:
    contents = wire.list_objects(body.get("contents"))
    last = counts.last_reply_index([_content_role(content) for content in contents], "assistant")
    fixed = [body.get("systemInstruction"), body.get("tools")]
    usage = counts.count_usage(reply, fixed, contents, last, parts)
    cached = {"cachedContentTokenCount": usage.cache_read} if usage.cache_read else {}
    thoughts = {"thoughtsTokenCount": usage.reasoning} if usage.reasoning else {}
    return {
        "promptTokenCount": usage.prompt,
        "candidatesTokenCount": usage.output - usage.reasoning,
        "totalTokenCount": usage.prompt + usage.output,
        **cached,
        **thoughts,
    } | wire.wire_overrides(reply)
