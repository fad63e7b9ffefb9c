"""Server-sent events of a model's API, and the message they add up to.

Reads what came, however it ended: a stream cut in the middle gives the message so far and says
that it is not whole. Pure.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from flightlog.model.damage import UNREADABLE


class AssistantMessage(Struct, frozen=True):
    """What a response body says: the message, whether all of it came, and an error said instead."""

    message: dict[str, Any] | None
    is_whole: bool
    error: dict[str, Any] | None = None

    @property
    def usage(self) -> dict[str, Any]:
        """The token counts of the response, empty when it has none."""
        used = (self.message or {}).get("usage")
        return used if isinstance(used, dict) else {}


def iter_events(data: bytes) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of an event stream; comments and half an event at the end say nothing."""
    lines: list[bytes] = []
    for line in data.replace(b"\r\n", b"\n").split(b"\n"):
        if line.startswith(b"data:"):
            lines.append(line[5:].removeprefix(b" "))
        elif not line and lines:
            event = _decode_object(b"\n".join(lines))
            lines = []
            if event is not None:
                yield event


def decode_response(data: bytes) -> AssistantMessage:
    """Read a response body: an event stream, or one JSON object."""
    if data.lstrip()[:1] == b"{":
        whole = _decode_object(data)
        if whole is None or whole.get("type") == "error":
            return AssistantMessage(None, is_whole=whole is not None, error=whole)
        return AssistantMessage(whole, is_whole=True)
    building = _MessageAssembler()
    for event in iter_events(data):
        building.add_event(event)
    return building.build_answer()


class _MessageAssembler:
    """A message as its events add up."""

    def __init__(self) -> None:
        self._message: dict[str, Any] | None = None
        self._blocks: dict[int, dict[str, Any]] = {}
        self._parts: dict[int, dict[str, list[str]]] = {}
        self._error: dict[str, Any] | None = None
        self._stopped = False

    def add_event(self, event: dict[str, Any]) -> None:
        match event:
            case {"type": "message_start", "message": dict(message)}:
                self._message = dict(message)
            case {"type": "content_block_start", "index": int(index), "content_block": dict(block)}:
                self._blocks[index] = dict(block)
            case {"type": "content_block_delta", "index": int(index), "delta": dict(delta)}:
                self._add_delta(index, delta)
            case {"type": "message_delta"}:
                self._merge_message_delta(event)
            case {"type": "message_stop"}:
                self._stopped = True
            case {"type": "error"}:
                self._error = event
            case _:
                pass

    def build_answer(self) -> AssistantMessage:
        if self._message is None:
            return AssistantMessage(None, is_whole=False, error=self._error)
        blocks = [_join_block(block, self._parts.get(index, {})) for index, block in sorted(self._blocks.items())]
        return AssistantMessage({**self._message, "content": blocks}, is_whole=self._stopped, error=self._error)

    def _add_delta(self, index: int, delta: dict[str, Any]) -> None:
        parts = self._parts.setdefault(index, {})
        for name in ("text", "thinking", "signature", "partial_json"):
            if isinstance(said := delta.get(name), str):
                parts.setdefault(name, []).append(said)
        citation = delta.get("citation")
        if isinstance(citation, dict) and index in self._blocks:
            block = self._blocks[index]
            block["citations"] = [*(block.get("citations") or []), citation]

    def _merge_message_delta(self, event: dict[str, Any]) -> None:
        if self._message is None:
            return
        delta, usage = event.get("delta"), event.get("usage")
        if isinstance(delta, dict):
            self._message |= delta
        if isinstance(usage, dict):
            self._message["usage"] = {**(self._message.get("usage") or {}), **usage}
        if "context_management" in event:
            self._message["context_management"] = event["context_management"]


def _join_block(block: dict[str, Any], parts: dict[str, list[str]]) -> dict[str, Any]:
    whole = dict(block)
    for name, said in parts.items():
        text = "".join(said)
        if name == "partial_json":
            # Half an input stays as it was said.
            whole["input"] = read if (read := _parse_json_text(text)) is not None else {"partial_json": text}
        else:
            whole[name] = str(block.get(name) or "") + text
    return whole


def _parse_json_text(text: str) -> Any:
    try:
        return msgspec.json.decode(text) if text else {}
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


def _decode_object(data: bytes) -> dict[str, Any] | None:
    try:
        said = msgspec.json.decode(data)
    except UNREADABLE:
        return None
    return said if isinstance(said, dict) else None


def render_events(told: AssistantMessage) -> bytes:
    """Write a message as events again, each block in one delta."""
    message = told.message or {}
    said: list[dict[str, Any]] = [{"type": "message_start", "message": {**message, "content": []}}]
    for index, block in enumerate(message.get("content") or []):
        said.append({"type": "content_block_start", "index": index, "content_block": block})
        said.append({"type": "content_block_stop", "index": index})
    ended = {name: message[name] for name in ("stop_reason", "stop_sequence") if name in message}
    said.append({"type": "message_delta", "delta": ended, "usage": told.usage})
    said += [told.error] if told.error else []
    said += [{"type": "message_stop"}] if told.is_whole else []
    return b"".join(
        b"event: " + str(event.get("type")).encode() + b"\ndata: " + msgspec.json.encode(event) + b"\n\n"
        for event in said
    )
