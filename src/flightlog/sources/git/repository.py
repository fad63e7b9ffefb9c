"""A repository as git sees it: where it is, which branch is the default, what a ref holds.

Plumbing only. The user's index and work tree are never touched. How git is kept from running what a repository
configures: `store.git.command`.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from flightlog.model.errors import NotFound
from flightlog.sources.git.heads import read_branch
from flightlog.store.git.command import GitError, GitResult, PersonGit, check_not_option

_DEFAULTS = ("main", "master", "trunk")


class Repository(Struct, frozen=True):
    """Where a repository is: the top of this work tree, and what all its work trees share.

    `trusted` says whether the person allowed what it configures (`flightlog trust`).
    """

    top: Path
    common: Path
    trusted: bool = False


def find_repository(folder: Path, *, trusted: bool = False) -> Repository | None:
    """Return the repository that holds `folder`; None if there is none, or git must not run there."""
    try:
        return open_repository(folder, trusted=trusted)
    except (NotFound, GitError):
        return None


def open_repository(folder: Path, *, trusted: bool = False) -> Repository:
    """Return the repository that holds `folder`, or raise `NotFound`."""
    if folder.is_dir():
        answer = PersonGit(folder, trusted).run_git("rev-parse", "--show-toplevel", "--git-common-dir")
        lines = answer.out.decode("utf-8", "surrogateescape").splitlines()
        if answer.code == 0 and len(lines) == 2 and lines[0]:
            return Repository(Path(lines[0]), (folder / lines[1]).resolve(), trusted)
    raise NotFound(f"not inside a git repository: {folder}", hint="run it inside one, or make one with: git init")


def run_git(
    repository: Repository, *words: str, given: bytes = b"", variables: Mapping[str, str] | None = None
) -> bytes:
    """Run git in `repository` with these environment variables and return what it printed."""
    return PersonGit(repository.top, repository.trusted, variables or {}).run_git(*words, given=given).require_success()


def git_output(repository: Repository, *words: str) -> str:
    """Run git and return its answer without the line end; empty when it has none."""
    answer = _git_answer(repository, *words)
    return "" if answer.code else answer.out.decode("utf-8", "surrogateescape").rstrip("\n")


def current_branch(repository: Repository) -> str:
    """Return the branch that is checked out; empty when none is."""
    said = read_branch(repository.top)
    return git_output(repository, "symbolic-ref", "--quiet", "--short", "HEAD") if said is None else said


def default_branch(repository: Repository) -> str:
    """Return the branch the others come from: the remote's, else the usual names, else the one there is."""
    remote = git_output(repository, "symbolic-ref", "--quiet", "--short", "refs/remotes/origin/HEAD")
    if remote:
        return remote.partition("/")[2]
    branches = git_output(repository, "for-each-ref", "--format=%(refname:short)", "refs/heads").splitlines()
    usual = [name for name in _DEFAULTS if name in branches]
    if usual or len(branches) == 1:
        return (usual or branches)[0]
    said = git_output(repository, "config", "init.defaultBranch")
    return said if said in branches else current_branch(repository)


def is_ignored(repository: Repository, path: Path) -> bool:
    """Whether git ignores `path`."""
    return _git_answer(repository, "check-ignore", "--quiet", "--", str(path)).code == 0


def tree_files(repository: Repository, ref: str, folder: str = "") -> dict[str, str]:
    """Return the files of `folder` in the tree of `ref`: path to blob; empty when there is none."""
    below = ["--", f"{folder}/"] if folder else []
    listed = _git_answer(repository, "ls-tree", "-r", "-z", "--full-tree", check_not_option(ref), *below)
    files = {}
    for entry in listed.out.split(b"\0") if listed.code == 0 else ():
        facts, _, path = entry.decode("utf-8", "surrogateescape").partition("\t")
        if path:
            files[path] = facts.split()[2]
    return files


def read_blob_contents(repository: Repository, names: Iterable[str]) -> dict[str, bytes]:
    """Read blobs in one go."""
    wanted = list(dict.fromkeys(names))
    if not wanted:
        return {}
    out = run_git(repository, "cat-file", "--batch", given="".join(f"{name}\n" for name in wanted).encode())
    found, at_byte = {}, 0
    for name in wanted:
        end = out.index(b"\n", at_byte)
        words = out[at_byte:end].split()
        at_byte = end + 1
        if len(words) == 3:
            size = int(words[2])
            found[name] = out[at_byte : at_byte + size]
            at_byte += size + 1
    return found


def _git_answer(repository: Repository, *words: str) -> GitResult:
    return PersonGit(repository.top, repository.trusted).run_git(*words)
