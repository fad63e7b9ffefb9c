"""Build `state_changelog.jsonl` and `uuid_map.json`.

A plain change of text starts as the source document shows it (`--- MEMORY.md`). Changes that this
form cannot express (new, deleted, binary, mode, link, rename) keep git's header lines. Paths have
no prefix: `git apply -p0` takes every entry. Patches that are not UTF-8 are base64-encoded.

Steps, requests and snapshots are joined by ids (message, request, tool call), never by position.
Every response has a row, including text-only ones and those of subagents; requests that answer none
(a retry, a title, a compaction) are listed beside them. Pure.
"""

import base64
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flightlog.lab.events import SnapshotSaved
from flightlog.lab.file_changes import ChangeInterval
from flightlog.lab.run_session import SIDE, ApiCall, steps_by_thread
from flightlog.model.session import Session, Step
from flightlog.store.git.snapshots import WorkTreeSnapshots
from flightlog.store.git.worktree import TreeChange
from flightlog.views.atif.document import Trajectory
from flightlog.views.atif.steps import format_timestamp
from flightlog.views.atif.writer import MAIN, step_ids, subagent_file

_PART = re.compile(rb"^diff --git ", re.MULTILINE)
_PREFIX = re.compile(rb'^(--- |\+\+\+ )("?)[ab]/')
_HUNK = (b"@@ ", b"GIT binary patch")


def iter_changelog_entries(
    trees: WorkTreeSnapshots, interval: ChangeInterval, head: dict[str, Any], step_id: int | None
) -> Iterator[dict[str, Any]]:
    """Yield the entries of one interval; `head` holds the fields of the session."""
    if interval.before == interval.after:
        return
    changes = trees.diff_snapshots(interval.before or None, interval.after)
    if not changes:
        return
    parts = _split_patch(trees.patch_between(interval.before or None, interval.after))
    for change in changes:
        yield {
            **head,
            "timestamp": format_timestamp(interval.at_ms),
            "step_id": step_id,
            "file_path": change.path.encode("utf-8", "replace").decode(),
            **_patch_fields(b"".join(parts.get(_diff_header(change), [])), change),
            "diff_stats": {"added": change.added or 0, "removed": change.removed or 0},
            "kind": change.kind,
            **({"old_path": change.old_path} if change.kind == "renamed" else {}),
            "binary": change.added is None,
            "attribution": interval.attribution_of(change.path),
            **_owner_fields(interval),
            "blob_before": _blob_or_none(change.old_id),
            "blob_after": _blob_or_none(change.id),
            "snapshot": interval.after,
        }


def _owner_fields(interval: ChangeInterval) -> dict[str, Any]:
    owner = interval.owner
    if owner is None:
        return {"message_id": None, "tool_call_ids": []}
    subagent = {"subagent": owner.subagent} if owner.subagent else {}
    calls = [call.id for call in owner.step.tool_calls]
    return {"message_id": owner.step.message_id, "tool_call_ids": calls, **subagent}


def _patch_fields(patch: bytes, change: TreeChange) -> dict[str, str]:
    """Return the patch without `a/` and `b/`, and without header lines that add nothing."""
    patch = b"".join(
        _without_prefix(b"diff --git " + part, change) for part in _PART.split(patch)[1:]
    )
    try:
        return {"diff": patch.decode("utf-8")}
    except UnicodeDecodeError:
        return {"diff": base64.b64encode(patch).decode(), "diff_encoding": "base64"}


def _split_patch(patch: bytes) -> dict[bytes, list[bytes]]:
    """Split a patch by its `diff --git` lines; a file that became a link has two parts."""
    starts = [match.start() for match in _PART.finditer(patch)]
    parts: dict[bytes, list[bytes]] = {}
    for start, end in zip(starts, [*starts[1:], len(patch)], strict=True):
        part = patch[start:end]
        parts.setdefault(part.partition(b"\n")[0], []).append(part)
    return parts


def _diff_header(change: TreeChange) -> bytes:
    old = change.old_path if change.kind == "renamed" else change.path
    return b"diff --git " + _quote_git_path("a/" + old) + b" " + _quote_git_path("b/" + change.path)


def _quote_git_path(path: str) -> bytes:
    """Quote a path as git does: special bytes as escapes, in double quotes."""
    raw = os.fsencode(path)
    escapes = {7: "a", 8: "b", 9: "t", 10: "n", 11: "v", 12: "f", 13: "r", 34: '"', 92: "\\"}
    escapes |= {byte: f"{byte:03o}" for byte in (*range(32), 127) if byte not in escapes}
    parts = (f"\\{escapes[byte]}" if byte in escapes else chr(byte) for byte in raw)
    quoted = "".join(parts).encode("latin-1")
    return raw if quoted == raw else b'"' + quoted + b'"'


def _without_prefix(part: bytes, change: TreeChange) -> bytes:
    lines = part.splitlines(keepends=True)
    body = next((at for at, line in enumerate(lines) if line.startswith(_HUNK)), len(lines))
    head = [_PREFIX.sub(rb"\1\2", line) for line in lines[:body]]
    head[0] = head[0].replace(b' "a/', b' "').replace(b' "b/', b' "')
    plain_names = _diff_header(change).count(b'"') == 0
    if plain_names:
        old = change.old_path if change.kind == "renamed" else change.path
        head[0] = b"diff --git " + os.fsencode(old) + b" " + os.fsencode(change.path) + b"\n"
    names = [line for line in head if line.startswith((b"--- ", b"+++ "))]
    if (
        change.kind == "modified"
        and change.mode == change.old_mode
        and len(names) == 2
        and plain_names
    ):
        head = names
    return b"".join(head + lines[body:])


def _blob_or_none(object_id: str) -> str | None:
    return None if set(object_id) == {"0"} else object_id


class StepJoin:
    """Joins the steps of one session with its requests and snapshots."""

    def __init__(
        self,
        session: Session,
        documents: Mapping[str, Trajectory],
        calls: Sequence[ApiCall],
        saved: Sequence[SnapshotSaved],
    ) -> None:
        self._session = session
        self._files = {"": MAIN} | {
            subagent.id: subagent_file(subagent) for subagent in session.subagents
        }
        self._ids = {name: step_ids(documents[name]) for name in documents}
        self._calls = {call.message_id: call for call in calls if call.message_id}
        self._by_request = {_request_id(call): call for call in calls if _request_id(call)}
        self._every = list(calls)
        self._after = _trees_after_requests(calls, saved)
        self._after_call = {
            snapshot.tool_call_id: snapshot.tree for snapshot in saved if snapshot.tool_call_id
        }

    def step_id(self, subagent: str, step: Step) -> int | None:
        return self._ids.get(self._files.get(subagent, ""), {}).get(step.message_id)

    def find_request(self, step: Step) -> ApiCall | None:
        return self._calls.get(step.message_id) or self._by_request.get(step.request_id)

    def build_uuid_map(self, copied: frozenset[str]) -> dict[str, Any]:
        """Return the whole map; responses copied from a parent are only counted."""
        subagents = steps_by_thread(self._session)
        own = {
            subagent: [step for step in steps if step.message_id not in copied]
            for subagent, steps in subagents.items()
        }
        steps = (step for thread in own.values() for step in thread)
        joined = {call.index for step in steps if (call := self.find_request(step))}
        return {
            "session_id": self._session.id,
            "turns": [self._build_turn(number, "", step) for number, step in enumerate(own[""], 1)],
            "subagents": {
                subagent: [
                    self._build_turn(number, subagent, step) for number, step in enumerate(steps, 1)
                ]
                for subagent, steps in own.items()
                if subagent
            },
            "other_requests": [
                _unjoined_request(call) for call in self._every if call.index not in joined
            ],
            "copied_turns": len(subagents[""]) - len(own[""]),
        }

    def _last_tree_of_step(self, step: Step) -> str | None:
        """Return the snapshot after the last tool call of a step, for runs without capture."""
        trees = [
            self._after_call[call.id] for call in step.tool_calls if call.id in self._after_call
        ]
        return max(trees, default=None)

    def _build_turn(self, number: int, subagent: str, step: Step) -> dict[str, Any]:
        call = self.find_request(step)
        step_id = self.step_id(subagent, step)
        return {
            "turn_index": number,
            "message_id": step.message_id,
            "request_id": step.request_id or None,
            "request_file": f"request_{call.index:03d}.json" if call else None,
            "request_index": call.index if call else None,
            "atif_step_ids": [step_id] if step_id is not None else [],
            "trajectory": self._files.get(subagent),
            "transcript_assistant_uuids": list(step.record_uuids),
            "transcript_tool_result_uuids": [
                tool_call.result_uuid for tool_call in step.tool_calls if tool_call.result_uuid
            ],
            "tool_call_ids": [tool_call.id for tool_call in step.tool_calls],
            "shadow_git_tag": self._after.get(call.index)
            if call
            else self._last_tree_of_step(step),
            "timestamp": format_timestamp(step.at_ms) if step.at_ms is not None else None,
        }


def _trees_after_requests(
    calls: Sequence[ApiCall], saved: Sequence[SnapshotSaved]
) -> dict[int, str]:
    """Return the snapshot after each request's tools: at its thread's next request, or the last."""
    trees = {snapshot.request_index: snapshot.tree for snapshot in saved}
    end = trees.get(0)
    after: dict[int, str] = {}
    following: dict[str, int] = {}
    for call in sorted(calls, key=lambda item: -item.index):
        tree = trees.get(following.get(call.subagent, 0)) or end
        if tree and call.subagent != SIDE:
            after[call.index] = tree
        following[call.subagent] = call.index
    return after


def _request_id(call: ApiCall) -> str:
    return call.exchange.response.request_id if call.exchange.response else ""


def _unjoined_request(call: ApiCall) -> dict[str, Any]:
    response = call.exchange.response
    return {
        "request_index": call.index,
        "request_file": f"request_{call.index:03d}.json",
        "agent_context": call.exchange.request.agent_context.value,
        "is_compaction": call.exchange.request.is_compaction,
        "status": response.status if response else None,
        "message_id": call.message_id or None,
    }
