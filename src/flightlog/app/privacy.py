"""Wiring of privacy: where its key and consents are, and which values are known to be secret.

Reads the environment and home so that nothing below has to.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from flightlog.app import open_archive, paths
from flightlog.model.address import parse
from flightlog.model.errors import Misconfigured
from flightlog.model.known import Known
from flightlog.model.session import Session
from flightlog.privacy import key as keys
from flightlog.privacy import stream
from flightlog.privacy.detect.known import Known as Values
from flightlog.privacy.detect.known import dotenv_values, secret_values
from flightlog.privacy.records import Records
from flightlog.privacy.redact import Redactor, confidence, masked
from flightlog.store.reading import raw_lines

SETTINGS = "flightlog.toml"
_DOTENV = (".env", ".env.local", ".envrc")
_DOTENV_BYTES_MAX = 1 << 20


def home(environment: Mapping[str, str] | None = None) -> Path:
    """Return where flightlog keeps what is not part of any repository."""
    return paths.home(os.environ if environment is None else environment)


def key_path() -> Path:
    """Return where the key for tags is."""
    return home() / "privacy.key"


def redactor(folder: Path | None = None, homes: Mapping[str, str] | None = None) -> Redactor:
    """Return the redactor of this person, knowing the secrets of the environment and of `folder`'s `.env` files."""
    return Redactor(keys.load(key_path()), known=known_values(folder or Path.cwd()), homes=homes)


def known_values(folder: Path) -> frozenset[str]:
    """Return the values that are secret here whatever they look like."""
    values = secret_values(os.environ)
    for name in _DOTENV:
        path = folder / name
        if path.is_file() and path.stat().st_size <= _DOTENV_BYTES_MAX:
            values |= dotenv_values(path.read_text(errors="replace"))
    return values


def session_lines(written: str) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Yield the files of the session whose id or address begins with `written`, and their lines."""
    archive = open_archive()
    for file in archive.find(parse(written).session).files:
        yield file.path, raw_lines(file.path, 0)


def found_in(path: str, known: Values) -> Iterator[dict[str, Any]]:
    """Yield what is private in a transcript, values masked."""
    yield from (fields_of(path, place) for place in stream.in_lines(raw_lines(path, 0), known))


def fields_of(name: str, place: stream.Located) -> dict[str, Any]:
    """A finding as it is shown: where it is and what it is, never what it says."""
    found = place.found
    fields = {"path": name, "line": place.line, "offset": place.start, "end": place.end, "rule": found.rule}
    return fields | {"kind": found.kind, "confidence": confidence(found.weight), "masked": masked(found.value)}


def clean_session(told: Session) -> Session:
    """Return a session with every string in it redacted, before anything shortens or lays it out."""
    plain = msgspec.to_builtins(told, enc_hook=str)
    return msgspec.convert(Records(redactor()).value(plain), Session)


def clean_known(known: Mapping[str, Known]) -> dict[str, Known]:
    """Return what is known of threads with every string in it redacted."""
    plain = msgspec.to_builtins(known)
    return msgspec.convert(Records(redactor()).value(plain), dict[str, Known])


def repository_settings(folder: Path) -> dict[str, Any]:
    """Return the settings that a repository brings along."""
    import tomllib  # noqa: PLC0415 - redacting needs no settings

    path = folder / SETTINGS
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Misconfigured(f"{SETTINGS} cannot be read: {error}", hint=f"correct {path}") from error
