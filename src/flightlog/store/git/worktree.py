"""What differs from the index, what is skipped and why; tree diffs.

Reads objects only; the work tree may be anything meanwhile.

Git walks the tree (in C, near the floor of a stat of every file); only what it names is looked
at here, so a step costs what it changed. Reads, never writes.
"""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple, Protocol

from msgspec import Struct

from flightlog.model.errors import Invalid
from flightlog.store.git.repository import ShadowRepository

Kind = Literal["added", "deleted", "modified", "renamed", "retyped"]
_KINDS: dict[str, Kind] = {"A": "added", "D": "deleted", "M": "modified", "R": "renamed", "T": "retyped"}
_COMPARE = ("diff-tree", "-r", "-M", "-l2000", "--no-color", "--no-ext-diff", "--no-textconv", "--full-index")
UNWATCHED = "not watched"
_NOT_THERE = "not there"
_GONE, _NEW = "D", "?"
HEAVY = (
    *("node_modules", ".venv", "venv", "__pycache__", ".tox", ".nox", ".mypy_cache", ".pytest_cache", ".ruff_cache"),
    *(".gradle", ".terraform", ".next", ".turbo", ".cache", ".DS_Store", ".hypothesis", ".direnv"),
)


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


class SnapshotPolicy(Struct, frozen=True):
    """What belongs to a snapshot.

    `ignored`: "keep" takes files the project's .gitignore names too (a step may well change
    them, and a replay needs them), "leave" does not. `heavy` names and `leave_out` patterns (of
    .gitignore's kind) are not walked. `nested`: repositories inside are taken as plain files,
    or refused.
    """

    ignored: Literal["keep", "leave"] = "keep"
    nested: Literal["plain", "refuse"] = "plain"
    file_bytes_max: int = 32 << 20
    total_bytes_max: int = 2 << 30
    heavy: tuple[str, ...] = HEAVY
    leave_out: tuple[str, ...] = ()

    def ignore_patterns(self, git_dir: Path, work_tree: Path) -> bytes:
        """Return the patterns as a file for git; a shadow inside its own work tree leaves itself out."""
        own = git_dir.resolve()
        inside = [f"/{_escape_pattern(str(own.relative_to(work_tree)))}/"] if own.is_relative_to(work_tree) else []
        return "\n".join([*self.heavy, *self.leave_out, *inside, ""]).encode()


class SkippedPath(Struct, frozen=True):
    """A path no snapshot holds, and why: too large, unreadable, not watched."""

    path: str
    why: str


class WorkTreeStatus(NamedTuple):
    """What differs from the index."""

    changed: list[str]
    gone: list[str]
    left_out: tuple[SkippedPath, ...]
    nested: tuple[str, ...]
    bytes: int


class GitRunner(Protocol):
    """Git run in the work tree, or with nothing tracked in a directory inside it."""

    work_tree: Path

    def __call__(self, command: list[str], inside: str = "") -> bytes:
        """Run it."""

    def both(self, one: list[str], other: list[str]) -> tuple[bytes, bytes]:
        """Run two commands at once."""


def work_tree_status(
    git: GitRunner, policy: SnapshotPolicy, rules: Path, also: Iterable[str], *, survey: bool
) -> WorkTreeStatus:
    """Say what differs from the index; `rules` is the file of patterns.

    `survey` names the unwatched directories too, at the price of a second walk.
    """
    given = [*(["--exclude-standard"] if policy.ignored == "leave" else []), f"--exclude-from={rules}"]
    tracked, others = git.both(
        ["diff-files", "-z", "--name-status", "--no-renames"], ["ls-files", "-z", "--others", *given]
    )
    pairs = _split_nul_list(tracked)
    found = {path: how for how, path in zip(pairs, pairs, strict=True)}
    nested: list[str] = []
    for path in _split_nul_list(others):
        found |= dict.fromkeys(_list_nested_files(git, path, given, nested) if path.endswith("/") else [path], _NEW)
    if nested and policy.nested == "refuse":
        raise Invalid(
            f"a repository inside the work tree: {nested[0]}", hint="leave it out, or allow it as plain files"
        )
    found |= {path: _NEW for each in also if (path := _to_git_path(each)) and path not in found}
    unwatched = _list_unwatched(git, given) if survey else []
    return _classify_files(git.work_tree, policy, found, nested, unwatched)


def stale_index_entries(git: GitRunner, rules: Path) -> list[str]:
    """Name what is tracked although the patterns leave it out: it was asked for by name."""
    return list(_split_nul_list(git(["ls-files", "-z", "--cached", "--ignored", f"--exclude-from={rules}"])))


def _list_nested_files(git: GitRunner, folder: str, given: list[str], nested: list[str]) -> Iterator[str]:
    """The files of a repository inside the work tree, and of those inside it."""
    nested.append(folder.rstrip("/"))
    for path in _split_nul_list(git(["ls-files", "-z", "--others", *given], inside=folder)):
        if path.endswith("/"):
            yield from _list_nested_files(git, folder + path, given, nested)
        else:
            yield folder + path


def _list_unwatched(git: GitRunner, given: list[str]) -> list[SkippedPath]:
    named = git(["ls-files", "-z", "--others", "--ignored", "--directory", *given])
    return [SkippedPath(path.rstrip("/"), UNWATCHED) for path in _split_nul_list(named)]


def _classify_files(
    work_tree: Path, policy: SnapshotPolicy, found: Mapping[str, str], nested: list[str], unwatched: list[SkippedPath]
) -> WorkTreeStatus:
    changed: list[str] = []
    gone = [path for path, how in found.items() if how == _GONE]
    left_out = []
    total = 0
    for path, how in found.items():
        if how == _GONE:
            continue
        size, why = _weigh_file(work_tree / path, policy.file_bytes_max)
        if not why:
            changed.append(path)
            total += size
        elif how != _NEW:
            gone.append(path)  # a snapshot holds a file as it is, or not at all
        if why and why != _NOT_THERE:
            left_out.append(SkippedPath(path, why))
    return WorkTreeStatus(changed, gone, (*left_out, *unwatched), tuple(nested), total)


def _weigh_file(path: Path, most: int) -> tuple[int, str]:
    """The size of a file, and why it is left out if it is."""
    try:
        status = path.lstat()
    except OSError:
        return 0, _NOT_THERE
    if stat.S_ISLNK(status.st_mode):
        return status.st_size, ""
    if stat.S_ISDIR(status.st_mode):
        return 0, _NOT_THERE  # a directory took the place of a file
    if not stat.S_ISREG(status.st_mode):
        return 0, "not a file"
    if status.st_size > most:
        return 0, f"larger than {most} bytes"
    return status.st_size, "" if os.access(path, os.R_OK) else "unreadable"


def _split_nul_list(said: bytes) -> Iterator[str]:
    return map(os.fsdecode, said.split(b"\0")[:-1])


def _to_git_path(path: str) -> str:
    """A path inside the work tree in git's form, or nothing."""
    parts = PurePosixPath(path).parts
    inside = parts and parts[0] != "/" and ".." not in parts and ".git" not in parts
    return "/".join(parts) if inside else ""


def _escape_pattern(path: str) -> str:
    return "".join("\\" + mark if mark in "*?[]\\ !#" else mark for mark in path)
