"""The room: one runtime directory, its journal and what is folded from it.

The only impure part of retro besides the analyst. Time, ids and the redactor are given. Everything
that lies here for others to read is a page of `layout`; drafts, artifacts and logs are files of their own.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from flightlog.model.damage import UNREADABLE, Incident
from flightlog.privacy.redact import Redactor
from flightlog.retro import events
from flightlog.retro.issues import board as boards
from flightlog.retro.issues import drafts
from flightlog.retro.layout import guard_pages
from flightlog.retro.state import Analysis, Preferences, decoded
from flightlog.store import files, pages
from flightlog.store.journal import Journal, Record

ROOT = ".chat-retro-runtime"
ANALYSIS = "state/analysis.json"
DIGESTS = "state/digests.jsonl"
_OWNER = re.compile(rb'"project":"/(?:home|Users)/([^/"\\]+)')


class Room:
    """A runtime directory that is open."""

    def __init__(
        self,
        root: Path,
        redactor: Redactor,
        now_ms: Callable[[], int],
        new_id: Callable[[], str],
        own_names: Iterable[str] = (),
    ) -> None:
        """Open the runtime directory `root`; nothing is written before something is to be kept.

        `own_names` are the person's: git identity, user and host.
        """
        self._own_names = frozenset(own_names)
        self.root = root
        self.redactor = redactor
        self.now_ms = now_ms
        self.journal: Journal[events.Event] = Journal(
            root / "state" / "journal.jsonl", events.Event, now=lambda: stamp(now_ms()), new_id=new_id
        )

    def prepare(self) -> None:
        """Make the directory as the source document draws it, with its ignore file."""
        pages.publish(self.root, guard_pages(self.redactor), durable=False)

    def held(self) -> AbstractContextManager[None]:
        """Hold the directory alone while something is changed."""
        return files.lock(self.root / "state" / ".lock", "another chat-retro")

    def happened(self) -> Iterator[events.Event]:
        """Yield every event, oldest first."""
        return (item.event for item in self.journal.read() if isinstance(item, Record))

    def board(self) -> boards.Board:
        """Tell the issues."""
        return boards.fold(self.happened())

    def names(self) -> frozenset[str]:
        """Return known names: the person's own, those in exports, and owners of home directories."""
        said = {name for event in self.happened() if isinstance(event, events.ExportRead) for name in event.names}
        with suppress(FileNotFoundError):
            owners = _OWNER.findall((self.root / DIGESTS).read_bytes())
            said |= {owner.decode("utf-8", "replace") for owner in owners}
        return self._own_names | said

    def put_draft(self, one: drafts.DraftFile) -> Path:
        """Put a draft where the workflow finds it."""
        path = files.inside(self.root, f"issue-drafts/{drafts.file_name(one)}")
        body = msgspec.json.format(msgspec.json.encode(one), indent=2) + b"\n"
        files.create(path, body)
        return path

    def analysis(self) -> Analysis | None:
        """Read the last analysis; one that cannot be read is kept under a numbered name and reported."""
        path = self.root / ANALYSIS
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            return decoded(data)
        except UNREADABLE:
            self._set_aside(path, len(data))
            return None

    def _set_aside(self, path: Path, size: int) -> None:
        number = 1
        while (aside := path.with_name(f"{path.name}.corrupt-{number}")).exists():
            number += 1
        files.renamed(path, aside.name)
        incident = Incident("corrupt state", self.now_ms(), "retro", (aside.name,), {"bytes": size})
        self.journal.append(events.Noticed(incident), durable=True)
        self.put_draft(drafts.of_incident(incident))


def preferences(happened: Iterator[events.Event]) -> Preferences:
    """Tell what a person asked for; the last word on each counts."""
    said: dict[str, tuple[str, ...]] = {}
    for event in happened:
        if isinstance(event, events.Preferred):
            said[event.name] = event.values
    drawn = said.get("preferred_viz", ())
    return Preferences(said.get("focus_areas", ()), said.get("excluded_topics", ()), drawn[0] if drawn else None)


def stamp(at_ms: int) -> str:
    """Write a time as ISO 8601 in UTC."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
