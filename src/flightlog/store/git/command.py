"""Start git. No other module does; `tests/test_shape.py` checks that.

`PersonGit` runs git in a repository that belongs to a person and may be a hostile clone: settings
of the repository that could make git run a program are overridden.
"""

import functools
import os
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from msgspec import Struct

from flightlog.model.errors import Invalid, NotFound, Unavailable

if TYPE_CHECKING:
    import subprocess


_READ_LIMIT_S = 60.0  # a log of a large repository takes some seconds
_NETWORK_LIMIT_S = 300.0  # a push runs the person's hooks, which may run tests
_CONFIG_BYTES_MAX = 1 << 20  # a configuration file of a person has some kilobytes
# The first version with `safe.bareRepository`: an older one takes any directory that looks like a
# bare repository for one, and runs what its configuration says.
SAFE_VERSION = (2, 38)
_ALWAYS = tuple(
    "-c safe.bareRepository=explicit -c core.fsmonitor=false -c core.quotePath=false".split()
)
_READING = ("-c", "log.showSignature=false", "-c", "submodule.recurse=false")
_NO_HOOKS = ("-c", "core.hooksPath=/dev/null")
_READING_ENVIRONMENT = {
    "GIT_OPTIONAL_LOCKS": "0",
    # No protocol: reading a partial clone would fetch, and so run what the clone configures.
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_NO_LAZY_FETCH": "1",
}
_CHANGING = frozenset(
    "commit-tree fetch hash-object push read-tree update-index update-ref write-tree".split()
)
# Variables with which a person makes git sign in at a remote.
_SIGN_IN = re.compile(
    r"GIT_(ASKPASS|SSH|SSH_\w+|TERMINAL_PROMPT|SSL_\w+|PROXY_\w+|HTTP_\w+|CONFIG_(COUNT|KEY_\d+|VALUE_\d+))"
)
_NO_DIFF_PROGRAMS = tuple(
    "--no-ext-diff --no-textconv --submodule=short --ignore-submodules=dirty".split()
)
# Options that keep a command from running what a repository names, where no setting can: git reads
# a submodule with its own configuration, and takes the first value of `remote.*.uploadpack`.
_OPTIONS = {
    **dict.fromkeys(("diff", "diff-tree", "log", "show"), _NO_DIFF_PROGRAMS),
    "blame": ("--no-textconv",),
    "status": ("--ignore-submodules=all",),
    "fetch": ("--upload-pack=git-upload-pack", "--no-recurse-submodules"),
    "push": ("--receive-pack=git-receive-pack", "--recurse-submodules=no"),
}
# Settings that make git run a program, as `git config --list` writes the names. Those of merges,
# difftools and editors are missing: no command here starts one.
_RUNS_PROGRAMS = re.compile(
    r"""filter\..*\.(?:clean|smudge|process|required) | diff\.external | diff\..*\.(?:command|textconv)
    | core\.(?:alternaterefscommand|askpass|editor|gitproxy|hookspath|pager|sshcommand)
    | credential\.(?:.*\.)?helper | gpg\.(?:.*\.)?(?:program|defaultkeycommand)
    | protocol\.(?:.*\.)?allow | remote\..*\.vcs | submodule\..*\.update
    | uploadpack\.packobjectshook""",
    re.VERBOSE | re.DOTALL,
)
# A configuration file without these words has none of the above and includes no other file.
_MAY_RUN = re.compile(
    rb"filter|diff|command|askpass|editor|gitproxy|hook|pager|helper|program|protocol|vcs|\bupdate\b|include"
    rb"|worktreeconfig",
    re.IGNORECASE,
)
# The values that run nothing; for all other settings that is the empty one.
_INSTEAD = {
    "hookspath": "/dev/null",
    "sshcommand": "ssh",
    "required": "false",
    "allow": "never",
    "update": "none",
}


class GitError(Unavailable):
    """Git could not be started or failed."""

    def __init__(self, message: str, *, hint: str = "git status", stderr: str = "") -> None:
        super().__init__(message, hint=hint)
        self.stderr = stderr


class GitResult(Struct, frozen=True):
    """The exit code and output of a git command."""

    name: str
    exit_code: int
    stdout: bytes
    stderr: str

    def require_success(self) -> bytes:
        """Return the output, or raise `GitError` with git's message."""
        if self.exit_code == 0:
            return self.stdout
        lines = self.stderr.strip().splitlines()
        starts = ("fatal: ", "error: ")
        errors = [line.partition(": ")[2] for line in lines if line.startswith(starts)]
        reason = (errors or lines[-1:] or [f"exit {self.exit_code}"])[0]
        raise GitError(f"git {self.name} failed: {reason[:300]}", stderr=self.stderr)


class GitProcess:
    """A git command that is running."""

    def __init__(self, child: "subprocess.Popen[bytes]", name: str, limit_s: float) -> None:
        self._child = child
        self._name = name
        self._limit_s = limit_s
        self._end_s = time.monotonic() + limit_s
        self._timer = threading.Timer(limit_s, child.kill)

    def send_input(self, data: bytes) -> None:
        """Send it a few lines and go on; an error shows at its end."""
        assert self._child.stdin is not None
        with suppress(BrokenPipeError):
            self._child.stdin.write(data)
            self._child.stdin.flush()

    def finish_command(self, stdin: bytes = b"") -> bytes:
        """Wait for its end and return its output; raise `GitError` if it fails or takes too long.

        For commands that run no hook: a program that git left behind would be waited for.
        """
        # `communicate` with a limit would look for the end of git in steps of 1 ms and more.
        self._start_timer()
        with self._child as child:
            out, stderr = child.communicate(stdin)
        is_late = self._timer.finished.is_set()
        self._timer.cancel()
        if is_late:
            raise self._timeout_error()
        return self._make_result(out, stderr).require_success()

    def wait_for_answer(self, stdin: bytes = b"") -> GitResult:
        """Wait for its end and return the result; kill it after the time limit."""
        import subprocess  # noqa: PLC0415 - most settles do not run git

        with self._child as child:
            try:
                out, stderr = child.communicate(stdin, max(0.0, self._end_s - time.monotonic()))
            except subprocess.TimeoutExpired as error:
                child.kill()
                raise self._timeout_error() from error
        return self._make_result(out, stderr)

    def open_streams(self) -> tuple[IO[bytes], IO[bytes]]:
        """Return stdin and stdout, to be used while it runs; `finish_command` must follow."""
        self._start_timer()
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        return self._child.stdin, self._child.stdout

    def _start_timer(self) -> None:
        if self._timer.ident is None:
            self._timer.daemon = True
            self._timer.start()

    def _make_result(self, out: bytes, stderr: bytes) -> GitResult:
        return GitResult(self._name, self._child.returncode, out, stderr.decode("utf-8", "replace"))

    def _timeout_error(self) -> GitError:
        return GitError(f"git {self._name} did not finish within {self._limit_s:.0f} s")


class PersonGit(Struct, frozen=True):
    """Runs git in a repository that belongs to a person.

    `is_trusted` says that the person allowed what this repository configures, for commands that
    change something and for a git that is too old to be restricted. `variables` are set for git.
    """

    folder: Path
    is_trusted: bool = False
    variables: Mapping[str, str] = {}

    def run_git(self, *words: str, given: bytes = b"") -> GitResult:
        """Run one git command; the first word is its name."""
        return self.start_git(*words).wait_for_answer(given)

    def start_git(self, *words: str, limit_s: float = 0.0) -> GitProcess:
        """Start a git command, to be finished later; several may run at once."""
        name, network = words[0], words[0] in {"fetch", "push"}
        environment = _person_environment(keep=_SIGN_IN if network else None)
        program = find_git(environment["PATH"])
        self._check_version(program)
        is_unrestricted = self.is_trusted and name in _CHANGING
        limit_s = limit_s or (_NETWORK_LIMIT_S if network else _READ_LIMIT_S)
        command = [program, *_ALWAYS]
        if name not in _CHANGING:
            # `rev-parse` runs no hook, and is used to find the hooks.
            command += _READING if name == "rev-parse" else (*_READING, *_NO_HOOKS)
            environment |= _READING_ENVIRONMENT
        if not is_unrestricted:
            exempt = "core.hookspath" if name == "rev-parse" else ""
            settings = self._list_overrides(program, environment, limit_s)
            _add_settings(environment, [pair for pair in settings if pair[0] != exempt])
        if network and not is_unrestricted:
            environment["GIT_ALLOW_PROTOCOL"] = "file:git:http:https:ssh"
            environment.setdefault("GIT_PROXY_COMMAND", "")  # git takes the first `core.gitProxy`
        command += [name, *(() if is_unrestricted else _OPTIONS.get(name, ())), *words[1:]]
        return start_command(command, {**environment, **self.variables}, self.folder, limit_s)

    def _check_version(self, program: str) -> None:
        version = _git_version(program)
        if version >= SAFE_VERSION or self.is_trusted:
            return
        hint = "install git 2.38 or later, or allow it here: flightlog trust --yes"
        name = f"git {'.'.join(map(str, version))}"
        raise GitError(f"{name} may run what a repository configures: {self.folder}", hint=hint)

    def _list_overrides(
        self, program: str, environment: dict[str, str], limit_s: float
    ) -> list[tuple[str, str]]:
        """Return settings that undo what the repository's own configuration would run."""
        if "GIT_DIR" not in self.variables and not _may_run_programs(self.folder):
            return []
        command = [program, *_ALWAYS, "config", "--list", "--show-scope", "-z"]
        variables = {**environment, **self.variables}
        listed = start_command(command, variables, self.folder, limit_s).finish_command()
        own: list[tuple[str, str]] = []
        foreign: dict[str, None] = {}
        fields = iter(listed.decode("utf-8", "surrogateescape").split("\0")[:-1])
        for scope, setting in zip(fields, fields, strict=True):
            key, _, value = setting.partition("\n") if "\n" in setting else (setting, "", "true")
            if not _RUNS_PROGRAMS.fullmatch(key):
                continue
            if scope in {"system", "global"}:
                own.append((key, value))
            elif scope != "command":
                foreign[key] = None
        return [pair for key in foreign for pair in _neutralize_setting(key, own)]


def start_command(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    limit_s: float,
    lock_fd: int | None = None,
) -> GitProcess:
    """Start a git command in `folder`; it keeps `lock_fd` open until it ends."""
    import subprocess  # noqa: PLC0415 - most settles do not run git

    words = (word for word in command[1:] if word.islower() and "=" not in word)
    name = next(word for word in words if word[0] != "-")
    pipe, fds = subprocess.PIPE, () if lock_fd is None else (lock_fd,)
    try:
        child = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, cwd=folder, pass_fds=fds
        )
    except (OSError, ValueError) as error:
        raise GitError(f"git {name} could not be started: {error}", hint="git --version") from error
    return GitProcess(child, name, limit_s)


def find_hooks_folder(git: PersonGit) -> Path:
    """Return the hooks directory of a work tree.

    Raises `NotFound` outside of one, and `Invalid` if the repository's own configuration puts it
    outside of the repository.
    """
    result = git.run_git("rev-parse", "--show-toplevel", "--git-common-dir", "--git-path", "hooks")
    if result.exit_code:
        hint = "run it inside one, or make one with: git init"
        raise NotFound(f"not a git repository: {git.folder}", hint=hint)
    lines = result.stdout.decode("utf-8", "surrogateescape").splitlines()
    top, common, hooks = ((git.folder / line).resolve() for line in lines)
    is_inside = hooks.is_relative_to(top) or hooks.is_relative_to(common)
    if not is_inside and git.run_git("config", "--local", "--get", "core.hooksPath").exit_code == 0:
        hint = "see `git config --local core.hooksPath`"
        problem = "this repository's own configuration puts hooks outside of it"
        raise Invalid(f"{problem}: {hooks}", hint=hint)
    return hooks


def check_not_option(name: str) -> str:
    """Return `name`; raise `Invalid` if git would take it for an option."""
    if name.startswith("-"):
        hint = "use another name"
        raise Invalid(f"git would take this name for an option: {name[:80]}", hint=hint)
    return name


def _person_environment(keep: re.Pattern[str] | None) -> dict[str, str]:
    """Return the person's environment; of git's variables only those that match `keep`."""
    own = [name for name in os.environ if name.startswith("GIT_")]
    dropped = {name for name in own if keep is None or not keep.fullmatch(name)}
    environment = {name: value for name, value in os.environ.items() if name not in dropped}
    path = absolute_path_entries(environment.get("PATH", os.defpath))
    return {"GIT_TERMINAL_PROMPT": "0", **environment, "PATH": path, "LC_ALL": "C"}


def absolute_path_entries(path: str) -> str:
    """Return a search path without relative directories, which the clone could hold."""
    return os.pathsep.join(entry for entry in path.split(os.pathsep) if entry.startswith("/"))


@functools.lru_cache(maxsize=8)
def find_git(path: str) -> str:
    """Return the git of a search path, or raise `GitError`."""
    for folder in path.split(os.pathsep):
        if os.access(program := f"{folder}/git", os.X_OK):
            return program
    raise GitError("git cannot be run here", hint="install git")


@functools.lru_cache(maxsize=8)
def _git_version(program: str) -> tuple[int, int]:
    environment = {"PATH": os.defpath, "LC_ALL": "C"}
    command = [program, "version"]
    version = start_command(command, environment, Path("/"), _READ_LIMIT_S).finish_command()
    numbers = re.search(rb"(\d+)\.(\d+)", version)
    return (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)


def _may_run_programs(folder: Path) -> bool:
    """Return whether a configuration file that git may read for `folder` could name a program."""
    try:
        return any(_MAY_RUN.search(_read_config(path)) for path in _config_files(folder.resolve()))
    except (OSError, ValueError):
        return True


def _config_files(folder: Path) -> Iterator[Path]:
    """Yield the configuration of every repository upwards: git skips a `.git` that is not valid."""
    for top in (folder, *folder.parents):
        git_dir = top / ".git"
        if git_dir.is_file():
            git_dir = top / git_dir.read_text("utf-8").removeprefix("gitdir:").strip()
        shared = git_dir / "commondir"
        if shared.is_file():
            git_dir = git_dir / shared.read_text("utf-8").strip()
        config = git_dir / "config"
        if config.exists():
            yield config


def _read_config(path: Path) -> bytes:
    if not path.is_file() or path.stat().st_size > _CONFIG_BYTES_MAX:
        raise ValueError(path)
    return path.read_bytes()


def _neutralize_setting(key: str, own: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return settings that restore the person's own value of `key`, or make it run nothing."""
    if key.startswith("credential."):
        # A list: an empty value clears it, then the person's own helpers follow.
        helpers = (pair for pair in own if pair[0].startswith("credential."))
        return [("credential.helper", ""), *helpers]
    values = [value for name, value in own if name == key]
    return [(key, values[-1] if values else _INSTEAD.get(key.rpartition(".")[2], ""))]


def _add_settings(environment: dict[str, str], settings: Sequence[tuple[str, str]]) -> None:
    """Add settings as variables: unlike `-c`, they allow names with an equals sign."""
    count = environment.get("GIT_CONFIG_COUNT", "")
    first = int(count) if count.isdecimal() else 0
    for number, (key, value) in enumerate(settings, first):
        environment |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    if settings:
        environment["GIT_CONFIG_COUNT"] = str(first + len(settings))
