"""Events of the live journal: payer changes, edits of profiles, sessions removed from the file.

Everything else in `live` is computed again from recordings. The journal is
`.flightlog/journal.jsonl` beside the output files.
"""

from collections.abc import Iterable

from msgspec import Struct

from flightlog.model.errors import Damage
from flightlog.store.journal import JournalRecord, UnknownEvent


class ProfileBilled(Struct, frozen=True, tag="billed"):
    """A profile pays for a session from `since_ms` on; 0 means from the beginning.

    A later event with the same time replaces it.
    """

    session: str
    profile: str
    since_ms: int
    method: str


class AccountBound(Struct, frozen=True, tag="bound"):
    """An account, known by its fingerprint, was assigned to a profile."""

    profile: str
    fingerprint: str


class ProfileEdited(Struct, frozen=True, tag="edited"):
    """A person changed these fields of a profile in the file."""

    profile: str
    label: str
    aliases: tuple[str, ...] = ()
    path_patterns: tuple[str, ...] = ()
    config_dirs: tuple[str, ...] = ()


class SessionArchived(Struct, frozen=True, tag="archived"):
    """A session was removed from the file; its text is in the archive."""

    session: str
    reason: str


Event = ProfileBilled | AccountBound | ProfileEdited | SessionArchived


class BillingHistory(Struct):
    """The folded journal."""

    segments: dict[str, list[tuple[int, str, str]]] = {}
    """By session: since when, which profile, detected by which method."""
    fingerprints: dict[str, str] = {}
    edits: dict[str, ProfileEdited] = {}

    def add_event(self, event: Event) -> None:
        """Apply one event."""
        match event:
            case ProfileBilled():
                parts = self.segments.setdefault(event.session, [])
                parts[:] = [part for part in parts if part[0] != event.since_ms]
                parts.append((event.since_ms, event.profile, event.method))
                parts.sort()
            case AccountBound():
                self.fingerprints[event.fingerprint] = event.profile
            case ProfileEdited():
                self.edits[event.profile] = event
            case SessionArchived():
                pass

    def payer_at(self, session: str, at_ms: int) -> str:
        """Return the profile that paid for a session at a time; "" if unknown."""
        parts = self.segments.get(session, [])
        first = parts[0][1] if parts else ""
        return next((profile for since, profile, _ in reversed(parts) if since <= at_ms), first)


def fold_history(records: Iterable[JournalRecord[Event] | UnknownEvent | Damage]) -> BillingHistory:
    """Fold a journal; damage and unknown events are skipped."""
    history = BillingHistory({}, {}, {})
    for record in records:
        if isinstance(record, JournalRecord):
            history.add_event(record.event)
    return history
