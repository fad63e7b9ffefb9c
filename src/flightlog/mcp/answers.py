"""The five tools: what each of them reads and answers.

They only read: nothing here costs money, sends anything or changes a recording. What does, such as
a replay, is for a person to run.
"""

import re
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from flightlog.agents import agent_label, source_of
from flightlog.agents.claude_code.hooks import read_new_status
from flightlog.agents.recordings import find_agent_dirs
from flightlog.analysis.cache import TTL_MS, judge_requests, total_outcomes
from flightlog.analysis.requests import list_requests, read_sent_requests
from flightlog.app.runtime import open_runtime
from flightlog.archive import search
from flightlog.archive.archive import open_archive
from flightlog.live.observe import ObservedSession, context_usage
from flightlog.live.state import Thresholds
from flightlog.mcp.file_history import answer_file_history
from flightlog.mcp.render import (
    SNIPPET_CHARS,
    TITLE_CHARS,
    ToolAnswer,
    ToolArguments,
    cut_title,
    describe_session,
    describe_time,
)
from flightlog.mcp.scope import ScopedSession, SessionScope, ToolCaller
from flightlog.model.addresses import Address, parse_address
from flightlog.model.errors import FlightlogError, Invalid, NotFound
from flightlog.model.output_files import Redacted
from flightlog.model.session import Session, Turn
from flightlog.model.text import format_age, make_inert, one_line, parse_since, pluralize
from flightlog.model.usage import UsageRow, format_cost
from flightlog.privacy.service import make_redactor
from flightlog.store.index.fulltext import MatchLimits
from flightlog.usage.report import UsageFilter, filter_digests, total_row
from flightlog.views.session.timeline import find_lane, find_part
from flightlog.views.transcript import RenderOptions, render_passage

INDEXING = "The index is still being built; what is not in it yet is missing here. Ask again later."
_BUSY = b"Another process is updating the index; the newest records may be missing here."
HITS_DEFAULT, HITS_MAX, AROUND_MAX = 8, 25, 5
HITS_PER_SESSION = 3  # so that one long session does not hide the others
SESSIONS_SHOWN = 20
LATE_S = 0.3  # Copilot CLI writes records a tenth of a second after the last one
PASSAGE_CHARS = 5_000  # of one text in a step that was asked for
NEAR_CHARS = 500  # of one text beside it
# A margin on both sides of a match that is redacted with it: no secret is longer, and a record may
# have megabytes.
MARGIN_CHARS = 8_000


_MODEL = re.compile(r"[\w.:/@\[\]<>+-]{1,80}")


def load_parts() -> None:
    """Load what calls need before any is forked, because a child would load it for itself alone."""
    with suppress(FlightlogError, OSError):  # a call reports it
        runtime = open_runtime()
        for name in find_agent_dirs(runtime):
            source_of(name)
        # For a text as long as a few quotations all patterns are compiled; then children have them.
        make_redactor(runtime).redact_string(Path(__file__).read_text("utf-8") * 3)


def sync_index(*, all_projects: bool) -> bytes:
    """Bring index and usage up to date; return a note for the answers, and the sessions in scope."""
    runtime = open_runtime()
    archive = open_archive(runtime)
    note = b"" if archive.search_index.try_sync() is not None else _BUSY
    archive.usage_pipeline.refresh()
    archive.usage_pipeline.save()
    return (
        note + b"\n" + SessionScope(runtime, ToolCaller(all_projects=all_projects)).pack_sessions()
    )


def call_tool(name: str, given: Any, caller: ToolCaller, packed: bytes, note: str) -> bytes:
    """Return the answer of a tool, after "=", or why there is none, after "!".

    `packed` are the sessions in scope, if known; `note` is what the answer says about the index.
    """
    try:
        scope = SessionScope(open_runtime(), caller, packed)
        is_late = name == "usage" and scope.is_unwritten
        if is_late or scope.is_index_replaced:
            time.sleep(LATE_S if is_late else 0)
            packed = sync_index(all_projects=caller.all_projects).partition(b"\n")[2]
            scope = SessionScope(scope.runtime, caller, packed)
        answer = ToolAnswer(scope)
        first = _TOOLS[name](scope, ToolArguments(given), answer)
        text = f"={answer.render_text(first, note)}"
    except FlightlogError as error:
        hint = f" ({error.hint})" if error.hint else ""
        text = "!" + make_inert(f"{error.message}{hint}")
    return text.encode("utf-8", "replace")


def _answer_search(scope: SessionScope, arguments: ToolArguments, answer: ToolAnswer) -> str:
    runtime = scope.runtime
    limit = arguments.get_count("limit", HITS_DEFAULT, HITS_MAX) or HITS_DEFAULT
    typed = arguments.get_text("query", required=True)
    read_time = partial(parse_since, now_ms=runtime.clock.now_ms(), zone=runtime.zone)
    query = search.parse_query(typed, read_time, is_whole=True)
    if not query.match:
        raise Invalid("nothing to search for", hint="give a word, or call sessions")
    costs = {} if query.matches_cost(None) else scope.read_costs(scope.sessions)
    sessions = [
        found
        for found in scope.sessions.values()
        if found.session != scope.running.session
        and query.project in found.project
        and query.agent in {"", found.agent}
        and found.last_ms >= query.since_ms
        and (query.matches_cost(None) or query.matches_cost(costs[found.session].usd))
    ]
    limits = MatchLimits(4 * limit if query.since_ms else limit, HITS_PER_SESSION)
    matches, total, is_all = scope.search_records(query.match, sessions, limits)
    begins = search.parse_query(typed, read_time).match
    if len(matches) < limit and begins != query.match:  # five times the work of whole words
        matches, total, is_all = scope.search_records(begins, sessions, limits)
    shown = [match for match in matches if match.at_ms >= query.since_ms][:limit]
    shown.sort(key=lambda match: -match.at_ms)
    places = ((scope.sessions[match.session].agent, match) for match in shown)
    texts = [source_of(agent).text_at(at.path, at.offset, at.length) for agent, at in places]
    results = [search.SearchResult(match, text) for match, text in zip(shown, texts, strict=True)]
    for hit in search.locate_results(scope.archive, results, {}):
        found, text = scope.sessions[hit.session], hit.snippet
        answer.add_line(
            f"{hit.address}  {agent_label(hit.agent)}, {describe_time(scope, hit.at_ms or 0)}"
        )
        start = search.find_passage(text, query.words, 3 * MARGIN_CHARS)
        cut = partial(_cut_match, words=query.words, is_start=not start)
        answer.add_passage(found, text[start : start + 2 * MARGIN_CHARS], cut)
    if not shown:
        return "Nothing recorded matches. Fewer words, or the beginning of one, find more."
    count = f"{'' if is_all else 'at least '}{pluralize(total, 'transcript')}"
    return f"Matches in {count}, newest first; {len(shown)} shown."


def _cut_match(clean: Redacted[str], *, words: tuple[str, ...], is_start: bool) -> str:
    """Return the passage around a match; the margin before it may begin with half of a secret."""
    lower = clean.value.lower()
    if not is_start and not any(word.lower() in lower for word in words):
        return "(what matches is redacted)"
    return search.cut_snippet(clean.value, words, SNIPPET_CHARS)


def _answer_open(scope: SessionScope, arguments: ToolArguments, answer: ToolAnswer) -> str:
    address = parse_address(arguments.get_text("address", required=True))
    around = arguments.get_count("around", 0, AROUND_MAX)
    found = scope.find_session(address.session)
    session = scope.archive.read_session(found.session)
    address = replace(address, session=session.id)
    find_part(session, address)  # raises for a part that does not exist
    if not address.turn:
        lane = find_lane(session, address)
        turns = lane.turns if lane else session.turns
        for turn in turns:
            at = replace(address, turn=turn.number, subagent=lane.id if lane else "")
            answer.add_line(f"{at}  {_describe_turn(turn)}")
            answer.add_passage(found, turn.text, lambda clean: one_line(clean.value, SNIPPET_CHARS))
        cost = format_cost(scope.read_costs([found.session])[found.session])
        return (
            f"Session {session.id}: {describe_session(scope, found)}, "
            f"{pluralize(len(turns), 'turn')}, {cost}. Open a turn by its address."
        )
    read_output = lambda name: scope.archive.read_spilled_output(found.session, name)  # noqa: E731
    options = RenderOptions(scope.runtime.zone, True, read_output, "")
    for at in _addresses_around(session, address, around):
        limit = PASSAGE_CHARS if at == address and address.step else NEAR_CHARS
        for line in render_passage(session, at, options):
            answer.add_line(f"{'  ' * line.depth}{f'{line.address} {line.kind.value}'.strip()}:")
            answer.add_quotation(found, line.text, limit)
    answer.add_line(f"All of it, for a person: flightlog session show '{address}' --full")
    return f"{address}, of a session of {describe_session(scope, found)}:"


def _describe_turn(turn: Turn) -> str:
    calls = [call for step in turn.steps for call in step.tool_calls]
    failed = sum(call.is_error for call in calls)
    text = f"{pluralize(len(turn.steps), 'step')}, {pluralize(len(calls), 'tool call')}"
    return f"{text}, {failed} failed" if failed else text


def _addresses_around(session: Session, at: Address, around: int) -> list[Address]:
    """Return the address and those of the steps, or turns, before and after it."""
    lane = find_lane(session, at)
    turns = lane.turns if lane else session.turns
    near: list[Address] = []
    for turn in turns:
        whole = replace(at, turn=turn.number, step=0)
        near += [replace(whole, step=step.number) for step in turn.steps] if at.step else [whole]
    place = near.index(at)
    return near[max(place - around, 0) : place + around + 1]


def _answer_sessions(scope: SessionScope, arguments: ToolArguments, answer: ToolAnswer) -> str:
    runtime = scope.runtime
    project, file = arguments.get_text("project"), arguments.get_text("file")
    since = arguments.get_text("since")
    since_ms = parse_since(since, runtime.clock.now_ms(), runtime.zone) if since else 0
    recent = [one for one in scope.sessions.values() if one.last_ms >= since_ms]
    found = [one for one in recent if project.lower() in one.project.lower()]
    if file:
        named = scope.find_naming(file, found)
        found = [one for one in found if one.session in named]
    shown = found[:SESSIONS_SHOWN]
    costs = scope.read_costs([one.session for one in shown])
    for one, summary in zip(shown, scope.read_summaries(shown), strict=True):
        mark = " (running)" if one.session == scope.running.session else ""
        cost = format_cost(costs[one.session])
        answer.add_line(
            f"{one.session}  {describe_session(scope, one)}, {pluralize(summary.turns, 'turn')}, "
            f"{pluralize(summary.steps, 'step')}, {cost}{mark}"
        )
        answer.add_quotation(one, cut_title(summary.title), TITLE_CHARS)
    return f"{pluralize(len(found), 'session')}, newest first; {len(shown)} shown."


def _answer_usage(scope: SessionScope, arguments: ToolArguments, answer: ToolAnswer) -> str:
    wanted = arguments.get_text("scope") or "this"
    if wanted not in {"this", "today", "project"}:
        raise Invalid(f"no such scope: {wanted[:40]!r}", hint="one of: this, today, project")
    if wanted == "this":
        return _usage_of_this(scope, answer)
    since_ms = 0
    if wanted == "today":
        now_ms, zone = scope.runtime.clock.now_ms(), scope.runtime.zone
        since_ms = parse_since(describe_time(scope, now_ms)[:10], now_ms, zone)
    names = [one.session for one in scope.sessions.values() if one.last_ms >= since_ms]
    row = total_row(filter_digests(scope.read_digests(names), UsageFilter(since_ms=since_ms)))
    _say_tokens(answer, row)
    where = "today" if wanted == "today" else "in all"
    return f"{format_cost(row.cost)} {where}, in {pluralize(row.sessions, 'session')}."


def _say_tokens(answer: ToolAnswer, row: UsageRow) -> None:
    usage = row.usage
    # Names come from recordings: one that could be a sentence is not repeated.
    names = [name if _MODEL.fullmatch(name) else "an unusual name" for name in row.models]
    answer.add_line(
        f"Tokens: {usage.input_tokens:,} input, {usage.output_tokens:,} output, "
        f"{usage.cache_read_tokens:,} read from the cache, {usage.cache_write_tokens:,} written to it; "
        f"{pluralize(row.responses, 'response')} of {', '.join(names) or 'no model'}."
    )


def _usage_of_this(scope: SessionScope, answer: ToolAnswer) -> str:
    running = scope.running
    found = scope.sessions.get(running.session)
    if found is None:
        raise NotFound("the running session has no record yet", hint="ask for today or project")
    session = scope.archive.read_session(found.session)
    digests = scope.read_digests([found.session])
    if digests:
        _say_tokens(answer, total_row(digests))
    recording = scope.archive.find_recording(found.session)
    requests = list_requests(session, read_sent_requests(session, recording))
    main = [request for request in requests if not request.thread]
    if main:
        last, now_ms = main[-1], scope.runtime.clock.now_ms()
        answer.add_line(_describe_context(scope, found, last.model, last.usage.total_tokens))
        totals = total_outcomes(judge_requests(requests))
        ttl = "1h" if any(request.usage.cache_write_1h_tokens for request in main) else "5m"
        idle_ms = now_ms - (session.ended_ms or last.at_ms or now_ms)
        state = "warm" if idle_ms < TTL_MS[ttl] else "expired"
        cost = "unknown" if totals.extra_cost_usd is None else f"${totals.extra_cost_usd:.4f}"
        answer.add_line(
            f"Cache: {state} (kept {ttl}, last used {format_age(idle_ms)} ago); "
            f"missed in {totals.misses:,} of {pluralize(totals.requests, 'request')}, extra cost {cost}. "
            f"Why: flightlog cache {found.session[:8]}"
        )
    name = f"This session, {found.session}"
    if not running.is_certain:
        why = "only Claude Code says which one asks"
        name = f"The last session written here, {found.session} ({why})"
    return f"{name}: {format_cost(scope.read_costs([found.session])[found.session])} so far."


def _describe_context(scope: SessionScope, found: ScopedSession, model: str, used: int) -> str:
    folder = scope.archive.hook_folder(found.session)
    records = read_new_status(str(folder), 0)[0] if folder else []
    observed = ObservedSession(found.session, model=model, context_tokens=used)
    observed.status = records[-1] if records else None
    context = context_usage(observed, Thresholds())
    source = "as the client reported it" if records else "by the last response"
    return (
        f"Context: {context.tokens_used:,} tokens used, {context.tokens_left:,} left before "
        f"compaction ({context.percent_used} % used), {source}."
    )


_TOOLS: dict[str, Callable[[SessionScope, ToolArguments, ToolAnswer], str]] = {
    "search": _answer_search,
    "open": _answer_open,
    "sessions": _answer_sessions,
    "usage": _answer_usage,
    "file_history": answer_file_history,
}
