"""Create whole, copy, migrate layouts, carry out retention.

A copy shares blocks with its source where the file system can. Knows no git: what a project
ignores is copied too, so that whoever works in the copy finds what it needs.

`layout.json` says which layout a directory has; one without it has the first. A step is killed or
fails as it may: the copy is whole before the first file is changed, and the next try goes on with the
files that still are what was copied. A directory of a later layout is never touched.

May be killed anywhere and run again: what was done is not planned again, and nothing goes before
its summary is on the disk. Never follows a symbolic link, never leaves its root.
"""

import json
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

_ASIDE = re.compile(r"\..+\.(?P<owner>\d+-\d+-[0-9a-f]+)\.making")
MARK = "layout.json"
BACKUPS = "backups"
FIRST = 1
_WHOLE = "whole"
_GOING = ".going-"
Summarise = Callable[[str, Sequence[RetentionMove], bytes | None], bytes]


def create_dir(path: Path) -> bool:
    """Make the directory `path`, for its owner only; say whether it was not there before."""
    ensure_dir(path.parent)
    with os_errors_as_unavailable(path):
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            return False
        sync_dir(path.parent)
    return True


def copy_tree(source: Path, into: Path) -> None:
    """Copy everything in `source`, links as links, modes and times kept, into the new directory `into`."""
    ensure_dir(into.parent)
    with os_errors_as_unavailable(into):
        if into.exists():
            raise Invalid(f"there is something already: {into}", hint="name a new directory")
        try:
            # `cp` clones blocks where it can; Python's own copy does not.
            import subprocess  # noqa: PLC0415 - a settle copies nothing

            done = subprocess.run(["cp", "-a", str(source), str(into)], capture_output=True, check=False)
        except FileNotFoundError:
            shutil.copytree(source, into, symlinks=True)
            return
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise Unavailable(f"the directory cannot be copied: {said[0] if said else source}", hint="free some space")


def set_aside(path: Path, into: Path) -> Path:
    """Move `path` into the directory `into` under its own name, numbered when that is taken."""
    ensure_dir(into)
    target = next(
        place
        for number in range(1, 10_000)
        if not (place := into / (path.name if number == 1 else f"{path.name}.{number}")).exists()
    )
    with os_errors_as_unavailable(path):
        path.rename(target)
        sync_dir(into)
        sync_dir(path.parent)
    return target


def remove_tree(path: Path) -> None:
    """Remove a directory of ours with all that is in it; one that is not there is fine."""
    with os_errors_as_unavailable(path):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)


@contextmanager
def staging_dir(parent: Path, name: str) -> Iterator[Path]:
    """Make a directory under a passing name; it is gone afterwards unless it was given its own with `appear`."""
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
    """Give a directory its name, with all that is in it; say whether that name was free."""
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
    """Remove what makers that died left unfinished."""
    gone = []
    with suppress(FileNotFoundError), os_errors_as_unavailable(parent):
        for path in sorted(parent.iterdir()):
            named = _ASIDE.fullmatch(path.name)
            if named and not is_running(named["owner"]):
                shutil.rmtree(path, ignore_errors=True)
                gone.append(path)
    return gone


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
