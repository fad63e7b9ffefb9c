"""Carrying out a retention plan on files: summaries first, then moves, each whole or not at all.

May be killed anywhere and run again: what was done is not planned again, and nothing goes before
its summary is on the disk. Never follows a symbolic link, never leaves its root.
"""

import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from flightlog.model.errors import FlightlogError, Invalid
from flightlog.model.retention import RetentionAction, RetentionMove, RetentionResult
from flightlog.store.files import ensure_dir, os_errors_as_unavailable, replace_file, resolve_inside, sync_dir

_GOING = ".going-"

Summarise = Callable[[str, Sequence[RetentionMove], bytes | None], bytes]


def carry_out_moves(root: Path, moves: Iterable[RetentionMove], summarise: Summarise) -> RetentionResult:
    """Do what was planned and say what was done.

    `summarise(name, moves, before)` returns the page `name` that tells of `moves`; `before` is what is there,
    which may tell of some of them already, since a run may have been cut short.
    """
    done: list[RetentionMove] = []
    left: list[tuple[RetentionMove, str]] = []
    written: list[str] = []
    finish_deletions(root)
    groups: dict[str, list[RetentionMove]] = {}
    for move in moves:
        groups.setdefault(move.summary, []).append(move)
    for name, group in groups.items():
        try:
            if name:
                _write_summary(root, name, group, summarise)
                written.append(name)
        except FlightlogError as error:
            left += [(move, f"no summary: {error.message}") for move in group]
            continue
        for move in group:
            try:
                _move_or_delete(root, move)
                done.append(move)
            except FlightlogError as error:
                left.append((move, error.message))
            except FileNotFoundError:
                left.append((move, "it is gone already"))
    return RetentionResult(tuple(done), tuple(left), tuple(written))


def finish_deletions(root: Path) -> None:
    """Remove what an earlier run had begun to delete."""
    for path in sorted(root.rglob(f"{_GOING}*")) if root.is_dir() else ():
        with os_errors_as_unavailable(path):
            _remove_path(path)


def _write_summary(root: Path, name: str, group: Sequence[RetentionMove], summarise: Summarise) -> None:
    path = resolve_inside(root, name)
    before = path.read_bytes() if path.is_file() else None
    body = summarise(name, group, before)
    if not body.strip():
        raise Invalid(f"an empty summary: {name}", hint="nothing is deleted before it is summed up")
    if body != before:
        replace_file(path, body)


def _move_or_delete(root: Path, move: RetentionMove) -> None:
    path = resolve_inside(root, move.item.name)
    if move.deed is RetentionAction.ARCHIVE:
        target = resolve_inside(root, move.target)
        if target.exists():
            raise Invalid(f"there is one in the archive already: {move.target}", hint="move one of them away")
        ensure_dir(target.parent)
        with os_errors_as_unavailable(path):
            path.rename(target)
            sync_dir(target.parent)
            sync_dir(path.parent)
        return
    # A directory disappears at once for every reader; what is left of it after a crash is told by its name.
    going = path.with_name(f"{_GOING}{path.name}")
    with os_errors_as_unavailable(path):
        path.rename(going)
        _remove_path(going)
        sync_dir(path.parent)


def _remove_path(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
