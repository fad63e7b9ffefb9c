"""Snapshots of a work tree in a shadow repository, and their differences.

A snapshot is a commit in a git directory of our own, with an index of our own, pinned by a tag;
the project's repository is never read or written. Each work tree has its own line (a branch), so
that parallel sessions share only the objects.

    trees = open_trees(SnapshotDirs(run / ".shadow_git", work_dir, home, programs), now=clock)
    before = trees.save_snapshot("baseline")
    after = trees.save_snapshot("_step_1_3", also=["build/ignored-but-edited.txt"])
    trees.diff_snapshots(before, after), trees.patch_between(before, after)
    trees.restore_snapshot("baseline")
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from flightlog.model.errors import Conflict, Invalid, NotFound, Unavailable
from flightlog.store import files
from flightlog.store.git import worktree
from flightlog.store.git.command import GitError
from flightlog.store.git.objects import ObjectStore
from flightlog.store.git.repository import IDENTITY, ShadowRepository, remove_stale
from flightlog.store.git.snapshot_state import SnapshotState, StateNote, StateRecorder
from flightlog.store.git.worktree import (
    LineGit,
    SkippedPath,
    SnapshotDirs,
    SnapshotPolicy,
    TreeChange,
    WorkTreeSnapshot,
)
from flightlog.store.locks import lock_file

NOTHING = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"  # git's name for the empty tree
PACK_FROM = 64  # files; fewer are faster as single objects
_LOCK_S = 300.0  # the first snapshot of a large tree takes minutes
_ZERO = "0" * 40  # a ref that does not exist
# A file name that is also a valid ref: no two dots, no dot or `.lock` at the end.
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]|\.(?!\.|lock$|$)){0,120}", re.ASCII)


class _SnapshotHead(NamedTuple):
    commit: str
    tree: str


def open_trees(
    dirs: SnapshotDirs,
    policy: SnapshotPolicy | None = None,
    *,
    now: Callable[[], float],
    line: str = "main",
) -> "WorkTreeSnapshots":
    """Open the snapshots of a work tree, making the shadow repository if it is missing.

    Raises `Invalid` for a home directory.
    """
    work_tree = dirs.work_tree.resolve()
    if not work_tree.is_dir():
        hint = "name the directory the agent works in"
        raise NotFound(f"no such directory: {dirs.work_tree}", hint=hint)
    if dirs.home.resolve().is_relative_to(work_tree):
        hint = "work in a directory below it"
        raise Invalid(f"a home directory is not snapshotted: {work_tree}", hint=hint)
    repository = ShadowRepository(dirs.git_dir.absolute(), dirs.programs)
    repository.create_if_missing()
    trees = (work_tree, dirs.outer_git_dir)
    return WorkTreeSnapshots(
        repository, trees, policy or SnapshotPolicy(), now=now, line=_check_name(line)
    )


class WorkTreeSnapshots:
    """The snapshots of one work tree: one line of a shadow repository."""

    def __init__(
        self,
        repository: ShadowRepository,
        trees: tuple[Path, Path | None],
        policy: SnapshotPolicy,
        *,
        now: Callable[[], float],
        line: str,
    ) -> None:
        """Use an existing repository; `open_trees` is the public constructor.

        `trees` are the work tree and its git directory if that is not inside.
        """
        (self.work_tree, outer), self.line = trees, line
        self._repository, self._policy, self._now = repository, policy, now
        self._own = repository.git_dir / "lines" / line
        self._branch = f"refs/heads/{line}"
        self._head: _SnapshotHead | None = None
        self._index_left: tuple[int, int, int] | None = None
        self._unwatched: tuple[SkippedPath, ...] | None = None
        self._bytes: int | None = None
        self._nested: tuple[str, ...] = ()
        self._objects = ObjectStore(repository)
        self._state = StateRecorder(self._objects, self.work_tree, self._own, outer, policy.heavy)
        self._last_state = ("", "")

    def save_snapshot(self, name: str, *, also: Iterable[str] = ()) -> WorkTreeSnapshot:
        """Save the work tree as `name`; `also` lists files to include against the patterns.

        A name can be used once. If nothing changed there is no new commit, only the name. The
        snapshot survives a power cut when this returns.
        """
        tag = f"refs/tags/{_check_name(name)}"
        with self._lock_line(tag) as git:
            left = files.stat_identity(self._own / "index")
            is_known = self._is_as_left()
            head = self._branch_head()
            status = self._update_index(git, also)
            state = self._save_state(git, status, left)
            tree = head.tree
            if status.changed or status.deleted or not is_known:
                tree = git.run_git(["write-tree"]).decode().strip()
            commit = head.commit
            note = state.dump() if state is not None else ""
            if tree != head.tree or not commit or self._state_of(head.commit) != note:
                message = worktree.snapshot_message(name, status, note)
                commit = self._write_commit(tree, head.commit, message)
            self._update_refs(git, tag, commit, head.commit)
            self._remember_head(_SnapshotHead(commit, tree))
            self._last_state = (commit, note)
        notes = (status.omitted_files, status.nested_repositories)
        return WorkTreeSnapshot(name, commit, tree, tree != head.tree, *notes, state)

    def find_snapshot(self, name: str) -> WorkTreeSnapshot:
        """Return a snapshot by its name or commit."""
        commit, tree = self._resolve_commit(_check_name(name))
        header, note = self._read_commit(commit)
        parents = re.findall(rb"^parent (\w+)$", header, re.MULTILINE)
        before = self._resolve_commit(parents[0].decode()).tree if parents else NOTHING
        notes = (note.omitted_files, note.nested_repositories, note.state)
        return WorkTreeSnapshot(name, commit, tree, tree != before, *notes)

    def read_state(self, snapshot: WorkTreeSnapshot) -> SnapshotState:
        """Return the times and the repository of a snapshot; empty if they were not saved."""
        files.ensure_dir(self._own)
        if snapshot.state is None:
            return SnapshotState({}, {})
        return self._state.read_state(snapshot.state)

    def keep_tables(self) -> None:
        """Store what this process knows of the files, for the next snapshot in another one."""
        self._state.store_tables()

    def diff_snapshots(
        self, before: WorkTreeSnapshot | str | None, after: WorkTreeSnapshot | str
    ) -> list[TreeChange]:
        """Return what changed between two snapshots; None is the empty tree."""
        return worktree.list_changes(
            self._repository, self._resolve_tree(before), self._resolve_tree(after)
        )

    def list_file_ids(self, snapshot: str) -> dict[str, str]:
        """Return the object id of each file in a snapshot."""
        tree = self._objects.list_tree(self._resolve_tree(snapshot))
        return {path: object_id for path, (_, object_id) in tree.items()}

    def patch_between(
        self, before: WorkTreeSnapshot | str | None, after: WorkTreeSnapshot | str
    ) -> bytes:
        """Return a patch for `git apply`, with binaries, modes, renames and links."""
        trees = (self._resolve_tree(before), self._resolve_tree(after))
        return worktree.make_patch(self._repository, *trees)

    def restore_snapshot(self, snapshot: WorkTreeSnapshot | str) -> WorkTreeSnapshot:
        """Restore the work tree; files that snapshots leave out are not changed.

        Content that was not snapshotted is lost. The line continues from `snapshot`.
        """
        target = self.find_snapshot(snapshot) if isinstance(snapshot, str) else snapshot
        with self._lock_line() as git:
            self._is_as_left()
            head = self._branch_head()
            self._update_index(git, ())
            self._forget_unwatched(git, target)
            self._write_work_tree(git, target, head.commit)
            if self._policy.keeps_state:
                self._state.restore_state(target.state, self._list_files(git))
        return target

    def _update_index(self, git: LineGit, also: Iterable[str]) -> worktree.WorkTreeStatus:
        """Bring the index up to date with the work tree and return what changed."""
        is_first = self._unwatched is None
        survey = partial(worktree.work_tree_status, git, self._policy, also, survey=is_first)
        try:
            status = survey()
        except GitError:
            # The index is a cache; if a power cut tore it, read it again from the line.
            remove_stale(self._own / "index")
            git.run_git(["read-tree", self._branch_head().tree])
            status = survey()
        if is_first:
            omitted = status.omitted_files
            self._unwatched = tuple(one for one in omitted if one.reason == worktree.UNWATCHED)
        else:
            omitted = (*status.omitted_files, *(self._unwatched or ()))
            status = status._replace(omitted_files=omitted)
        # Git lists a nested repository only until its files are in the index.
        self._nested = tuple(dict.fromkeys((*self._nested, *status.nested_repositories)))
        self._check_size_limit(status.size_bytes)
        self._remove_from_index(git, status.deleted)
        if status.changed:
            # Many files go into one pack: one file to write and to sync, not thousands.
            packed = ["-c", "core.bigFileThreshold=1"] if len(status.changed) > PACK_FROM else []
            command = [*packed, "update-index", "-z", "--add", "--remove", "--replace", "--stdin"]
            git.run_git(command, stdin=worktree.join_nul_list(status.changed))
        return status._replace(nested_repositories=self._nested)

    def _save_state(
        self, git: LineGit, status: worktree.WorkTreeStatus, left: tuple[int, int, int] | None
    ) -> StateNote | None:
        if not self._policy.keeps_state:
            return None
        index = (lambda: self._list_files(git), left)
        return self._state.save_state([*status.changed, *status.deleted], index)

    def _list_files(self, git: LineGit) -> list[str]:
        return worktree.split_nul_list(git.run_git(["ls-files", "-z"]))

    def _forget_unwatched(self, git: LineGit, target: WorkTreeSnapshot) -> None:
        """Untrack files that were added by name or left out of `target`: a restore deletes others."""
        omitted = [skipped.path for skipped in target.omitted_files]
        self._remove_from_index(git, [*worktree.stale_index_entries(git), *omitted])

    def _remove_from_index(self, git: LineGit, paths: list[str]) -> None:
        if paths:
            command = ["update-index", "-z", "--force-remove", "--stdin"]
            git.run_git(command, stdin=worktree.join_nul_list(paths))

    def _check_size_limit(self, added: int) -> None:
        """Raise `Unavailable` if the repository gets too large; measure only near the limit."""
        if self._bytes is None or self._bytes + added > self._policy.total_bytes_max:
            objects = self._repository.git_dir / "objects"
            self._bytes = sum(path.stat().st_size for path in objects.rglob("*") if path.is_file())
        if self._bytes + added > self._policy.total_bytes_max:
            message = f"snapshots would take more than {self._policy.total_bytes_max} bytes"
            hint = "leave out large directories, or allow more"
            raise Unavailable(f"{message}: {self._repository.git_dir}", hint=hint)
        self._bytes += added

    def _write_commit(self, tree: str, parent: str, message: bytes) -> str:
        names = [f"tree {tree}", *([f"parent {parent}"] if parent else [])]
        names += [f"{who} {IDENTITY} {int(self._now())} +0000" for who in ("author", "committer")]
        return self._objects.write_object("commit", "\n".join((*names, "", "")).encode() + message)

    def _update_refs(self, git: LineGit, tag: str, commit: str, head: str) -> None:
        """Create the tag, then move the line; a crash in between leaves a whole snapshot.

        Git writes the refs while the objects are synced; it may publish them only afterwards.
        """
        updates = [f"create {tag} {commit}"] if tag else []
        if commit != head:
            updates.append(f"update {self._branch} {commit} {head or _ZERO}")
        try:
            running = git.start_git(["update-ref", "--stdin"])
            running.send_input("\n".join(("start", *updates, "prepare", "")).encode())
            last = b""  # the end of the input without `commit`: git drops the update
            try:
                self._objects.sync_written()
                last = b"commit\n"
            finally:
                running.finish_command(last)
        except GitError as error:
            self._head = None
            if "reference already exists" in error.stderr or "but expected" in error.stderr:
                message = f"this name is in use, or the line moved: {error.stderr}"
                raise Conflict(message, hint="use a new name") from error
            raise
        files.sync_dirs(self._repository.git_dir / folder for folder in ("refs/tags", "refs/heads"))

    def _write_work_tree(self, git: LineGit, target: WorkTreeSnapshot, head: str) -> None:
        git.run_git(["read-tree", "--reset", "-u", target.commit])
        if target.commit != head:
            self._update_refs(git, "", target.commit, head)
        self._remember_head(_SnapshotHead(target.commit, target.tree))

    def _is_as_left(self) -> bool:
        """Return whether the index is as this object left it; otherwise forget the line's head."""
        left, now = self._index_left, files.stat_identity(self._own / "index")
        is_known = left is not None and left == now
        if not is_known:
            self._head = None
        self._index_left = None  # until `_remember_head`
        return is_known

    def _remember_head(self, head: _SnapshotHead) -> None:
        self._head = head
        self._index_left = files.stat_identity(self._own / "index")
        self._state.remember_index(self._index_left)

    def _state_of(self, commit: str) -> str:
        """Return the note of the last state in a commit."""
        if self._last_state[0] != commit:
            state = self._read_commit(commit)[1].state
            self._last_state = (commit, state.dump() if state is not None else "")
        return self._last_state[1]

    def _branch_head(self) -> _SnapshotHead:
        """Return the head of the line; cached, because `update-ref` fails later if it is stale."""
        if self._head is None:
            try:
                self._head = self._resolve_commit(self._branch)
            except NotFound:
                self._head = _SnapshotHead("", NOTHING)
        return self._head

    def _read_commit(self, commit: str) -> tuple[bytes, worktree.SnapshotNote]:
        content = self._repository.run_git(["cat-file", "commit", commit])
        header, _, message = content.partition(b"\n\n")
        return header, worktree.read_snapshot_note(message)

    def _resolve_commit(self, name: str) -> _SnapshotHead:
        return _SnapshotHead(
            *self._repository.resolve_names([f"{name}^{{commit}}", f"{name}^{{tree}}"])
        )

    def _resolve_tree(self, snapshot: WorkTreeSnapshot | str | None) -> str:
        if snapshot is None:
            return NOTHING
        if isinstance(snapshot, WorkTreeSnapshot):
            return snapshot.tree
        return self._repository.resolve_names([f"{_check_name(snapshot)}^{{tree}}"])[0]

    @contextmanager
    def _lock_line(self, *refs: str) -> Iterator[LineGit]:
        """Lock the line; git children inherit the lock, so that an orphan still holds it."""
        if self._unwatched is None:
            files.ensure_dir(self._own)
            patterns = self._policy.ignore_patterns(self._repository.git_dir, self.work_tree)
            files.replace_file(self._own / "leave-out", patterns)
        with files.os_errors_as_unavailable(self._own):
            file = os.open(self._own / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            lock_file(file, self._own / "lock", limit_s=_LOCK_S)
            refs = (self._branch, *refs)
            locked = [self._own / "index", *(self._repository.git_dir / ref for ref in refs)]
            remove_stale(*(path.with_name(path.name + ".lock") for path in locked))
            yield LineGit(self._repository, self.work_tree, self._own, file)
        finally:
            os.close(file)


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        hint = "use letters, digits, '_', '-' and single dots"
        raise Invalid(f"not a name for a snapshot: {name[:60]!r}", hint=hint)
    return name
