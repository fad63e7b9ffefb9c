"""Running git's plumbing on a repository that is ours alone.

Knows how to keep the person's own git out of it: no global or system configuration, no hooks,
no attribute that changes bytes, nothing of the caller's environment. Knows nothing of snapshots.
"""

import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from flightlog.model.errors import NotFound, Unavailable
from flightlog.store.files import ensure_dir, replace, told

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
_SETTINGS = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_AUTHOR_NAME": "flightlog",
    "GIT_AUTHOR_EMAIL": "flightlog@localhost",
    "GIT_COMMITTER_NAME": "flightlog",
    "GIT_COMMITTER_EMAIL": "flightlog@localhost",
    "HOME": "/nonexistent",
    "LC_ALL": "C",
}


class Repository(Struct, frozen=True):
    """A git directory of ours and where git itself is found (`programs`, a search path)."""

    git_dir: Path
    programs: str

    def prepare(self) -> None:
        """Make the repository, or finish making it; one that is there stays as it is."""
        config = self.git_dir / "config"
        if config.is_file() and b"[flightlog]" in config.read_bytes():
            return
        ensure_dir(self.git_dir)
        self.run(["init", "--quiet", "--bare", "--template=", "--object-format=sha1"])
        for folder in ("refs/tags", "refs/heads", "info"):
            ensure_dir(self.git_dir / folder)
        replace(self.git_dir / "info" / "attributes", _ATTRIBUTES.encode())
        replace(config, _CONFIG.encode())  # last: from here on it is whole

    def run(
        self,
        command: Sequence[str],
        *,
        stdin: bytes = b"",
        more: Mapping[str, str] | None = None,
        held: int | None = None,
    ) -> bytes:
        """Run one git command and return what it says; a child keeps the lock `held` while it lives."""
        return self.start(command, more=more, held=held).finish(stdin)

    def start(
        self, command: Sequence[str], *, more: Mapping[str, str] | None = None, held: int | None = None
    ) -> "Running":
        """Start a git command, to be finished later; several may run at once."""
        environment = {**_SETTINGS, "PATH": self.programs, "GIT_DIR": str(self.git_dir), **(more or {})}
        try:
            child = subprocess.Popen(
                ["git", *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                cwd=environment.get("GIT_WORK_TREE", str(self.git_dir)),
                pass_fds=() if held is None else (held,),
            )
        except FileNotFoundError as error:
            raise Unavailable("git cannot be run here", hint="install git") from error
        return Running(child, next(word for word in command if word.islower() and "=" not in word and word[0] != "-"))

    def resolve(self, names: Iterable[str]) -> list[str]:
        """Return the object ids of these names, or say which is unknown."""
        wanted = list(names)
        said = self.run(["cat-file", "--batch-check=%(objectname)"], stdin="\n".join(wanted).encode() + b"\n")
        found = said.decode().splitlines()
        for name, answer in zip(wanted, found, strict=True):
            if answer.endswith((" missing", " ambiguous")):
                raise NotFound(f"no such snapshot: {name[:80]!r}", hint="list them in the run's .shadow_git: git tag")
        return found


class Running:
    """A git command at work."""

    def __init__(self, child: "subprocess.Popen[bytes]", name: str) -> None:
        """Take a child that was started."""
        self._child = child
        self._name = name

    def finish(self, stdin: bytes = b"") -> bytes:
        """Wait for its end and return what it says."""
        with self._child:
            said, complaint = self._child.communicate(stdin)
        if self._child.returncode:
            lines = complaint.decode("utf-8", "replace").strip().splitlines()
            raise GitFailed(self._name, self._child.returncode, lines[0] if lines else "")
        return said


class GitFailed(Unavailable):
    """A git command that did not do its work; the store is as it was before it."""

    def __init__(self, command: str, code: int, said: str) -> None:
        """Keep what git said; it names files, so it stands last."""
        super().__init__(f"git {command} failed ({code}): {said[:300]}", hint="run `flightlog doctor`")
        self.said = said


def remove_stale(*locks: Path) -> None:
    """Remove lock files a killed git left; call it only while holding what the locks protect."""
    for path in locks:
        with told(path):
            path.unlink(missing_ok=True)
