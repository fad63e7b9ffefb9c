"""The usage pipeline: plan, scan, merge, digest, report; saved after the report is printed.

Without an index, or with a damaged one, the report is the same and takes longer.
"""

import functools
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from datetime import tzinfo
from os import PathLike

import msgspec
from msgspec.structs import replace

from flightlog.agents import source_of
from flightlog.agents.claude_code import scan as claude_code
from flightlog.agents.claude_code.scan import count_output_chars, find_evidence
from flightlog.model.session import DEFAULT_AGENT, SessionFile
from flightlog.model.usage import Breakdown, UsageLine, UsageQuality, UsageRow, row_to_response
from flightlog.sources.foreign_json import find_lines
from flightlog.sources.protocol import UsageScan
from flightlog.sources.workers import TICKETS_MAX, may_fork, run_forked, scan_files
from flightlog.store.index.database import Index, Readable
from flightlog.store.index.files import SCHEMA as FILES
from flightlog.store.index.files import SyncStats
from flightlog.usage.attribution import attribute_responses
from flightlog.usage.digest import UsageDigest, best_rows, digest_sessions, estimate_bucket
from flightlog.usage.index import SCHEMA, SessionGroup, UsageIndexUpdate
from flightlog.usage.price_table import PRICES_FROM
from flightlog.usage.reconciliation import GapEvidence
from flightlog.usage.report import UsageFilter, UsageReport, build_report, filter_digests, total_row

# Stored digests of another version are made again: count up when a rule in `usage` changes.
VERSION = f"7 {PRICES_FROM['source']} {PRICES_FROM['date']}"

_FORK_FROM = 16  # groups; digesting fewer takes less time than starting a process
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(UsageDigest).decode
_decode_digests = msgspec.msgpack.Decoder(dict[str, bytes]).decode


class UsagePipeline:
    """Usage of some session files; the files are read once, for the first report."""

    def __init__(
        self, files: Sequence[SessionFile], index: PathLike[str] | str | None, unlisted: int = 0
    ) -> None:
        """Report on `files`; keep the index at `index`, or in memory.

        `unlisted` is how many places could not be listed, such as a locked database.
        """
        self._files = files
        self._unlisted = unlisted
        self._index = Index(index, FILES, SCHEMA)
        self._update: UsageIndexUpdate | None = None
        self._digests: dict[str, bytes] = {}
        self._first_ids: dict[str, str] = {}

    @property
    def stats(self) -> SyncStats:
        """Files, bytes and lines that were read."""
        return self._sync().stats

    def report(
        self,
        by: Breakdown,
        zone: tzinfo,
        only: UsageFilter | None = None,
        *,
        agent: str = "",
        estimate: bool = False,
    ) -> UsageReport:
        """Return usage and cost of all files, or of the part that `only` selects, or of an agent."""
        return self.build_reports((by,), zone, only, agent=agent, estimate=estimate)[by]

    def build_reports(
        self,
        breakdowns: Iterable[Breakdown],
        zone: tzinfo,
        only: UsageFilter | None = None,
        *,
        agent: str = "",
        estimate: bool = False,
    ) -> dict[Breakdown, UsageReport]:
        """Return several reports of the same usage, which is decoded and selected once."""
        damaged = self._sync().damaged_spans + self._unlisted
        agents = {file.session: file.agent for file in self._files}
        digests: Iterable[UsageDigest] = map(_decode, self._digests.values())
        if agent:
            digests = _select_agent(digests, agent, agents)
        if estimate:
            digests = self._add_estimates(digests)
        selected = filter_digests(digests, only)
        reports = {by: build_report(selected, by, zone, damaged, agents) for by in breakdowns}
        return {by: replace(report, has_estimates=estimate) for by, report in reports.items()}

    def _add_estimates(self, digests: Iterable[UsageDigest]) -> Iterator[UsageDigest]:
        """Add the output that was not recorded, which reads the files of the sessions in question.

        A response that several sessions have is estimated for the first, which owns it. Thinking
        that was recorded without its text is not estimated.
        """
        seen: set[str] = set()
        for digest in sorted(digests, key=_first_response_ms):
            new: list[UsageLine] = []
            chars: Mapping[str, int] = {}
            if any(bucket.is_lower_bound or bucket.unknown_responses for bucket in digest.buckets):
                files = self._files_of.get(digest.session, ())
                chars = count_output_chars(file.path for file in files)
                rows = self.session_responses(digest.session)
                new = [row for row in rows if row.quality != UsageQuality.EXACT]
                new = [row for row in new if row.message_id not in seen]
                seen.update(row.message_id for row in new)
            buckets = (estimate_bucket(row, chars.get(row.message_id, 0)) for row in new)
            estimates = [bucket for bucket in buckets if bucket]
            yield replace(digest, buckets=(*digest.buckets, *estimates)) if estimates else digest

    def session_rows(self, sessions: Iterable[str] | None = None) -> dict[str, UsageRow]:
        """Return the own usage of `sessions`, or of all; copied responses count in the original."""
        self._sync()
        names = self._digests if sessions is None else sessions
        return {digest.session: total_row([digest]) for digest in self.session_digests(names)}

    def session_digests(self, sessions: Iterable[str]) -> list[UsageDigest]:
        """Return the digests of those `sessions` that have files."""
        self._sync()
        return [_decode(self._digests[session]) for session in sessions if session in self._digests]

    def session_responses(self, session: str) -> Sequence[UsageLine]:
        """Return one row for each response in a session's own files, its fullest copy."""
        files = self._files_of.get(session, ())
        return best_rows([row for file in files for row in scan_usage(file).rows])

    def copied_message_ids(self, main: SessionFile) -> frozenset[str]:
        """Return the responses in `main` that an older session recorded first.

        A fork or a resumed copy begins with them, so only sessions with the first response of
        `main` count. The rule is that of `attribution`.
        """
        own = scan_usage(main)
        first = min(own.rows, key=lambda row: row.at_ms, default=None)
        if first is None:
            return frozenset()
        scans = {main.session: own}
        for file in self._files:
            is_other = file.agent == main.agent and file.session != main.session
            if is_other and not file.subagent and self._has_response(file, main, first.message_id):
                scans[file.session] = scan_usage(file)
        if len(scans) == 1:
            return frozenset()
        rows = [row_to_response(row) for scan in scans.values() for row in scan.rows]
        first_ms = {session: scan.first_ms for session, scan in scans.items() if scan.first_ms}
        copies = attribute_responses(rows, first_ms).copies.get(main.session, ())
        return frozenset(copy.message_id for copy in copies)

    def _has_response(self, file: SessionFile, main: SessionFile, message_id: str) -> bool:
        """Return whether `file` has a response of `main`, which it began with.

        Claude Code writes a copy to the directory of its original; other agents do not, so their
        files are scanned once, for the response that each begins with.
        """
        if main.agent == DEFAULT_AGENT:
            is_near = file.path.rpartition("/")[0] == main.path.rpartition("/")[0]
            return is_near and any(True for _ in find_lines(file.path, message_id))
        if file.path not in self._first_ids:
            first = min(scan_usage(file).rows, key=lambda row: row.at_ms, default=None)
            self._first_ids[file.path] = first.message_id if first else ""
        return self._first_ids[file.path] == message_id

    def refresh(self) -> None:
        """Read what is new; `save` stores it."""
        self._sync()

    def save(self) -> None:
        """Store what was read and close the index; a disk error costs the next report some time."""
        if self._update is not None and self._index.path is not None:
            with suppress(sqlite3.Error):
                self._update.write(self._index.database)
        self._index.close()

    def _sync(self) -> UsageIndexUpdate:
        if self._update is None:
            self._update = self._index.query_existing(self._read_new)
        return self._update

    def _read_new(self, database: Readable) -> UsageIndexUpdate:
        """Plan, scan, merge and digest, on one state of the index."""
        database.execute("BEGIN")
        try:
            update = UsageIndexUpdate(database, self._files, VERSION)
            cores, pending = os.cpu_count() or 1, update.plan.pending
            update.merge_scans(scan_files(pending, scan_usage, _scan_mapped, cores))
            update.fresh = self._digest_groups(update, update.stale_groups())
            self._digests = update.digests()
        finally:
            database.execute("COMMIT")
        return update

    def _digest_groups(
        self, update: UsageIndexUpdate, groups: Sequence[SessionGroup]
    ) -> dict[str, bytes]:
        """Return the digests of all groups; many groups are digested on all processors.

        A forked child must not use the database connection, so only a first report forks: all
        of its rows are in memory.
        """
        digests: dict[str, bytes] = {}
        workers = os.cpu_count() or 1
        many = _FORK_FROM <= len(groups) <= TICKETS_MAX
        if many and workers > 1 and not update.plan.current and may_fork():
            digest = lambda number: self._digest_group(update, groups[number])  # noqa: E731
            for part in run_forked(len(groups), digest, _decode_digests, workers):
                digests.update(part)
        for group in groups:
            if group[0] not in digests:
                digests.update(self._digest_group(update, group))
        return digests

    def _digest_group(self, update: UsageIndexUpdate, group: SessionGroup) -> Mapping[str, bytes]:
        digests = digest_sessions(update.load_usage(group), self._find_evidence)
        return {digest.session: _encode(digest) for digest in digests}

    def _find_evidence(self, session: str, more: bool) -> GapEvidence:  # noqa: FBT001 - as FindEvidence
        files = self._files_of.get(session, ())
        if any(file.agent != DEFAULT_AGENT for file in files):
            return GapEvidence(has_side_calls=more)
        return GapEvidence(*find_evidence((file.path for file in files), more=more))

    @functools.cached_property
    def _files_of(self) -> Mapping[str, Sequence[SessionFile]]:
        files: dict[str, list[SessionFile]] = {}
        for file in self._files:
            files.setdefault(file.session, []).append(file)
        return files


def load_digests(index: PathLike[str] | str | None, sessions: Iterable[str]) -> list[UsageDigest]:
    """Return the digests of `sessions` as the last report stored them; reads no session file."""
    select = "SELECT body FROM digests WHERE session = ?"
    with closing(Index(index, FILES, SCHEMA)) as opened:
        rows = opened.query(
            lambda database: [database.execute(select, (name,)).fetchone() for name in sessions]
        )
    return [_decode(row[0]) for row in rows if row]


def scan_usage(file: SessionFile, start: int = 0) -> UsageScan:
    """Return the token counts of a file's records from byte `start`."""
    if file.agent == DEFAULT_AGENT:
        return claude_code.scan_usage(file, start)
    return source_of(file.agent).scan_usage(file, start)


def _scan_mapped(file: SessionFile, start: int) -> UsageScan:
    """Scan in a process of its own, which a file that shrinks may end."""
    if file.agent == DEFAULT_AGENT:
        return claude_code.scan_usage_mapped(file, start)
    return source_of(file.agent).scan_usage(file, start)


def _select_agent(
    digests: Iterable[UsageDigest], agent: str, agents: Mapping[str, str]
) -> Iterator[UsageDigest]:
    """Yield the digests of an agent's sessions, of an id that several agents have its own part."""
    for digest in digests:
        first = agents.get(digest.session)
        own = tuple(item for item in digest.buckets if (item.agent or first) == agent)
        if own or (first == agent and not digest.buckets):
            yield digest if len(own) == len(digest.buckets) else replace(digest, buckets=own)


def _first_response_ms(digest: UsageDigest) -> int:
    return min((bucket.first_ms for bucket in digest.buckets), default=0)
