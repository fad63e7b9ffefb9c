"""Bringing a directory of ours up to date: step by step, each after a copy of what it changes.

`layout.json` says which layout a directory has; one without it has the first. A step is killed or
fails as it may: the copy is whole before the first file is changed, and the next try goes on with the
files that still are what was copied. A directory of a later layout is never touched.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from flightlog.model.errors import Misconfigured, Unreadable
from flightlog.store.files import replace_file, resolve_inside
from flightlog.store.locks import exclusive_lock

MARK = "layout.json"
BACKUPS = "backups"
FIRST = 1
_WHOLE = "whole"


class LayoutMigration(Struct, frozen=True):
    """From the layout before to layout `to`: which files change, and what each becomes.

    `convert` leaves alone what it has made: a directory that a newer version began has no mark yet.
    """

    to: int
    why: str
    files: Callable[[Path], Iterable[Path]]
    convert: Callable[[bytes], bytes]


def layout_of(root: Path) -> int:
    """Which layout a directory has."""
    try:
        said = json.loads((root / MARK).read_bytes())["layout"]
    except FileNotFoundError:
        return FIRST
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Unreadable(f"{MARK} cannot be read: {root / MARK}", hint="flightlog doctor") from error
    if not isinstance(said, int) or said < FIRST:
        raise Unreadable(f"{MARK} names no layout: {root / MARK}", hint="flightlog doctor")
    return said


def ensure_writable(root: Path, known: int = FIRST) -> None:
    """Raise `Misconfigured` when `root` has a layout this version does not know: then it is read and never written."""
    try:
        have = layout_of(root)
    except Unreadable as error:
        raise Misconfigured(f"{error.message}; nothing is written", hint="flightlog doctor") from error
    if have > known:
        raise Misconfigured(
            f"layout {have} needs a later flightlog, this one writes layout {known}; nothing is written: {root}",
            hint="pip install --upgrade flightlog",
        )


def newest_layout(steps: Iterable[LayoutMigration]) -> int:
    """The layout that these steps lead to."""
    return max((step.to for step in steps), default=FIRST)


def migrate_layout(root: Path, steps: Sequence[LayoutMigration]) -> list[tuple[LayoutMigration, Path]]:
    """Take every step that is left, in order; return each with where its copy is."""
    known = newest_layout(steps)
    with exclusive_lock(root / ".layout.lock", "another flightlog doctor"):
        ensure_writable(root, known)
        have = layout_of(root)
        left = [step for step in sorted(steps, key=lambda one: one.to) if step.to > have]
        return [(step, _back_up(root, step)) for step in left]


def _back_up(root: Path, step: LayoutMigration) -> Path:
    copy = root / BACKUPS / f"before-layout-{step.to}"
    paths = [
        path for path in sorted(step.files(root)) if path.is_file() and BACKUPS not in path.relative_to(root).parts
    ]
    if not (copy / _WHOLE).exists():
        for path in paths:
            replace_file(resolve_inside(copy, str(path.relative_to(root))), path.read_bytes())
        replace_file(copy / _WHOLE, f"{len(paths)}\n".encode())
    for path in paths:
        before = path.read_bytes()
        kept = copy / path.relative_to(root)
        # What is no longer as it was copied was changed by a try that died; what was not copied is newer than the copy.
        if kept.is_file() and kept.read_bytes() == before:
            after = step.convert(before)
            assert step.convert(after) == after, f"layout {step.to}: a step leaves alone what it has made"
            replace_file(path, after)
    replace_file(root / MARK, json.dumps({"layout": step.to}).encode() + b"\n")
    return copy
