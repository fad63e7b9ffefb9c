"""Attribute file changes to steps, from snapshots or from tool calls.

A snapshot is saved while a request is in flight, so its difference from the previous one was made
by the tools of the steps that were open then: answered, and not yet followed by the next request of
their thread. Without captured requests a snapshot is saved after each tool call. One open step owns
the change exactly; several share it; with none, or with a shell left running in the background, the
entry says "background".

Without snapshots, the client's own patch gives a diff that can be applied; the arguments of a call
give its lines without a position. Changes by shell commands are unknown and not guessed. Each entry
names what it was rebuilt from. Pure.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from msgspec import Struct

from flightlog.lab.events import SnapshotSaved
from flightlog.lab.run_session import SIDE, ApiCall, steps_by_thread
from flightlog.model.session import Session, Step, ToolCall
from flightlog.views.session.edits import FileDiff, diffs_of_call
from flightlog.views.session.tools import files_of_call

Attribution = Literal["exact", "shared", "background"]
_DELEGATES = frozenset({"Agent", "Task"})
_READERS = frozenset(
    {"Read", "Grep", "Glob", "LS", "WebFetch", "WebSearch", "ToolSearch", "ListAgents"}
)
PATCH = "the client's patch"
WORDS = "the words of the call"


class ChangeOwner(Struct, frozen=True):
    """A step and its thread."""

    subagent: str
    step: Step


class ChangeInterval(Struct, frozen=True):
    """The changes between two snapshots: the step that owns them, and how certain that is."""

    before: str
    after: str
    owner: ChangeOwner | None
    attribution: Attribution
    at_ms: int
    has_background: bool = False

    def attribution_of(self, path: str) -> Attribution:
        """Return the attribution of one file; one that the step's tool names is at least shared."""
        calls = self.owner.step.tool_calls if self.owner else ()
        named = (name for call in calls for name in files_of_call(call))
        is_named = any(name == path or name.endswith("/" + path) for name in named)
        return "shared" if self.attribution == "background" and is_named else self.attribution


def iter_intervals(
    start: str, saved: Sequence[SnapshotSaved], calls: Sequence[ApiCall], session: Session | None
) -> Iterator[ChangeInterval]:
    """Yield the intervals between the snapshots of a session; `start` is its first tree."""
    timeline = _Timeline(calls, session, hooked=any(snapshot.tool_call_id for snapshot in saved))
    before = start
    last = 0
    # Index 0 is the end of the session.
    for snapshot in sorted(saved, key=lambda item: (not item.request_index, item.request_index)):
        yield timeline.interval_between(before, snapshot, last)
        before = snapshot.tree
        last = snapshot.request_index or last


class _Timeline:
    """The steps of a session with the requests between which their tools ran."""

    def __init__(self, calls: Sequence[ApiCall], session: Session | None, *, hooked: bool) -> None:
        steps = steps_by_thread(session) if session else {}
        own = ((subagent, step) for subagent, thread in steps.items() for step in thread)
        owners = {step.message_id: ChangeOwner(subagent, step) for subagent, step in own}
        self._captured = bool(calls)
        self._hooked = hooked
        self._all = sorted(owners.values(), key=lambda owner: owner.step.at_ms or 0)
        self._open: list[tuple[int, float, ChangeOwner]] = []
        following: dict[str, float] = {}
        for call in sorted(calls, key=lambda call: -call.index):
            owner = owners.get(call.message_id)
            if owner is not None and call.subagent != SIDE:
                self._open.append((call.index, following.get(call.subagent, float("inf")), owner))
            following[call.subagent] = call.index

    def interval_between(self, before: str, saved: SnapshotSaved, last: int) -> ChangeInterval:
        """Return the interval between request `last` and the request that saved this tree."""
        until = saved.request_index or float("inf")
        if not self._captured:
            return self._after_call(before, saved)
        open_now = [owner for began, ended, owner in self._open if began <= last and ended >= until]
        # A thread without a later request keeps its step open; only tools that can write count.
        writing = [owner for owner in open_now if any(map(_may_write, owner.step.tool_calls))]
        past = (owner for began, ended, owner in self._open if began <= last and ended <= last)
        has_background = any(
            _leaves_running(call) for owner in past for call in owner.step.tool_calls
        )
        begun = [entry for entry in self._open if entry[0] <= last]
        latest = max(begun, key=lambda entry: entry[0], default=None)
        # Of several, the owner whose thread sends the next request; else the first.
        nearest = [owner for owner in writing if owner.subagent == saved.subagent] or writing
        owner = nearest[0] if nearest else (latest[2] if latest else None)
        if has_background or not writing:
            return ChangeInterval(
                before, saved.tree, owner, "background", saved.at_ms, has_background=has_background
            )
        return ChangeInterval(
            before, saved.tree, owner, "exact" if len(writing) == 1 else "shared", saved.at_ms
        )

    def _after_call(self, before: str, saved: SnapshotSaved) -> ChangeInterval:
        """Attribute a snapshot saved after a tool call to its step, unless others ran meanwhile."""
        called = ((owner, call) for owner in self._all for call in owner.step.tool_calls)
        owners = [(owner, call) for owner, call in called if call.id == saved.tool_call_id]
        if not saved.tool_call_id or not owners:
            last = self._all[-1] if self._all else None
            return ChangeInterval(
                before, saved.tree, last, "background" if self._hooked else "shared", saved.at_ms
            )
        owner, call = owners[0]
        earlier = self._all[: self._all.index(owner)]
        if any(_leaves_running(call) for owner in earlier for call in owner.step.tool_calls):
            return ChangeInterval(
                before, saved.tree, owner, "background", saved.at_ms, has_background=True
            )
        others = [other for own in self._all if own is not owner for other in own.step.tool_calls]
        concurrent = any(_may_write(other) and _calls_overlap(call, other) for other in others)
        return ChangeInterval(
            before, saved.tree, owner, "shared" if concurrent else "exact", saved.at_ms
        )


def _may_write(call: ToolCall) -> bool:
    return call.name not in _DELEGATES | _READERS


def _leaves_running(call: ToolCall) -> bool:
    """Return whether a call left a shell running in the background."""
    arguments = call.executed_input or call.input
    task = call.detail.get("backgroundTaskId") if isinstance(call.detail, dict) else None
    return call.name == "Bash" and bool(arguments.get("run_in_background") or task)


def _calls_overlap(call: ToolCall, other: ToolCall) -> bool:
    """Return whether two calls ran at the same time; unknown times do not overlap."""
    times = (call.started_ms, call.ended_ms, other.started_ms, other.ended_ms)
    if any(time is None for time in times):
        return False
    began, ended, other_began, other_ended = (time or 0 for time in times)
    return began < other_ended and other_began < ended


def iter_reported_changes(
    subagent: str, step: Step, step_id: int | None, cwd: str
) -> Iterator[dict[str, Any]]:
    """Yield the changes that the tool calls of one step report."""
    for call, call_diff in _diffs_of_done_calls(step):
        path = call_diff.path
        name = path.removeprefix(cwd.rstrip("/") + "/") if cwd else path
        diff, source = _diff_and_source(call, call_diff, name)
        yield {
            "session_index": 1,
            "step_id": step_id,
            "file_path": name,
            "diff": diff,
            "diff_stats": {"added": call_diff.added, "removed": call_diff.removed},
            "kind": "added" if diff.startswith("--- /dev/null") else "modified",
            "binary": False,
            "attribution": None,
            "rebuilt_from": source,
            "message_id": step.message_id,
            "tool_call_ids": [call.id],
            **({"subagent": subagent} if subagent else {}),
        }


def _diffs_of_done_calls(step: Step) -> Iterator[tuple[ToolCall, FileDiff]]:
    for call in step.tool_calls:
        if not (call.is_error or call.denial_reason or call.result is None):
            yield from ((call, diff) for diff in diffs_of_call(call))


def _diff_and_source(call: ToolCall, call_diff: FileDiff, name: str) -> tuple[str, str]:
    detail = call.detail if isinstance(call.detail, dict) else {}
    hunks = detail.get("structuredPatch")
    content = detail.get("content")
    if detail.get("type") == "create" and isinstance(content, str):
        return _created_file_diff(name, content), PATCH
    if isinstance(hunks, list) and hunks and all(map(_is_whole, hunks)):
        body = "".join(_render_hunk(hunk) for hunk in hunks)
        return f"--- {name}\n+++ {name}\n{body}", PATCH
    changed = (line for line in call_diff.lines if line.sign.value in "+-")
    lines = [f"{line.sign.value}{line.text}\n" for line in changed]
    return f"--- {name}\n+++ {name}\n" + "".join(lines), WORDS


def _created_file_diff(name: str, content: str) -> str:
    lines = content.splitlines(keepends=True)
    count = f"1,{len(lines)}" if len(lines) != 1 else "1"
    body = "".join("+" + line for line in lines)
    end = "" if not lines or content.endswith("\n") else "\n\\ No newline at end of file\n"
    head = f"--- /dev/null\n+++ {name}\n"
    return head + (f"@@ -0,0 +{count} @@\n{body}{end}" if lines else "")


def _is_whole(hunk: Any) -> bool:
    numbers = ("oldStart", "oldLines", "newStart", "newLines")
    if not isinstance(hunk, dict) or not all(isinstance(hunk.get(name), int) for name in numbers):
        return False
    return isinstance(hunk.get("lines"), list) and all(
        isinstance(line, str) for line in hunk["lines"]
    )


def _render_hunk(hunk: dict[str, Any]) -> str:
    head = f"@@ -{hunk['oldStart']},{hunk['oldLines']} +{hunk['newStart']},{hunk['newLines']} @@\n"
    return head + "".join(line + "\n" for line in hunk["lines"])
