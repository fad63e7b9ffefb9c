"""Rebuild requests from a transcript, for sessions that were not captured.

Recent clients log each request as a difference from an earlier one, by hashes of its messages.
This module finds the messages (in the log's own blobs, or in the conversation's records), joins
and hashes them; `RebuildFidelity` says how much of the result the hashes confirm. Older
transcripts contain no such log and give no requests.
"""

import enum
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from flightlog.sources.foreign_json import int_field, objects_field

Json = dict[str, Any]
_TEXT = "text"
_BILLING = "x-anthropic-billing-header"


class RebuildFidelity(enum.Enum):
    """How much of a rebuilt request the hashes confirm.

    `exact`: the digest of the whole request is the client's own, so all but `metadata`, `stream`
    and the billing line is as it was sent. `content`: every message, the prompt and the tools
    match their hashes, the whole does not (parameters or cache marks may differ). `partial`:
    a part of the request is not in the transcript; `missing` names it.
    """

    EXACT = "exact"
    CONTENT = "content"
    PARTIAL = "partial"


class RebuiltRequest(Struct, frozen=True):
    """A request as the transcript logs it; `request_ids` are those of its responses."""

    id: str
    timestamp: str
    source: str
    session_id: str
    agent_id: str
    body: Json
    betas: tuple[str, ...]
    fidelity: RebuildFidelity
    missing_parts: tuple[str, ...]
    digest: str
    request_ids: tuple[str, ...] = ()


def rebuild_requests(records: Iterable[Json]) -> list[RebuiltRequest]:
    """Return every request that one transcript logs, in its order."""
    log = _TranscriptLog()
    for record in records:
        log.add_record(record)
    return list(log.rebuild_all())


def hash_request(body: Mapping[str, Any], betas: Iterable[str]) -> str:
    """Return the client's own digest of a request body, captured or rebuilt."""
    unsent = {"metadata", "stream", "safeguards"}
    fields = {key: value for key, value in body.items() if key not in unsent}
    fields["system"] = without_billing_header(body.get("system"))
    fields["messages"] = [with_block_content(message) for message in body.get("messages") or []]
    return hash_json({**fields, "betas": list(betas)})


class _TranscriptLog:
    """The records of one transcript from which requests are rebuilt."""

    def __init__(self) -> None:
        self._messages: dict[str, Json] = {}
        self._shapes: dict[str, Json] = {}
        self._requests: dict[str, Json] = {}
        self._answers: dict[str, list[str]] = {}
        self._replies: dict[str, list[Any]] = {}
        self._results: dict[str, Any] = {}

    def add_record(self, record: Json) -> None:
        match record:
            case {"type": "api-request-blob", "hash": str(name), "message": dict(message)}:
                self._messages[name] = message
            case {"type": "api-request-shape", "shapeHash": str(name), "shape": dict(shape)}:
                self._shapes[name] = shape
            case {"type": "api-request", "id": str(name)}:
                self._requests[name] = record
            case {"type": "assistant", "message": {"id": str(name), "content": list(content)}}:
                self._replies.setdefault(name, []).extend(content)
                self._record_answer(record)
            case {"type": "user", "message": {"role": str(role), "content": content}}:
                self._store_message({"role": role, "content": content})
                for block in content if isinstance(content, list) else []:
                    if isinstance(block, dict) and block.get("type") == "tool_result":
                        self._results[str(block.get("tool_use_id"))] = block
            case _:
                pass

    def rebuild_all(self) -> Iterator[RebuiltRequest]:
        self._derive_messages()
        lists: dict[str, list[str]] = {}
        for name, record in self._requests.items():
            keep = int_field(record, "keep")
            base = lists.get(str(record.get("base")), [])[:keep]
            # A missing base leaves empty hashes, which are reported as missing messages.
            lists[name] = [*base, *[""] * (keep - len(base)), *map(str, record.get("tail") or [])]
            yield self._rebuild_request(record, lists[name])

    def _rebuild_request(self, record: Json, hashes: list[str]) -> RebuiltRequest:
        known = self._messages
        missing = [f"message {at}" for at, digest in enumerate(hashes) if digest not in known]
        shape = self._shapes.get(str(record.get("shapeHash")))
        if shape is None:
            missing.append("system prompt and tools")
        elif hash_json(take_cache_marks(shape, [])) != record.get("shapeHash"):
            missing.append("system prompt or tools, as they were")
        params = dict(record.get("params") or {})
        betas = tuple(map(str, params.pop("betas", None) or ()))
        messages = [self._messages.get(digest, {}) for digest in hashes]
        body = {**params, **(shape or {}), "messages": messages}
        body = _restore_cache_control(body, record.get("cacheControl") or [])
        exact = hash_request(body, betas) == record.get("requestDigest")
        whole = RebuildFidelity.EXACT if exact else RebuildFidelity.CONTENT
        fidelity = RebuildFidelity.PARTIAL if missing else whole
        return RebuiltRequest(
            id=str(record["id"]),
            timestamp=str(record.get("timestamp") or ""),
            source=str(record.get("querySource") or ""),
            session_id=str(record.get("sessionId") or ""),
            agent_id=str(record.get("agentId") or ""),
            body=body,
            betas=betas,
            fidelity=fidelity,
            missing_parts=tuple(missing),
            digest=str(record.get("requestDigest") or ""),
            request_ids=tuple(dict.fromkeys(self._answers.get(str(record["id"]), []))),
        )

    def _record_answer(self, record: Json) -> None:
        reference, request = record.get("requestRef"), record.get("requestId")
        if isinstance(reference, str) and isinstance(request, str):
            self._answers.setdefault(reference, []).append(request)

    def _derive_messages(self) -> None:
        """Add the messages that the conversation's records contain in parts."""
        for content in self._replies.values():
            self._store_message({"role": "assistant", "content": content})
            blocks = (block for block in content if isinstance(block, dict))
            calls = [str(block.get("id")) for block in blocks if "id" in block]
            # The transcript has one record per result; the request has those of one reply in one
            # message, in the order of the calls or of their return.
            for order in (calls, [call for call in self._results if call in calls]):
                results = [self._results[call] for call in order if call in self._results]
                for count in range(2, len(results) + 1):
                    self._store_message({"role": "user", "content": results[:count]})
        for name, message in list(self._messages.items()):
            if _message_hash(message) != name:
                del self._messages[name]  # the blob was edited later

    def _store_message(self, message: Json) -> None:
        if isinstance(message["content"], str | list):
            self._messages.setdefault(_message_hash(message), message)


def _restore_cache_control(body: Json, marks: list[Any]) -> Json:
    """Return a copy of `body` with cache marks at the paths that the log names."""
    body = json.loads(json.dumps(take_cache_marks(body, [])))
    for mark in marks:
        node: Any = body
        for step in mark.get("path") or []:
            is_content = isinstance(node, dict) and step == "content"
            if is_content and isinstance(node.get("content"), str):
                node["content"] = with_block_content(node)["content"]
            node = node[step] if _contains_step(node, step) else None
        if isinstance(node, dict):
            node["cache_control"] = mark.get("value")
    return dict(body)


def _contains_step(node: Any, step: Any) -> bool:
    if isinstance(node, dict):
        return step in node
    return isinstance(node, list) and isinstance(step, int) and 0 <= step < len(node)


def _message_hash(message: Json) -> str:
    return hash_json(take_cache_marks(with_block_content(message), []))


def with_block_content(message: Json) -> Json:
    """Return the message with its content as a list of blocks, as the client hashes it."""
    content = message.get("content")
    if isinstance(content, str):
        return {**message, "content": [{"type": _TEXT, _TEXT: content}]}
    return message


def without_billing_header(system: Any) -> list[Json]:
    """Return the blocks of a system prompt without the one that differs in every request."""
    blocks = objects_field(with_block_content({"content": system}), "content")
    return [block for block in blocks if not str(block.get(_TEXT, "")).startswith(_BILLING)]


def take_cache_marks(value: Any, marks: list[Any]) -> Any:
    """Return a copy of `value` without cache marks; add them to `marks`."""
    if isinstance(value, dict):
        marks += [value["cache_control"]] if "cache_control" in value else []
        rest = (item for item in value.items() if item[0] != "cache_control")
        return {key: take_cache_marks(item, marks) for key, item in rest}
    return [take_cache_marks(item, marks) for item in value] if isinstance(value, list) else value


def hash_json(value: Any) -> str:
    """Return the hash that the client names messages, system prompts and tools by."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
