"""How two trees of a shadow repository differ: a list of changes, and a patch git can apply.

Reads objects only; the work tree may be anything meanwhile.
"""

import os
from collections.abc import Iterable, Iterator
from typing import Literal

from msgspec import Struct

from flightlog.store.git import ShadowRepository

Kind = Literal["added", "deleted", "modified", "renamed", "retyped"]
_KINDS: dict[str, Kind] = {"A": "added", "D": "deleted", "M": "modified", "R": "renamed", "T": "retyped"}
_COMPARE = ("diff-tree", "-r", "-M", "-l2000", "--no-color", "--no-ext-diff", "--no-textconv", "--full-index")


class TreeChange(Struct, frozen=True):
    """One file that differs. Line counts are None for binary files; modes are git's (120000 is a link)."""

    path: str
    kind: Kind
    old_path: str
    old_mode: str
    mode: str
    old_id: str
    id: str
    added: int | None
    removed: int | None


def list_changes(repository: ShadowRepository, before: str, after: str) -> list[TreeChange]:
    """List the changes between two trees, in order of path."""
    said = repository.run_git([*_COMPARE, "-z", "--raw", "--numstat", before, after])
    parts = iter(os.fsdecode(part) for part in said.split(b"\0")[:-1])
    raw: dict[str, tuple[str, list[str]]] = {}
    counts: dict[str, tuple[int | None, int | None]] = {}
    for part in parts:
        if part.startswith(":"):
            fields = part[1:].split(" ")
            old = next(parts)
            raw[next(parts) if fields[4][0] == "R" else old] = (old, fields)
        else:
            added, removed, path = part.split("\t", 2)
            if not path:
                _, path = next(parts), next(parts)
            counts[path] = (_parse_count(added), _parse_count(removed))
    return sorted(_build_changes(raw, counts), key=lambda change: change.path)


def make_patch(repository: ShadowRepository, before: str, after: str, paths: Iterable[str] = ()) -> bytes:
    """Return the difference as a patch, of these paths only when some are given."""
    chosen = list(paths)
    return repository.run_git([*_COMPARE, "--patch", "--binary", before, after, *(("--", *chosen) if chosen else ())])


def _build_changes(
    raw: dict[str, tuple[str, list[str]]], counts: dict[str, tuple[int | None, int | None]]
) -> Iterator[TreeChange]:
    for path, (old, (old_mode, mode, old_id, new_id, status)) in raw.items():
        added, removed = counts.get(path, (0, 0))
        yield TreeChange(path, _KINDS[status[0]], old, old_mode, mode, old_id, new_id, added, removed)


def _parse_count(said: str) -> int | None:
    return None if said == "-" else int(said)
