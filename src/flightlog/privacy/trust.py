"""Consent: what a repository's settings may publish or run, given by a person, kept elsewhere.

A cloned repository cannot speak for the person who cloned it. Consent is for a directory
and for exactly the settings that were shown; a changed setting needs consent again.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from flightlog.model.errors import Unreadable
from flightlog.store import files

# A setting that publishes words, sends something away or runs a program, by the last part of its name.
RISKY = frozenset(
    (
        "track_words",
        "push",
        "publish",
        "command",
        "commands",
        "run",
        "gates",
        "gate",
        "hooks",
        "upstream",
        "remote",
        "tracked",
    )
)


class Consent(msgspec.Struct, frozen=True):
    """What was allowed for one repository."""

    settings: str
    allows: dict[str, Any]


def risky(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the settings that publish or run something, by their full names."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        full = f"{prefix}{name}"
        if name in RISKY:
            found[full] = value
        elif isinstance(value, Mapping):
            found |= risky(value, f"{full}.")
    return found


class Trust:
    """The consents kept in one file outside all repositories."""

    def __init__(self, path: Path) -> None:
        """Keep the place; it is read at each question."""
        self._path = path

    def allows(self, repository: Path, allows: Mapping[str, Any]) -> bool:
        """Say whether exactly these settings of `repository` were allowed; no risky settings need no consent."""
        consent = self._read().get(_place(repository))
        return not allows or (consent is not None and consent.settings == _digest(allows))

    def has(self, repository: Path) -> bool:
        """Return whether consent was given for `repository`, whatever its settings are now."""
        return _place(repository) in self._read()

    def grant(self, repository: Path, allows: Mapping[str, Any]) -> None:
        """Allow these settings of `repository` from now on."""
        consents = self._read()
        consents[_place(repository)] = Consent(_digest(allows), dict(allows))
        self._write(consents)

    def revoke(self, repository: Path) -> bool:
        """Take consent back; say whether there was any."""
        consents = self._read()
        gone = consents.pop(_place(repository), None)
        if gone is not None:
            self._write(consents)
        return gone is not None

    def _read(self) -> dict[str, Consent]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, Consent])
        except FileNotFoundError:
            return {}
        except msgspec.DecodeError as error:
            raise Unreadable(
                f"the record of what you trust cannot be read: {self._path}",
                hint="move it away, then say again what you trust: flightlog trust",
            ) from error

    def _write(self, consents: dict[str, Consent]) -> None:
        files.replace(self._path, msgspec.json.format(msgspec.json.encode(consents), indent=2) + b"\n")


def _place(repository: Path) -> str:
    return os.path.realpath(repository)


def _digest(allows: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(allows, sort_keys=True, default=str).encode()).hexdigest()
