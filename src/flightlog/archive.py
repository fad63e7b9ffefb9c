"""The door to recordings: sessions(), session(id), usage(); rooms and faces come through here.

Reads the agents' own files in place; nothing is written on the way to a report. Which
directories to look in is told from outside.
"""

import functools
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import tzinfo
from pathlib import Path

from msgspec import Struct

from flightlog.model.damage import Damage
from flightlog.model.errors import Invalid, NotFound
from flightlog.model.events import Entry, LaneFacts
from flightlog.model.ids import checked
from flightlog.model.session import Session
from flightlog.model.usage import ClientTotals, Response, response
from flightlog.sources.claude_code.discover import (
    AGENT,
    Found,
    Transcript,
    discover,
    session_files,
    spilled_file,
)
from flightlog.sources.claude_code.evidence import signs
from flightlog.sources.claude_code.grep import places
from flightlog.sources.claude_code.parallel import scan_all
from flightlog.sources.claude_code.scan import Target
from flightlog.sources.claude_code.summaries import summaries
from flightlog.sources.claude_code.transcript import entries, entries_at, lane_facts
from flightlog.store.lines import TORN_TAIL
from flightlog.views.digest import accounts_of
from flightlog.views.ledger import Ledger, settled
from flightlog.views.prices import price
from flightlog.views.report import UsageReport
from flightlog.views.session import fold
from flightlog.views.summary import SessionSummary, summarise
from flightlog.views.truth import Evidence, last, truths
from flightlog.views.usage import By, priced, rows, total

Progress = Callable[[int, int], None]
Place = tuple[str, int, int]  # path, offset, length


class Recording(Struct, frozen=True):
    """The files of one session."""

    session: str
    agent: str
    files: tuple[Transcript, ...]

    @property
    def changed_ms(self) -> int:
        """When the agent last wrote to any of them."""
        return max(file.changed_ns for file in self.files) // 1_000_000

    @property
    def main(self) -> Transcript | None:
        """The main thread's file; a session of warm-ups has none."""
        return next((file for file in self.files if not file.lane), None)


class Archive:
    """Every recording that can be found from here."""

    def __init__(self, config_dirs: Sequence[str]) -> None:
        """Look below `config_dirs`, the agents' own configuration directories."""
        self._config_dirs = tuple(config_dirs)
        self._noted: dict[str, list[Entry]] = {}

    @functools.cached_property
    def recordings(self) -> dict[str, Recording]:
        """Every session's files, by session id."""
        files: dict[str, list[Transcript]] = defaultdict(list)
        for found in self._found:
            for transcript in found.transcripts:
                files[transcript.session].append(transcript)
        return {session: Recording(session, AGENT, tuple(files[session])) for session in sorted(files)}

    @property
    def damage(self) -> tuple[Damage, ...]:
        """What could not be looked into."""
        return tuple(damage for found in self._found for damage in found.damage)

    def find(self, written: str) -> Recording:
        """Return the session whose id begins with `written`."""
        if written in self.recordings:
            return self.recordings[written]
        matches = [session for session in self.recordings if session.startswith(checked(written))]
        if not matches:
            raise NotFound(f"no session begins with {written!r}", hint="flightlog session list")
        if len(matches) > 1:
            some = ", ".join(matches[:5])
            raise Invalid(f"{len(matches)} sessions begin with {written!r}", hint=f"write more of it: {some}")
        return self.recordings[matches[0]]

    def latest(self) -> str:
        """Return the session that changed last."""
        if not self.recordings:
            raise NotFound("there are no sessions", hint="flightlog demo")
        return max(self.recordings.values(), key=lambda recording: (recording.changed_ms, recording.session)).session

    def session(self, written: str) -> Session:
        """Tell the session whose id begins with `written`."""
        return self._told(self.find(written))

    def sessions(self, progress: Progress | None = None) -> Iterator[SessionSummary]:
        """Reduce every session to a line, newest first."""
        for session in self.told(progress):
            yield summarise(session, self.recordings[session.id].changed_ms)

    def told(self, progress: Progress | None = None) -> Iterator[Session]:
        """Tell every session, newest first."""
        ordered = sorted(self.recordings.values(), key=lambda recording: (-recording.changed_ms, recording.session))
        for done, recording in enumerate(ordered):
            if progress is not None:
                progress(done, len(ordered))
            yield self._told(recording)

    def records(self, written: str) -> Iterator[Entry | Damage | LaneFacts]:
        """Yield everything on record about a session, for a fold of one's own."""
        yield from self._items(self.find(written))

    def records_at(self, places: Iterable[Place]) -> Iterator[Entry]:
        """Read single records again, from where they were found."""
        for path, offset, length in places:
            yield from entries_at(path, offset, length)

    def records_with(self, written: str, words: str) -> Iterator[Entry]:
        """Yield the records of a session that hold `words` somewhere, in no promised order of threads."""
        for file in self.find(written).files:
            yield from self.records_at((file.path, offset, length) for offset, length in places(file.path, words))

    def follow(self, written: str, pause: Callable[[], bool]) -> Iterator[Entry | Damage]:
        """Yield what stands on record, then what is added; `pause` waits a little and says whether to go on.

        A look costs as much as there is new: files are read from where the last look ended.
        """
        session = self.find(written).session
        read: dict[str, int] = {}
        while True:
            for file in self._fresh(session):
                start = read.get(file.path, 0)
                if file.size < start:
                    start = 0
                if file.size > start:
                    for item in entries(file, start):
                        if isinstance(item, Damage) and item.why == TORN_TAIL:
                            break
                        start = item.offset + item.length
                        yield item
                    read[file.path] = start
            if not pause():
                return

    def spilled(self, session: str, said: str) -> str | None:
        """Read a tool result that was too large for the transcript, if it is still there."""
        for file in self.find(session).files:
            try:
                return Path(spilled_file(file, said)).read_text("utf-8", "replace")
            except OSError:
                continue
        return None

    def usage(self, by: By, zone: tzinfo, only: Callable[[Response], bool] | None = None) -> UsageReport:
        """Report usage and cost; `only` leaves out responses, and with them the truth table."""
        ledger, stated, damaged = self._ledger()
        totals = {session: last(each) for session, each in _by_session(stated).items()}
        known = priced(ledger.responses, totals)
        accounts = accounts_of(known, ledger)
        table = () if only else tuple(truths(accounts, stated, self._evidence))
        kept = [item for item in known if only is None or only(item.response)]
        broken_down = rows(kept, by, zone)
        if by is By.SESSION and only is None:
            silent = self.recordings.keys() - {row.key for row in broken_down}
            broken_down = sorted([*broken_down, *(total((), key) for key in silent)], key=lambda row: row.key)
        return UsageReport(by, total(kept), tuple(broken_down), table, damaged)

    @functools.cached_property
    def _found(self) -> tuple[Found, ...]:
        return tuple(discover(folder) for folder in self._config_dirs)

    def _fresh(self, session: str) -> tuple[Transcript, ...]:
        """Look again at the files of one session; new subagents appear as it runs."""
        folders = {os.path.dirname(file.path) for file in self.recordings[session].files if not file.lane}  # noqa: PTH120
        found = [file for folder in sorted(folders) for file in session_files(folder, session)]
        return tuple(found) or self.recordings[session].files

    def _told(self, recording: Recording) -> Session:
        return fold(recording.session, recording.agent, price, self._items(recording))

    def _items(self, recording: Recording) -> Iterator[Entry | Damage | LaneFacts]:
        for file in recording.files:
            yield from entries(file)
            if file.lane:
                yield lane_facts(file)
            else:
                yield from self._summaries(os.path.dirname(file.path))  # noqa: PTH120

    def _summaries(self, folder: str) -> Iterable[Entry]:
        """Titles noted in a project's other files, read once."""
        if folder not in self._noted:
            files = [file for each in self.recordings.values() for file in each.files]
            self._noted[folder] = list(summaries(file for file in files if os.path.dirname(file.path) == folder))  # noqa: PTH120
        return self._noted[folder]

    def _ledger(self) -> tuple[Ledger, list[ClientTotals], int]:
        lines: list[Response] = []
        stated: list[ClientTotals] = []
        born: dict[str, int] = {}
        damaged = 0
        files = [file for recording in self.recordings.values() for file in recording.files]
        targets = [Target(file.path, file.session, file.lane) for file in files]
        for file, seen in zip(files, scan_all(targets, [file.size for file in files]), strict=True):
            lines.extend(response(row) for row in seen.rows)
            stated.extend(seen.totals)
            damaged += seen.damaged
            if seen.born_ms:
                born[file.session] = min(born.get(file.session, seen.born_ms), seen.born_ms)
        return settled(lines, born), stated, damaged

    def _evidence(self, session: str) -> Evidence:
        """Look for what explains a difference between the client's count and the record."""
        return Evidence(*signs(file.path for file in self.recordings[session].files))


def _by_session(stated: Iterable[ClientTotals]) -> dict[str, list[ClientTotals]]:
    grouped: dict[str, list[ClientTotals]] = defaultdict(list)
    for totals in stated:
        grouped[totals.session].append(totals)
    return grouped
