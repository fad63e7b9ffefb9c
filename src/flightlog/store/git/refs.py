"""Commits on refs of our own, and the two-parent compaction commit.

A private index, `commit-tree`, and `update-ref` that compares and swaps: any number of writers may
do so at once, and a killed one leaves nothing behind that stops the user's git.

Git picks, reverts and rebases changes one commit at a time, and passes over merges (or asks which side was meant). So
what must happen on one branch alone is committed as a merge: of the branch, and of a commit on it that adds
files which were in the work tree and in no commit yet. The index and the branch change for the named paths alone.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from flightlog.model.errors import Conflict
from flightlog.store.git.command import GitError, check_not_option
from flightlog.store.git.repository import AUTHOR, Repository, git_output, run_git, tree_files

_TRIES = 60
ZERO = "0" * 40
_BUSY = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply")


def commit_to_ref(repository: Repository, ref: str, files: Mapping[str, bytes], index: Path) -> str:
    """Add `files` (path to content) to the tree of `ref` and return its commit; nothing new makes no commit.

    `index` is where git may keep the private index meanwhile; the caller takes it away.
    """
    new = {
        path: run_git(repository, "hash-object", "-w", "--stdin", given=data).decode().strip()
        for path, data in sorted(files.items())
    }
    for _ in range(_TRIES):
        before = git_output(repository, "rev-parse", "--quiet", "--verify", ref)
        held = tree_files(repository, before) if before else {}
        wanted = {**held, **new}
        if wanted == held and before:
            return before
        commit = _commit_tree(repository, _write_tree(repository, wanted, index), before)
        try:
            run_git(repository, "update-ref", ref, commit, before or ZERO)
        except GitError:
            continue  # somebody else was quicker: their files are part of ours on the next try
        return commit
    raise Conflict(f"too many writers at once: {ref}", hint="run the command again")


def push_ref(repository: Repository, remote: str, ref: str) -> str:
    """Push `ref` and return the commit that is there then; one that is newer than ours is as good."""
    said: GitError | None = None
    for _ in range(_TRIES):
        commit = git_output(repository, "rev-parse", "--verify", ref)
        try:
            run_git(repository, "push", "--quiet", "--", check_not_option(remote), f"{commit}:{ref}")
        except GitError as error:
            said = error
            if git_output(repository, "rev-parse", "--verify", ref) == commit and not _lost_race(error):
                raise
            continue
        return commit
    assert said is not None
    raise said


def fetch_refs(repository: Repository, remote: str, theirs: str, ours: str) -> list[str]:
    """Fetch every ref below `theirs` to the same name below `ours`; return the names here."""
    words = (
        "fetch",
        "--quiet",
        "--no-tags",
        "--no-write-fetch-head",
        "--",
        check_not_option(remote),
        f"+{theirs}/*:{ours}/*",
    )
    run_git(repository, *words)
    return git_output(repository, "for-each-ref", "--format=%(refname)", f"{ours}/").splitlines()


def _lost_race(error: GitError) -> bool:
    words = ("fetch first", "non-fast-forward", "cannot lock ref", "failed to update ref", "stale info", "rejected")
    return any(word in error.said for word in words)


def _write_tree(repository: Repository, files: Mapping[str, str], index: Path) -> str:
    private = {"GIT_INDEX_FILE": str(index)}
    listed = "".join(f"100644 {blob}\t{path}\0" for path, blob in sorted(files.items()))
    run_git(repository, "read-tree", "--empty", variables=private)
    run_git(repository, "update-index", "-z", "--index-info", given=listed.encode(), variables=private)
    return run_git(repository, "write-tree", variables=private).decode().strip()


def _commit_tree(repository: Repository, tree: str, parent: str) -> str:
    parents = ["-p", parent] if parent else []
    made = run_git(repository, "commit-tree", tree, *parents, "-m", "training rows", variables=AUTHOR)
    return made.decode().strip()


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
