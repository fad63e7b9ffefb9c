"""The OpenAI Chat Completions API. This module is an `ApiDialect`."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from flightlog.agents.scripted import wire
from flightlog.agents.scripted.scenario import Failure, Reply, ScriptedRequest
from flightlog.agents.scripted.wire import ScriptedTurn
from support.scripted_apis import counts

_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "invalid_request_error",
    429: "rate_limit_exceeded",
    503: "service_unavailable",
}


def decode_request(
    path: str,
    headers: Mapping[str, str],
    body: Mapping[str, Any],
) -> ScriptedRequest:
    """Return the parts of a request that rules test."""
    turns = [
        ScriptedTurn(str(message.get("role")), wire.content_texts(message.get("content")))
        for message in wire.list_objects(body.get("messages"))
    ]
    system = [text for turn in turns if turn.role in {"system", "developer"} for text in turn.texts]
    request = wire.describe_request(path, str(body.get("model", "")), "\n".join(system), turns)
    return msgspec.structs.replace(request, side=not body.get("tools"))


def build_response(reply: Reply, model: str, body: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the reply as one JSON object; `name` is the digest of the request."""
    calls = [
        {
            "id": block.id or wire.derive_id("call_", f"{name}/{at}"),
            "type": "function",
            "function": {"name": block.tool, "arguments": json.dumps(block.input)},
        }
        for at, block in enumerate(reply.content)
        if block.tool is not None
    ]
    message = {
        "role": "assistant",
        "content": "".join(block.text or "" for block in reply.content) or None,
        "reasoning_content": "".join(block.thinking or "" for block in reply.content) or None,
        "tool_calls": calls or None,
    }
    message = {key: value for key, value in message.items() if key == "content" or value}
    stop = reply.stop_reason or ("tool_calls" if calls else "stop")
    finish = "length" if stop == "max_tokens" else stop
    return {
        "id": wire.derive_id("chatcmpl-", name),
        "object": "chat.completion",
        "created": wire.CREATED_S,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": _build_usage(reply, body, message),
    }


def iter_events(response: Mapping[str, Any], chunk_chars: int) -> Iterator[bytes]:
    """Yield a completion as the events of a stream; the last one but the end mark has the usage."""
    chunk = {**response, "object": "chat.completion.chunk"}
    del chunk["usage"]
    (choice,) = response["choices"]
    for delta in _list_deltas(choice["message"], chunk_chars):
        choices = [{"index": 0, "delta": delta, "finish_reason": None}]
        yield wire.encode_event({**chunk, "choices": choices})
    choices = [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]
    yield wire.encode_event({**chunk, "choices": choices})
    yield wire.encode_event({**chunk, "choices": [], "usage": response["usage"]})
    yield wire.encode_event("[DONE]")


def response_usage(response: Mapping[str, Any]) -> dict[str, Any]:
    """Return the token counts of a completion."""
    return dict(response["usage"])


def error_body(failure: Failure, request_id: str) -> dict[str, Any]:
    """Return the response body of a failed request."""
    kind = failure.type or _ERROR_TYPES.get(failure.status, "server_error")
    message = f"{failure.message or f'scripted {kind}'} ({request_id})"
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


def _list_deltas(message: Mapping[str, Any], chunk_chars: int) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": ""}
    for name in ("reasoning_content", "content"):
        for piece in wire.split_text(message.get(name) or "", chunk_chars):
            yield {name: piece}
    for index, call in enumerate(message.get("tool_calls") or ()):
        function = call["function"]
        start = {**call, "function": {**function, "arguments": ""}}
        yield {"tool_calls": [{"index": index, **start}]}
        for piece in wire.split_text(function["arguments"], chunk_chars):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _build_usage(reply: Reply, body: Mapping[str, Any], message: object) -> dict[str, Any]:
    messages = wire.list_objects(body.get("messages"))
    last = counts.last_reply_index([turn.get("role") for turn in messages], "assistant")
    usage = counts.count_usage(reply, body.get("tools"), messages, last, message)
    written = {"cache_write_tokens": usage.cache_write} if usage.cache_write else {}
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.output,
        "total_tokens": usage.prompt + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read, **written},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    } | wire.wire_overrides(reply)
