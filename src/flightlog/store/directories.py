"""Create directories whole, copy them, migrate their layout, execute retention.

A copy shares blocks with its source if the file system can. Files that a project ignores are
copied too, because the agent that works in the copy may need them.

`layout.json` says which layout a directory has; one without it has the first. A migration may be
killed: its backup is complete before the first file is changed, and the next run converts the
files that still equal their backup. A directory of a later layout is never written.

Retention may be killed and run again: what was done is not planned again, and nothing is deleted
before its summary is on disk. It never follows a symbolic link and never leaves its root.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from flightlog.model.errors import FlightlogError, Invalid, Misconfigured, Unavailable, Unreadable
from flightlog.model.retention import RetentionAction, RetentionMove, RetentionResult
from flightlog.store.files import (
    ensure_dir,
    is_running,
    os_errors_as_unavailable,
    process_tag,
    replace_file,
    resolve_inside,
    sync_dir,
)
from flightlog.store.locks import exclusive_lock

_STAGING = re.compile(r"\..+\.(?P<owner>\d+-\d+-[0-9a-f]+)\.making")  # named by `staging_dir`
MARK = "layout.json"
BACKUPS = "backups"
FIRST = 1  # the layout of a directory without `layout.json`
_WHOLE = "whole"
_GOING = ".going-"
Summarise = Callable[[str, Sequence[RetentionMove], bytes | None], bytes]


def create_dir(path: Path) -> bool:
    """Make the directory `path`, for its owner only; return whether it is new."""
    ensure_dir(path.parent)
    with os_errors_as_unavailable(path):
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            return False
        sync_dir(path.parent)
    return True


def copy_tree(source: Path, into: Path) -> None:
    """Copy `source` to the new directory `into`: links as links, with modes and times."""
    ensure_dir(into.parent)
    with os_errors_as_unavailable(into):
        if into.exists():
            raise Invalid(f"already exists: {into}", hint="name a new directory")
        try:
            import subprocess  # noqa: PLC0415 - a settle copies nothing

            # `cp` clones blocks if the file system can; Python's own copy does not.
            command = ["env", "LC_ALL=C", "cp", "-a", str(source), str(into)]
            done = subprocess.run(command, capture_output=True, check=False)
        except FileNotFoundError:
            shutil.copytree(source, into, symlinks=True)
            return
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    # A file that is removed while `cp` runs is not part of the copy.
    is_whole = into.exists() and all(line.endswith(": No such file or directory") for line in lines)
    if done.returncode and not (lines and is_whole):
        is_full = "No space left" in "".join(lines)
        text = f"the directory cannot be copied: {lines[0] if lines else source}"
        raise Unavailable(text, hint="free some space" if is_full else "allow yourself to read it")


def set_aside(path: Path, into: Path) -> Path:
    """Move `path` into the directory `into`, with a number if its name exists there."""
    ensure_dir(into)
    names = (path.name, *(f"{path.name}.{number}" for number in range(2, 10_000)))
    target = next(into / name for name in names if not (into / name).exists())
    _move_durably(path, target)
    return target


def _move_durably(path: Path, target: Path) -> None:
    with os_errors_as_unavailable(path):
        path.rename(target)
        sync_dir(target.parent)
        sync_dir(path.parent)


def remove_tree(path: Path) -> None:
    """Remove a directory with its content, if it exists."""
    with os_errors_as_unavailable(path):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)


@contextmanager
def staging_dir(parent: Path, name: str) -> Iterator[Path]:
    """Make a temporary directory; it is removed afterwards unless `publish_dir` renamed it."""
    ensure_dir(parent)
    path = parent / f".{name}.{process_tag()}.making"
    with os_errors_as_unavailable(path):
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(mode=0o700)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def publish_dir(path: Path, final: Path) -> bool:
    """Give a staging directory its final name; return whether that name was free."""
    with os_errors_as_unavailable(final):
        sync_dir(path)
        if final.exists():
            return False
        try:
            path.rename(final)
        except OSError:
            if final.exists():
                return False
            raise
        sync_dir(final.parent)
    return True


def remove_abandoned_dirs(parent: Path) -> list[Path]:
    """Remove staging directories of processes that died, and return their paths."""
    removed = []
    with suppress(FileNotFoundError), os_errors_as_unavailable(parent):
        for path in sorted(parent.iterdir()):
            match = _STAGING.fullmatch(path.name)
            if match and not is_running(match["owner"]):
                shutil.rmtree(path, ignore_errors=True)
                removed.append(path)
    return removed


class LayoutMigration(Struct, frozen=True):
    """The step from the layout before to layout `to`: which files change, and how.

    `convert` is idempotent: a directory that a newer version created may have no `layout.json` yet.
    """

    to: int
    reason: str
    files: Callable[[Path], Iterable[Path]]
    convert: Callable[[bytes], bytes]


def layout_of(root: Path) -> int:
    """Return which layout a directory has."""
    try:
        layout = json.loads((root / MARK).read_bytes())["layout"]
    except FileNotFoundError:
        return FIRST
    except (OSError, ValueError, KeyError, TypeError) as error:
        hint = "flightlog doctor"
        raise Unreadable(f"{MARK} cannot be read: {root / MARK}", hint=hint) from error
    if not isinstance(layout, int) or layout < FIRST:
        raise Unreadable(f"{MARK} names no layout: {root / MARK}", hint="flightlog doctor")
    return layout


def find_existing(path: Path) -> Path:
    """Return `path`, or the nearest directory above it that exists."""
    return next(folder for folder in (path, *path.parents) if os.access(folder, os.F_OK))


def ensure_writable(root: Path, known: int = FIRST) -> None:
    """Raise `Misconfigured` if `root` has a layout later than `known`: it may only be read."""
    try:
        have = layout_of(root)
    except Unreadable as error:
        hint = "flightlog doctor"
        raise Misconfigured(f"{error.message}; nothing is written", hint=hint) from error
    if have > known:
        message = f"layout {have} needs a later flightlog, this one writes layout {known}; nothing is written"
        raise Misconfigured(f"{message}: {root}", hint="pip install --upgrade flightlog")


def newest_layout(steps: Iterable[LayoutMigration]) -> int:
    """Return the layout that these steps lead to."""
    return max((step.to for step in steps), default=FIRST)


def migrate_layout(
    root: Path, steps: Sequence[LayoutMigration]
) -> list[tuple[LayoutMigration, Path]]:
    """Apply the missing steps in order; return each with the path of its backup."""
    with exclusive_lock(root / ".layout.lock", "another flightlog doctor"):
        ensure_writable(root, newest_layout(steps))
        have = layout_of(root)
        missing = [step for step in sorted(steps, key=lambda step: step.to) if step.to > have]
        return [(step, _migrate_step(root, step)) for step in missing]


def _migrate_step(root: Path, step: LayoutMigration) -> Path:
    copy = root / BACKUPS / f"before-layout-{step.to}"
    files = [path for path in sorted(step.files(root)) if path.is_file()]
    paths = [path for path in files if BACKUPS not in path.relative_to(root).parts]
    if not (copy / _WHOLE).exists():
        for path in paths:
            replace_file(resolve_inside(copy, str(path.relative_to(root))), path.read_bytes())
        replace_file(copy / _WHOLE, f"{len(paths)}\n".encode())
    for path in paths:
        before = path.read_bytes()
        backup = copy / path.relative_to(root)
        # A file that differs from its backup was converted before a crash; one without is newer.
        if backup.is_file() and backup.read_bytes() == before:
            after = step.convert(before)
            assert step.convert(after) == after, (
                f"layout {step.to}: the conversion is not idempotent"
            )
            replace_file(path, after)
    replace_file(root / MARK, json.dumps({"layout": step.to}).encode() + b"\n")
    return copy


def carry_out_moves(
    root: Path, moves: Iterable[RetentionMove], summarise: Summarise
) -> RetentionResult:
    """Execute a retention plan and return what was done.

    `summarise(name, moves, before)` returns the file `name` that mentions `moves`; `before` is its
    present content, which mentions some of them already if a run was killed.
    """
    done: list[RetentionMove] = []
    left: list[tuple[RetentionMove, str]] = []
    summaries: list[str] = []
    finish_deletions(root)
    groups: dict[str, list[RetentionMove]] = {}
    for move in moves:
        groups.setdefault(move.summary, []).append(move)
    for name, group in groups.items():
        try:
            if name:
                _write_summary(root, name, group, summarise)
                summaries.append(name)
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
    return RetentionResult(tuple(done), tuple(left), tuple(summaries))


def finish_deletions(root: Path) -> None:
    """Remove what a killed run had begun to delete."""
    for path in sorted(root.rglob(f"{_GOING}*")) if root.is_dir() else ():
        with os_errors_as_unavailable(path):
            _remove_path(path)


def _write_summary(
    root: Path, name: str, group: Sequence[RetentionMove], summarise: Summarise
) -> None:
    path = resolve_inside(root, name)
    before = path.read_bytes() if path.is_file() else None
    body = summarise(name, group, before)
    if not body.strip():
        hint = "items are deleted only after they are summarized"
        raise Invalid(f"an empty summary: {name}", hint=hint)
    if body != before:
        replace_file(path, body)


def _move_or_delete(root: Path, move: RetentionMove) -> None:
    path = resolve_inside(root, move.item.name)
    if move.action is RetentionAction.ARCHIVE:
        target = resolve_inside(root, move.target)
        if target.exists():
            raise Invalid(f"already in the archive: {move.target}", hint="move one of them away")
        ensure_dir(target.parent)
        _move_durably(path, target)
        return
    # The rename hides a directory from readers at once, and its name marks the rest after a crash.
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
