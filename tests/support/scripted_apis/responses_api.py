"""The OpenAI Responses API as Codex calls it. This module is an `ApiDialect`."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from flightlog.agents.scripted import wire
from flightlog.agents.scripted.scenario import Reply, ScriptedBlock, ScriptedRequest
from flightlog.agents.scripted.wire import ScriptedTurn
from support.scripted_apis import counts
from support.scripted_apis.chat_api import error_body

SUBAGENT = "x-openai-subagent"
__all__ = ["build_response", "decode_request", "error_body", "iter_events", "response_usage"]
_OUTPUT_ITEMS = frozenset({"function_call", "custom_tool_call", "local_shell_call", "reasoning"})


def decode_request(
    path: str, headers: Mapping[str, str], body: Mapping[str, Any]
) -> ScriptedRequest:
    """Return the parts of a request that rules test; `headers` has lower-case names."""
    turns = [
        ScriptedTurn(_item_role(item), wire.content_texts(item.get("content")))
        for item in _list_items(body)
    ]
    system = [str(body.get("instructions") or "")]
    system += [
        text for turn in turns if turn.role in {"system", "developer"} for text in turn.texts
    ]
    request = wire.describe_request(path, str(body.get("model", "")), "\n".join(system), turns)
    return msgspec.structs.replace(
        request, subagent=SUBAGENT in headers, side=not body.get("tools")
    )


def build_response(reply: Reply, model: str, body: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the reply as one JSON object; `name` is the digest of the request."""
    kinds = dict(_list_tools(body.get("tools")))
    output = [
        _build_item(block, f"{name}/{at}", kinds.get(block.tool or "", {}))
        for at, block in enumerate(reply.content)
    ]
    is_cut = reply.stop_reason == "max_tokens"
    return {
        "id": wire.derive_id("resp_", name),
        "object": "response",
        "created_at": wire.CREATED_S,
        "status": "incomplete" if is_cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
        "error": None,
        "model": model,
        "output": output,
        "usage": _build_usage(reply, body, output),
    }


def iter_events(response: Mapping[str, Any], chunk_chars: int) -> Iterator[bytes]:
    """Yield a response as the events of a stream."""
    for number, event in enumerate(_list_events(response, chunk_chars)):
        numbered = {**event, "sequence_number": number}
        yield wire.encode_event(numbered, event["type"])


def response_usage(response: Mapping[str, Any]) -> dict[str, Any]:
    """Return the token counts of a response."""
    return dict(response["usage"])


def _list_items(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    given = body.get("input")
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    return wire.list_objects(given)


def _item_role(item: Mapping[str, Any]) -> str:
    return "assistant" if item.get("type") in _OUTPUT_ITEMS else str(item.get("role", ""))


def _list_tools(tools: object, namespace: str = "") -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each tool's name with its kind and namespace; a call has to repeat both."""
    for tool in wire.list_objects(tools):
        if tool.get("type") == "namespace":
            yield from _list_tools(tool.get("tools"), str(tool.get("name", "")))
        else:
            kind = {"type": str(tool.get("type", ""))}
            yield str(tool.get("name")), kind | ({"namespace": namespace} if namespace else {})


def _build_item(block: ScriptedBlock, name: str, tool: Mapping[str, str]) -> dict[str, Any]:
    if block.tool is not None:
        return _build_call(block, name, tool)
    if block.text is not None:
        content = [{"type": "output_text", "text": block.text, "annotations": []}]
        return {
            "id": wire.derive_id("msg_", name),
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": content,
        }
    summary = [] if block.thinking is None else [{"type": "summary_text", "text": block.thinking}]
    return {
        "id": wire.derive_id("rs_", name),
        "type": "reasoning",
        "summary": summary,
        "encrypted_content": block.redacted or wire.derive_id("scripted-reasoning-", name),
    }


def _build_call(block: ScriptedBlock, name: str, tool: Mapping[str, str]) -> dict[str, Any]:
    call = {
        "call_id": block.id or wire.derive_id("call_", name),
        "name": block.tool,
        "status": "completed",
    }
    if tool.get("type") == "custom":  # takes a text, which a script gives as `input: {input: …}`
        text = str(block.input.get("input", ""))
        call_id = wire.derive_id("ctc_", name)
        return {"id": call_id, "type": "custom_tool_call", **call, "input": text}
    place = {"namespace": tool["namespace"]} if "namespace" in tool else {}
    arguments = json.dumps(block.input)
    item_id = wire.derive_id("fc_", name)
    return {"id": item_id, "type": "function_call", **call, **place, "arguments": arguments}


def _build_usage(reply: Reply, body: Mapping[str, Any], output: object) -> dict[str, Any]:
    items = _list_items(body)
    last = counts.last_reply_index([_item_role(item) for item in items], "assistant")
    fixed = [body.get("instructions"), body.get("tools")]
    usage = counts.count_usage(reply, fixed, items, last, output)
    written = {"cache_write_tokens": usage.cache_write} if usage.cache_write else {}
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cache_read, **written},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.prompt + usage.output,
    } | wire.wire_overrides(reply)


def _list_events(response: Mapping[str, Any], chunk_chars: int) -> Iterator[dict[str, Any]]:
    empty = {**response, "status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "response": empty}
    yield {"type": "response.in_progress", "response": empty}
    for index, item in enumerate(response["output"]):
        place = {"output_index": index, "item_id": item["id"]}
        start = {**item, **_EMPTY_FIELDS[item["type"]]}
        yield {"type": "response.output_item.added", "output_index": index, "item": start}
        for event in _list_item_events(item, chunk_chars):
            yield {**event, **place}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": f"response.{response['status']}", "response": dict(response)}


# What the first event of an item leaves empty, because the following events carry it.
_EMPTY_FIELDS: dict[str, dict[str, Any]] = {
    "message": {"content": [], "status": "in_progress"},
    "reasoning": {"summary": []},
    "function_call": {"arguments": "", "status": "in_progress"},
    "custom_tool_call": {"input": "", "status": "in_progress"},
}


def _list_item_events(item: Mapping[str, Any], chunk_chars: int) -> Iterator[dict[str, Any]]:
    match item["type"]:
        case "message":
            part = item["content"][0]
            yield from _list_part_events(
                part, "response.content_part", "response.output_text", "content_index", chunk_chars
            )
        case "reasoning":
            for part in item["summary"]:
                kinds = ("response.reasoning_summary_part", "response.reasoning_summary_text")
                yield from _list_part_events(part, *kinds, "summary_index", chunk_chars)
        case "function_call":
            yield from _list_deltas(
                "response.function_call_arguments", "arguments", item["arguments"], chunk_chars
            )
        case "custom_tool_call":
            yield from _list_deltas(
                "response.custom_tool_call_input", "input", item["input"], chunk_chars
            )


def _list_part_events(
    part: Mapping[str, Any], part_kind: str, text_kind: str, index: str, chunk_chars: int
) -> Iterator[dict[str, Any]]:
    yield {"type": f"{part_kind}.added", index: 0, "part": {**part, "text": ""}}
    for event in _list_deltas(text_kind, "text", part["text"], chunk_chars):
        yield {**event, index: 0}
    yield {"type": f"{part_kind}.done", index: 0, "part": dict(part)}


def _list_deltas(kind: str, field: str, text: str, chunk_chars: int) -> Iterator[dict[str, Any]]:
    for piece in wire.split_text(text, chunk_chars):
        yield {"type": f"{kind}.delta", "delta": piece}
    yield {"type": f"{kind}.done", field: text}
