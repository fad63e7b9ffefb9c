"""The recorded context in place of the client's own, in every request of a branch.

A client that resumes makes its history anew, and not always the same. It is given a sentinel as its
prompt, which stands in each of its requests from then on. Everything up to the sentinel is replaced
by the messages of the recorded request, verbatim; system prompt, tools and settings are the recorded
ones too. What follows the sentinel is the client's and is left alone. Pure.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from flightlog.lab.replaying.differences import canonical_value, find_differences
from flightlog.lab.replaying.following import insert_reminders

# Who asks is the asker's own to say.
_OWN = frozenset({"messages", "metadata", "stream"})


class RewrittenBody(Struct, frozen=True):
    """A request as it is sent, and each place in which the client's own was another."""

    body: dict[str, Any]
    replaced: tuple[str, ...]

    @property
    def data(self) -> bytes:
        """The bytes of it."""
        return msgspec.json.encode(self.body)


class RecordedContext:
    """What was recorded up to a branch point, and the mark that stands for it."""

    def __init__(self, recorded: Mapping[str, Any], sentinel: str, prompt: str = "", after: Sequence[Any] = ()) -> None:
        """Take the body of the recorded request; `prompt` is said right after it, `after` is what came then."""
        self.recorded = dict(recorded)
        self.prompt = prompt
        self._sentinel = sentinel
        self._messages = append_prompt(list(recorded.get("messages") or ()), prompt)
        self._after = () if prompt else after
        self._before: list[Any] | None = None
        self._added: list[Any] = []
        self._is_first = True

    def mark_resumed(self) -> None:
        """Know that the first request was another process's: what the client added to it can no longer be told."""
        self._is_first = False

    def splice_context(self, body: Mapping[str, Any], *, compacts: bool = False) -> RewrittenBody | None:
        """Put the recorded context into a request; None when it does not go on from the branch point."""
        messages = list(body.get("messages") or ())
        at = next((place for place, each in enumerate(messages) if self._has_sentinel(each)), None)
        if at is None:
            return None
        own = [*messages[:at], *self._without_mark(messages[at])]
        if self._before is None:
            self._before = canonical_value(own)
            self._added = canonical_value(messages[at + 1 :]) if self._is_first else []
        elif canonical_value(own) != self._before:
            # The client rewrote its history (it compacted): the recorded one is no longer what it goes on from.
            return RewrittenBody({**body, "messages": [*own, *messages[at + 1 :]]}, ("sentinel",))
        rest = messages[at + 1 :]
        if canonical_value(rest[: len(self._added)]) == self._added:
            rest = rest[len(self._added) :]
        rest = insert_reminders(rest, self._after) if self._after else rest
        told = {**body, "messages": [*(_strip_all_cache_marks(self._messages) if rest else self._messages), *rest]}
        if not compacts:
            told = self.apply_recorded_settings(told)
        compared = self.recorded | {"messages": self._messages}
        client = {**body, "messages": [*own, *self._added]}
        if isinstance(client.get("system"), list) and not self._has_billing:
            client["system"] = [each for each in client["system"] if not is_billing(each)]
        return RewrittenBody(told, tuple(find_differences(client, compared, ignored={"metadata", "stream"})))

    @property
    def _has_billing(self) -> bool:
        """Whether the recorded prompt says who pays, as every captured one does and none from a transcript."""
        system = self.recorded.get("system")
        return not isinstance(system, list) or any(map(is_billing, system))

    def apply_recorded_settings(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """In the recorded order, with the recorded settings; what says who asks stays."""
        told = {name: body.get(name, value) if name in _OWN else value for name, value in self.recorded.items()}
        told |= {name: body[name] for name in _OWN if name in body and name not in told}
        billing = [each for each in body.get("system") or () if is_billing(each)]
        if billing and not self._has_billing:
            told["system"] = [*billing, *told["system"]]
        return told

    def _has_sentinel(self, message: Any) -> bool:
        return isinstance(message, dict) and any(self._sentinel in text for text in _message_texts(message))

    def _without_mark(self, message: Mapping[str, Any]) -> list[Any]:
        """The message the sentinel came in, without it; nothing when it held nothing else."""
        content = message.get("content")
        blocks = content if isinstance(content, list) else []
        kept = [block for block in blocks if self._sentinel not in str(block.get("text", ""))]
        kept += [{"type": "text", "text": self.prompt}] if self.prompt else []
        return [{**message, "content": kept}] if kept else []


def is_billing(block: Any) -> bool:
    """Whether a block of a system prompt only says who pays; a transcript does not tell it."""
    return isinstance(block, dict) and str(block.get("text", "")).startswith("x-anthropic-billing-header")


def append_prompt(messages: list[Any], prompt: str) -> list[Any]:
    """Say the prompt as the client would: as one more text of the last user message, where the cache mark moves to."""
    if not prompt:
        return messages
    said = {"type": "text", "text": prompt, "cache_control": {"type": "ephemeral"}}
    plain = _strip_all_cache_marks(messages)
    last = plain[-1] if plain else {}
    if last.get("role") != "user":
        return [*plain, {"role": "user", "content": [said]}]
    return [*plain[:-1], {**last, "content": [*_content_blocks(last["content"]), said]}]


def _strip_all_cache_marks(messages: Sequence[Any]) -> list[Any]:
    """The messages without marks for the cache, written as the client writes them then."""
    return [_without_cache_control(each) for each in messages]


def _without_cache_control(message: Any) -> Any:
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list) or not any(isinstance(each, dict) and "cache_control" in each for each in content):
        return message
    blocks = [{key: value for key, value in block.items() if key != "cache_control"} for block in content]
    # A system message of one text is written as that text once the mark has moved on.
    if message.get("role") == "system" and len(blocks) == 1 and set(blocks[0]) == {"type", "text"}:
        return {**message, "content": blocks[0]["text"]}
    return {**message, "content": blocks}


def _content_blocks(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _message_texts(message: Mapping[str, Any]) -> list[str]:
    content = message.get("content")
    if isinstance(content, str):
        return [content]
    blocks = content if isinstance(content, list) else []
    return [str(block.get("text", "")) for block in blocks if isinstance(block, dict)]
