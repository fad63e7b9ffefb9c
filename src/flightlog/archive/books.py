"""The books: usage over everything recorded, kept up to date in the index.

A report is answered from memory first and written down afterwards, when `close` is called:
nobody waits for the disk. Without an index, or with a damaged one, the answers are the same.
"""

import os
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, tzinfo
from os import PathLike

import msgspec

from flightlog.model.usage import Row
from flightlog.sources.claude_code.discover import Transcript
from flightlog.sources.claude_code.parallel import scan_all
from flightlog.sources.claude_code.scan import Scan, Target, scan
from flightlog.sources.forks import TICKETS_MAX, may_fork, spread
from flightlog.store.index.database import Index
from flightlog.store.index.files import Reading, Source, Work
from flightlog.store.index.usage import Group, Maker, UsageSync, kept_reports, sync_usage
from flightlog.views.digest import Said, SessionDigest, digested
from flightlog.views.prices import PRICES_FROM
from flightlog.views.report import WHOLE, Only, UsageReport, grown, limited, report, summed_up
from flightlog.views.truth import Evidence
from flightlog.views.usage import By, UsageRow

MADE_BY = f"2 {PRICES_FROM['source']} {PRICES_FROM['date']}"

_FORK_FROM = 16  # groups; fewer are done sooner than a process is made
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(SessionDigest).decode
_decode_made = msgspec.msgpack.Decoder(tuple[int, dict[str, bytes]]).decode
_decode_report = msgspec.msgpack.Decoder(UsageReport).decode


class Books:
    """What recorded files say about usage, and where they say what."""

    def __init__(self, files: Sequence[Transcript], index: PathLike[str] | str | None) -> None:
        """Take `files` into account; keep the index at `index`, or nowhere."""
        self._files = files
        self._sources = [source(file) for file in files]
        self._index = Index(index)
        self._sync: UsageSync | None = None
        self._work = Work()

    @property
    def work(self) -> Work:
        """What the last report took."""
        return self._work

    def usage(self, by: By, zone: tzinfo, only: Only | None = None) -> UsageReport:
        """Report usage and cost of everything recorded, or of `only` a part of it."""
        if only is not None:
            sync = self._synced()
            return report(limited(map(_decode, sync.digests.values()), only), by, zone, sync.damaged)
        return self.usages((by,), zone)[by]

    def usages(self, breakdowns: Sequence[By], zone: tzinfo) -> dict[By, UsageReport]:
        """Report usage and cost of everything recorded, broken down in several ways; files are looked at once."""
        made_by = f"{_rules(zone)} {MADE_BY}"
        names = {by: f"{by.value} {made_by}" for by in breakdowns}
        kept = self._index.looked_up(lambda database: kept_reports(database, names.values(), self._sources))
        if kept is not None:
            self._work = Work(files=len(self._sources))
            return {by: _decode_report(kept[names[by]]) for by in breakdowns}
        sync = self._synced(() if WHOLE.intersection(breakdowns) else names.values())
        brought = {by: _brought_up(sync, names[by], zone) for by in breakdowns}
        made = {by: each for by, each in brought.items() if each is not None}
        if len(made) < len(names):
            sync = self._synced() if sync.before else sync
            digests = [_decode(body) for body in sync.digests.values()]
            made = {by: report(digests, by, zone, sync.damaged) for by in breakdowns}
        sync.reports.update((names[by], _encode(each)) for by, each in made.items())
        return made

    def sessions(self) -> dict[str, UsageRow]:
        """Return what each session used of its own; what it copied from another counts there."""
        return {session: summed_up([_decode(body)]) for session, body in self._synced().digests.items()}

    def digests(self, sessions: Iterable[str]) -> list[SessionDigest]:
        """Return the digests of some sessions; the others are not even decoded."""
        sync = self._sync if self._sync and not self._sync.before else self._synced()
        known = sync.digests
        return [_decode(known[session]) for session in sessions if session in known]

    def responses(self, session: str) -> list[Row]:
        """Return every line a session's own files hold about a response, each response once."""
        best: dict[str, Row] = {}
        for file in self._files:
            if file.session == session:
                for row in scan(Target(file.path, session, file.lane)).rows:
                    known = best.get(row.message_id)
                    if known is None or row.output > known.output:
                        best[row.message_id] = row
        return list(best.values())

    def costs(self) -> dict[str, float | None]:
        """Return what each session costs."""
        return {session: row.cost.usd for session, row in self.sessions().items()}

    def refresh(self) -> None:
        """Bring usage up to date."""
        self._synced()

    def close(self) -> None:
        """Write down what the last report found out; a disk that refuses costs the next report some time."""
        if self._sync is not None and self._index.path is not None:
            with suppress(sqlite3.Error):
                self._sync.commit(self._index.database)
        self._index.close()

    def _synced(self, reports: Iterable[str] = ()) -> UsageSync:
        given = (self._sources, self._scan, Maker(self._digest, MADE_BY), reports)
        self._sync = self._index.looked_up(lambda database: sync_usage(database, *given))
        self._work = self._sync.work
        return self._sync

    def _scan(self, readings: Sequence[Reading]) -> Iterator[tuple[int, Scan]]:
        targets = [Target(each.source.path, each.source.session, each.source.lane, each.start) for each in readings]
        sizes = [max(each.source.size - each.start, 0) for each in readings]
        first = not any(each.start for each in readings)
        return scan_all(targets, sizes, os.cpu_count() or 1, self._digest_early if first else None)

    def _digest_early(self, scanned: Sequence[tuple[Target, Scan]]) -> None:
        """Digest sessions where they are scanned, on every processor; those that share are digested again."""
        files: dict[str, list[Scan]] = defaultdict(list)
        for target, found in scanned:
            files[target.session].append(found)
        for session, scans in files.items():
            born = min((each.born_ms for each in scans if each.born_ms), default=0)
            rows = [row for each in scans for row in each.rows]
            totals = [one for each in scans for one in each.totals]
            digest = self._digest_alone(Said(session, born, rows, totals))
            scans[0].digest = _encode(digest) if digest else b""

    def _digest_alone(self, said: Said) -> SessionDigest | None:
        """Digest a session as if it shared nothing; None if that is unlikely and its files would have to be searched.

        A session that repeats another's responses seems to hold more than its client counted.
        """
        asked: list[bool] = []

        def noted(_: str, more: bool) -> Evidence:  # noqa: FBT001 - as the digest asks it
            asked.append(more)
            return Evidence()

        (digest,) = digested([said], noted)
        if any(asked):
            (digest,) = digested([said], self._evidence)
        return None if asked and not any(asked) else digest

    def _digest(self, groups: Sequence[Group], forkable: bool) -> Mapping[str, bytes]:  # noqa: FBT001 - as it is called
        """Digest groups of sessions, many of them on every processor."""
        made: dict[int, dict[str, bytes]] = {}
        workers = os.cpu_count() or 1
        if forkable and workers > 1 and _FORK_FROM <= len(groups) <= TICKETS_MAX and may_fork():
            made.update(
                spread(len(groups), lambda number: (number, self._group(groups[number])), _decode_made, workers)
            )
        every = [made.get(number) or self._group(group) for number, group in enumerate(groups)]
        return {session: body for digests in every for session, body in digests.items()}

    def _group(self, group: Group) -> dict[str, bytes]:
        said = [Said(each.session, each.born_ms, each.rows, each.totals) for each in group()]
        return {each.session: _encode(each) for each in digested(said, self._evidence)}

    def _evidence(self, session: str, more: bool) -> Evidence:  # noqa: FBT001 - as the digest asks it
        from flightlog.sources.claude_code.evidence import signs  # noqa: PLC0415 - most reports need none

        return Evidence(*signs((file.path for file in self._files if file.session == session), more=more))


def source(file: Transcript) -> Source:
    """Return a transcript as the index sees it."""
    return Source(file.path, file.path, file.session, file.lane, file.device, file.inode, file.size, file.changed_ns)


def _brought_up(sync: UsageSync, name: str, zone: tzinfo) -> UsageReport | None:
    """Add what came since to the report from before."""
    if sync.before is None:
        return None
    old, new = (list(map(_decode, each.values())) for each in (sync.before.replaced, sync.digests))
    return grown(_decode_report(sync.before.reports[name]), old, new, zone, sync.damaged)


def _rules(zone: tzinfo) -> str:
    """Name a time zone by what it does: two zones of one name may differ, and one object is not the next."""
    months = (datetime(year, month, 1, tzinfo=UTC) for year in range(2024, 2028) for month in range(1, 13))
    return " ".join([str(zone), *(str(month.astimezone(zone).utcoffset()) for month in months)])
