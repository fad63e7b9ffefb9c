"""Analyze one session or all of them; what was computed stays in the index until a file changes."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from datetime import tzinfo
from functools import partial
from itertools import chain
from typing import TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from flightlog.agents.claude_code.hooks import read_client_cache, read_session_hooks
from flightlog.analysis.cache import CacheOutcome, CacheTotals, judge_requests, total_outcomes
from flightlog.analysis.context import AddedContext, measure_context
from flightlog.analysis.context_parts import ContextBlock, SessionContext
from flightlog.analysis.findings import Finding
from flightlog.analysis.findings.rank import find_findings
from flightlog.analysis.requests import list_requests, read_sent_requests
from flightlog.archive.archive import Archive, Progress, SessionFiles
from flightlog.archive.session_values import SessionValueCache
from flightlog.model.entries import ContextInjected, Entry
from flightlog.model.session import ContextItem, Session
from flightlog.model.text import TIME_MS_MAX
from flightlog.model.usage import ClientCacheReport
from flightlog.sources.workers import FORK_ABOVE_BYTES, map_forked
from flightlog.usage.prices import price
from flightlog.views.session.fold import fold_session
from flightlog.views.transcript import format_timestamp

T = TypeVar("T")
BLOCKS_MAX = 10  # of the most expensive blocks that are shown


class SessionAnalysis(Struct, frozen=True):
    """The analysis of one session.

    Views over the archive get its misses only, and of its context the most expensive blocks.
    """

    session: str
    agent: str
    project: str
    started_ms: int | None
    ended_ms: int | None
    has_request_log: bool
    requests: int
    cache: tuple[CacheOutcome, ...]
    findings: tuple[Finding, ...]
    context: SessionContext


_decode_analysis = msgspec.msgpack.Decoder(SessionAnalysis).decode


def analyze_session(archive: Archive, prefix: str) -> SessionAnalysis:
    """Return the whole analysis of the session whose id begins with `prefix`."""
    recording = archive.find_recording(prefix)
    with closing(SessionValueCache("analysis whole", SessionAnalysis, archive.index_path)) as cache:
        return cache.get_or_compute(
            recording.session, recording.files, lambda _: _analyze(archive, recording)
        )


def read_client_count(archive: Archive, session: str) -> ClientCacheReport | None:
    """Return the client's own count of a session's cache misses, if the status line reported it."""
    return read_client_cache(archive.hook_folder(session))


def analyze_archive(
    archive: Archive,
    since_ms: int = 0,
    sessions: Iterable[str] | None = None,
    progress: Progress | None = None,
    fork_above: int = FORK_ABOVE_BYTES,
) -> Iterator[SessionAnalysis]:
    """Yield the analysis of `sessions`, or of all, that were written to after `since_ms`.

    Unchanged sessions come from the index; more than `fork_above` bytes of others are read on all
    processors.
    """
    names = archive.recordings if sessions is None else sessions
    recordings = [archive.recordings[name] for name in names if name in archive.recordings]
    changed = (one for one in recordings if one.changed_ms >= since_ms)
    files = {recording.session: recording.files for recording in changed}
    with closing(SessionValueCache("analysis", SessionAnalysis, archive.index_path)) as cache:
        analyze = partial(_analyze_all, archive, progress=progress, fork_above=fork_above)
        yield from (value for _, value in cache.iter_items(files, analyze))


def list_misses(
    analyses: Iterable[SessionAnalysis], since_ms: int = 0, until_ms: int = TIME_MS_MAX
) -> list[CacheOutcome]:
    """Return the misses of a time, each once: a copy of a session repeats its responses."""
    ordered = sorted(analyses, key=lambda analysis: (analysis.started_ms or 0, analysis.session))
    misses: dict[str, CacheOutcome] = {}
    for miss in (miss for analysis in ordered for miss in analysis.cache):
        if since_ms <= (miss.at_ms or 0) < until_ms:
            misses.setdefault(miss.message_id or miss.address, miss)
    return list(misses.values())


def list_blocks(analyses: Iterable[SessionAnalysis]) -> list[ContextBlock]:
    """Return the most expensive blocks of some sessions."""
    blocks = (block for analysis in analyses for block in analysis.context.blocks)
    return sorted(blocks, key=lambda block: -(block.carrying_cost_usd or 0.0))[:BLOCKS_MAX]


def group_misses(
    misses: Iterable[CacheOutcome], by: str, analyses: Iterable[SessionAnalysis], zone: tzinfo
) -> list[tuple[str, CacheTotals]]:
    """Return the misses by cause, project, day or model; the most expensive first, days by time.

    A miss with several causes counts in the row of each.
    """
    projects = {analysis.session: analysis.project for analysis in analyses}
    keys_of: dict[str, Callable[[CacheOutcome], tuple[str, ...]]] = {
        "cause": lambda miss: miss.causes or ("not recorded",),
        "project": lambda miss: (projects[miss.session],),
        "day": lambda miss: (format_timestamp(miss.at_ms, zone, "%Y-%m-%d"),),
        "model": lambda miss: (miss.model,),
    }
    groups: dict[str, list[CacheOutcome]] = {}
    for miss in misses:
        for key in keys_of[by](miss):
            groups.setdefault(key, []).append(miss)
    rows = [(key, total_outcomes(group)) for key, group in groups.items()]
    if by == "day":
        return sorted(rows, key=lambda row: row[0])
    return sorted(rows, key=lambda row: (-(row[1].extra_cost_usd or 0.0), -row[1].misses, row[0]))


def list_findings(analyses: Iterable[SessionAnalysis]) -> list[Finding]:
    """Return the findings of several sessions, the most expensive first, each once.

    A session that was forked begins at the same time as the original, and has its findings too.
    """
    findings: dict[tuple[object, ...], Finding] = {}
    for analysis in sorted(analyses, key=lambda analysis: analysis.session):
        for finding in analysis.findings:
            place = finding.address.partition("#")[2]
            session = analysis.started_ms or analysis.session
            findings.setdefault((session, finding.kind, place, finding.title), finding)
    return sorted(findings.values(), key=lambda finding: -(finding.cost_usd or 0.0))


def _analyze(archive: Archive, recording: SessionFiles) -> SessionAnalysis:
    added: AddedContext = {}
    session = _read_session(archive, recording, added)
    requests = list_requests(session, read_sent_requests(session, recording))
    has_request_log = any(request.logged for request in requests)
    # A logged request has its own system prompt and tools.
    given = {} if has_request_log else recording.source.thread_contexts(recording.files)
    return SessionAnalysis(
        session=session.id,
        agent=session.agent,
        project=session.cwd,
        started_ms=session.started_ms,
        ended_ms=session.ended_ms,
        has_request_log=has_request_log,
        requests=len(requests),
        cache=tuple(judge_requests(requests)),
        context=measure_context(requests, session, given, added),
        findings=find_findings(session),
    )


def _read_session(archive: Archive, recording: SessionFiles, added: AddedContext) -> Session:
    """Return the session without the titles that other files give it, which take longer to find.

    What clients added to the context goes into `added`; the session itself does not show it.
    """
    hooks = read_session_hooks(archive.hook_folder(recording.session))
    entries = _watch_context(archive.iter_file_entries(recording.files), added)
    return fold_session(recording.session, recording.agent, price, chain(entries, hooks))


def _watch_context(items: Iterable[T], added: AddedContext) -> Iterator[T]:
    for item in items:
        if isinstance(item, Entry) and isinstance(item.event, ContextInjected):
            event = item.event
            context = ContextItem(event.kind, event.text, item.at_ms, event.memory)
            added.setdefault(item.subagent, {})[item.key] = context
        yield item


def _summarize(whole: SessionAnalysis) -> SessionAnalysis:
    misses = tuple(outcome for outcome in whole.cache if outcome.verdict.is_miss)
    blocks = SessionContext(blocks=whole.context.blocks[:BLOCKS_MAX])
    return replace(whole, cache=misses, context=blocks)


def _analyze_all(
    archive: Archive, names: list[str], progress: Progress | None, fork_above: int
) -> Iterator[tuple[str, SessionAnalysis]]:
    """Yield each session with its analysis, in any order."""

    def analyze(name: str) -> SessionAnalysis:
        return _summarize(_analyze(archive, archive.recordings[name]))

    sizes = {name: archive.recordings[name].size for name in names}
    results = map_forked(
        sizes, analyze, _decode_analysis, lambda analysis: analysis.session, fork_above
    )
    for done, analysis in enumerate(results, 1):
        if progress is not None:
            progress(done, len(names))
        yield analysis.session, analysis
