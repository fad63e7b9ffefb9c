"""Everything that runs git, and the git repositories of our own.

Nothing of the person's own git reaches those: no global or system configuration, no hooks, no attribute that changes
bytes, nothing of the environment.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from flightlog.model.errors import NotFound, Unreadable
from flightlog.store.files import ensure_dir, os_errors_as_unavailable, replace_file
from flightlog.store.git.command import GitError, GitProcess, absolute_path_entries, find_git, start_command

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
