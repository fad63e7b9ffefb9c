"""What a tool call changed in which file, line by line.

Takes the client's own patch where it wrote one, else the words of the call. Says what was
asked for, not whether the file system agrees.
"""

import enum
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from flightlog.model.session import Step, ToolCall

LINES_MAX = 400
_CHARS_MAX = 100_000
_PATHS = ("file_path", "notebook_path")
_WRITERS = frozenset({"Edit", "MultiEdit", "NotebookEdit", "Write"})


class Sign(enum.Enum):
    """What happened to a line."""

    SAME = " "
    ADDED = "+"
    REMOVED = "-"
    PLACE = "@"


class ChangedLine(Struct, frozen=True):
    """A line of a diff."""

    sign: Sign
    text: str


class Change(Struct, frozen=True):
    """One file's change; `left_out` counts lines that are not shown."""

    path: str
    lines: tuple[ChangedLine, ...]
    added: int
    removed: int
    left_out: int = 0


def change_of(call: ToolCall) -> Change | None:
    """Tell what `call` changes; None when it changes no file we know of."""
    path = changed_file(call)
    if not path:
        return None
    lines = list(_patch(call.detail)) or list(_asked(call.ran_input or call.input))
    return Change(
        path,
        tuple(lines[:LINES_MAX]),
        sum(line.sign is Sign.ADDED for line in lines),
        sum(line.sign is Sign.REMOVED for line in lines),
        max(len(lines) - LINES_MAX, 0),
    )


def changed_file(call: ToolCall) -> str:
    """Name the file a call writes to, or nothing."""
    if call.name not in _WRITERS:
        return ""
    given = call.ran_input or call.input
    return next((given[name] for name in _PATHS if isinstance(given.get(name), str)), "")


def changed_files(step: Step) -> tuple[str, ...]:
    """Name the files a step writes to, each once."""
    named = (changed_file(call) for call in step.calls if not call.is_error and not call.denied)
    return tuple(dict.fromkeys(name for name in named if name))


def _patch(detail: Any) -> Iterator[ChangedLine]:
    hunks = detail.get("structuredPatch") if isinstance(detail, dict) else None
    for hunk in hunks if isinstance(hunks, list) else ():
        lines = hunk.get("lines") if isinstance(hunk, dict) else None
        if isinstance(lines, list):
            yield ChangedLine(Sign.PLACE, f"line {hunk.get('newStart', '?')}")
            yield from (_signed(line) for line in lines if isinstance(line, str))


def _signed(line: str) -> ChangedLine:
    marks = {"+": Sign.ADDED, "-": Sign.REMOVED}
    return ChangedLine(marks.get(line[:1], Sign.SAME), line[1:])


def _asked(given: dict[str, Any]) -> Iterator[ChangedLine]:
    for edit in _edits(given):
        old, new = edit.get("old_string"), edit.get("new_string")
        if isinstance(old, str) and isinstance(new, str):
            yield from _compared(old, new)
    for name in ("content", "new_source"):
        if isinstance(given.get(name), str):
            yield from (ChangedLine(Sign.ADDED, line) for line in _lines(given[name]))


def _edits(given: dict[str, Any]) -> Sequence[dict[str, Any]]:
    several = given.get("edits")
    if isinstance(several, list):
        return [edit for edit in several if isinstance(edit, dict)]
    return [given]


def _compared(old: str, new: str) -> Iterator[ChangedLine]:
    before, after = _lines(old), _lines(new)
    if len(old) + len(new) > _CHARS_MAX:
        yield from (ChangedLine(Sign.REMOVED, line) for line in before)
        yield from (ChangedLine(Sign.ADDED, line) for line in after)
        return
    import difflib  # noqa: PLC0415 - only a shown edit is compared

    for line in difflib.ndiff(before, after):
        if line[0] != "?":
            yield _signed(line[0] + line[2:])


def _lines(text: str) -> list[str]:
    return text.rstrip("\n").split("\n") if text else []
