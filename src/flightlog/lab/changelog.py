"""`state_changelog.jsonl`: one line for each file a step changed, with a difference that can be applied.

A plain change of text begins as the source document shows it (`--- MEMORY.md`); what such a form
cannot carry (new, deleted, binary, mode, link, rename) keeps git's own lines before it. Paths have
no prefix: `git apply -p0` takes every entry. Bytes that are no UTF-8 stand in base64.
"""

import base64
import os
import re
from collections.abc import Iterator
from typing import Any

from flightlog.lab.changes import ChangeInterval
from flightlog.store.trees import TreeChange, WorkTreeSnapshots
from flightlog.views.atif.steps import format_timestamp

_PART = re.compile(rb"^diff --git ", re.MULTILINE)
_PREFIX = re.compile(rb'^(--- |\+\+\+ )("?)[ab]/')
_HUNK = (b"@@ ", b"GIT binary patch")


def iter_changelog_entries(
    trees: WorkTreeSnapshots, interval: ChangeInterval, head: dict[str, Any], step_id: int | None
) -> Iterator[dict[str, Any]]:
    """Yield the lines of one interval; `head` names the session."""
    if interval.before == interval.after:
        return
    changes = trees.diff_snapshots(interval.before or None, interval.after)
    if not changes:
        return
    parts = _split_patch(trees.patch_between(interval.before or None, interval.after))
    for change in changes:
        patch = b"".join(parts.get(_diff_header(change), []))
        yield {
            **head,
            "timestamp": format_timestamp(interval.at_ms),
            "step_id": step_id,
            "file_path": change.path.encode("utf-8", "replace").decode(),
            **_patch_fields(_without_prefix(patch, change)),
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
    lane = {"subagent": owner.lane} if owner.lane else {}
    return {"message_id": owner.step.message_id, "tool_call_ids": [call.id for call in owner.step.calls], **lane}


def _patch_fields(patch: bytes) -> dict[str, str]:
    try:
        return {"diff": patch.decode("utf-8")}
    except UnicodeDecodeError:
        return {"diff": base64.b64encode(patch).decode(), "diff_encoding": "base64"}


def _split_patch(patch: bytes) -> dict[bytes, list[bytes]]:
    """Cut a patch into files, by the line that names them; a file that became a link has two parts."""
    starts = [found.start() for found in _PART.finditer(patch)]
    parts: dict[bytes, list[bytes]] = {}
    for start, end in zip(starts, [*starts[1:], len(patch)], strict=True):
        part = patch[start:end]
        parts.setdefault(part.partition(b"\n")[0], []).append(part)
    return parts


def _diff_header(change: TreeChange) -> bytes:
    old = change.old_path if change.kind == "renamed" else change.path
    return b"diff --git " + _quote_git_path("a/" + old) + b" " + _quote_git_path("b/" + change.path)


def _quote_git_path(path: str) -> bytes:
    """Write a path as git does: odd bytes as escapes, in quotes."""
    raw = os.fsencode(path)
    named = {7: "a", 8: "b", 9: "t", 10: "n", 11: "v", 12: "f", 13: "r", 34: '"', 92: "\\"}
    said = "".join(
        f"\\{named[byte]}" if byte in named else f"\\{byte:03o}" if byte < 32 or byte == 127 else chr(byte)
        for byte in raw
    ).encode("latin-1")
    return raw if said == raw else b'"' + said + b'"'


def _without_prefix(patch: bytes, change: TreeChange) -> bytes:
    """Take `a/` and `b/` off the head of each part, and all of the head where it says nothing more."""
    cut = _PART.split(patch)[1:]
    return b"".join(_one_without_prefix(b"diff --git " + part, change) for part in cut)


def _one_without_prefix(part: bytes, change: TreeChange) -> bytes:
    lines = part.splitlines(keepends=True)
    body = next((at for at, line in enumerate(lines) if line.startswith(_HUNK)), len(lines))
    head = [_PREFIX.sub(rb"\1\2", line) for line in lines[:body]]
    head[0] = head[0].replace(b' "a/', b' "').replace(b' "b/', b' "')
    plain_names = _diff_header(change).count(b'"') == 0
    if plain_names:
        old = change.old_path if change.kind == "renamed" else change.path
        head[0] = b"diff --git " + os.fsencode(old) + b" " + os.fsencode(change.path) + b"\n"
    names = [line for line in head if line.startswith((b"--- ", b"+++ "))]
    if change.kind == "modified" and change.mode == change.old_mode and len(names) == 2 and plain_names:
        head = names
    return b"".join(head + lines[body:])


def _blob_or_none(object_id: str) -> str | None:
    return None if set(object_id) == {"0"} else object_id
