"""A person's repository: location, branches, blobs, ignore rules.

Answers only what the plain files say beyond doubt. Whatever else there is (another way of keeping refs, a ref
that points to a ref, a new repository) gives None, and git is to be asked.

Plumbing only. The user's index and work tree are never touched. How git is kept from running what a repository
configures: `store.git.command`.

Nothing of the person's own git reaches those: no global or system configuration, no hooks, no attribute that changes
bytes, nothing of the environment.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from flightlog.model.errors import NotFound, Unreadable
from flightlog.store.files import ensure_dir, os_errors_as_unavailable, replace_file
from flightlog.store.git.command import (
    GitError,
    GitProcess,
    GitResult,
    PersonGit,
    absolute_path_entries,
    check_not_option,
    find_git,
    start_command,
)

_BRANCH = "refs/heads/"
_HASH = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_NOT_HERE = ".invalid"  # what git writes into HEAD where refs are kept in tables
_DEFAULTS = ("main", "master", "trunk")
__all__ = ["GitError", "ShadowRepository", "remove_stale"]
_LIMIT_S = 900.0  # a snapshot of several hundred thousand files takes minutes on a slow disk
_CONFIG = """\
[core]
	repositoryformatversion = 0
	bare = false
	filemode = true
	symlinks = true
	autocrlf = false
	safecrlf = false
	quotepath = false
	logallrefupdates = false
	hookspath = /dev/null
	fsync = committed,reference
[gc]
	auto = 0
[maintenance]
	auto = false
[flightlog]
	version = 1
"""
# The highest word on attributes: no line ends, filters or encodings of the project touch a byte.
_ATTRIBUTES = "* -text !eol -ident !filter !working-tree-encoding !diff !merge\n"
AUTHOR = {f"GIT_{who}_NAME": "flightlog" for who in ("AUTHOR", "COMMITTER")} | {
    f"GIT_{who}_EMAIL": "flightlog@localhost" for who in ("AUTHOR", "COMMITTER")
}
_SETTINGS = {
    **AUTHOR,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_LITERAL_PATHSPECS": "1",
    "HOME": "/nonexistent",
    "LC_ALL": "C",
}


def find_common_dir(top: Path) -> Path:
    """Return what all work trees of a repository share."""
    git_dir = top / ".git"
    with suppress(OSError):
        if git_dir.is_file():
            own = (top / git_dir.read_text().removeprefix("gitdir:").strip()).resolve()
            shared = own / "commondir"
            return (own / shared.read_text().strip()).resolve() if shared.exists() else own
    return git_dir.resolve()


def read_branch(top: Path) -> str | None:
    """Return the branch that is checked out in the work tree at `top`; empty when none is."""
    said = _read_head(top)
    if said is None or _HASH.fullmatch(said):
        return said if said is None else ""
    name = said.removeprefix("ref: ").removeprefix(_BRANCH)
    return name if said == f"ref: {_BRANCH}{name}" and name != _NOT_HERE else None


def read_tip(top: Path, common: Path) -> str | None:
    """Return the commit that is checked out in the work tree at `top`."""
    said = _read_head(top)
    if said is None or _HASH.fullmatch(said):
        return said
    name = read_branch(top)
    if not name:
        return None
    loose = _read_text(common / _BRANCH / name)
    if loose is not None:
        return loose if _HASH.fullmatch(loose) else None
    packed = _read_text(common / "packed-refs") or ""
    found = re.search(rf"^({_HASH.pattern}) {re.escape(_BRANCH + name)}$", packed, re.MULTILINE)
    return found[1] if found else None


def _read_head(top: Path) -> str | None:
    """Return what HEAD of this work tree says, whether its `.git` is a directory or names one."""
    git = top / ".git"
    if git.is_dir():
        return _read_text(git / "HEAD")
    said = _read_text(git)
    return _read_text(top / said.removeprefix("gitdir: ") / "HEAD") if said and said.startswith("gitdir: ") else None


def _read_text(path: Path) -> str | None:
    try:
        return path.read_text("utf-8").rstrip("\n")
    except (OSError, UnicodeDecodeError):
        return None


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


class ShadowRepository(Struct, frozen=True):
    """A git directory of ours and where git itself is found (`programs`, a search path)."""

    git_dir: Path
    programs: str

    def create_if_missing(self) -> None:
        """Make the repository, or finish making it; one that is there stays as it is."""
        config = self.git_dir / "config"
        if config.is_file() and b"[flightlog]" in config.read_bytes():
            return
        ensure_dir(self.git_dir)
        self.run_git(["init", "--quiet", "--bare", "--template=", "--object-format=sha1"])
        for folder in ("refs/tags", "refs/heads", "info"):
            ensure_dir(self.git_dir / folder)
        replace_file(self.git_dir / "info" / "attributes", _ATTRIBUTES.encode())
        replace_file(config, _CONFIG.encode())  # last: from here on it is whole

    def run_git(
        self,
        command: Sequence[str],
        *,
        stdin: bytes = b"",
        more: Mapping[str, str] | None = None,
        held: int | None = None,
    ) -> bytes:
        """Run one git command and return what it says; a child keeps the lock `held` while it lives."""
        return self.start_git(command, more=more, held=held).finish_command(stdin)

    def start_git(
        self, command: Sequence[str], *, more: Mapping[str, str] | None = None, held: int | None = None
    ) -> GitProcess:
        """Start a git command, to be finished later; several may run at once."""
        if command[0] != "init":
            self._check_settings()
        own = {
            "PATH": absolute_path_entries(self.programs),
            "GIT_DIR": str(self.git_dir),
            "GIT_COMMON_DIR": str(self.git_dir),
        }
        environment = {**_SETTINGS, **own, **(more or {})}
        folder = Path(environment.get("GIT_WORK_TREE", str(self.git_dir)))
        return start_command([find_git(own["PATH"]), *command], environment, folder, _LIMIT_S, held)

    def _check_settings(self) -> None:
        """Raise an error unless the settings are ours: a run of someone else brings its repository along."""
        try:
            is_ours = (self.git_dir / "config").read_bytes() == _CONFIG.encode()
        except OSError as error:
            raise GitError(f"no snapshots to read: {self.git_dir}", hint="flightlog lab list") from error
        if not is_ours:
            raise Unreadable(f"the settings of these snapshots were changed: {self.git_dir}", hint="flightlog lab list")

    def resolve_names(self, names: Iterable[str]) -> list[str]:
        """Return the object ids of these names, or say which is unknown."""
        wanted = list(names)
        said = self.run_git(["cat-file", "--batch-check=%(objectname)"], stdin="\n".join(wanted).encode() + b"\n")
        found = said.decode().splitlines()
        for name, answer in zip(wanted, found, strict=True):
            if answer.endswith((" missing", " ambiguous")):
                raise NotFound(f"no such snapshot: {name[:80]!r}", hint="list them in the run's .shadow_git: git tag")
        return found


def remove_stale(*locks: Path) -> None:
    """Remove lock files a killed git left; call it only while holding what the locks protect."""
    for path in locks:
        with os_errors_as_unavailable(path):
            path.unlink(missing_ok=True)
