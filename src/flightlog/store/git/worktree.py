"""What differs from the index, what is skipped and why; tree diffs.

Git walks the work tree, which costs little more than a stat of every file; only the files it
names are examined here, so the cost of a step depends on its changes. Nothing is written.
"""

import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from flightlog.model.errors import UNREADABLE, Invalid
from flightlog.store.git.command import GitProcess
from flightlog.store.git.repository import ShadowRepository
from flightlog.store.git.snapshot_state import StateNote, load_note

Kind = Literal["added", "deleted", "modified", "renamed", "retyped"]
_KINDS: dict[str, Kind] = {
    "A": "added",
    "D": "deleted",
    "M": "modified",
    "R": "renamed",
    "T": "retyped",
}
_COMPARE = tuple(
    "diff-tree -r -M -l2000 --no-color --no-ext-diff --no-textconv --full-index".split()
)
UNWATCHED = "not watched"
_MISSING = "missing"
_GONE, _NEW = "D", "?"
# Directories that programs make again; walking them would take most of the time.
HEAVY = tuple(
    "node_modules .venv venv __pycache__ .tox .nox .mypy_cache .pytest_cache .ruff_cache .gradle "
    ".terraform .next .turbo .cache .DS_Store .hypothesis .direnv".split()
)


class TreeChange(Struct, frozen=True):
    """One changed file; line counts are None if it is binary, modes are git's (120000: link)."""

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
    listed = repository.run_git([*_COMPARE, "-z", "--raw", "--numstat", before, after])
    parts = iter(split_nul_list(listed))
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


def make_patch(repository: ShadowRepository, before: str, after: str) -> bytes:
    """Return the difference as a patch."""
    return repository.run_git([*_COMPARE, "--patch", "--binary", before, after])


def _build_changes(
    raw: dict[str, tuple[str, list[str]]], counts: dict[str, tuple[int | None, int | None]]
) -> Iterator[TreeChange]:
    for path, (old, (old_mode, mode, old_id, new_id, status)) in raw.items():
        added, removed = counts.get(path, (0, 0))
        yield TreeChange(
            path, _KINDS[status[0]], old, old_mode, mode, old_id, new_id, added, removed
        )


def _parse_count(text: str) -> int | None:
    return None if text == "-" else int(text)


class SnapshotPolicy(Struct, frozen=True):
    """What belongs to a snapshot.

    `ignored`: "keep" includes files that .gitignore names (a step may change them, and a replay
    needs them), "leave" does not. Names in `heavy` and .gitignore patterns in `leave_out` are not
    walked. `nested`: repositories inside are included as plain files, or an error. `keeps_state`: also
    save times, modes and the repository, which a restore needs and a diff does not.
    """

    ignored: Literal["keep", "leave"] = "keep"
    nested: Literal["plain", "refuse"] = "plain"
    file_bytes_max: int = 32 << 20
    total_bytes_max: int = 2 << 30
    heavy: tuple[str, ...] = HEAVY
    leave_out: tuple[str, ...] = ()
    keeps_state: bool = True

    def ignore_patterns(self, git_dir: Path, work_tree: Path) -> bytes:
        """Return the patterns as a file for git; they exclude a shadow inside its own work tree."""
        own = git_dir.resolve()
        inside = []
        if own.is_relative_to(work_tree):
            inside.append(f"/{_escape_pattern(str(own.relative_to(work_tree)))}/")
        return "\n".join([*self.heavy, *self.leave_out, *inside, ""]).encode()


class SkippedPath(Struct, frozen=True):
    """A path that is not in the snapshot, and why: too large, unreadable, not watched."""

    path: str
    reason: str


class SnapshotDirs(Struct, frozen=True):
    """The shadow repository, the work tree, the person's home, and the search path for git.

    `outer_git_dir` is the work tree's git directory, or a copy of it, if it is not inside.
    """

    git_dir: Path
    work_tree: Path
    home: Path
    programs: str
    outer_git_dir: Path | None = None


class WorkTreeSnapshot(Struct, frozen=True):
    """One snapshot; `has_changes` says whether its files differ from the one before on its line.

    `state` is what the tree does not hold: times, modes and the repository (None: not saved).
    """

    name: str
    commit: str
    tree: str
    has_changes: bool
    omitted_files: tuple[SkippedPath, ...] = ()
    nested_repositories: tuple[str, ...] = ()
    state: StateNote | None = None


class WorkTreeStatus(NamedTuple):
    """What differs from the index."""

    changed: list[str]
    deleted: list[str]
    omitted_files: tuple[SkippedPath, ...]
    nested_repositories: tuple[str, ...]
    size_bytes: int


class SnapshotNote(Struct, frozen=True):
    """What a snapshot leaves out, and its state: lines 2 and 3 of its commit's message, as JSON."""

    omitted_files: tuple[SkippedPath, ...] = ()
    nested_repositories: tuple[str, ...] = ()
    state: StateNote | None = None


def snapshot_message(name: str, status: WorkTreeStatus, state: str) -> bytes:
    """Return the message of a snapshot's commit: its name, a note, and the note of its state."""
    note = SnapshotNote(status.omitted_files[:100], status.nested_repositories)
    line = json.dumps(msgspec.to_builtins(note))  # file names that are not UTF-8 need this encoder
    return f"{name}\n{line}\n{state}\n".encode()


def read_snapshot_note(message: bytes) -> SnapshotNote:
    """Return the note in a commit's message; an empty one if it cannot be read."""
    _, line, state, *_ = [*message.split(b"\n"), b"", b"", b""]
    try:
        note = msgspec.convert(json.loads(line or b"{}"), SnapshotNote)
    except (*UNREADABLE, ValueError):
        note = SnapshotNote()
    return replace(note, state=load_note(state))


class LineGit(Struct, frozen=True):
    """Runs git for one line of a shadow repository; git inherits the line's lock.

    `own` is the line's directory: its index, its file of patterns.
    """

    repository: ShadowRepository
    work_tree: Path
    own: Path
    lock: int

    @property
    def exclude_option(self) -> str:
        return f"--exclude-from={self.own / 'leave-out'}"

    def start_git(self, command: list[str], inside: str = "") -> GitProcess:
        """Start a command in the work tree, or with an empty index in the directory `inside` it."""
        environment = {
            "GIT_WORK_TREE": str(self.work_tree / inside),
            "GIT_INDEX_FILE": str(self.own / ("none" if inside else "index")),
        }
        return self.repository.start_git(command, more=environment, lock_fd=self.lock)

    def run_git(self, command: list[str], *, stdin: bytes = b"", inside: str = "") -> bytes:
        """Run a command and return its output."""
        return self.start_git(command, inside).finish_command(stdin)


def work_tree_status(
    git: LineGit, policy: SnapshotPolicy, also: Iterable[str], *, survey: bool
) -> WorkTreeStatus:
    """Return what differs from the index.

    `survey` lists the unwatched directories too, which takes a second walk.
    """
    excludes = [*(["--exclude-standard"] if policy.ignored == "leave" else []), git.exclude_option]
    tracked, others = _run_both(
        git,
        # Its threads would take the time of the other walk, which is as long.
        ["-c", "core.preloadIndex=false", "diff-files", "-z", "--name-status", "--no-renames"],
        ["ls-files", "-z", "--others", *excludes],
    )
    pairs = iter(split_nul_list(tracked))
    states = {path: state for state, path in zip(pairs, pairs, strict=True)}
    nested: list[str] = []
    for path in split_nul_list(others):
        files = _list_nested_files(git, path, excludes, nested) if path.endswith("/") else [path]
        states |= dict.fromkeys(files, _NEW)
    if nested and policy.nested == "refuse":
        hint = "leave it out, or allow it as plain files"
        raise Invalid(f"a repository inside the work tree: {nested[0]}", hint=hint)
    states |= {path: _NEW for name in also if (path := _to_git_path(name)) and path not in states}
    unwatched = _list_unwatched(git, excludes) if survey else []
    return _classify_files(git.work_tree, policy, states, nested, unwatched)


def _run_both(git: LineGit, one: list[str], other: list[str]) -> tuple[bytes, bytes]:
    """Run two git commands at once and return the output of each."""
    first, second = git.start_git(one), git.start_git(other)
    try:
        output = first.finish_command()
    finally:
        other_output = second.finish_command()
    return output, other_output


def stale_index_entries(git: LineGit) -> list[str]:
    """Return what is tracked although the patterns exclude it: it was added by name."""
    command = ["ls-files", "-z", "--cached", "--ignored", git.exclude_option]
    return split_nul_list(git.run_git(command))


def _list_nested_files(
    git: LineGit, folder: str, excludes: list[str], nested: list[str]
) -> Iterator[str]:
    """Yield the files of a repository inside the work tree, and of those inside it."""
    nested.append(folder.rstrip("/"))
    command = ["ls-files", "-z", "--others", *excludes]
    for path in split_nul_list(git.run_git(command, inside=folder)):
        if path.endswith("/"):
            yield from _list_nested_files(git, folder + path, excludes, nested)
        else:
            yield folder + path


def _list_unwatched(git: LineGit, excludes: list[str]) -> list[SkippedPath]:
    names = git.run_git(["ls-files", "-z", "--others", "--ignored", "--directory", *excludes])
    return [SkippedPath(path.rstrip("/"), UNWATCHED) for path in split_nul_list(names)]


def _classify_files(
    work_tree: Path,
    policy: SnapshotPolicy,
    states: Mapping[str, str],
    nested: list[str],
    unwatched: list[SkippedPath],
) -> WorkTreeStatus:
    changed: list[str] = []
    gone = [path for path, state in states.items() if state == _GONE]
    left_out = []
    total = 0
    for path, state in states.items():
        if state == _GONE:
            continue
        size, why = _weigh_file(work_tree / path, policy.file_bytes_max)
        if not why:
            changed.append(path)
            total += size
        elif state != _NEW:
            gone.append(path)  # a snapshot holds the current content of a file, or no content
        if why and why != _MISSING:
            left_out.append(SkippedPath(path, why))
    return WorkTreeStatus(changed, gone, (*left_out, *unwatched), tuple(nested), total)


def _weigh_file(path: Path, bytes_max: int) -> tuple[int, str]:
    """Return the size of a file, and why it is left out if it is."""
    try:
        status = path.lstat()
    except OSError:
        return 0, _MISSING
    if stat.S_ISLNK(status.st_mode):
        return status.st_size, ""
    if stat.S_ISDIR(status.st_mode):
        return 0, _MISSING  # a directory replaced a file
    if not stat.S_ISREG(status.st_mode):
        return 0, "not a file"
    if status.st_size > bytes_max:
        return 0, f"larger than {bytes_max} bytes"
    return status.st_size, "" if os.access(path, os.R_OK) else "unreadable"


def join_nul_list(paths: Iterable[str]) -> bytes:
    """Return paths as git reads them with `-z`."""
    return b"".join(os.fsencode(path) + b"\0" for path in paths)


def split_nul_list(output: bytes) -> list[str]:
    """Return the paths that git printed with `-z`."""
    return [os.fsdecode(path) for path in output.split(b"\0")[:-1]]


def _to_git_path(path: str) -> str:
    """Return a path inside the work tree in git's form; empty for any other path."""
    parts = PurePosixPath(path).parts
    is_inside = parts and parts[0] != "/" and ".." not in parts and ".git" not in parts
    return "/".join(parts) if is_inside else ""


def _escape_pattern(path: str) -> str:
    return "".join("\\" + char if char in "*?[]\\ !#" else char for char in path)
