"""What tool calls changed in files, line by line, and which lines a session wrote.

A diff comes from the client's own patch where there is one, otherwise from the input of the call.
It says what the tool was asked to write, not what the file contains. Lines are compared by
fingerprint, so that a cache of them holds no text.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from flightlog.model.session import Session, Step, ToolCall
from flightlog.views.session import tools
from flightlog.views.session.timeline import iter_steps

LINES_MAX = 400  # of one diff on a page
_CHARS_MAX = 100_000  # longer texts take seconds to compare
_OUTPUT_CHARS = 20_000  # git names the commit at the beginning of its output
_HUNK_START = re.compile(r"line (\d+)")
_COMMIT_MADE = re.compile(r"\[[^\]\n]{1,200}? ([0-9a-f]{7,40})\]")  # git prints `[branch hash]`


class FileDiff(Struct, frozen=True):
    """What a tool call changed in one file; `left_out` counts lines that are not shown."""

    path: str
    lines: tuple[tools.ChangedLine, ...]
    added: int
    removed: int
    omitted_lines: int = 0


def diffs_of_call(call: ToolCall, lines_max: int | None = LINES_MAX) -> list[FileDiff]:
    """Return what `call` changed, file by file; nothing if it changes no known file."""
    return [_diff_of_edit(edit, call.detail, lines_max) for edit in tools.edits_of_call(call)]


def _diff_of_edit(edit: tools.ToolEdit, detail: Any, lines_max: int | None) -> FileDiff:
    lines = list(edit.patch or _diff_from_patch(detail)) or list(_diff_from_input(edit))
    return FileDiff(
        edit.path,
        tuple(lines[:lines_max]),
        sum(line.sign is tools.DiffSign.ADDED for line in lines),
        sum(line.sign is tools.DiffSign.REMOVED for line in lines),
        max(len(lines) - lines_max, 0) if lines_max is not None else 0,
    )


def changed_files(step: Step) -> tuple[str, ...]:
    """Return the files a step writes to, each once."""
    calls = (call for call in step.tool_calls if not call.is_error and not call.denial_reason)
    paths = (path for call in calls for path in tools.files_of_call(call))
    return tuple(dict.fromkeys(path for path in paths if path))


class LineEdit(Struct, frozen=True):
    """Neighboring lines that a step wrote to a file; `lines` are their fingerprints, in order."""

    at: str
    at_ms: int
    path: str
    line: int
    lines: tuple[str, ...]

    @property
    def address(self) -> str:
        """Return the address of the edit."""
        return f"{self.at}:{self.path}:{self.line}"


def edits_of_session(session: Session) -> tuple[LineEdit, ...]:
    """Return everything the tools of a session wrote, in order."""
    return tuple(
        edit
        for address, step in iter_steps(session)
        for call in step.tool_calls
        if not call.is_error and not call.denial_reason
        for edit in _edits_of_call(str(address), call, step, session.cwd)
    )


def fingerprint_lines(lines: Iterable[str]) -> tuple[str, ...]:
    """Return a fingerprint of each line; that of a blank line is empty."""
    texts = (line.strip().encode("utf-8", "surrogatepass") for line in lines)
    return tuple(hashlib.blake2b(text, digest_size=8).hexdigest() if text else "" for text in texts)


def find_commits(session: Session) -> dict[str, str]:
    """Return the commits that tool output names as made, each with the address of its step."""
    commits: dict[str, str] = {}
    for address, step in iter_steps(session):
        for call in step.tool_calls:
            if "commit" in tools.command_of(call):
                for commit in commits_of_call(call):
                    commits.setdefault(commit, str(address))
    return commits


def commits_of_call(call: ToolCall) -> list[str]:
    """Return the commits that the output of a call names as made."""
    return _COMMIT_MADE.findall(call.output[:_OUTPUT_CHARS])


def count_matching_lines(edit: LineEdit, lines: Sequence[str], at: int) -> int:
    """Return how many lines around `lines[at]` the edit wrote in order; 0 if not that one."""
    best = 0
    for index, line in enumerate(edit.lines):
        if line and line == lines[at]:
            after = _run_length(edit.lines, lines, (index, at), 1)
            best = max(best, 1 + after + _run_length(edit.lines, lines, (index, at), -1))
    return best


def _run_length(
    lines: Sequence[str], others: Sequence[str], start: tuple[int, int], step: int
) -> int:
    """Return how many lines are equal after `start`, or before it if `step` is -1."""
    length = 0
    while True:
        index, other = (position + step * (length + 1) for position in start)
        is_inside = 0 <= index < len(lines) and 0 <= other < len(others)
        if not is_inside or lines[index] != others[other]:
            return length
        length += 1


def _edits_of_call(at: str, call: ToolCall, step: Step, cwd: str) -> Iterator[LineEdit]:
    at_ms = call.ended_ms or call.started_ms or step.at_ms or 0
    for diff in diffs_of_call(call):
        # A patch names files relative to the session's directory.
        is_relative = cwd and not diff.path.startswith("/")
        path = f"{cwd.rstrip('/')}/{diff.path}" if is_relative else diff.path
        for line, added in _split_hunks(diff):
            yield LineEdit(at, at_ms, path, line, fingerprint_lines(added))


def _split_hunks(diff: FileDiff) -> Iterator[tuple[int, list[str]]]:
    line, added = 1, list[str]()
    for changed in diff.lines:
        if changed.sign is tools.DiffSign.PLACE:
            if added:
                yield line, added
            start = _HUNK_START.fullmatch(changed.text)
            line, added = int(start[1]) if start else 1, []
        elif changed.sign is tools.DiffSign.ADDED:
            added.append(changed.text)
    if added or diff.removed:
        yield line, added


def _diff_from_patch(detail: Any) -> Iterator[tools.ChangedLine]:
    hunks = detail.get("structuredPatch") if isinstance(detail, dict) else None
    for hunk in hunks if isinstance(hunks, list) else ():
        lines = hunk.get("lines") if isinstance(hunk, dict) else None
        if isinstance(lines, list):
            yield tools.ChangedLine(tools.DiffSign.PLACE, f"line {hunk.get('newStart', '?')}")
            yield from (tools.parse_diff_line(line) for line in lines if isinstance(line, str))


def _diff_from_input(edit: tools.ToolEdit) -> Iterator[tools.ChangedLine]:
    for old, new in edit.replacements:
        yield from _compare_texts(old, new)
    for line in _split_lines(edit.content or ""):
        yield tools.ChangedLine(tools.DiffSign.ADDED, line)


def _compare_texts(old: str, new: str) -> Iterator[tools.ChangedLine]:
    before, after = _split_lines(old), _split_lines(new)
    if len(old) + len(new) > _CHARS_MAX:
        yield from (tools.ChangedLine(tools.DiffSign.REMOVED, line) for line in before)
        yield from (tools.ChangedLine(tools.DiffSign.ADDED, line) for line in after)
        return
    import difflib  # noqa: PLC0415 - only a shown edit is compared; a settle does without it

    for line in difflib.ndiff(before, after):
        if line[0] != "?":
            yield tools.parse_diff_line(line[0] + line[2:])


def _split_lines(text: str) -> list[str]:
    return text.rstrip("\n").split("\n") if text else []
