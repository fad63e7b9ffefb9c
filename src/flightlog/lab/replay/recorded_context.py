"""Put recorded messages in place of the client's own.

`RecordedContext`: a client that resumes rebuilds its history, and not always the same. Its prompt
is a marker, which is in every request from then on. Everything up to the marker is replaced by the
messages of the recorded request, verbatim; system prompt, tools and settings are the recorded ones
too. Messages after the marker are the client's own.

`insert_reminders`: a client adds reminders of its own (how long it was idle, say) from counters
that restart when it resumes. As long as the model repeats what it said in the recording (tools may
answer differently), reminders are taken from the recording too; after the first difference they are
the client's own. Pure.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

NAMED_MAX = 40  # about one screen
MARKERS = frozenset({"cache_control"})
IDS = frozenset({"id", "tool_use_id", "signature"})
_CACHE_MARKER = {"cache_control": {"type": "ephemeral"}}
# These identify the caller or concern the transport, so they stay the client's.
_OWN = frozenset({"messages", "metadata", "stream"})
# What is left of the context, by the client's own count, which restarts when it resumes.
_COUNTER = re.compile(r"<total_tokens>[^<]*</total_tokens>")
# Reminders at the end of a tool result, as "the tool hasn't been used recently"; at most three seen.
_REMINDER_START, _REMINDER_END, _REMINDERS_MAX = "<system-reminder>", "</system-reminder>", 16
_STATUS = re.compile(r"(?<=gitStatus: ).*?(?=\n</|\n# |\Z)", re.DOTALL)
_BILLING = "x-anthropic-billing-header"


def canonical_value(value: Any, dropped: Collection[str] = MARKERS) -> Any:
    """Return a value without the keys in `dropped`, with the content of every message as blocks."""
    if isinstance(value, list):
        return [canonical_value(item, dropped) for item in value]
    if not isinstance(value, dict):
        return value
    mapping = {
        key: canonical_value(item, dropped) for key, item in value.items() if key not in dropped
    }
    if "role" in mapping and isinstance(mapping.get("content"), str):
        mapping["content"] = [{"type": "text", "text": mapping["content"]}]
    return mapping


def find_differences(
    one: Mapping[str, Any], other: Mapping[str, Any], *, ignored: Collection[str] = ()
) -> Iterator[str]:
    """Yield the names of places where `one` differs from `other`, in the order of `other`.

    Stops with "and more" after `NAMED_MAX` names.
    """
    left, right = (
        {
            name: _tools_by_name(name, value)
            for name, value in canonical_value(dict(request)).items()
            if name not in ignored
        }
        for request in (one, other)
    )
    for number, name in enumerate(_iter_differences(left, right, "")):
        if number == NAMED_MAX:
            yield "and more"
            return
        yield name


def _tools_by_name(name: str, value: Any) -> Any:
    """Key tools by name, so that an added tool does not make every other look changed."""
    if name != "tools" or not isinstance(value, list):
        return value
    return {
        str(tool.get("name", at)) if isinstance(tool, dict) else str(at): tool
        for at, tool in enumerate(value)
    }


def _iter_differences(one: Any, other: Any, at: str) -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for name in dict.fromkeys((*other, *one)):
            inner = f"{at}.{name}" if at else str(name)
            if name not in one or name not in other:
                yield f"{inner} ({'missing' if name not in one else 'added'})"
            else:
                yield from _iter_differences(one[name], other[name], inner)
    elif isinstance(one, list) and isinstance(other, list):
        for number in range(max(len(one), len(other))):
            inner = f"{at}[{number}]"
            if number >= len(one) or number >= len(other):
                yield f"{inner} ({'missing' if number >= len(one) else 'added'})"
            else:
                yield from _iter_differences(one[number], other[number], inner)
    elif one != other or type(one) is not type(other):
        yield at


def insert_reminders(suffix: Sequence[Any], recorded: Sequence[Any]) -> list[Any]:
    """Return the client's messages after the branch point with the recorded reminders."""
    merged: list[Any] = []
    position = 0
    remaining = list(suffix)
    while remaining:
        while position < len(recorded) and _is_reminder(recorded[position]):
            merged.append(recorded[position])
            position += 1
        while remaining and _is_reminder(remaining[0]):
            remaining.pop(0)
        if not remaining:
            break
        expected = [_comparable_message(message) for message in recorded[position : position + 1]]
        if expected != [_comparable_message(remaining[0])]:
            return [*merged, *remaining]
        merged.append(insert_counters(remaining.pop(0), recorded[position]))
        position += 1
    while merged and position < len(recorded) and _is_reminder(recorded[position]):
        merged.append(recorded[position])
        position += 1
    return _mark_last_block(merged)


def insert_counters(own: Any, recorded: Any) -> Any:
    """Return a message with the recorded counters and reminders, also inside tool results."""
    if isinstance(own, str) and isinstance(recorded, str):
        return _insert_recorded_reminders(own, recorded)
    if isinstance(own, list) and isinstance(recorded, list):
        pairs = zip(own, recorded, strict=False)
        return [*(insert_counters(*pair) for pair in pairs), *own[len(recorded) :]]
    if isinstance(own, dict) and isinstance(recorded, dict):
        return {name: insert_counters(value, recorded.get(name)) for name, value in own.items()}
    return own


def _insert_recorded_reminders(own: str, recorded: str) -> str:
    """Return a tool's text with the recorded reminders after it and the recorded counters in it."""
    text, recorded_text = _cut_reminders(own), _cut_reminders(recorded)
    is_same = _COUNTER.sub("", text).strip() == _COUNTER.sub("", recorded_text).strip()
    # The client trims a text before it adds a reminder, so blanks around it say nothing then.
    if is_same and (text, recorded_text) != (own, recorded):
        return recorded
    # A text of reminders alone is the tool's answer, as for an empty file.
    own = text + recorded[len(recorded_text) :] if text.strip() else own
    counters = iter(_COUNTER.findall(recorded))
    same_count = len(_COUNTER.findall(own)) == len(_COUNTER.findall(recorded))
    return _COUNTER.sub(lambda _: next(counters), own) if same_count else own


def _cut_reminders(text: str) -> str:
    """Return a text without the reminders at its end."""
    for _ in range(_REMINDERS_MAX):
        if _REMINDER_START in text and text.rstrip().endswith(_REMINDER_END):
            text = text[: text.rindex(_REMINDER_START)].rstrip()
    return text


def _mark_last_block(messages: list[Any]) -> list[Any]:
    """Move the cache marker to the last block, as the client does."""
    if not messages or not _is_reminder(messages[-1]):
        return messages
    *before, last = messages
    blocks = [dict(block) for block in _content_blocks(last["content"])]
    if blocks:
        blocks[-1] |= _CACHE_MARKER
    return [*_strip_all_cache_marks(before), {**last, "content": blocks}]


def _is_reminder(message: Any) -> bool:
    return isinstance(message, dict) and message.get("role") == "system"


def _comparable_message(message: Any) -> Any:
    """Return the model's words without ids; for other messages only their role."""
    if not isinstance(message, dict) or message.get("role") != "assistant":
        return message.get("role") if isinstance(message, dict) else message
    return canonical_value(message, MARKERS | IDS)


class RewrittenBody(Struct, frozen=True):
    """A request as it is sent, and every place where the client's own differed."""

    body: dict[str, Any]
    replacements: tuple[str, ...]

    @property
    def data(self) -> bytes:
        return msgspec.json.encode(self.body)


class RecordedContext:
    """The recorded context up to a branch point, and the marker that represents it."""

    def __init__(
        self,
        recorded: Mapping[str, Any],
        sentinel: str,
        prompt: str = "",
        after: Sequence[Any] = (),
        *,
        has_own_settings: bool = False,
    ) -> None:
        """Take the recorded request, the prompt to append, and the messages recorded after it.

        With `has_own_settings` only the messages are the recorded ones.
        """
        self.recorded = dict(recorded)
        self.prompt = prompt
        self._sentinel = sentinel
        self._messages = append_prompt(list(recorded.get("messages") or ()), prompt)
        self._after = () if prompt or has_own_settings else after
        self._has_own_settings = has_own_settings
        self._before: list[Any] | None = None
        self._added: list[Any] = []
        self._added_blocks: list[Any] = []
        self._is_first = True
        self._settings: dict[str, Any] = {}

    def mark_resumed(self, recorded: Sequence[Any] = ()) -> None:
        """Note that another client resumes the branch: its history before the marker is its own.

        A client that resumes may leave reminders out: `recorded`, what the recorded client sent when
        it resumed, takes the place of the first context if it continues that.
        """
        self._is_first = False
        self._before = None
        *before, last = recorded[: len(self._messages)] or ({},)
        own = [_comparable_message(message) for message in self._messages]
        if self.prompt or own != [_comparable_message(message) for message in (*before, last)]:
            return
        # The request of the later session may be in the message that ends the context.
        size = len(_content_blocks(self._messages[-1]["content"]))
        last = {**last, "content": _content_blocks(last["content"])[:size]}
        self._messages, self._after = [*before, last], recorded[len(own) :]

    def splice_context(
        self, body: Mapping[str, Any], *, compacts: bool = False
    ) -> RewrittenBody | None:
        """Return the request with the recorded context; None if it does not contain the marker."""
        messages = list(body.get("messages") or ())
        marker_index = next(
            (index for index, message in enumerate(messages) if self._has_sentinel(message)), None
        )
        if marker_index is None:
            return None
        marked, trailing = self._split_at_mark(messages[marker_index])
        client_messages = [*messages[:marker_index], *marked]
        rest = messages[marker_index + 1 :]
        if self._before is None:
            self._before = canonical_value(client_messages)
            if self._is_first:
                self._added, self._added_blocks = canonical_value(rest), canonical_value(trailing)
        elif canonical_value(client_messages) != self._before:
            # The client compacted its history, so it no longer continues the recorded one.
            return RewrittenBody({**body, "messages": [*client_messages, *rest]}, ("sentinel",))
        if canonical_value(rest[: len(self._added)]) == self._added:
            rest = rest[len(self._added) :]
        rest = insert_reminders(rest, self._after) if self._after else rest
        before = _strip_all_cache_marks(self._messages) if rest else self._messages
        if canonical_value(trailing[: len(self._added_blocks)]) == self._added_blocks:
            trailing = trailing[len(self._added_blocks) :]
        if trailing and before:
            # A compaction asks for its summary in the message that has the marker.
            content = [*_content_blocks(before[-1]["content"]), *trailing]
            before = [*before[:-1], {**before[-1], "content": content}]
        rewritten = {**body, "messages": [*before, *rest]}
        if not compacts and not self._has_own_settings:
            rewritten = self.apply_recorded_settings(rewritten)
        recorded = self.recorded | {"messages": self._messages}
        client = {**body, "messages": [*client_messages, *self._added]}
        if isinstance(body.get("system"), list) and not self._has_billing:
            client["system"] = [block for block in body["system"] if not is_billing(block)]
        ignored = self.ignored_settings(body) | {"metadata", "stream"}
        return RewrittenBody(rewritten, tuple(find_differences(client, recorded, ignored=ignored)))

    def ignored_settings(self, body: Mapping[str, Any]) -> set[str]:
        """Return the settings of a request that are not compared: with an arm of its own, all."""
        return {*self.recorded, *body} - {"messages"} if self._has_own_settings else set()

    @property
    def _has_billing(self) -> bool:
        """Whether the recorded prompt has the billing block; transcripts do not record it."""
        system = self.recorded.get("system")
        return not isinstance(system, list) or any(map(is_billing, system))

    def apply_recorded_settings(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the body with the recorded settings and order; the caller's identity stays.

        A setting that the client itself changes later, as when it loads a tool, is the client's.
        """
        self._settings = self._settings or {
            name: canonical_value(value) for name, value in body.items() if name not in _OWN
        }
        settings = {
            name: body.get(name, value)
            if name in _OWN or self._changes_setting(name, body)
            else value
            for name, value in self.recorded.items()
        }
        settings |= {name: body[name] for name in _OWN if name in body and name not in settings}
        billing = [block for block in body.get("system") or () if is_billing(block)]
        if billing and not self._has_billing:
            settings["system"] = [*billing, *settings["system"]]
        return settings

    def insert_git_status(self, body: Mapping[str, Any]) -> RewrittenBody | None:
        """Return a subagent's request with the recorded status; None if it is the same.

        A client describes the repository as it was when the client started.
        """
        recorded, own = _find_git_status(self.recorded), _find_git_status(body)
        if not recorded or not own or recorded == own:
            return None
        parts = {name: body[name] for name in ("system", "messages") if name in body}
        changed = {name: _replace_text(part, own, recorded) for name, part in parts.items()}
        return RewrittenBody({**body, **changed}, ("git status",))

    def _changes_setting(self, name: str, body: Mapping[str, Any]) -> bool:
        return name in body and canonical_value(body[name]) != self._settings.get(name)

    def _has_sentinel(self, message: Any) -> bool:
        texts = _message_texts(message) if isinstance(message, dict) else ()
        return any(self._sentinel in text for text in texts)

    def _split_at_mark(self, message: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
        """Return the message up to the marker, with the prompt if there is one, and what follows."""
        content = message.get("content")
        blocks = content if isinstance(content, list) else []
        marks = [self._sentinel in str(block.get("text", "")) for block in blocks]
        at = marks.index(True) if True in marks else len(blocks)
        before = blocks[:at] + ([{"type": "text", "text": self.prompt}] if self.prompt else [])
        return ([{**message, "content": before}] if before else []), blocks[at + 1 :]


def _find_git_status(body: Mapping[str, Any]) -> str:
    """Return how a request describes the repository: in its system prompt or its first message."""
    first = (body.get("messages") or [{}])[:1]
    leading = [{"content": body.get("system") or []}, *first]
    texts = (text for message in leading for text in _message_texts(message))
    return next((found[0] for text in texts if (found := _STATUS.search(text))), "")


def _replace_text(value: Any, old: str, new: str) -> Any:
    if isinstance(value, str):
        return value.replace(old, new)
    if isinstance(value, list):
        return [_replace_text(item, old, new) for item in value]
    if isinstance(value, dict):
        return {key: _replace_text(item, old, new) for key, item in value.items()}
    return value


def is_billing(block: Any) -> bool:
    """Return whether a block of a system prompt is the billing header, which transcripts omit."""
    return isinstance(block, dict) and str(block.get("text", "")).startswith(_BILLING)


def append_prompt(messages: list[Any], prompt: str) -> list[Any]:
    """Append the prompt as the client does: to the last user message, with the cache marker."""
    if not prompt:
        return messages
    block = {"type": "text", "text": prompt} | _CACHE_MARKER
    plain = _strip_all_cache_marks(messages)
    last = plain[-1] if plain else {}
    if last.get("role") != "user":
        return [*plain, {"role": "user", "content": [block]}]
    return [*plain[:-1], {**last, "content": [*_content_blocks(last["content"]), block]}]


def _strip_all_cache_marks(messages: Sequence[Any]) -> list[Any]:
    return [_without_cache_control(message) for message in messages]


def _without_cache_control(message: Any) -> Any:
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list) or not any(
        isinstance(item, dict) and "cache_control" in item for item in content
    ):
        return message
    blocks = [
        {key: value for key, value in block.items() if key != "cache_control"} for block in content
    ]
    # The client writes a system message of one text as a plain string once the marker moved on.
    if message.get("role") == "system" and len(blocks) == 1 and set(blocks[0]) == {"type", "text"}:
        return {**message, "content": blocks[0]["text"]}
    return {**message, "content": blocks}


def _content_blocks(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _message_texts(message: Mapping[str, Any]) -> list[str]:
    content = message.get("content")
    blocks = _content_blocks(content) if isinstance(content, str | list) else []
    return [str(block.get("text", "")) for block in blocks if isinstance(block, dict)]
