"""What a response does next, as something that can be counted: tools with normalised arguments, or words alone.

Two responses take the same action when they call the same tools with the same arguments, in the
same order, once what does not change what is done is put aside: the order of keys, a tool's free
description of itself, the name of the work directory, spaces at the ends of lines. Words, thoughts and
ids do not count. Pure.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from flightlog.model.session import Step
from flightlog.views.arguments import format_arguments

TEXT = "(words only)"
CUT = "(cut off)"
REFUSED = "(refused)"
NOTHING = "(nothing)"
_ASIDE = frozenset({"description"})
_ENDS = re.compile(r"[ \t]+$", re.MULTILINE)
_BETWEEN = " + "


class Action(Struct, frozen=True, order=True):
    """An action: its `tool` (or tools), and `key`, by which it is counted; `label` is for people."""

    tool: str
    key: str
    label: str = ""


def action_of_response(content: Iterable[Mapping[str, Any]], stop_reason: str, work_dir: str = "") -> Action:
    """The action of a response as the API gives it."""
    blocks = list(content)
    used = [each for each in blocks if each.get("type") == "tool_use"]
    calls = [(str(each.get("name") or "?"), each.get("input")) for each in used]
    has_words = any(str(each.get("text") or "").strip() for each in blocks if each.get("type") == "text")
    return _build_action([(name, given if isinstance(given, dict) else {}) for name, given in calls], stop_reason,
                   work_dir, has_words=has_words)  # fmt: skip


def action_of_step(step: Step, work_dir: str = "") -> Action:
    """The action of a recorded step."""
    has_words = any(getattr(block, "text", "").strip() for block in step.content)
    return _build_action(
        [(call.name, call.input) for call in step.calls], step.stop_reason, work_dir, has_words=has_words
    )


def action_by_tool(action: Action) -> Action:
    """The same action, told by its tools alone."""
    return Action(action.tool, action.tool, action.tool)


def _build_action(calls: Sequence[tuple[str, dict[str, Any]]], stop: str, work_dir: str, *, has_words: bool) -> Action:
    if not calls:
        word = {"max_tokens": CUT, "refusal": REFUSED}.get(stop, TEXT if has_words else NOTHING)
        return Action(word, word, word)
    plain = [(name, _normalize_argument(given, work_dir.rstrip("/"))) for name, given in calls]
    keys = [f"{name} {json.dumps(given, sort_keys=True, ensure_ascii=False)}" for name, given in plain]
    labels = [f"{name} {format_arguments(given)}".strip() for name, given in plain]
    return Action(_BETWEEN.join(name for name, _ in plain), _BETWEEN.join(keys), _BETWEEN.join(labels))


def _normalize_argument(value: Any, work_dir: str) -> Any:
    if isinstance(value, dict):
        return {str(key): _normalize_argument(each, work_dir) for key, each in value.items() if key not in _ASIDE}
    if isinstance(value, list):
        return [_normalize_argument(each, work_dir) for each in value]
    if not isinstance(value, str):
        return value
    if work_dir:
        value = re.sub(
            rf"{re.escape(work_dir)}(?:/|(?![^\s/'\";:,)]))", lambda found: "./" if found[0][-1] == "/" else ".", value
        )
    return _ENDS.sub("", value).strip()
