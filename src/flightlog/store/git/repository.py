"""A person's repository (location, branches, blobs, ignore rules) and the shadow repository.

`read_branch` and `read_tip` read git's plain files and return None for anything unusual (refs in
tables, a ref that points to a ref, a new repository); git has to be run then. The person's index
and work tree are never changed. `store.git.command` says how git is kept from running what a
repository configures.

A shadow repository is ours, and the person's own git does not affect it: no global or system
configuration, no hooks, no attribute that changes bytes, no environment.
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
_HASH = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")  # SHA-1 or SHA-256
_NOT_HERE = ".invalid"  # the branch in HEAD of a repository with refs in tables
_DEFAULTS = ("main", "master", "trunk")
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
# This file overrides all others: no line ends, filters or encodings of the project change a byte.
_ATTRIBUTES = "* -text !eol -ident !filter !working-tree-encoding !diff !merge\n"
_NAME, _EMAIL = "flightlog", "flightlog@localhost"
IDENTITY = f"{_NAME} <{_EMAIL}>"
AUTHOR = {f"GIT_{who}_NAME": _NAME for who in ("AUTHOR", "COMMITTER")} | {
    f"GIT_{who}_EMAIL": _EMAIL for who in ("AUTHOR", "COMMITTER")
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
    """Return the git directory that all work trees of a repository share."""
    git_dir = top / ".git"
    with suppress(OSError):
        if git_dir.is_file():
            own = (top / git_dir.read_text().removeprefix("gitdir:").strip()).resolve()
            shared = own / "commondir"
            return (own / shared.read_text().strip()).resolve() if shared.exists() else own
    return git_dir.resolve()


def find_outer_git_dir(work_tree: Path) -> Path | None:
    """Return the git directory of `work_tree` if it is outside: a linked work tree, a subdirectory."""
    top = next((top for top in (work_tree, *work_tree.parents) if (top / ".git").exists()), None)
    if top is None or (
        top == work_tree and (top / ".git").is_dir() and not (top / ".git").is_symlink()
    ):
        return None
    common = find_common_dir(top)
    is_outside = not common.is_relative_to(work_tree.resolve())
    return common if is_outside and (common / "HEAD").is_file() else None


def list_worktrees(top: Path) -> list[Path]:
    """Return all work trees of the repository at `top`, the main one and `top` included.

    A work tree counts if it and the shared directory name each other: a directory from elsewhere
    must not claim to belong to another repository, nor lead into one by a symbolic link.
    """
    common = find_common_dir(top)
    linked = []
    for path in (common / "worktrees").glob("*/gitdir"):
        tree = Path((_read_text(path) or "").strip()).parent.resolve()
        if _read_link(tree) == path.parent == path.parent.resolve():
            linked.append(tree)
    is_linked = (top / ".git").is_file() or (top / ".git").is_symlink()
    if is_linked and top.resolve() not in linked:
        return [top.resolve()]
    main = [common.parent] if common.name == ".git" else []
    return list(dict.fromkeys([top.resolve(), *main, *linked]))


def _read_link(top: Path) -> Path | None:
    """Return the git directory that the `.git` file of a linked work tree names."""
    text = _read_text(top / ".git") if (top / ".git").is_file() else None
    return (top / text.removeprefix("gitdir:").strip()).resolve() if text else None


def read_branch(top: Path) -> str | None:
    """Return the branch of the work tree at `top`; empty if HEAD is detached."""
    head = _read_head(top)
    if head is None or _HASH.fullmatch(head):
        return None if head is None else ""
    name = head.removeprefix("ref: ").removeprefix(_BRANCH)
    return name if head == f"ref: {_BRANCH}{name}" and name != _NOT_HERE else None


def read_tip(top: Path, common: Path) -> str | None:
    """Return the commit that is checked out in the work tree at `top`."""
    head = _read_head(top)
    if head is None or _HASH.fullmatch(head):
        return head
    name = read_branch(top)
    if not name:
        return None
    loose = _read_text(common / _BRANCH / name)
    if loose is not None:
        return loose if _HASH.fullmatch(loose) else None
    packed = _read_text(common / "packed-refs") or ""
    match = re.search(rf"^({_HASH.pattern}) {re.escape(_BRANCH + name)}$", packed, re.MULTILINE)
    return match[1] if match else None


def _read_head(top: Path) -> str | None:
    """Return the content of HEAD; `.git` may be a directory or a file that names one."""
    git_dir = top / ".git"
    if git_dir.is_dir():
        return _read_text(git_dir / "HEAD")
    link = _read_text(git_dir)
    if not link or not link.startswith("gitdir: "):
        return None
    return _read_text(top / link.removeprefix("gitdir: ") / "HEAD")


def _read_text(path: Path) -> str | None:
    try:
        return path.read_text("utf-8").rstrip("\n")
    except (OSError, UnicodeDecodeError):
        return None


class Repository(Struct, frozen=True):
    """The top of a work tree, and the git directory that all work trees share.

    `is_trusted` says whether the person allowed what it configures (`flightlog trust`).
    """

    top: Path
    common: Path
    is_trusted: bool = False


def find_repository(folder: Path, *, trusted: bool = False) -> Repository | None:
    """Return the repository that holds `folder`; None if there is none or git may not run there."""
    try:
        return open_repository(folder, trusted=trusted)
    except (NotFound, GitError):
        return None


def open_repository(folder: Path, *, trusted: bool = False) -> Repository:
    """Return the repository that holds `folder`, or raise `NotFound`."""
    if folder.is_dir():
        git = PersonGit(folder, trusted)
        result = git.run_git("rev-parse", "--show-toplevel", "--git-common-dir")
        lines = result.stdout.decode("utf-8", "surrogateescape").splitlines()
        if result.exit_code == 0 and len(lines) == 2 and lines[0]:
            return Repository(Path(lines[0]), (folder / lines[1]).resolve(), trusted)
    hint = "run it inside one, or make one with: git init"
    raise NotFound(f"not inside a git repository: {folder}", hint=hint)


def run_git(
    repository: Repository,
    *words: str,
    given: bytes = b"",
    variables: Mapping[str, str] | None = None,
) -> bytes:
    """Run git in `repository` with these environment variables and return its output."""
    git = PersonGit(repository.top, repository.is_trusted, variables or {})
    return git.run_git(*words, given=given).require_success()


def git_output(repository: Repository, *words: str) -> str:
    """Run git and return its output without the line end; empty if it fails."""
    result = _run(repository, *words)
    return "" if result.exit_code else result.stdout.decode("utf-8", "surrogateescape").rstrip("\n")


def current_branch(repository: Repository) -> str:
    """Return the branch that is checked out; empty if HEAD is detached."""
    branch = read_branch(repository.top)
    if branch is None:
        return git_output(repository, "symbolic-ref", "--quiet", "--short", "HEAD")
    return branch


def default_branch(repository: Repository) -> str:
    """Return the default branch: the remote's, else one with a usual name, else the only one."""
    words = ("symbolic-ref", "--quiet", "--short", "refs/remotes/origin/HEAD")
    remote = git_output(repository, *words)
    if remote:
        return remote.partition("/")[2]
    listed = git_output(repository, "for-each-ref", "--format=%(refname:short)", "refs/heads")
    branches = listed.splitlines()
    usual = [name for name in _DEFAULTS if name in branches]
    if usual or len(branches) == 1:
        return (usual or branches)[0]
    configured = git_output(repository, "config", "init.defaultBranch")
    return configured if configured in branches else current_branch(repository)


def is_ignored(repository: Repository, path: Path) -> bool:
    """Return whether git ignores `path`."""
    return _run(repository, "check-ignore", "--quiet", "--", str(path)).exit_code == 0


def tree_files(repository: Repository, ref: str, folder: str = "") -> dict[str, str]:
    """Return the files of `folder` in the tree of `ref`, path to blob; empty without a tree."""
    below = ["--", f"{folder}/"] if folder else []
    result = _run(repository, "ls-tree", "-r", "-z", "--full-tree", check_not_option(ref), *below)
    files = {}
    for entry in result.stdout.split(b"\0") if result.exit_code == 0 else ():
        mode_type_blob, _, path = entry.decode("utf-8", "surrogateescape").partition("\t")
        if path:
            files[path] = mode_type_blob.split()[2]
    return files


def read_blob_contents(repository: Repository, names: Iterable[str]) -> dict[str, bytes]:
    """Return the contents of blobs by name, with one git process; unknown names are left out."""
    unique = list(dict.fromkeys(names))
    if not unique:
        return {}
    given = "".join(f"{name}\n" for name in unique).encode()
    return parse_batch(run_git(repository, "cat-file", "--batch", given=given), unique)


def parse_batch(out: bytes, names: Iterable[str]) -> dict[str, bytes]:
    """Return what `git cat-file --batch` printed for `names`; missing objects are left out."""
    contents, at_byte = {}, 0
    for name in names:
        end = out.index(b"\n", at_byte)
        words = out[at_byte:end].split()
        at_byte = end + 1
        if len(words) == 3:
            size = int(words[2])
            contents[name] = out[at_byte : at_byte + size]
            at_byte += size + 1
    return contents


def _run(repository: Repository, *words: str) -> GitResult:
    return PersonGit(repository.top, repository.is_trusted).run_git(*words)


class ShadowRepository(Struct, frozen=True):
    """A git directory of ours, and `programs`, the search path for git itself."""

    git_dir: Path
    programs: str

    def create_if_missing(self) -> None:
        """Make the repository, or finish making it; an existing one stays as it is."""
        config = self.git_dir / "config"
        if config.is_file() and b"[flightlog]" in config.read_bytes():
            return
        ensure_dir(self.git_dir)
        self.run_git(["init", "--quiet", "--bare", "--template=", "--object-format=sha1"])
        for folder in ("refs/tags", "refs/heads", "info"):
            ensure_dir(self.git_dir / folder)
        replace_file(self.git_dir / "info" / "attributes", _ATTRIBUTES.encode())
        replace_file(config, _CONFIG.encode())  # last: it marks the repository as complete

    def run_git(
        self,
        command: Sequence[str],
        *,
        stdin: bytes = b"",
        more: Mapping[str, str] | None = None,
        lock_fd: int | None = None,
    ) -> bytes:
        """Run one git command and return its output; git inherits `lock_fd`."""
        return self.start_git(command, more=more, lock_fd=lock_fd).finish_command(stdin)

    def start_git(
        self,
        command: Sequence[str],
        *,
        more: Mapping[str, str] | None = None,
        lock_fd: int | None = None,
    ) -> GitProcess:
        """Start a git command, to be finished later; several may run at once."""
        if command[0] != "init":
            self._check_settings()
        path, git_dir = absolute_path_entries(self.programs), str(self.git_dir)
        folders = {"GIT_DIR": git_dir, "GIT_COMMON_DIR": git_dir}
        environment = {**_SETTINGS, "PATH": path, **folders, **(more or {})}
        folder = Path(environment.get("GIT_WORK_TREE", git_dir))
        return start_command([find_git(path), *command], environment, folder, _LIMIT_S, lock_fd)

    def _check_settings(self) -> None:
        """Raise an error unless the settings are ours: a run of another person may bring others."""
        try:
            is_ours = (self.git_dir / "config").read_bytes() == _CONFIG.encode()
        except OSError as error:
            hint = "flightlog lab list"
            raise GitError(f"no snapshots to read: {self.git_dir}", hint=hint) from error
        if not is_ours:
            text = f"the settings of these snapshots were changed: {self.git_dir}"
            raise Unreadable(text, hint="flightlog lab list")

    def resolve_names(self, names: Iterable[str]) -> list[str]:
        """Return the object ids of these names; raise `NotFound` for an unknown one."""
        unresolved = list(names)
        command = ["cat-file", "--batch-check=%(objectname)"]
        given = "\n".join(unresolved).encode() + b"\n"
        ids = self.run_git(command, stdin=given).decode().splitlines()
        for name, object_id in zip(unresolved, ids, strict=True):
            if object_id.endswith((" missing", " ambiguous")):
                hint = "list them in the run's .shadow_git: git tag"
                raise NotFound(f"no such snapshot: {name[:80]!r}", hint=hint)
        return ids


def remove_stale(*locks: Path) -> None:
    """Remove lock files of a killed git; the caller holds what they protect."""
    for path in locks:
        with os_errors_as_unavailable(path):
            path.unlink(missing_ok=True)
