"""The answers at the top of the home page, and the page that lists what is below More."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from aiohttp import web
from msgspec import Struct

from flightlog.agents.claude_code.files import find_config_dirs
from flightlog.agents.claude_code.hooks import keep_days
from flightlog.analysis.service import list_findings
from flightlog.model.runtime import Runtime
from flightlog.model.session import DEFAULT_AGENT
from flightlog.model.usage import Breakdown, Cost, CostSource, sum_costs
from flightlog.store.recordings.adoption import list_recorded_sessions
from flightlog.usage.report import UsageFilter
from flightlog.views.overview import ExpiringSession, find_expiring_sessions
from flightlog.views.session.outline import SessionSummary, TurnCost
from flightlog.web.context import ACTIVE_MS, CONTEXT, NavSection, WebContext, make_page

WEEK_DAYS = 7
SHOWN = 3  # prompts, findings and running sessions of one card


class DayCost(Struct, frozen=True):
    """The cost of one day, and its part of the most expensive day's."""

    day: str
    cost: Cost
    share: float


class WeekUsage(Struct, frozen=True):
    """The cost of the last seven days, of the seven before, and of each of the fourteen."""

    cost: Cost
    before: Cost
    days: tuple[DayCost, ...]

    @property
    def trend(self) -> str:
        """Return the change in words, or "" where there is nothing to compare with."""
        if not self.cost.usd or not self.before.usd:
            return ""
        percent = round(100 * (self.cost.usd / self.before.usd - 1))
        return f"{abs(percent)} % {'more' if percent >= 0 else 'less'} than the 7 days before"


async def show_findings_part(request: web.Request) -> web.StreamResponse:
    """Show the most expensive findings of the week; new sessions are analyzed for it."""
    context = request.app[CONTEXT]
    work = partial(finding_values, context, WEEK_DAYS, SHOWN)
    values = await context.slow.wait_for("home findings", work)
    return await context.render_response("home_findings.html", **(values or {"analyzed": None}))


def start_of_day_ms(runtime: Runtime, days_ago: int) -> int:
    """Return when the day began that many days ago, in the runtime's zone."""
    day = _today(runtime) - timedelta(days=days_ago)
    return int(datetime.combine(day, datetime.min.time(), runtime.zone).timestamp() * 1000)


def _today(runtime: Runtime) -> date:
    now = datetime.fromtimestamp(runtime.clock.now_ms() / 1000, tz=UTC)
    return now.astimezone(runtime.zone).date()


def measure_week(context: WebContext) -> WeekUsage:
    """Return the usage of the last 14 days."""
    runtime, today = context.runtime, _today(context.runtime)
    only = UsageFilter(start_of_day_ms(runtime, 2 * WEEK_DAYS - 1))
    report = context.data.usage_reports((Breakdown.DAY,), only)[Breakdown.DAY]
    costs = {row.key: row.cost for row in report.rows}
    days = [(today - timedelta(days=ago)).isoformat() for ago in range(2 * WEEK_DAYS)][::-1]
    most = max((costs[day].usd or 0.0 for day in days if day in costs), default=0.0) or 1.0
    parts = [costs[day] for day in days[WEEK_DAYS:] if day in costs]
    before = [costs[day] for day in days[:WEEK_DAYS] if day in costs]
    nothing = Cost(0.0, CostSource.TABLE)
    spent = [(day, costs.get(day, nothing)) for day in days]
    return WeekUsage(
        sum_costs(parts) if parts else nothing,
        sum_costs(before) if before else nothing,
        tuple(DayCost(day, cost, (cost.usd or 0.0) / most) for day, cost in spent),
    )


def _home_values(request: web.Request) -> dict[str, Any]:
    """Return what was spent, what runs, and what will be deleted."""
    context = request.app[CONTEXT]
    now_ms = context.runtime.clock.now_ms()
    listing = context.data.listing()
    sessions = [summary for summary in listing.sessions if not summary.is_empty]
    week_ms = start_of_day_ms(context.runtime, WEEK_DAYS - 1)
    recent = [summary for summary in sessions if (summary.ended_ms or 0) >= week_ms]
    days, expiring = _find_expiring(context, sessions, now_ms)
    recorded, _ = list_recorded_sessions(context.runtime.data_dir, DEFAULT_AGENT)
    return {
        "week": measure_week(context),
        "recent": len(recent),
        "prompts": _most_expensive(recent or sessions),
        "is_this_week": bool(recent),
        "running": [
            summary for summary in sessions if now_ms - (summary.ended_ms or 0) < ACTIVE_MS
        ],
        "expiring": expiring,
        "unarchived": [session for session in expiring if session.session not in recorded],
        "keep_days": days,
        "pending": listing.pending,
        "shown": SHOWN,
    }


def _most_expensive(summaries: Sequence[SessionSummary]) -> list[TurnCost]:
    prompts = [one.most_expensive_prompt for one in summaries if one.most_expensive_prompt]
    return sorted(prompts, key=lambda prompt: -(prompt.cost_usd or 0.0))[:SHOWN]


def _find_expiring(
    context: WebContext, summaries: Sequence[SessionSummary], now_ms: int
) -> tuple[int, tuple[ExpiringSession, ...]]:
    """Return after how many days Claude Code deletes sessions, and those that go within a week."""
    runtime = context.runtime
    days = min((keep_days(Path(path)) for path in find_config_dirs(runtime)), default=0)
    recordings = context.data.current_archive().recordings
    # What is only in our own directory was deleted before.
    current = [
        summary
        for summary in summaries
        if summary.agent == DEFAULT_AGENT
        and (recording := recordings.get(summary.session))
        and any(not file.path.startswith(runtime.data_dir) for file in recording.files)
    ]
    return days, find_expiring_sessions(current, days, now_ms, WEEK_DAYS)


def finding_values(context: WebContext, days: int, shown: int) -> dict[str, Any]:
    """Return the most expensive findings of the last days, of all time if `days` is 0."""
    since_ms = start_of_day_ms(context.runtime, days - 1) if days else 0
    analyses = context.data.analyses(since_ms)
    findings = list_findings(analyses)
    return {
        "findings": findings[:shown],
        "total": len(findings),
        "sessions": sum(bool(analysis.findings) for analysis in analyses),
        "analyzed": len(analyses),
        "titles": context.data.titles(),
    }


MORE_SECTION = NavSection(
    "More",
    "/more",
    ("more",),
    (
        web.get("/more", make_page("more.html")),
        web.get("/home", make_page("home.html", _home_values)),
        web.get("/home/findings", show_findings_part),
    ),
)
