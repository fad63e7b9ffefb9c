"""`flightlog cache`, `context` and `session findings`: what happened in sessions, why, and what it cost."""

from datetime import tzinfo
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import asdict

from flightlog.app.runtime import open_runtime
from flightlog.cli.options import range_options, read_range
from flightlog.cli.output import (
    Progress,
    format_examples,
    json_option,
    print_json,
    print_more,
    print_table,
    read_only,
    spell_hint,
)
from flightlog.model.errors import Invalid, NotFound
from flightlog.model.text import one_line, pluralize

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flightlog.analysis.cache import CacheOutcome, CacheTotals
    from flightlog.analysis.context_parts import ContextBlock, RequestContext, SessionContext
    from flightlog.analysis.service import SessionAnalysis
    from flightlog.archive.archive import Archive
    from flightlog.model.runtime import Runtime
    from flightlog.model.usage import ClientCacheReport

BAR_CHARS = 30  # of a part that fills the whole prompt
PARTS_MAX = 16  # of a prompt; --json has all
_REQUEST_KEYS = tuple(
    "address at_ms model verdict causes done_by recached_tokens extra_cost_usd".split()
)
_TOTAL_KEYS = ("misses", "recached_tokens", "extra_cost_usd", "causes")
_ROW_KEYS = ("misses", "sessions", "recached_tokens", "extra_cost_usd")
_NO_LOG = "its requests were not logged or captured: most causes are unknown; flightlog doctor"
CHANGE_CHARS = 70  # of a column; --json has the whole text


@click.command(
    epilog=format_examples(
        "flightlog cache --since 7d --by project", "flightlog cache 2123f2df --json"
    )
)
@click.argument("session", required=False, default="")
@range_options
@click.option(
    "--by", type=click.Choice(["cause", "project", "day", "model"]), default=None,
    help="Group the misses of all sessions by this; by cause if left out.",
)  # fmt: skip
@json_option("Print every request of SESSION, or the rows, as JSON.")
@read_only
def cache(session: str, *, since: str, until: str, by: str | None, as_json: bool) -> None:
    """Show where the prompt cache was missed, why, and what that cost.

    With SESSION, show its requests that were no hits, what changed before each and what changed
    it; RUN/session_01 is a session of a run. Without, sum up the misses of all sessions.
    """
    from flightlog.analysis.service import analyze_session, read_client_count

    runtime = open_runtime()
    archive, session = _open_session(runtime, session)
    start, end = read_range(since, until)
    if not session:
        _print_archive(runtime, archive, (start, end), by or "cause", as_json=as_json)
        return
    if by:
        hint = f"flightlog cache --by {by}"
        raise Invalid("--by sums up all sessions; leave out SESSION", hint=hint)
    detail = analyze_session(archive, session)
    outcomes = [outcome for outcome in detail.cache if start <= (outcome.at_ms or 0) < end]
    client = read_client_count(archive, detail.session)
    if as_json:
        print_json(_session_json(outcomes, detail, client))
    else:
        _print_session(outcomes, detail, client, runtime.zone)


def _open_session(runtime: "Runtime", written: str) -> "tuple[Archive, str]":
    """Return the archive and what was written; for RUN/session_01 or RUN#1, that run's session."""
    from flightlog.archive.archive import open_archive
    from flightlog.lab.inspect import parse_run_address
    from flightlog.lab.run_reader import read_run_sessions
    from flightlog.lab.service import open_run, runs_dir
    from flightlog.lab.store import find_planned_session

    archive = open_archive(runtime)
    address = parse_run_address(written) if {"#", "/"} & {*written} else None
    if address is None or any(name.startswith(address.run) for name in archive.recordings):
        return archive, written
    try:
        run = open_run(runtime, runs_dir(runtime), address.run)
    except NotFound:
        if "/" in written:
            raise
        return archive, written  # which has no such session either
    planned = find_planned_session(run, address.session or 1, address.replicate)
    sessions = read_run_sessions(run, [planned])
    if not sessions.recordings:
        hint = f"flightlog lab run --resume {run.name}"
        raise NotFound(f"{planned.session_dir} of {run.name} has no transcript", hint=hint)
    return sessions, next(iter(sessions.recordings))


def _session_json(
    outcomes: "list[CacheOutcome]", detail: "SessionAnalysis", client: "ClientCacheReport | None"
) -> dict[str, Any]:
    from flightlog.analysis.cache import compare_with_client, total_outcomes

    result: dict[str, Any] = {
        "requests": [
            {name: getattr(outcome, name) for name in _REQUEST_KEYS}
            | {"changes": [change.detail for change in outcome.changes]}
            for outcome in outcomes
        ],
        "totals": _totals_json(total_outcomes(outcomes), *_TOTAL_KEYS),
        "causes_known": detail.has_request_log,
    }
    if client is not None:
        _, differences = compare_with_client(detail.cache, client)
        result |= {"client": client, "differences": differences}
    return result


def _totals_json(totals: "CacheTotals", *keys: str) -> dict[str, Any]:
    return {name: getattr(totals, name) for name in keys}


def _print_session(
    outcomes: "list[CacheOutcome]",
    detail: "SessionAnalysis",
    client: "ClientCacheReport | None",
    zone: tzinfo,
) -> None:
    from flightlog.analysis.cache import compare_with_client, list_without_hits, total_outcomes
    from flightlog.model.addresses import short_address
    from flightlog.views.transcript import format_timestamp

    rows = [
        [
            short_address(outcome.address),
            format_timestamp(outcome.at_ms, zone, "%m-%d %H:%M:%S"),
            outcome.verdict.value,
            ", ".join(outcome.causes),
            one_line(
                "; ".join(change.detail for change in outcome.changes if change.detail),
                CHANGE_CHARS,
            ),
            ", ".join(outcome.done_by),
            f"{outcome.recached_tokens:,}" if outcome.verdict.is_miss else "",
            _format_extra(outcome.extra_cost_usd) if outcome.verdict.is_miss else "",
        ]
        for outcome in list_without_hits(outcomes)
    ]
    if rows:
        heads = ["step", "sent", "verdict", "cause", "what changed", "done by", "again", "extra"]
        print_table(heads, rows, right=(6, 7))
    totals = total_outcomes(outcomes)
    again = f"{totals.recached_tokens:,} tokens written again"
    missed = f"{totals.misses:,} of {pluralize(totals.requests, 'request')} missed the cache"
    click.echo(f"{missed}: {again}, {_format_extra(totals.extra_cost_usd)} more than hits")
    if totals.requests > 1 and not rows:
        click.echo("no request used the prompt cache", err=True)
    if client is not None:
        _, differences = compare_with_client(detail.cache, client)
        counted = f"{client.misses:,} of {pluralize(client.requests, 'request')} missed"
        click.echo(f"counted by the client since its last start: {counted}")
        for difference in differences:
            click.echo(f"differs: {difference}")
    if totals.misses and not detail.has_request_log:
        click.echo(spell_hint(_NO_LOG), err=True)


def _print_archive(
    runtime: "Runtime", archive: "Archive", times: tuple[int, int], by: str, *, as_json: bool
) -> None:
    from flightlog.analysis.cache import total_outcomes
    from flightlog.analysis.service import group_misses, list_misses

    analyses = _analyze_sessions(archive, times[0])
    misses = list_misses(analyses, *times)
    rows = group_misses(misses, by, analyses, runtime.zone)
    totals = total_outcomes(misses)
    if as_json:
        counts = [{by: key, **_totals_json(row, *_ROW_KEYS)} for key, row in rows]
        print_json({"rows": counts, "totals": _totals_json(totals, *_TOTAL_KEYS)})
        return
    if not rows:
        click.echo(f"no cache misses in {pluralize(len(analyses), 'session')}", err=True)
        return
    cells = []
    for key, row in (*rows, ("total", totals)):
        numbers = (f"{count:,}" for count in (row.misses, row.sessions, row.recached_tokens))
        cells.append([key or "?", *numbers, _format_extra(row.extra_cost_usd)])
    heads = [by, "misses", "sessions", "tokens written again", "extra cost"]
    print_table(heads, cells, right=(1, 2, 3, 4))
    known = sum(analysis.has_request_log for analysis in analyses)
    line = f"causes are known from requests in {known:,} of {len(analyses):,} sessions"
    click.echo(line, err=True)


def _analyze_sessions(archive: "Archive", start_ms: int) -> "list[SessionAnalysis]":
    from flightlog.analysis.service import analyze_archive

    progress = Progress("analyzing sessions")
    analyses = list(analyze_archive(archive, start_ms, progress=progress))
    progress.close()
    return analyses


def _format_extra(usd: float | None) -> str:
    from flightlog.model.usage import Cost, CostSource, format_cost

    return format_cost(Cost(usd, CostSource.TABLE))


@click.command(
    epilog=format_examples("flightlog context 2123f2df", "flightlog context --project shop --json")
)
@click.argument("session", required=False, default="")
@click.option("--project", default="", help="Only sessions whose directory contains this.")
@range_options
@json_option("Print every request and block of SESSION, or the most expensive blocks, as JSON.")
@read_only
def context(session: str, *, project: str, as_json: bool, **times: str) -> None:
    """Show what filled the context window, and what carrying it cost.

    With SESSION, show its fullest prompt and its last one, and its most expensive blocks;
    RUN/session_01 is a session of a run. Without, show the most expensive blocks of all sessions.
    A block costs again in every request that reads it, until a compaction or the end.
    """
    from flightlog.analysis.service import BLOCKS_MAX, analyze_session, list_blocks

    archive, session = _open_session(open_runtime(), session)
    if session:
        measured = analyze_session(archive, session).context
        if as_json:
            print_json(_context_json(measured))
        else:
            _print_context(measured)
            _print_blocks(archive, measured.blocks[:BLOCKS_MAX])
        return
    start, end = read_range(times["since"], times["until"])
    analyses = (one for one in _analyze_sessions(archive, start) if project in one.project)
    blocks = list_blocks(one for one in analyses if start <= (one.ended_ms or 0) < end)
    if as_json:
        print_json({"blocks": list(map(asdict, blocks))})
    else:
        _print_blocks(archive, blocks)


def _context_json(measured: "SessionContext") -> dict[str, Any]:
    starts = [
        {
            "kind": "start",
            "name": "system prompt, tools, memory and first messages",
            "tokens": start.tokens,
            "exact": True,
            "shares": list(map(asdict, start.shares)),
        }
        for start in measured.starts
    ]
    requests = [
        {
            "address": request.address,
            "input_tokens": request.input_tokens,
            "parts": [starts[request.start], *map(asdict, request.parts)],
        }
        for request in measured.requests
    ]
    return {"requests": requests, "blocks": list(map(asdict, measured.blocks))}


def _print_context(measured: "SessionContext") -> None:
    from flightlog.analysis.context_parts import describe_part

    requests = [request for request in measured.requests if not request.thread]
    if not requests:
        click.echo("no request with recorded usage", err=True)
        return
    peak, last = max(requests, key=lambda request: request.input_tokens), requests[-1]
    sums, last_sums = _sum_shares(measured, peak), _sum_shares(measured, last)
    keys = sorted(sums, key=lambda key: -sums[key][0])
    rows = [
        [
            one_line(describe_part(*key), 50),
            "█" * max(round(BAR_CHARS * sums[key][0] / peak.input_tokens), 1),
            f"{'' if sums[key][1] else '~'}{sums[key][0]:,}",
            f"{100 * sums[key][0] / peak.input_tokens:.0f} %",
            f"{last_sums[key][0]:,}" if key in last_sums else "",
        ]
        for key in keys[:PARTS_MAX]
    ]
    hidden = sum(sums[key][0] for key in keys[PARTS_MAX:])
    if hidden:
        rows.append([pluralize(len(keys) - PARTS_MAX, "other part"), "", f"{hidden:,}", "", ""])
    rows.append(["total", "", f"{peak.input_tokens:,}", "", f"{last.input_tokens:,}"])
    places = [f"at #{request.address.partition('#')[2]}" for request in (peak, last)]
    shown = 4 if last is peak else 5  # the last column repeats the third if both are one request
    heads = ["part", "", places[0], "", places[1]][:shown]
    print_table(heads, [row[:shown] for row in rows], right=tuple(range(2, shown)))
    click.echo("~ shared out by characters; all others are exact differences\n", err=True)


def _sum_shares(
    measured: "SessionContext", request: "RequestContext"
) -> dict[tuple[str, str], tuple[int, bool]]:
    """Return the tokens of each part, and whether all of them are exact; context is one part."""
    sums: dict[tuple[str, str], tuple[int, bool]] = {}
    for part in measured.list_shares(request):
        key = (part.kind, part.name if part.kind != "context" else "all kinds")
        tokens, exact = sums.get(key, (0, True))
        sums[key] = (tokens + part.tokens, exact and part.exact)
    return sums


def _print_blocks(archive: "Archive", blocks: "Iterable[ContextBlock]") -> None:
    from flightlog.model.addresses import parse_address, unique_prefixes

    names = unique_prefixes(archive.recordings)
    rows = [
        [
            block.address.replace(session := parse_address(block.address).session, names[session]),
            one_line(block.label, 60),
            f"{'' if block.exact else '~'}{block.tokens:,}",
            f"{block.times_read:,}",
            _format_extra(block.carrying_cost_usd),
        ]
        for block in blocks
        if block.times_read
    ]
    if rows:
        print_table(["address", "block", "tokens", "read again", "cost"], rows, right=(2, 3, 4))
        click.echo(spell_hint(f"open a block: {_open_command(archive)} '{rows[0][0]}'"), err=True)
    else:
        click.echo("no block was read again", err=True)


def _open_command(archive: "Archive") -> str:
    """Return the command that opens a step; a run's session is in no archive with an index."""
    return "flightlog session show" if archive.index_path else "flightlog trace"


def print_findings(session: str, options: dict[str, Any]) -> None:
    """Print the findings of a session, or of all that `options` selects."""
    from flightlog.analysis.service import analyze_session, list_findings
    from flightlog.model.addresses import parse_address, short_address, unique_prefixes

    archive, session = _open_session(open_runtime(), session)
    if session:
        if any(options[name] for name in ("since", "until", "project", "agent")):
            hint = f"flightlog session findings {session}"
            raise Invalid("--since, --until, --project and --agent select sessions", hint=hint)
        found = list(analyze_session(archive, parse_address(session).session).findings)
    else:
        start, end = read_range(options["since"], options["until"])
        analyses = _analyze_sessions(archive, start)
        own = [one for one in analyses if options["agent"] in {"", one.agent}]
        timely = [one for one in own if start <= (one.ended_ms or 0) < end]
        found = list_findings(one for one in timely if options["project"] in one.project)
    if options["as_json"]:
        print_json({"findings": found})
        return
    shown = found[: options["limit"]] if options["limit"] else found
    names = unique_prefixes(archive.recordings)
    rows = []
    for finding in shown:
        begins = names[parse_address(finding.address).session] + short_address(finding.address)
        rows.append([_format_extra(finding.cost_usd), finding.kind, begins, finding.title])
    if rows:
        print_table(["cost", "kind", "begins at", "what happened"], rows, right=(0,))
        click.echo(spell_hint(f"see a step: {_open_command(archive)} '{rows[0][2]}'"), err=True)
    else:
        click.echo("no findings", err=True)
    if len(shown) < len(found):
        print_more(len(found) - len(shown))
