"""Consent: what foreign files may publish, send, write or run, given by a person and kept in the data directory.

A cloned repository cannot speak for the person who cloned it, nor a copied run or plan for the
person who continues it. Consent is for one subject (a directory, a run's configuration, a plan,
an address) and for exactly what was shown; a changed setting or configuration needs it again.
"""

import hashlib
import json
import os
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from flightlog.model.errors import ConsentNeeded, Damage, Misconfigured, Unreadable
from flightlog.model.runtime import Runtime
from flightlog.store.directories import ensure_writable
from flightlog.store.files import find_project
from flightlog.store.jsonl import TORN_TAIL, append_built_line, read_together

FILE = "trust.jsonl"
VARIABLE = "FLIGHTLOG_TRUST"
ADDRESS = "key goes to"
# What the variable can allow, and the setting of a repository that each word lets count. A repository's
# `dataset.remote` is not among them: the variable lets rows be pushed, not where a clone says.
GRANTS = {"rows": "", "words": "dataset.track_words", "push": "dataset.push"}
# A setting that publishes words, sends something away or runs a program, by the last part of its name.
RISKY = frozenset(
    "track_words push publish command commands run gates gate hooks upstream remote tracked".split()  # noqa: SIM905
)


class Consent(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is allowed for one subject from here on; without `digest` and `rows`, nothing is.

    `digest` is of all that was shown, `address` the one a key was shown to go to, `rows` says that training rows may be
    written there without a person at work.
    """

    subject: str
    digest: str = ""
    address: str = ""
    rows: bool = False


class ConsentTarget(msgspec.Struct, frozen=True):
    """Something consent can be given for: what it would do, and whether that is allowed."""

    kind: str
    name: str
    subject: str
    allows: dict[str, Any]
    trusted: bool


def risky_settings(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the settings that publish or run something, by their full names."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        full = f"{prefix}{name}"
        if name in RISKY:
            found[full] = value
        elif isinstance(value, Mapping):
            found |= risky_settings(value, f"{full}.")
    return found


def environment_grants(environ: Mapping[str, str]) -> frozenset[str]:
    """Return what `FLIGHTLOG_TRUST` allows on this machine: of rows, words, push; the last two include rows."""
    words = {word.strip() for word in environ.get(VARIABLE, "").split(",")} - {""}
    for word in sorted(words - GRANTS.keys()):
        raise Misconfigured(f"{VARIABLE} cannot allow {word[:40]!r}", hint=f"one or more of: {', '.join(GRANTS)}")
    return frozenset(words | {"rows"} if words else ())


def open_trust(runtime: Runtime) -> "TrustStore":
    """Return the consents of this person."""
    return TrustStore(Path(runtime.data_dir) / FILE)


def is_trusted(runtime: Runtime, folder: Path) -> bool:
    """Return whether the person allowed what the project that holds `folder` configures (`flightlog trust`)."""
    return bool(open_trust(runtime).consent_for(find_project(folder)).digest)


def address_target(runtime: Runtime, written: str) -> ConsentTarget:
    """Return what a key sent to an address comes to, and whether that is allowed."""
    address = written.rstrip("/")
    trusted = bool(open_trust(runtime).consent_for(address).digest)
    return ConsentTarget("address", address, address, {ADDRESS: address}, trusted)


def consent_needed(target: ConsentTarget, message: str) -> ConsentNeeded:
    """Return the error that asks for consent to exactly what `target` shows."""
    hint = f"if that is all right, allow exactly this: flightlog trust --yes {shlex.quote(target.name)}"
    return ConsentNeeded(message, hint=hint, subject=target.subject, effects=target.allows)


class TrustStore:
    """The consents in one append-only file outside all repositories; the last line about a subject counts."""

    def __init__(self, path: Path) -> None:
        """Remember `path`; it is read at each question."""
        self._path = path

    def is_allowed(self, repository: Path, allows: Mapping[str, Any]) -> bool:
        """Return whether exactly these settings of `repository` were allowed; no risky settings need no consent."""
        return not allows or self.consent_for(repository).digest == _hash_settings(allows)

    def grant(self, subject: Path | str, allows: Mapping[str, Any], *, rows: bool = False) -> None:
        """Allow what `subject` was shown to do, and training rows if `rows`, from now on; nothing shown: it is ours."""
        address = _subject_name(str(allows.get(ADDRESS, "")))
        self._append_consent(lambda: Consent(_subject_name(subject), _hash_settings(allows), address, rows))

    def allow_rows(self, repository: Path) -> None:
        """Allow training rows in `repository`; what else was allowed there stays allowed."""
        self._append_consent(lambda: msgspec.structs.replace(self.consent_for(repository), rows=True))

    def revoke(self, subject: Path | str) -> bool:
        """Withdraw consent; return whether there was any."""
        had = self.consent_for(subject)
        if had.digest or had.rows:
            self._append_consent(lambda: Consent(had.subject))
        return bool(had.digest or had.rows)

    def consent_for(self, subject: Path | str) -> Consent:
        """Return the consent for `subject`, an empty one if there is none."""
        found = Consent(_subject_name(subject))
        for item in read_together(self._path):
            if isinstance(item, Damage):
                if item.why == TORN_TAIL:
                    continue  # being written just now, or by a process that died before it acknowledged anything
                # A line that cannot be read may have withdrawn a consent, so none counts.
                raise self._unreadable_error()
            try:
                line = msgspec.json.decode(item.data, type=Consent)
            except msgspec.DecodeError as error:
                raise self._unreadable_error() from error
            found = line if line.subject == found.subject else found
        return found

    def _append_consent(self, make: Callable[[], Consent]) -> None:
        ensure_writable(self._path.parent)
        append_built_line(self._path, lambda _: msgspec.json.encode(make()), durable=True)

    def _unreadable_error(self) -> Unreadable:
        return Unreadable(
            f"the record of what you trust cannot be read: {self._path}",
            hint="move it away, then allow again what you trust: flightlog trust",
        )


def _subject_name(subject: Path | str) -> str:
    """Return a subject as it is recorded: a directory by its real path, no half characters."""
    text = os.path.realpath(subject) if isinstance(subject, Path) else subject
    return text.encode("utf-8", "backslashreplace").decode()


def _hash_settings(allows: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(allows, sort_keys=True, default=str).encode()).hexdigest()
