"""A commit that git never does again elsewhere: one with two parents.

Git picks, reverts and rebases changes one commit at a time, and passes over merges (or asks which side was meant). So
what must happen on one branch alone is committed as a merge: of the branch, and of a commit on it that adds
files which were in the work tree and in no commit yet. The index and the branch change for the named paths alone.
"""

from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from flightlog.model.errors import Conflict
from flightlog.sources.git.repository import Repository, git_output, run_git

_BUSY = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply")


class SideBranch(Struct, frozen=True):
    """Where a side line left the branch, and its own commit."""

    head: str
    side: str


def commit_side_branch(repository: Repository, added: Iterable[str], message: str, index: Path) -> SideBranch:
    """Leave the branch with a commit that adds files; `index` is where git may keep a private index meanwhile."""
    folder = Path(git_output(repository, "rev-parse", "--absolute-git-dir"))
    busy = [name for name in _BUSY if (folder / name).exists()]
    head = git_output(repository, "rev-parse", "--quiet", "--verify", "HEAD^{commit}")
    if busy or not head:
        what = f"git is in the middle of something ({busy[0]})" if busy else "this branch has no commit yet"
        raise Conflict(what, hint="git status")
    paths = list(added)
    parent = "" if paths else git_output(repository, "rev-parse", "--quiet", "--verify", f"{head}^")
    return SideBranch(
        head, parent or _commit_merge(repository, _write_side_tree(repository, head, paths, index), [head], message)
    )


def merge_side_branch(repository: Repository, line: SideBranch, paths: Iterable[str], message: str, index: Path) -> str:
    """Merge the side line: the named files as they stand in the work tree, or gone; return the commit, if any."""
    named = list(paths)
    tree = _write_side_tree(repository, line.head, named, index)
    if tree == git_output(repository, "rev-parse", f"{line.head}^{{tree}}"):
        return ""
    commit = _commit_merge(repository, tree, [line.head, line.side], message)
    _stage_paths(repository, named, {})
    run_git(repository, "update-ref", "-m", message, "HEAD", commit, line.head)
    return commit


def _write_side_tree(repository: Repository, head: str, paths: Iterable[str], index: Path) -> str:
    private = {"GIT_INDEX_FILE": str(index)}
    run_git(repository, "read-tree", head, variables=private)
    _stage_paths(repository, paths, private)
    return run_git(repository, "write-tree", variables=private).decode().strip()


def _stage_paths(repository: Repository, paths: Iterable[str], variables: dict[str, str]) -> None:
    given = "".join(f"{path}\0" for path in paths).encode("utf-8", "surrogateescape")
    run_git(repository, "update-index", "--add", "--remove", "-z", "--stdin", given=given, variables=variables)


def _commit_merge(repository: Repository, tree: str, parents: Iterable[str], message: str) -> str:
    signed = ["-S"] if git_output(repository, "config", "--type=bool", "commit.gpgSign") == "true" else []
    named = [word for parent in parents for word in ("-p", parent)]
    return run_git(repository, "commit-tree", *signed, tree, *named, "-m", message).decode().strip()
