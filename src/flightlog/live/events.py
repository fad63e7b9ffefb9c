"""What live writes down for good: who paid from when on, what a person named, what left the file.

Everything else in the room is worked out again from recordings. The journal lies beside its pages,
in `.flightlog/journal.jsonl`.
"""

from collections.abc import Iterable

from msgspec import Struct

from flightlog.model.errors import Damage
from flightlog.store.journal import JournalRecord, UnknownEvent


class ProfileBilled(Struct, frozen=True, tag="billed"):
    """From `since_ms` on a session is paid by a profile; 0 is from its beginning."""

    session: str
    profile: str
    since_ms: int
    method: str


class AccountBound(Struct, frozen=True, tag="bound"):
    """An account, known by its print, was recognised as a profile's."""

    profile: str
    fingerprint: str


class ProfileEdited(Struct, frozen=True, tag="edited"):
    """What a person says about a profile in the file, absorbed."""

    profile: str
    label: str
    aliases: tuple[str, ...] = ()
    path_patterns: tuple[str, ...] = ()
    config_dirs: tuple[str, ...] = ()


class SessionArchived(Struct, frozen=True, tag="archived"):
    """A session left the file; its text went to the archive."""

    session: str
    why: str


Event = ProfileBilled | AccountBound | ProfileEdited | SessionArchived


class BillingHistory(Struct):
    """What the journal says."""

    segments: dict[str, list[tuple[int, str, str]]] = {}
    """By session: from when on, which profile, found how."""
    prints: dict[str, str] = {}
    edits: dict[str, ProfileEdited] = {}

    def add_event(self, event: Event) -> None:
        """Take one more event into account."""
        match event:
            case ProfileBilled():
                parts = self.segments.setdefault(event.session, [])
                parts.append((event.since_ms, event.profile, event.method))
                parts.sort()
            case AccountBound():
                self.prints[event.fingerprint] = event.profile
            case ProfileEdited():
                self.edits[event.profile] = event
            case SessionArchived():
                pass

    def payer_at(self, session: str, at_ms: int) -> str:
        """The profile that paid for a session at a time; empty when nobody knows."""
        parts = self.segments.get(session, [])
        return next((profile for since, profile, _ in reversed(parts) if since <= at_ms), parts[0][1] if parts else "")


def fold_history(records: Iterable[JournalRecord[Event] | UnknownEvent | Damage]) -> BillingHistory:
    """Fold a journal."""
    book = BillingHistory({}, {}, {})
    for record in records:
        if isinstance(record, JournalRecord):
            book.add_event(record.event)
    return book
