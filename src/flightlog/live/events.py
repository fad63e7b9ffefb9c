"""What live writes down for good: who paid from when on, what a person named, what left the file.

Everything else in the room is worked out again from recordings. The journal lies beside its pages,
in `.flightlog/journal.jsonl`.
"""

from collections.abc import Iterable

from msgspec import Struct

from flightlog.model.damage import Damage
from flightlog.store.journal import Record, Unrecognised


class Billed(Struct, frozen=True, tag="billed"):
    """From `since_ms` on a session is paid by a profile; 0 is from its beginning."""

    session: str
    profile: str
    since_ms: int
    method: str


class Bound(Struct, frozen=True, tag="bound"):
    """An account, known by its print, was recognised as a profile's."""

    profile: str
    fingerprint: str


class Edited(Struct, frozen=True, tag="edited"):
    """What a person says about a profile in the file, absorbed."""

    profile: str
    label: str
    aliases: tuple[str, ...] = ()
    path_patterns: tuple[str, ...] = ()
    config_dirs: tuple[str, ...] = ()


class Archived(Struct, frozen=True, tag="archived"):
    """A session left the file; its text went to the archive."""

    session: str
    why: str


Event = Billed | Bound | Edited | Archived


class Book(Struct):
    """What the journal says."""

    segments: dict[str, list[tuple[int, str, str]]] = {}
    """By session: from when on, which profile, found how."""
    prints: dict[str, str] = {}
    edits: dict[str, Edited] = {}

    def add(self, event: Event) -> None:
        """Take one more event into account."""
        match event:
            case Billed():
                parts = self.segments.setdefault(event.session, [])
                parts.append((event.since_ms, event.profile, event.method))
                parts.sort()
            case Bound():
                self.prints[event.fingerprint] = event.profile
            case Edited():
                self.edits[event.profile] = event
            case Archived():
                pass

    def paid_by(self, session: str, at_ms: int) -> str:
        """The profile that paid for a session at a time; empty when nobody knows."""
        parts = self.segments.get(session, [])
        return next((profile for since, profile, _ in reversed(parts) if since <= at_ms), parts[0][1] if parts else "")


def folded(records: Iterable[Record[Event] | Unrecognised | Damage]) -> Book:
    """Fold a journal."""
    book = Book({}, {}, {})
    for record in records:
        if isinstance(record, Record):
            book.add(record.event)
    return book
