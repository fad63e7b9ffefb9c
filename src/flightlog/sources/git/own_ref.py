"""A ref of our own: commits made of files from the work tree without the user's index knowing.

A private index, `commit-tree`, and `update-ref` that compares and swaps: any number of writers may
do so at once, and a killed one leaves nothing behind that stops the user's git.
"""

from collections.abc import Mapping
from pathlib import Path

from flightlog.model.errors import Conflict
from flightlog.sources.git.repository import Repository, git_output, run_git, tree_files
from flightlog.store.git import AUTHOR
from flightlog.store.git.command import GitError, check_not_option

_TRIES = 60
ZERO = "0" * 40


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
