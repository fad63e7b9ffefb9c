"""A repository as git sees it: where it is, which branch is the default, what a ref holds.

Plumbing only. The variables git sets for its hooks are taken away first, so that a question asked
from inside a hook is about this repository and not about a commit in the making. The user's index
and work tree are never touched.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from flightlog.model.errors import NotFound, Unavailable
from flightlog.sources.git.heads import branch

if TYPE_CHECKING:
    import subprocess

_UNSET = ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE", "GIT_PREFIX", "GIT_QUARANTINE_PATH", "GIT_OBJECT_DIRECTORY")
_WITHOUT = [word for name in _UNSET for word in ("-u", name)]
_DEFAULTS = ("main", "master", "trunk")
TIMEOUT_S = 60.0


class Repository(Struct, frozen=True):
    """Where a repository is: the top of this work tree, and what all its work trees share."""

    top: Path
    common: Path


class GitFailed(Unavailable):
    """Git said no: its first complaint is the message, all of them are in `said`."""

    def __init__(self, message: str, *, hint: str = "", said: str = "") -> None:
        """Keep what git said."""
        super().__init__(message, hint=hint)
        self.said = said


def find(folder: Path) -> Repository | None:
    """Return the repository that holds `folder`, or nothing."""
    if not folder.is_dir():
        return None
    done = _run(folder, ["rev-parse", "--show-toplevel", "--git-common-dir"])
    lines = done.stdout.decode("utf-8", "surrogateescape").splitlines()
    if done.returncode or len(lines) < 2 or not lines[0]:
        return None
    return Repository(Path(lines[0]), (folder / lines[1]).resolve())


def at(folder: Path) -> Repository:
    """Return the repository that holds `folder`, or say that there is none."""
    found = find(folder)
    if found is None:
        raise NotFound(f"not inside a git repository: {folder}", hint="run it inside one, or make one with: git init")
    return found


def git(repository: Repository, *words: str, given: bytes = b"", variables: Sequence[str] = ()) -> bytes:
    """Run git in `repository` and return what it printed; `variables` are `NAME=value`."""
    done = _run(repository.top, words, given, variables)
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip()
        raise GitFailed(f"git {words[0]} failed: {_telling(said) or done.returncode}", hint="git status", said=said)
    return done.stdout


def _telling(said: str) -> str:
    """The line that says what is wrong; what follows it is advice."""
    lines = said.splitlines()
    wrong = [line for line in lines if line.startswith(("fatal: ", "error: "))]
    return wrong[0].partition(": ")[2] if wrong else lines[-1] if lines else ""


def asked(repository: Repository, *words: str) -> str:
    """Run git and return its answer without the line end; empty when it has none."""
    done = _run(repository.top, words)
    return "" if done.returncode else done.stdout.decode("utf-8", "surrogateescape").rstrip("\n")


def current_branch(repository: Repository) -> str:
    """Return the branch that is checked out; empty when none is."""
    said = branch(repository.top)
    return asked(repository, "symbolic-ref", "--quiet", "--short", "HEAD") if said is None else said


def default_branch(repository: Repository) -> str:
    """Return the branch the others come from: the remote's, else the usual names, else the one there is."""
    remote = asked(repository, "symbolic-ref", "--quiet", "--short", "refs/remotes/origin/HEAD")
    if remote:
        return remote.partition("/")[2]
    branches = asked(repository, "for-each-ref", "--format=%(refname:short)", "refs/heads").splitlines()
    usual = [name for name in _DEFAULTS if name in branches]
    if usual or len(branches) == 1:
        return (usual or branches)[0]
    said = asked(repository, "config", "init.defaultBranch")
    return said if said in branches else current_branch(repository)


def ignores(repository: Repository, path: Path) -> bool:
    """Whether git ignores `path`."""
    return _run(repository.top, ["check-ignore", "--quiet", str(path)]).returncode == 0


def tree_files(repository: Repository, ref: str, folder: str = "") -> dict[str, str]:
    """Return the files of `folder` in the tree of `ref`: path to blob; empty when there is none."""
    below = ["--", f"{folder}/"] if folder else []
    listed = _run(repository.top, ["ls-tree", "-r", "-z", "--full-tree", ref, *below])
    files = {}
    for entry in listed.stdout.split(b"\0") if not listed.returncode else ():
        facts, _, path = entry.decode("utf-8", "surrogateescape").partition("\t")
        if path:
            files[path] = facts.split()[2]
    return files


def blobs(repository: Repository, names: Iterable[str]) -> dict[str, bytes]:
    """Read blobs in one go."""
    wanted = list(dict.fromkeys(names))
    if not wanted:
        return {}
    out = git(repository, "cat-file", "--batch", given="".join(f"{name}\n" for name in wanted).encode())
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


def _run(
    folder: Path, words: Sequence[str], given: bytes = b"", variables: Sequence[str] = ()
) -> "subprocess.CompletedProcess[bytes]":
    import subprocess  # noqa: PLC0415 - a settle asks git nothing

    program = ["env", *_WITHOUT, "GIT_TERMINAL_PROMPT=0", "LC_ALL=C", *variables, "git", "-c", "core.quotePath=false"]
    try:
        return subprocess.run(
            [*program, *words], cwd=folder, input=given, capture_output=True, check=False, timeout=TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GitFailed(f"git {words[0]} did not answer: {type(error).__name__}", hint="git --version") from error
