"""Which step changed what, from snapshots or tool calls.

A tree is saved while a request is on its way, so what differs from the one before was done in
between, by the tools of the steps that were open then: answered, and not yet followed by the next
request of their thread. Where no request was captured it is saved after each tool call. One open
step: its change, exactly. Several: shared. None, or a shell left running in the background:
nobody's step did it, and the entry says so. Pure.

The client's own patch gives a difference that can be applied; the words of a call alone give its
lines and no place. What a shell command changed is not known, and is not guessed. Every entry says
what it was rebuilt from. Pure.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from msgspec import Struct

from flightlog.lab.events import SnapshotSaved
from flightlog.lab.run_session import SIDE, ApiCall, steps_by_thread
from flightlog.model.session import Session, Step, ToolCall
from flightlog.views.session.edits import changed_file, diff_of_call

Attribution = Literal["exact", "shared", "background"]
_DELEGATES = frozenset({"Agent", "Task"})
_READERS = frozenset({"Read", "Grep", "Glob", "LS", "WebFetch", "WebSearch", "ToolSearch", "ListAgents"})
PATCH = "the client's patch"
WORDS = "the words of the call"


class ChangeOwner(Struct, frozen=True):
    """A step of a thread."""

    lane: str
    step: Step


class ChangeInterval(Struct, frozen=True):
    """What lies between two saved trees: whose step it belongs to, and how surely."""

    before: str
    after: str
    owner: ChangeOwner | None
    attribution: Attribution
    at_ms: int
    has_background: bool = False

    def attribution_of(self, path: str) -> Attribution:
        """How surely a change of one file is the owner's: a file its own tool names is not only the background's."""
        if self.attribution == "background" and self.owner and _step_names_path(self.owner.step, path):
            return "shared"
        return self.attribution


def iter_intervals(
    start: str, saved: Sequence[SnapshotSaved], calls: Sequence[ApiCall], session: Session | None
) -> Iterator[ChangeInterval]:
    """Read the trees of one session in order; `start` is what it found."""
    timeline = _Timeline(calls, session, hooked=any(snapshot.call_id for snapshot in saved))
    before = start
    last = 0
    for snapshot in sorted(saved, key=lambda snapshot: (snapshot.request == 0, snapshot.request)):
        yield timeline.interval_between(before, snapshot, last)
        before = snapshot.tree
        last = snapshot.request or last


class _Timeline:
    """The steps of a session by the requests between which their tools ran."""

    def __init__(self, calls: Sequence[ApiCall], session: Session | None, *, hooked: bool) -> None:
        steps = steps_by_thread(session) if session else {}
        owners = {step.message_id: ChangeOwner(lane, step) for lane, own in steps.items() for step in own}
        self._captured = bool(calls)
        self._hooked = hooked
        self._all = sorted(owners.values(), key=lambda owner: owner.step.at_ms or 0)
        self._open: list[tuple[int, float, ChangeOwner]] = []
        following: dict[str, float] = {}
        for call in sorted(calls, key=lambda one: -one.index):
            owner = owners.get(call.message_id)
            if owner is not None and call.lane != SIDE:
                self._open.append((call.index, following.get(call.lane, float("inf")), owner))
            following[call.lane] = call.index

    def interval_between(self, before: str, saved: SnapshotSaved, last: int) -> ChangeInterval:
        """Say whose the time between request `last` and the one that saved this tree is."""
        until = saved.request or float("inf")
        if not self._captured:
            return self._after_call(before, saved)
        open_now = [owner for began, ended, owner in self._open if began <= last and ended >= until]
        # Its last request is past and its thread said no more: a thread that rested is not at work.
        writing = [owner for owner in open_now if _may_write(owner.step)]
        behind = self._in_background(last)
        latest = max((each for each in self._open if each[0] <= last), key=lambda one: one[0], default=None)
        owner = _nearest_owner(writing, saved.lane) or (latest[2] if latest else None)
        if behind or not writing:
            return ChangeInterval(before, saved.tree, owner, "background", saved.at_ms, has_background=behind)
        return ChangeInterval(before, saved.tree, owner, "exact" if len(writing) == 1 else "shared", saved.at_ms)

    def _after_call(self, before: str, saved: SnapshotSaved) -> ChangeInterval:
        """Without requests: a tree saved after a tool call is that call's step's, unless others were at work."""
        found = [(owner, call) for owner in self._all for call in owner.step.calls if call.id == saved.call_id]
        if not saved.call_id or not found:
            last = self._all[-1] if self._all else None
            return ChangeInterval(before, saved.tree, last, "background" if self._hooked else "shared", saved.at_ms)
        owner, call = found[0]
        earlier = self._all[: self._all.index(owner)]
        if any(_leaves_running(each) for one in earlier for each in one.step.calls):
            return ChangeInterval(before, saved.tree, owner, "background", saved.at_ms, has_background=True)
        beside = [
            each
            for one in self._all
            for each in one.step.calls
            if one is not owner and each.name not in _DELEGATES | _READERS and _calls_overlap(call, each)
        ]
        return ChangeInterval(before, saved.tree, owner, "shared" if beside else "exact", saved.at_ms)

    def _in_background(self, last: int) -> bool:
        """Whether a shell was left running by a step before."""
        return any(
            _leaves_running(call)
            for began, ended, owner in self._open
            if began <= last and ended <= last
            for call in owner.step.calls
        )


def _nearest_owner(writing: Sequence[ChangeOwner], lane: str) -> ChangeOwner | None:
    """Of several, the one whose thread asks next."""
    return next((owner for owner in writing if owner.lane == lane), writing[0] if writing else None)


def _may_write(step: Step) -> bool:
    return any(call.name not in _DELEGATES | _READERS for call in step.calls)


def _leaves_running(call: ToolCall) -> bool:
    given = call.ran_input or call.input
    if call.name == "Bash":
        return bool(given.get("run_in_background")) or "backgroundTaskId" in _background_detail(call)
    return False


def _calls_overlap(one: ToolCall, other: ToolCall) -> bool:
    """Whether two calls ran at the same time, as far as their records say when."""
    times = (one.started_ms, one.ended_ms, other.started_ms, other.ended_ms)
    if any(time is None for time in times):
        return False
    began, ended, other_began, other_ended = (time or 0 for time in times)
    return began < other_ended and other_began < ended


def _background_detail(call: ToolCall) -> dict[str, object]:
    return call.detail if isinstance(call.detail, dict) and call.detail.get("backgroundTaskId") else {}


def _step_names_path(step: Step, path: str) -> bool:
    return any(name == path or name.endswith("/" + path) for name in map(changed_file, step.calls))


def iter_reported_changes(lane: str, step: Step, step_id: int | None, cwd: str) -> Iterator[dict[str, Any]]:
    """Yield what the calls of one step say they changed."""
    for call in step.calls:
        path = changed_file(call)
        if not path or call.is_error or call.denied or call.result is None:
            continue
        name = path.removeprefix(cwd.rstrip("/") + "/") if cwd else path
        diff, source = _diff_and_source(call, name)
        told = diff_of_call(call)
        yield {
            "session_index": 1,
            "step_id": step_id,
            "file_path": name,
            "diff": diff,
            "diff_stats": {"added": told.added if told else 0, "removed": told.removed if told else 0},
            "kind": "added" if diff.startswith("--- /dev/null") else "modified",
            "binary": False,
            "attribution": None,
            "rebuilt_from": source,
            "message_id": step.message_id,
            "tool_call_ids": [call.id],
            **({"subagent": lane} if lane else {}),
        }


def _diff_and_source(call: ToolCall, name: str) -> tuple[str, str]:
    detail = call.detail if isinstance(call.detail, dict) else {}
    hunks = detail.get("structuredPatch")
    content = detail.get("content")
    if detail.get("type") == "create" and isinstance(content, str):
        return _created_file_diff(name, content), PATCH
    if isinstance(hunks, list) and hunks and all(map(_is_whole, hunks)):
        body = "".join(_render_hunk(hunk) for hunk in hunks)
        return f"--- {name}\n+++ {name}\n{body}", PATCH
    told = diff_of_call(call)
    lines = [f"{line.sign.value}{line.text}\n" for line in told.lines if line.sign.value in "+-"] if told else []
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
    return isinstance(hunk, dict) and all(isinstance(hunk.get(name), int) for name in numbers) and _has_lines(hunk)


def _has_lines(hunk: dict[str, Any]) -> bool:
    return isinstance(hunk.get("lines"), list) and all(isinstance(line, str) for line in hunk["lines"])


def _render_hunk(hunk: dict[str, Any]) -> str:
    head = f"@@ -{hunk['oldStart']},{hunk['oldLines']} +{hunk['newStart']},{hunk['newLines']} @@\n"
    return head + "".join(line + "\n" for line in hunk["lines"])
