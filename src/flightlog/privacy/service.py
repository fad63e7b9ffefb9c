"""Make redactors from a `Runtime`: the key, the project's secrets, and the person's names."""

import functools
import getpass
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from flightlog.model.errors import Misconfigured
from flightlog.model.runtime import Runtime
from flightlog.privacy import redactor, scanner
from flightlog.privacy.detect import randomness
from flightlog.privacy.detect.known_values import KnownSecrets as Values
from flightlog.privacy.detect.known_values import is_usable, requires_whole_word
from flightlog.privacy.redactor import Redactor, confidence_label, mask_value
from flightlog.privacy.trust import is_trusted
from flightlog.store.files import find_project
from flightlog.store.git.command import PersonGit
from flightlog.store.git.repository import find_common_dir
from flightlog.store.recordings.reader import raw_lines

SETTINGS = "flightlog.toml"
_DOTENV = (".env", ".env.local", ".envrc")
_SETTINGS_BYTES_MAX = 1 << 20  # a larger file is no settings file
# A `.env` file has many short values that are no secrets: ports, modes, names.
_DOTENV_CHARS_MIN = 8
_SECRET_NAME = re.compile(
    r"pass|pwd|secret|token|key|auth|cred|session|cookie|private|dsn|salt|webhook|signature",
    re.IGNORECASE,
)
# An agent names the session to its children. Addresses repeat it, and it opens nothing.
_SESSION_NAME = re.compile(r"(?:CLAUDE|CODEX|COPILOT|GEMINI|OPENCODE)_(?:[A-Z]+_)*SESSION_ID")
_GIT_USER = re.compile(r"^\[user\][ \t]*$(.*?)(?=^\[|\Z)", re.MULTILINE | re.DOTALL | re.IGNORECASE)
_GIT_NAME = re.compile(
    r"^[ \t]*(?:name|email)[ \t]*=[ \t]*\"?(.*?)\"?[ \t]*$", re.MULTILINE | re.IGNORECASE
)
# Names that identify no person and no machine.
_NAMELESS = frozenset(("", "root", "localhost"))


def key_path(runtime: Runtime) -> Path:
    """Return the path of the key for tags."""
    return Path(runtime.data_dir) / "privacy.key"


def make_redactor(
    runtime: Runtime, folder: Path | None = None, homes: Mapping[str, str] | None = None
) -> Redactor:
    """Return a redactor for one document of the project at `folder` (the directory of a session).

    It knows the secrets of the environment and of the project's `.env` files, and the names of
    the person and the machine.
    """
    project = folder or Path(runtime.cwd)
    home = Path(runtime.home)
    own_home = {str(home): "~"} if home.name not in _NAMELESS else {}
    return Redactor(
        redactor.load_key(key_path(runtime)),
        known=project_secret_values(runtime, project),
        names=personal_names(project, home),
        homes={**own_home, **(homes or {})},
    )


def project_secret_values(runtime: Runtime, folder: Path) -> frozenset[str]:
    """Return the values that are secret in a project by their origin, whatever they look like."""
    values = secret_values(runtime.environ)
    for name in _DOTENV:
        for path in {folder / name, find_project(folder) / name}:
            values |= dotenv_values(_read_settings(path))
    texts = {value: value.encode("utf-8", "surrogatepass") for value in values}
    return frozenset(
        value for value, data in texts.items() if requires_whole_word(data) is not None
    )


def secret_values(environment: Mapping[str, str]) -> frozenset[str]:
    """Return the values of variables whose names look secret."""
    return frozenset(
        value
        for name, value in environment.items()
        if _SECRET_NAME.search(name)
        and not _SESSION_NAME.fullmatch(name)
        and is_usable(value)
        and not value.startswith(("/", "~/", "./"))
    )


def dotenv_values(text: str) -> frozenset[str]:
    """Return the values of a `.env` file that have a secret name or look random."""
    pairs = {}
    for line in text.splitlines():
        name, mark, value = line.strip().removeprefix("export ").partition("=")
        if mark and not name.startswith("#"):
            pairs[name.strip()] = value.strip().strip("\"'")
    texts = {value: value.encode("utf-8", "surrogatepass") for value in pairs.values()}
    random = {value for value, data in texts.items() if randomness.is_random(data)}
    values = secret_values(pairs) | random
    return frozenset(value for value in values if len(value) >= _DOTENV_CHARS_MIN)


@functools.lru_cache(
    maxsize=64
)  # a redactor is made for each page, but files are read once per project
def personal_names(project: Path, home: Path) -> frozenset[str]:
    """Return the names of the user, the host, and the git identities of the user and the project."""
    host = os.uname().nodename
    names = {host, host.partition(".")[0]}
    with suppress(KeyError, OSError):
        names.add(getpass.getuser())
    # Read git's files instead of running git: a settle starts no process, above all in a foreign clone.
    settings = [home / ".gitconfig", home / ".config/git/config"]
    root = find_project(project)
    # A transcript may name any directory, also one that does not exist.
    if (root / ".git").exists():
        settings.append(find_common_dir(root) / "config")
    for path in settings:
        for section in _GIT_USER.findall(_read_settings(path)):
            names.update(_GIT_NAME.findall(section))
    return frozenset(names - _NAMELESS)


def _read_settings(path: Path) -> str:
    """Return the text of a settings file; empty if it is large, no regular file or unreadable."""
    with suppress(OSError):
        if path.is_file() and path.stat().st_size <= _SETTINGS_BYTES_MAX:
            return path.read_text(errors="replace")
    return ""


def find_private_in_files(paths: Iterable[str], known: Values) -> Iterator[dict[str, Any]]:
    """Yield the private values in the transcripts of one session, masked."""
    files = list(paths)

    def search() -> Iterator[tuple[str, scanner.LocatedFinding]]:
        for path in files:
            findings = scanner.find_in_lines(raw_lines(path, 0), known)
            yield from ((path, finding) for finding in findings)

    return (finding_fields(path, finding) for path, finding in scanner.read_twice(search, known))


def finding_fields(name: str, finding: scanner.LocatedFinding) -> dict[str, Any]:
    """Return a finding as JSON: its location, rule and masked value."""
    detection = finding.detection
    return {
        "path": name,
        "line": finding.line,
        "start": finding.start,
        "end": finding.end,
        "rule": detection.rule,
        "kind": detection.kind,
        "confidence": confidence_label(detection.weight),
        "masked_value": mask_value(detection.value),
    }


def guard_git(runtime: Runtime, folder: Path) -> PersonGit:
    """Return the git runner of the guard in `folder`; inside a hook, with git's own variables."""
    if folder != Path() or "GIT_PREFIX" not in runtime.environ:  # git sets it for every hook
        return PersonGit(folder, is_trusted(runtime, folder.resolve()))
    names = ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE")
    variables = {name: runtime.environ[name] for name in names if name in runtime.environ}
    # Git already runs here with everything that this repository configures.
    return PersonGit(folder, is_trusted=True, variables=variables)


def repository_settings(folder: Path) -> dict[str, Any]:
    """Return the settings in the repository's `flightlog.toml`."""
    import tomllib  # noqa: PLC0415 - redacting needs no settings

    path = folder / SETTINGS
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:
        hint = f"correct {path}"
        raise Misconfigured(f"{SETTINGS} cannot be read: {error}", hint=hint) from error
