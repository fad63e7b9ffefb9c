"""The work tree of a loop: snapshots around each run, diffs, restore, commits of single tasks.

Snapshots are in `tree.git` beside the session; the project's own repository is only written to by
`commit_task_files`. Where snapshots are not possible (no git, a home directory), a run has no diff
and cannot be rolled back. Progress is detected by a fingerprint of names, sizes and times; our own
sessions, git's files and build output do not count.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from flightlog.loop.directories import ROOT
from flightlog.loop.state import FILES_MAX
from flightlog.model.errors import FlightlogError, NotFound
from flightlog.model.output_files import OutputFile, Redacted, Tier
from flightlog.model.runtime import Runtime
from flightlog.privacy.trust import is_trusted
from flightlog.store.git.command import GitError, PersonGit
from flightlog.store.git.refs import commit_paths
from flightlog.store.git.repository import find_repository, open_repository
from flightlog.store.git.snapshots import WorkTreeSnapshots, open_trees
from flightlog.store.git.worktree import SnapshotDirs, SnapshotPolicy, WorkTreeSnapshot
from flightlog.store.output_files import write_output_files

Changes = tuple[tuple[str, int | None, int | None], ...]
_LEFT_OUT = frozenset({".git", ROOT, "node_modules", ".venv", "__pycache__", ".pytest_cache"})
_FINGERPRINT_FILES_MAX = 200_000  # bounds the time of a fingerprint
_PATCH_BYTES_MAX = 4 << 20  # bounds the time of redaction
_SUBJECT_CHARS = 72  # git shows longer first lines cut


class WorkTreeWatch:
    """Snapshots of a work tree, and their differences as files of the session."""

    def __init__(
        self, directory: Path, project: Path, environ: Mapping[str, str], now: Callable[[], float]
    ) -> None:
        """Open the snapshots; if that fails, there will be no diff."""
        self._directory = directory
        self._trees: WorkTreeSnapshots | None = None
        home, programs = Path(environ.get("HOME", "/")), environ.get("PATH", os.defpath)
        dirs = SnapshotDirs(directory / "tree.git", project, home, programs)
        policy = SnapshotPolicy(leave_out=(f"{ROOT}/",), keeps_state=False)
        with suppress(FlightlogError, OSError):
            self._trees = open_trees(dirs, policy, now=now)

    def save_snapshot(self, name: str) -> str:
        """Save a snapshot of the current tree and return its name; "" if that fails."""
        with suppress(FlightlogError, OSError):
            return self._trees.save_snapshot(name).name if self._trees else ""
        return ""

    def write_changes(
        self, name: str, before: str, after: str, redact: Callable[[str], Redacted[str]]
    ) -> tuple[str, Changes]:
        """Write the diff between two snapshots; return the file's name ("": none) and the changes."""
        with suppress(FlightlogError, OSError):
            if self._trees is None or not before or not after:
                return "", ()
            old, new = self._trees.find_snapshot(before), self._trees.find_snapshot(after)
            if old.tree != new.tree:
                changes = self._trees.diff_snapshots(old, new)[:FILES_MAX]
                counts = tuple((item.path, item.added, item.removed) for item in changes)
                return self._write_patch(name, old, new, redact), counts
        return "", ()

    def compare_snapshot(self, name: str, current: str, *, restore: bool) -> Changes:
        """Save the tree as `current` and return how a snapshot differs; with `restore`, restore it."""
        if self._trees is None:
            raise NotFound("there are no snapshots of this work tree", hint="flightlog loop status")
        now, trees = self._trees.save_snapshot(current), self._trees
        target = trees.restore_snapshot(name) if restore else trees.find_snapshot(name)
        changes = trees.diff_snapshots(now, target)
        return tuple((change.path, change.added, change.removed) for change in changes)

    def _write_patch(
        self,
        name: str,
        old: WorkTreeSnapshot,
        new: WorkTreeSnapshot,
        redact: Callable[[str], Redacted[str]],
    ) -> str:
        assert self._trees is not None
        patch = self._trees.patch_between(old, new)
        if len(patch) > _PATCH_BYTES_MAX:  # cut at a line end, so that no secret is cut
            patch = patch[: patch.rfind(b"\n", 0, _PATCH_BYTES_MAX) + 1]
        path, run = f"diffs/{name}.patch", 1
        while (self._directory / path).exists():  # the same attempt ran before
            run += 1
            path = f"diffs/{name}-{run}.patch"
        text = redact(patch.decode("utf-8", "replace")).value
        write_output_files(self._directory, [OutputFile(path, Tier.PRIVATE, text)], durable=False)
        return path


def fingerprint_tree(project: Path) -> str:
    """Return a hash that changes with the files or the commit of a work tree."""
    digest = hashlib.sha256()
    with suppress(GitError):
        digest.update(PersonGit(project).run_git("rev-parse", "HEAD").stdout)
    count = 0
    for folder, folders, files in os.walk(project):
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT)
        for name in sorted(files):
            count += 1
            if count > _FINGERPRINT_FILES_MAX:
                return digest.hexdigest()
            path = os.path.join(folder, name)  # noqa: PTH118 - called for each file of a project
            try:
                status = os.lstat(path)
            except OSError:
                continue
            entry = f"{path}\0{status.st_size}\0{status.st_mtime_ns}\0"
            digest.update(entry.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def commit_task_files(
    runtime: Runtime, project: Path, paths: Iterable[str], message: str, index: Path
) -> str:
    """Commit these files of the project on its branch; return the commit, "" if none changed.

    Files that the repository ignores are left out; they may hold secrets. Other changes, also
    staged ones, stay as they are. Hooks of the repository do not run.
    """
    repository = open_repository(project, trusted=is_trusted(runtime, project))
    below, files = project.resolve().relative_to(repository.top.resolve()), list(paths)
    ignored = _find_ignored(project, files)
    names = [str(below / path) for path in files if path not in ignored]
    return commit_paths(repository, names, message[:_SUBJECT_CHARS], index) if names else ""


def uncommitted_paths(project: Path, paths: Iterable[str]) -> set[str] | None:
    """Return files that differ from the last commit or are ignored; None if git cannot tell."""
    repository = find_repository(project)
    if repository is None:
        return None
    words = ("status", "--porcelain", "-z", "--untracked-files=all", "--no-renames", "--", ".")
    try:
        listed, ignored = PersonGit(project).run_git(*words), _find_ignored(project, paths)
    except GitError:
        return None
    if listed.exit_code != 0:
        return None
    prefix = os.path.relpath(project.resolve(), repository.top.resolve())
    start = "" if prefix == "." else f"{prefix}/"
    entries = listed.stdout.decode("utf-8", "surrogateescape").split("\0")
    return ignored | {entry[3:].removeprefix(start) for entry in entries if entry}


def _find_ignored(project: Path, paths: Iterable[str]) -> set[str]:
    """Return which of these files the repository ignores; none that it tracks."""
    # After `./` a name such as `:!x` is not a pathspec.
    given = "".join(f"./{path}\0" for path in paths).encode("utf-8", "surrogateescape")
    listed = PersonGit(project).run_git("check-ignore", "-z", "--stdin", given=given)
    if listed.exit_code > 1:  # 1: none is ignored
        raise GitError("git cannot tell which files are ignored", hint="git status")
    names = listed.stdout.decode("utf-8", "surrogateescape").split("\0")
    return {name.removeprefix("./") for name in names if name}
