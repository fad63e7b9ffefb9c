"""Shadow git: what a work tree held at one moment, and how two moments differ.

A snapshot is a commit in a git directory of our own, with an index of our own, pinned by a tag;
the project's repository is never read or written. Snapshots form lines: one per work tree, so
that parallel sessions share the objects and nothing else. Knows trees, not steps or sessions.

    trees = open_trees(Place(run / ".shadow_git", work_dir, home, programs), Policy(), now=clock)
    before = trees.snapshot("baseline")
    after = trees.snapshot("_step_1_3", also=["build/ignored-but-edited.txt"])
    trees.diff(before, after), trees.patch(before, after)
    trees.restore("baseline")
    other = trees.checkout("_step_1_3", into=Path("…"), line="session_01_r02")
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

from flightlog.model.errors import UNREADABLE, Conflict, Invalid, NotFound, Unavailable
from flightlog.store.files import ensure_dir, os_errors_as_unavailable, replace_file, sync_dir
from flightlog.store.git import worktree
from flightlog.store.git.command import GitError
from flightlog.store.git.repository import ShadowRepository, remove_stale
from flightlog.store.git.worktree import SkippedPath, SnapshotPolicy, TreeChange, list_changes, make_patch
from flightlog.store.locks import lock_file

__all__ = [
    "SkippedPath",
    "SnapshotDirs",
    "SnapshotPolicy",
    "TreeChange",
    "WorkTreeSnapshot",
    "WorkTreeSnapshots",
    "open_trees",
]

NOTHING = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"  # git's name for the empty tree
PACK_FROM = 64
_LOCK_S = 300.0  # the first snapshot of a large tree takes minutes
_ZERO = "0" * 40
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]|\.(?!\.|lock$|$)){0,120}", re.ASCII)


class SnapshotDirs(Struct, frozen=True):
    """Where things are: the shadow repository, the work tree, the person's home, and PATH."""

    git_dir: Path
    work_tree: Path
    home: Path
    programs: str


class WorkTreeSnapshot(Struct, frozen=True):
    """One moment of a work tree; `changed` says whether it differs from the one before on its line."""

    name: str
    commit: str
    tree: str
    changed: bool
    left_out: tuple[SkippedPath, ...] = ()
    nested: tuple[str, ...] = ()


class _SnapshotHead(NamedTuple):
    commit: str
    tree: str


def open_trees(
    place: SnapshotDirs, policy: SnapshotPolicy | None = None, *, now: Callable[[], float], line: str = "main"
) -> "WorkTreeSnapshots":
    """Open the shadow of a work tree, making it if need be; a home directory is refused."""
    work_tree = place.work_tree.resolve()
    if not work_tree.is_dir():
        raise NotFound(f"no such directory: {place.work_tree}", hint="name the directory the agent works in")
    if place.home.resolve().is_relative_to(work_tree):
        raise Invalid(f"a home directory is not snapshotted: {work_tree}", hint="work in a directory below it")
    repository = ShadowRepository(place.git_dir.absolute(), place.programs)
    repository.create_if_missing()
    return WorkTreeSnapshots(repository, work_tree, policy or SnapshotPolicy(), now=now, line=_check_name(line))


class WorkTreeSnapshots:
    """The snapshots of one work tree: one line of a shadow repository."""

    def __init__(
        self,
        repository: ShadowRepository,
        work_tree: Path,
        policy: SnapshotPolicy,
        *,
        now: Callable[[], float],
        line: str,
    ) -> None:
        """Take a prepared repository; `open_trees` is the way in."""
        self.work_tree = work_tree
        self.line = line
        self._repository = repository
        self._policy = policy
        self._now = now
        self._own = repository.git_dir / "lines" / line
        self._branch = f"refs/heads/{line}"
        self._head: _SnapshotHead | None = None
        self._left: tuple[int, int, int] | None = None
        self._unwatched: tuple[SkippedPath, ...] | None = None
        self._bytes: int | None = None
        self._nested: tuple[str, ...] = ()

    def save_snapshot(self, name: str, *, also: Iterable[str] = ()) -> WorkTreeSnapshot:
        """Keep the work tree as it is now under `name`; `also` names files to see though they are left out.

        A name is given once. Where nothing changed there is no new commit, only the name. It is
        kept, through a power cut too, when this returns.
        """
        tag = f"refs/tags/{_check_name(name)}"
        with self._locked(tag) as held:
            known = self._is_as_left()
            head = self._branch_head()
            seen = self._update_index(held, also)
            tree = head.tree
            if seen.changed or seen.gone or not known:
                tree = self._run_git(held, ["write-tree"]).decode().strip()
            commit = head.commit
            if tree != head.tree or not commit:
                commit = self._commit_tree(held, tree, head.commit, _snapshot_message(name, seen))
            self._update_refs(held, tag, commit, head.commit)
            self._remember_head(_SnapshotHead(commit, tree))
        return WorkTreeSnapshot(name, commit, tree, tree != head.tree, seen.left_out, seen.nested)

    def find_snapshot(self, name: str) -> WorkTreeSnapshot:
        """Return a snapshot by its name or commit; what was left out is as it was told then."""
        commit, tree = self._repository.resolve_names(
            [f"{_check_name(name)}^{{commit}}", f"{_check_name(name)}^{{tree}}"]
        )
        header, _, body = self._repository.run_git(["cat-file", "commit", commit]).partition(b"\n\n")
        parents = re.findall(rb"^parent (\w+)$", header, re.MULTILINE)
        before = self._repository.resolve_names([f"{parents[0].decode()}^{{tree}}"])[0] if parents else NOTHING
        try:
            noted = msgspec.json.decode(body.partition(b"\n")[2] or b"{}", type=_SnapshotNote)
        except UNREADABLE:
            noted = _SnapshotNote()
        return WorkTreeSnapshot(name, commit, tree, tree != before, noted.left_out, noted.nested)

    def list_names(self) -> list[str]:
        """List the names of all snapshots of the repository, by time."""
        said = self._repository.run_git(
            ["for-each-ref", "--sort=creatordate", "--format=%(refname:strip=2)", "refs/tags"]
        )
        return said.decode().split()

    def diff_snapshots(self, before: WorkTreeSnapshot | str | None, after: WorkTreeSnapshot | str) -> list[TreeChange]:
        """List what changed between two snapshots; None stands for the empty tree."""
        return list_changes(self._repository, self._resolve_tree(before), self._resolve_tree(after))

    def patch_between(
        self, before: WorkTreeSnapshot | str | None, after: WorkTreeSnapshot | str, paths: Iterable[str] = ()
    ) -> bytes:
        """Return a patch that `git apply` takes: binaries, modes, renames and links included."""
        return make_patch(self._repository, self._resolve_tree(before), self._resolve_tree(after), paths)

    def restore_snapshot(self, snapshot: WorkTreeSnapshot | str) -> WorkTreeSnapshot:
        """Make the work tree what it was; what snapshots leave out stays untouched.

        What stands there now is lost unless it was snapshotted. The line goes on from `snapshot`.
        """
        target = snapshot if isinstance(snapshot, WorkTreeSnapshot) else self.find_snapshot(snapshot)
        with self._locked() as held:
            self._is_as_left()
            head = self._branch_head()
            self._update_index(held, ())
            self._forget_unwatched(held)
            self._write_work_tree(held, target, head.commit)
        return target

    def checkout_into(self, snapshot: WorkTreeSnapshot | str, into: Path, line: str) -> "WorkTreeSnapshots":
        """Lay a snapshot out in an empty directory, which becomes a line of its own."""
        target = snapshot if isinstance(snapshot, WorkTreeSnapshot) else self.find_snapshot(snapshot)
        ensure_dir(into)
        with os_errors_as_unavailable(into):
            if any(into.iterdir()):
                raise Invalid(f"not empty: {into}", hint="name a new directory")
        other = WorkTreeSnapshots(self._repository, into.resolve(), self._policy, now=self._now, line=_check_name(line))
        with other._locked() as held:
            if other._branch_head().commit:
                raise Conflict(f"there is a line of this name: {line}", hint="give it another name")
            other._write_work_tree(held, target, "")
        return other

    def _update_index(self, held: int, also: Iterable[str]) -> worktree.WorkTreeStatus:
        """Bring the index up to the work tree and say what was seen."""
        first = self._unwatched is None
        git = _WorkTreeGit(self, held)
        seen = worktree.work_tree_status(git, self._policy, self._own / "leave-out", also, survey=first)
        if first:
            self._unwatched = tuple(each for each in seen.left_out if each.why == worktree.UNWATCHED)
        else:
            seen = seen._replace(left_out=(*seen.left_out, *(self._unwatched or ())))
        self._nested = tuple(dict.fromkeys((*self._nested, *seen.nested)))  # git names each once only
        seen = seen._replace(nested=self._nested)
        self._check_size_limit(seen.bytes)
        if seen.gone:
            self._run_git(held, ["update-index", "-z", "--force-remove", "--stdin"], stdin=_join_with_nuls(seen.gone))
        if seen.changed:
            # Many files go into one pack: one file to write and to sync, not thousands.
            packed = ["-c", "core.bigFileThreshold=1"] if len(seen.changed) > PACK_FROM else []
            command = [*packed, "update-index", "-z", "--add", "--remove", "--replace", "--stdin"]
            self._run_git(held, command, stdin=_join_with_nuls(seen.changed))
        return seen

    def _forget_unwatched(self, held: int) -> None:
        """What was taken by name has an unknown past: a snapshot without it does not say it was not there."""
        named = worktree.stale_index_entries(_WorkTreeGit(self, held), self._own / "leave-out")
        if named:
            self._run_git(held, ["update-index", "-z", "--force-remove", "--stdin"], stdin=_join_with_nuls(named))

    def _reset_index(self, held: int) -> None:
        remove_stale(self._own / "index")
        self._run_git(held, ["read-tree", self._branch_head().tree])

    def _check_size_limit(self, added: int) -> None:
        """Keep the repository within its size, measured anew only when it may be past it."""
        if self._bytes is None or self._bytes + added > self._policy.total_bytes_max:
            self._bytes = _directory_bytes(self._repository.git_dir / "objects")
        if self._bytes + added > self._policy.total_bytes_max:
            raise Unavailable(
                f"snapshots would take more than {self._policy.total_bytes_max} bytes: {self._repository.git_dir}",
                hint="leave out large directories, or allow more",
            )
        self._bytes += added

    def _commit_tree(self, held: int, tree: str, parent: str, message: bytes) -> str:
        date = {f"GIT_{who}_DATE": f"{int(self._now())} +0000" for who in ("AUTHOR", "COMMITTER")}
        command = ["commit-tree", tree, *(("-p", parent) if parent else ())]
        return self._run_git(held, command, stdin=message, more=date).decode().strip()

    def _update_refs(self, held: int, tag: str, commit: str, head: str) -> None:
        """Name the commit, then move the line to it; dying in between leaves a whole snapshot beside the line."""
        orders = [f"create {tag} {commit}"] if tag else []
        if commit != head:
            orders.append(f"update {self._branch} {commit} {head or _ZERO}")
        orders = ["start", *orders, "prepare", "commit", ""]
        try:
            self._run_git(held, ["update-ref", "--stdin"], stdin="\n".join(orders).encode())
        except GitError as error:
            self._head = None
            if "reference already exists" in error.said or "but expected" in error.said:
                raise Conflict(f"this name is taken, or the line moved: {error.said}", hint="use a new name") from error
            raise
        for folder in ("refs/tags", "refs/heads"):
            sync_dir(self._repository.git_dir / folder)

    def _write_work_tree(self, held: int, target: WorkTreeSnapshot, head: str) -> None:
        self._run_git(held, ["read-tree", "--reset", "-u", target.commit])
        if target.commit != head:
            self._update_refs(held, "", target.commit, head)
        self._remember_head(_SnapshotHead(target.commit, target.tree))

    def _is_as_left(self) -> bool:
        """Say whether the index is the one this object left, and so the line's head; else both are read again."""
        known = self._left is not None and self._left == _stat_identity(self._own / "index")
        if not known:
            self._head = None
        self._left = None  # until the work at hand is done
        return known

    def _remember_head(self, head: _SnapshotHead) -> None:
        self._head = head
        self._left = _stat_identity(self._own / "index")

    def _branch_head(self) -> _SnapshotHead:
        """Where the line stands; remembered, because git itself refuses a stale answer later."""
        if self._head is None:
            try:
                found = self._repository.resolve_names([f"{self._branch}^{{commit}}", f"{self._branch}^{{tree}}"])
                self._head = _SnapshotHead(*found)
            except NotFound:
                self._head = _SnapshotHead("", NOTHING)
        return self._head

    def _resolve_tree(self, what: WorkTreeSnapshot | str | None) -> str:
        if what is None:
            return NOTHING
        return (
            what.tree
            if isinstance(what, WorkTreeSnapshot)
            else self._repository.resolve_names([f"{_check_name(what)}^{{tree}}"])[0]
        )

    def _run_readonly(self, held: int, command: list[str], inside: str) -> bytes:
        """Run what only reads, in the work tree, or with nothing tracked in a directory of it."""
        place = {"GIT_WORK_TREE": str(self.work_tree / inside), "GIT_INDEX_FILE": str(self._own / "none")}
        return self._run_git(held, command, more=place if inside else {})

    def _run_two(self, held: int, one: list[str], other: list[str]) -> tuple[bytes, bytes]:
        try:
            return self._run_concurrently(held, one, other)
        except GitError:
            # The index is a cache; one that a power cut left torn is read again from the line.
            self._reset_index(held)
            return self._run_concurrently(held, one, other)

    def _run_concurrently(self, held: int, one: list[str], other: list[str]) -> tuple[bytes, bytes]:
        running = [self._repository.start_git(each, more=self._git_environment(), held=held) for each in (one, other)]
        try:
            first = running[0].finish_command()
        finally:
            second = running[1].finish_command()
        return first, second

    def _git_environment(self) -> dict[str, str]:
        return {"GIT_WORK_TREE": str(self.work_tree), "GIT_INDEX_FILE": str(self._own / "index")}

    def _run_git(
        self, held: int, command: list[str], *, stdin: bytes = b"", more: dict[str, str] | None = None
    ) -> bytes:
        return self._repository.run_git(
            command, stdin=stdin, more={**self._git_environment(), **(more or {})}, held=held
        )

    @contextmanager
    def _locked(self, *refs: str) -> Iterator[int]:
        """Hold the line alone. The git children hold it too, so that an orphan's lock is never taken for stale."""
        if self._unwatched is None:
            ensure_dir(self._own)
            replace_file(
                self._own / "leave-out", self._policy.ignore_patterns(self._repository.git_dir, self.work_tree)
            )
        with os_errors_as_unavailable(self._own):
            file = os.open(self._own / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            lock_file(file, self._own / "lock", limit_s=_LOCK_S)
            locked = [self._own / "index", *(self._repository.git_dir / each for each in (self._branch, *refs))]
            remove_stale(*(path.with_name(path.name + ".lock") for path in locked))
            yield file
        finally:
            os.close(file)


class _WorkTreeGit:
    """Git as `treelook` wants it."""

    def __init__(self, trees: WorkTreeSnapshots, held: int) -> None:
        self.work_tree = trees.work_tree
        self._run = partial(trees._run_readonly, held)  # noqa: SLF001 - of one piece with Trees
        self.both = partial(trees._run_two, held)  # noqa: SLF001

    def __call__(self, command: list[str], inside: str = "") -> bytes:
        return self._run(command, inside)


class _SnapshotNote(Struct, frozen=True):
    """What a commit's message says beside its name."""

    left_out: tuple[SkippedPath, ...] = ()
    nested: tuple[str, ...] = ()


def _snapshot_message(name: str, seen: worktree.WorkTreeStatus) -> bytes:
    return name.encode() + b"\n" + msgspec.json.encode(_SnapshotNote(seen.left_out[:100], seen.nested)) + b"\n"


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise Invalid(f"not a name for a snapshot: {name[:60]!r}", hint="use letters, digits, '_', '-' and single dots")
    return name


def _join_with_nuls(paths: Iterable[str]) -> bytes:
    return b"".join(os.fsencode(path) + b"\0" for path in paths)


def _stat_identity(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _directory_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
