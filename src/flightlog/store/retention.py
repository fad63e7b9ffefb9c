"""Carrying out a retention plan on files: summaries first, then moves, each whole or not at all.

May be killed anywhere and run again: what was done is not planned again, and nothing goes before
its summary is on the disk. Never follows a symbolic link, never leaves its root.
"""

import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from flightlog.model.errors import FlightlogError, Invalid
from flightlog.model.retention import Deed, Move, Outcome
from flightlog.store.files import ensure_dir, inside, replace, sync_dir, told

_GOING = ".going-"

Summarise = Callable[[str, Sequence[Move], bytes | None], bytes]


def carry_out(root: Path, moves: Iterable[Move], summarise: Summarise) -> Outcome:
    """Do what was planned and say what was done.

    `summarise(name, moves, before)` returns the page `name` that tells of `moves`; `before` is what is there,
    which may tell of some of them already, since a run may have been cut short.
    """
    done: list[Move] = []
    left: list[tuple[Move, str]] = []
    written: list[str] = []
    finish(root)
    groups: dict[str, list[Move]] = {}
    for move in moves:
        groups.setdefault(move.summary, []).append(move)
    for name, group in groups.items():
        try:
            if name:
                _summed_up(root, name, group, summarise)
                written.append(name)
        except FlightlogError as error:
            left += [(move, f"no summary: {error.message}") for move in group]
            continue
        for move in group:
            try:
                _do(root, move)
                done.append(move)
            except FlightlogError as error:
                left.append((move, error.message))
            except FileNotFoundError:
                left.append((move, "it is gone already"))
    return Outcome(tuple(done), tuple(left), tuple(written))


def finish(root: Path) -> None:
    """Remove what an earlier run had begun to delete."""
    for path in sorted(root.rglob(f"{_GOING}*")) if root.is_dir() else ():
        with told(path):
            _removed(path)


def _summed_up(root: Path, name: str, group: Sequence[Move], summarise: Summarise) -> None:
    path = inside(root, name)
    before = path.read_bytes() if path.is_file() else None
    body = summarise(name, group, before)
    if not body.strip():
        raise Invalid(f"an empty summary: {name}", hint="nothing is deleted before it is summed up")
    if body != before:
        replace(path, body)


def _do(root: Path, move: Move) -> None:
    path = inside(root, move.item.name)
    if move.deed is Deed.ARCHIVE:
        target = inside(root, move.target)
        if target.exists():
            raise Invalid(f"there is one in the archive already: {move.target}", hint="move one of them away")
        ensure_dir(target.parent)
        with told(path):
            path.rename(target)
            sync_dir(target.parent)
            sync_dir(path.parent)
        return
    # A directory disappears at once for every reader; what is left of it after a crash is told by its name.
    going = path.with_name(f"{_GOING}{path.name}")
    with told(path):
        path.rename(going)
        _removed(going)
        sync_dir(path.parent)


def _removed(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
