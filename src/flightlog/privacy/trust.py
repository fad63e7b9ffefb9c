"""Store a person's consent to what foreign files may publish, send, write or run.

A cloned repository cannot consent for the person who cloned it, nor a copied run or plan for the
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
# What the variable can allow, and the repository's setting that each word enables. `dataset.remote`
# is not among them: the variable allows pushing rows, but not to a remote that a clone chooses.
GRANTS = {"rows": "", "words": "dataset.track_words", "push": "dataset.push"}
# Settings that publish words, send something away or run a program, by the last part of their name.
RISKY = frozenset(
    "track_words push publish command commands run gates gate hooks upstream remote tracked".split()
)


class Consent(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is allowed for one subject from now on: nothing without `digest` and `allows_rows`.

    `digest` is of everything that was shown, `address` the address that a key may be sent to, and
    `allows_rows` allows writing training rows unattended.
    """

    subject: str
    digest: str = ""
    address: str = ""
    allows_rows: bool = False


class ConsentTarget(msgspec.Struct, frozen=True):
    """A subject of consent: what it would do, and whether that is allowed."""

    kind: str
    name: str
    subject: str
    allows: dict[str, Any]
    is_trusted: bool


def risky_settings(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the settings that publish, send or run something, by their full names."""
    risky: dict[str, Any] = {}
    for name, value in settings.items():
        if name in RISKY:
            risky[f"{prefix}{name}"] = value
        elif isinstance(value, Mapping):
            risky |= risky_settings(value, f"{prefix}{name}.")
    return risky


def environment_grants(environ: Mapping[str, str]) -> frozenset[str]:
    """Return what `FLIGHTLOG_TRUST` allows on this machine; words and push include rows."""
    words = set(environ.get(VARIABLE, "").replace(",", " ").split())
    for word in sorted(words - GRANTS.keys()):
        hint = f"one or more of: {', '.join(GRANTS)}"
        raise Misconfigured(f"{VARIABLE} cannot allow {word[:40]!r}", hint=hint)
    return frozenset(words | {"rows"} if words else ())


def open_trust(runtime: Runtime) -> "TrustStore":
    """Return the consents of this person."""
    return TrustStore(Path(runtime.data_dir) / FILE)


def is_trusted(runtime: Runtime, folder: Path) -> bool:
    """Return whether the person allowed the settings of the project of `folder` (`flightlog trust`)."""
    return bool(open_trust(runtime).consent_for(find_project(folder)).digest)


def address_target(runtime: Runtime, written: str) -> ConsentTarget:
    """Return the consent target for sending a key to an address."""
    address = written.rstrip("/")
    trusted = bool(open_trust(runtime).consent_for(address).digest)
    return ConsentTarget("address", address, address, {ADDRESS: address}, trusted)


def consent_needed(target: ConsentTarget, message: str) -> ConsentNeeded:
    """Return the error that asks for consent to exactly what `target` shows."""
    hint = f"if that is all right, allow exactly this: flightlog trust --yes {shlex.quote(target.name)}"
    return ConsentNeeded(message, hint=hint, subject=target.subject, effects=target.allows)


class TrustStore:
    """The consents in one append-only file outside all repositories; a subject's last line counts."""

    def __init__(self, path: Path) -> None:
        """Use the file at `path`; every method reads it again."""
        self._path = path

    def is_allowed(self, repository: Path, allows: Mapping[str, Any]) -> bool:
        """Return whether exactly these settings of `repository` were allowed, or there are none."""
        return not allows or self.consent_for(repository).digest == _hash_settings(allows)

    def grant(self, subject: Path | str, allows: Mapping[str, Any], *, rows: bool = False) -> None:
        """Allow what was shown of `subject`, and training rows if `rows`; `allows` is empty for our own."""
        address = _subject_name(str(allows.get(ADDRESS, "")))
        self._append_consent(
            lambda: Consent(_subject_name(subject), _hash_settings(allows), address, rows)
        )

    def allow_rows(self, repository: Path) -> None:
        """Allow training rows in `repository`, in addition to what is already allowed."""
        self._append_consent(
            lambda: msgspec.structs.replace(self.consent_for(repository), allows_rows=True)
        )

    def revoke(self, subject: Path | str) -> bool:
        """Withdraw consent; return whether there was any."""
        consent = self.consent_for(subject)
        if consent.digest or consent.allows_rows:
            self._append_consent(lambda: Consent(consent.subject))
        return bool(consent.digest or consent.allows_rows)

    def consent_for(self, subject: Path | str) -> Consent:
        """Return the consent for `subject`, an empty one if there is none."""
        consent = Consent(_subject_name(subject))
        for item in read_together(self._path):
            if isinstance(item, Damage):
                if item.reason == TORN_TAIL:
                    continue  # being written now, or its writer died before it acknowledged anything
                # A line that cannot be read may have withdrawn a consent, so none counts.
                raise self._unreadable_error()
            try:
                line = msgspec.json.decode(item.data, type=Consent)
            except msgspec.DecodeError as error:
                raise self._unreadable_error() from error
            consent = line if line.subject == consent.subject else consent
        return consent

    def _append_consent(self, make: Callable[[], Consent]) -> None:
        ensure_writable(self._path.parent)
        append_built_line(self._path, lambda _: msgspec.json.encode(make()), durable=True)

    def _unreadable_error(self) -> Unreadable:
        text = f"the record of what you trust cannot be read: {self._path}"
        hint = "move it away, then allow again what you trust: flightlog trust"
        return Unreadable(text, hint=hint)


def _subject_name(subject: Path | str) -> str:
    """Return a subject as it is stored: a directory by its real path, without lone surrogates."""
    text = os.path.realpath(subject) if isinstance(subject, Path) else subject
    return text.encode("utf-8", "backslashreplace").decode()


def _hash_settings(allows: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(allows, sort_keys=True, default=str).encode()).hexdigest()
