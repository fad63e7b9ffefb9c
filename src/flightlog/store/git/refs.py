"""Commits on refs of our own, and the two-parent compaction commit.

Commits are made with a private index, `commit-tree`, and an `update-ref` that compares and swaps:
any number of writers may do so at once, and a killed one leaves nothing that blocks the person's
git.

Git picks, reverts and rebases single commits and skips merges (or asks which side is meant). So
a change that must stay on one branch is committed as a merge: of the branch, and of a commit on
it that adds files which were in the work tree and in no commit yet. The index and the branch
change for the named paths only.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from flightlog.model.errors import Conflict
from flightlog.store.git.command import GitError, check_not_option
from flightlog.store.git.repository import AUTHOR, Repository, git_output, run_git, tree_files

_TRIES = 60  # with dozens of writers, each try may lose against another one
ZERO = "0" * 40  # a ref that does not exist
_BUSY = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply")


def commit_to_ref(repository: Repository, ref: str, files: Mapping[str, bytes], index: Path) -> str:
    """Add `files` (path to content) to the tree of `ref`, if they are new; return its commit.

    `index` is the path of the private index; the caller removes it.
    """
    new = {
        path: run_git(repository, "hash-object", "-w", "--stdin", given=data).decode().strip()
        for path, data in sorted(files.items())
    }
    for _ in range(_TRIES):
        before = git_output(repository, "rev-parse", "--quiet", "--verify", ref)
        old = tree_files(repository, before) if before else {}
        if before and {**old, **new} == old:
            return before
        commit = _commit_tree(repository, _write_tree(repository, {**old, **new}, index), before)
        try:
            run_git(repository, "update-ref", ref, commit, before or ZERO)
        except GitError:
            continue  # another process was faster; the next try includes its files
        return commit
    raise Conflict(f"too many writers at once: {ref}", hint="run the command again")


def push_ref(repository: Repository, remote: str, ref: str) -> str:
    """Push `ref` and return the pushed commit; push again if another process moved the ref."""
    last_error: GitError | None = None
    for _ in range(_TRIES):
        commit = git_output(repository, "rev-parse", "--verify", ref)
        words = ("push", "--quiet", "--", check_not_option(remote), f"{commit}:{ref}")
        try:
            run_git(repository, *words)
        except GitError as error:
            last_error = error
            has_moved = git_output(repository, "rev-parse", "--verify", ref) != commit
            if not has_moved and not _lost_race(error):
                raise
            continue
        return commit
    assert last_error is not None
    raise last_error


def fetch_refs(repository: Repository, remote: str, theirs: str, ours: str) -> list[str]:
    """Fetch every ref below `theirs` to the same name below `ours`; return the local names."""
    options = ("--quiet", "--no-tags", "--no-write-fetch-head", "--")
    run_git(repository, "fetch", *options, check_not_option(remote), f"+{theirs}/*:{ours}/*")
    return git_output(repository, "for-each-ref", "--format=%(refname)", f"{ours}/").splitlines()


def _lost_race(error: GitError) -> bool:
    words = ["fetch first", "non-fast-forward", "cannot lock ref", "failed to update ref"]
    words += ["stale info", "rejected"]
    return any(word in error.stderr for word in words)


def _write_tree(repository: Repository, files: Mapping[str, str], index: Path) -> str:
    private = {"GIT_INDEX_FILE": str(index)}
    listed = "".join(f"100644 {blob}\t{path}\0" for path, blob in sorted(files.items())).encode()
    run_git(repository, "read-tree", "--empty", variables=private)
    run_git(repository, "update-index", "-z", "--index-info", given=listed, variables=private)
    return run_git(repository, "write-tree", variables=private).decode().strip()


def _commit_tree(repository: Repository, tree: str, parent: str) -> str:
    parents = ["-p", parent] if parent else []
    words = ("commit-tree", tree, *parents, "-m", "training rows")
    return run_git(repository, *words, variables=AUTHOR).decode().strip()


class SideBranch(Struct, frozen=True):
    """The commit where a side branch left the branch, and its own commit."""

    head: str
    side: str


def commit_side_branch(
    repository: Repository, added: Iterable[str], message: str, index: Path
) -> SideBranch:
    """Commit `added` files beside the branch; `index` is the path of a private index."""
    folder = Path(git_output(repository, "rev-parse", "--absolute-git-dir"))
    busy = [name for name in _BUSY if (folder / name).exists()]
    head = git_output(repository, "rev-parse", "--quiet", "--verify", "HEAD^{commit}")
    if busy or not head:
        reason = "this branch has no commit yet"
        if busy:
            reason = f"git is in the middle of something ({busy[0]})"
        raise Conflict(reason, hint="git status")
    paths = list(added)
    side = "" if paths else git_output(repository, "rev-parse", "--quiet", "--verify", f"{head}^")
    if not side:
        tree = _write_side_tree(repository, head, paths, index)
        side = _commit_merge(repository, tree, [head], message)
    return SideBranch(head, side)


def merge_side_branch(
    repository: Repository, branch: SideBranch, paths: Iterable[str], message: str, index: Path
) -> str:
    """Merge the side branch with the named files as they are in the work tree, or deleted.

    Returns the commit, or nothing if the files did not change.
    """
    names = list(paths)
    tree = _write_side_tree(repository, branch.head, names, index)
    if tree == git_output(repository, "rev-parse", f"{branch.head}^{{tree}}"):
        return ""
    commit = _commit_merge(repository, tree, [branch.head, branch.side], message)
    _stage_paths(repository, names, {})
    run_git(repository, "update-ref", "-m", message, "HEAD", commit, branch.head)
    return commit


def commit_paths(repository: Repository, paths: Iterable[str], message: str, index: Path) -> str:
    """Commit the named files as they are in the work tree; return the commit, "" if none changed.

    What else is staged stays staged. `index` is the path of a private index.
    """
    names = list(paths)
    head = git_output(repository, "rev-parse", "--quiet", "--verify", "HEAD^{commit}")
    if not head:
        raise Conflict("this branch has no commit yet", hint="git commit --allow-empty -m start")
    tree = _write_side_tree(repository, head, names, index)
    if tree == git_output(repository, "rev-parse", f"{head}^{{tree}}"):
        return ""
    commit = _commit_merge(repository, tree, [head], message)
    _stage_paths(repository, names, {})
    run_git(repository, "update-ref", "-m", message, "HEAD", commit, head)
    return commit


def _write_side_tree(repository: Repository, head: str, paths: Iterable[str], index: Path) -> str:
    private = {"GIT_INDEX_FILE": str(index)}
    run_git(repository, "read-tree", head, variables=private)
    _stage_paths(repository, paths, private)
    return run_git(repository, "write-tree", variables=private).decode().strip()


def _stage_paths(repository: Repository, paths: Iterable[str], variables: dict[str, str]) -> None:
    given = "".join(f"{path}\0" for path in paths).encode("utf-8", "surrogateescape")
    words = ("update-index", "--add", "--remove", "-z", "--stdin")
    run_git(repository, *words, given=given, variables=variables)


def _commit_merge(repository: Repository, tree: str, parents: Iterable[str], message: str) -> str:
    is_signed = git_output(repository, "config", "--type=bool", "commit.gpgSign") == "true"
    options = [word for parent in parents for word in ("-p", parent)]
    words = ("commit-tree", *(("-S",) if is_signed else ()), tree, *options, "-m", message)
    return run_git(repository, *words).decode().strip()
