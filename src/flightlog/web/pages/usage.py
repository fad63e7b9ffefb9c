"""The usage and live pages."""

from typing import Any
from urllib.parse import urlencode

from aiohttp import web
from msgspec import Struct
from msgspec.structs import asdict, replace

from flightlog.agents import agent_label
from flightlog.live.dashboard import build_dashboard, format_countdown
from flightlog.live.dashboard_text import sparkline
from flightlog.live.observe import list_recent
from flightlog.live.service import read_last_states, watch_here
from flightlog.model.runtime import Runtime
from flightlog.model.text import TIME_MS_MAX, parse_since
from flightlog.model.usage import DAY_MS, Breakdown, UsageRow, format_cost
from flightlog.usage.price_table import PRICES_FROM
from flightlog.usage.report import UsageFilter, UsageReport
from flightlog.web.context import CONTEXT, NavSection, make_page
from flightlog.web.data import cost_order
from flightlog.web.pages.home import start_of_day_ms

TRUTHS_SHOWN = 200
_COUNTS_SHOWN = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
RANGES = {"7d": 7, "30d": 30, "90d": 90}  # days with today; without a range, all time
BREAKDOWNS = tuple(by for by in Breakdown if by is not Breakdown.MONTH)


def _live_context(request: web.Request) -> dict[str, Any]:
    context = request.app[CONTEXT]
    # Collecting writes runtime-state.yaml, so a read-only server shows the last state instead.
    lives = (
        read_last_states(context.runtime)
        if context.read_only
        else watch_here(context.runtime, secrets=False)
    )
    board = build_dashboard(lives, list_recent(context.runtime), context.runtime.clock.now_ms())
    return {
        "board": board,
        "hours": sparkline(board.hourly_costs),
        "titles": context.data.titles(),
        "countdown": format_countdown,
    }


LIVE_SECTION = NavSection(
    "Live",
    "/live",
    ("live",),
    (
        web.get("/live", make_page("live.html", _live_context)),
        web.get("/live/part", make_page("live_part.html", _live_context)),
    ),
)


class UsageChoice(Struct, frozen=True):
    """What a person chose on the usage page; empty is no limit."""

    since: str = ""
    until: str = ""
    project: str = ""
    model: str = ""
    agent: str = ""

    def link(self, **changes: str) -> str:
        """Return the query of the page with other choices."""
        chosen = asdict(self) | changes
        return urlencode({name: value for name, value in chosen.items() if value})

    def to_filter(self, runtime: Runtime) -> UsageFilter | None:
        """Return the filter, None for everything; raise `Invalid` for a time that is none."""
        since, until = 0, TIME_MS_MAX
        if self.since in RANGES:
            since = start_of_day_ms(runtime, RANGES[self.since] - 1)
        elif self.since:
            since = parse_since(self.since, runtime.clock.now_ms(), runtime.zone)
        if self.until:  # that day belongs to it
            until = parse_since(self.until, runtime.clock.now_ms(), runtime.zone) + DAY_MS
        only = UsageFilter(since, self.project, until, self.model)
        return None if only == UsageFilter() else only


def _usage_context(request: web.Request) -> dict[str, Any]:
    """Return tokens and cost of a time by day, session, agent, model, project and block."""
    context, names = request.app[CONTEXT], UsageChoice.__struct_fields__
    choice = UsageChoice(**{name: request.query.get(name, "")[:400].strip() for name in names})
    choice = replace(choice, since="") if choice.since == "all" else choice
    only = choice.to_filter(context.runtime)
    cached = context.data.usage_reports(BREAKDOWNS, only, choice.agent)
    by_agent = cached[Breakdown.AGENT]
    labeled = tuple(replace(row, key=agent_label(row.key)) for row in by_agent.rows)
    # One agent is no comparison: its row is the total.
    agents = labeled if len(labeled) > 1 else ()
    reports = {**cached, Breakdown.AGENT: replace(by_agent, rows=agents)}
    day, sessions = reports[Breakdown.DAY], reports[Breakdown.SESSION]
    return {
        "choice": choice,
        "ranges": RANGES,
        "total": day.total,
        "days": day.rows[::-1],
        "agents": _most_expensive_first(reports[Breakdown.AGENT]),
        "agent_keys": {agent_label(row.key): row.key for row in by_agent.rows},
        "models": _most_expensive_first(reports[Breakdown.MODEL]),
        "projects": _most_expensive_first(reports[Breakdown.PROJECT]),
        "sessions": sessions.rows,
        "sessions_more": sessions.total.sessions - len(sessions.rows),
        "summaries": {summary.session: summary for summary in context.data.listing().sessions},
        "blocks": reports[Breakdown.BLOCK].rows[::-1],
        **_reconciliation_values(day),
        "prices": PRICES_FROM,
        "damaged": day.damaged_lines,
        "zone": str(context.runtime.zone),
        "chart_data": {
            by.value: [_bar_values(row) for row in report.rows]
            for by, report in reports.items()
            if report.rows and by is not Breakdown.SESSION
        },
    }


def _reconciliation_values(report: UsageReport) -> dict[str, Any]:
    """Return the client's totals against the record, the largest differences first."""
    reconciliations = sorted(
        report.reconciliations,
        key=lambda reconciliation: (
            -abs(sum(gap.cost_usd or 0.0 for gap in reconciliation.gaps)),
            reconciliation.session,
        ),
    )
    shown = reconciliations[:TRUTHS_SHOWN]
    return {"reconciliations": shown, "reconciliations_more": len(reconciliations) - len(shown)}


def _most_expensive_first(report: UsageReport) -> list[UsageRow]:
    return sorted(report.rows, key=cost_order)


def _bar_values(row: UsageRow) -> dict[str, Any]:
    counts = asdict(row.usage)
    shown = {name: counts[name] for name in _COUNTS_SHOWN}
    return {"key": row.key, "cost_usd": row.cost.usd, "cost": format_cost(row.cost), **shown}


_show_usage = web.get("/usage", make_page("usage.html", _usage_context))
USAGE_SECTION = NavSection("Usage", "/usage", ("usage",), (_show_usage,))
