"""Facts for the first screen; session health.

Counts what the record shows; it does not know whether the work was any good. A session with
nothing to count is quiet, not healthy.
"""

import enum
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import tzinfo

from msgspec import Struct

from flightlog.model.text import one_line, pluralize
from flightlog.model.usage import DAY_MS, Cost, Usage, format_cost
from flightlog.views.session.outline import SessionSummary, TurnCost
from flightlog.views.transcript import format_timestamp

FAILED_SHARE_BAD = 0.25
FAILED_CALLS_BAD = 3
CENT_FRACTION = 0.00005
PROJECT_WIDTH = 500


class HealthLevel(enum.Enum):
    """From nothing to remark to something wrong."""

    QUIET = "quiet"
    GOOD = "good"
    LOOK = "look"
    BAD = "bad"


class HealthSummary(Struct, frozen=True):
    """A word, and why."""

    level: HealthLevel
    reasons: tuple[str, ...]


def judge_health(told: SessionSummary) -> HealthSummary:
    """Judge a session by its summary."""
    bad: list[str] = []
    look: list[str] = []
    if told.damaged:
        bad.append(f"{told.damaged:,} damaged {'span' if told.damaged == 1 else 'spans'} in the recording")
    if told.failed_calls:
        said = f"{told.failed_calls:,} of {told.tool_calls:,} tool calls failed"
        often = told.failed_calls >= max(FAILED_CALLS_BAD, FAILED_SHARE_BAD * told.tool_calls)
        (bad if often else look).append(said)
    if told.compactions:
        look.append(f"context compacted {told.compactions:,} {'time' if told.compactions == 1 else 'times'}")
    if told.unknown_records:
        look.append(f"{told.unknown_records:,} records of unknown type")
    if told.cost.usd is None and told.steps:
        look.append("no price known for its model")
    level = (
        HealthLevel.BAD if bad else HealthLevel.LOOK if look else HealthLevel.GOOD if told.steps else HealthLevel.QUIET
    )
    return HealthSummary(level, (*bad, *look) or (("no model response on record",) if not told.steps else ()))


class ExpiringSession(Struct, frozen=True):
    """A session the agent's own clean-up will delete, and when."""

    session: str
    title: str
    deleted_ms: int


class ProjectShare(Struct, frozen=True):
    """A project and how much of the work was done there."""

    project: str
    sessions: int
    turns: int
    cost_usd: float


class Overview(Struct, frozen=True):
    """What there is to say at a glance."""

    sessions: int
    projects: int
    turns: int
    usage: Usage
    cost: Cost
    unrecorded_usd: float
    first_ms: int | None
    last_ms: int | None
    dearest: TurnCost | None
    busiest: tuple[ProjectShare, ...]
    doomed: tuple[ExpiringSession, ...]
    keep_days: int
    unknown_records: int
    damaged: int
    sample: bool
    holding_secrets: tuple[str, ...] = ()
    archived: int = 0
    damaged_sessions: tuple[str, ...] = ()


def find_expiring_sessions(
    summaries: Sequence[SessionSummary], keep_days: int, now_ms: int, within_days: int
) -> tuple[ExpiringSession, ...]:
    """Find the sessions that will be deleted within so many days, the first one first."""
    until = now_ms + within_days * DAY_MS
    found = [
        ExpiringSession(told.session, told.title, told.changed_ms + keep_days * DAY_MS)
        for told in summaries
        if told.changed_ms + keep_days * DAY_MS <= until
    ]
    return tuple(sorted(found, key=lambda each: (each.deleted_ms, each.session)))


def rank_projects(summaries: Sequence[SessionSummary], most: int) -> tuple[ProjectShare, ...]:
    """Rank projects by turns, then by cost."""
    sessions: Counter[str] = Counter()
    turns: Counter[str] = Counter()
    costs: dict[str, float] = defaultdict(float)
    for told in summaries:
        sessions[told.project] += 1
        turns[told.project] += told.turns
        costs[told.project] += told.cost.usd or 0.0
    shares = [ProjectShare(name, sessions[name], turns[name], costs[name]) for name in sessions if name]
    return tuple(sorted(shares, key=lambda share: (-share.turns, -share.cost_usd, share.project))[:most])


def most_expensive_prompt(summaries: Sequence[SessionSummary]) -> TurnCost | None:
    """The one prompt that cost most."""
    told = [summary.dearest for summary in summaries if summary.dearest is not None]
    return max(told, key=lambda each: (each.cost.usd or 0.0, each.steps, each.address), default=None)


class OverviewFact(Struct, frozen=True):
    """One true thing, and the command that shows more of it."""

    text: str
    next: str


def iter_facts(told: Overview, zone: tzinfo) -> Iterator[OverviewFact]:
    """Say it in words, the widest view first."""
    flightlog = "flightlog --samples" if told.sample else "flightlog"
    span = f"{format_timestamp(told.first_ms, zone, '%Y-%m-%d')} to {format_timestamp(told.last_ms, zone, '%Y-%m-%d')}"
    counts = (pluralize(told.sessions, "session"), pluralize(told.projects, "project"), pluralize(told.turns, "turn"))
    yield OverviewFact(f"{counts[0]} in {counts[1]}, {counts[2]}, {span}", f"{flightlog} session list")
    cost = f"{format_cost(told.cost)} for {told.usage.total:,} tokens"
    yield OverviewFact(f"they cost {cost}, each response counted once", f"{flightlog} session usage")
    if abs(told.unrecorded_usd) >= CENT_FRACTION:
        more = f"${abs(told.unrecorded_usd):,.4f} {'more' if told.unrecorded_usd > 0 else 'less'} than is on record"
        yield OverviewFact(
            f"the clients counted {more}; each difference has a reason", f"{flightlog} session usage --by session"
        )
    if told.dearest is not None:
        price = f"{pluralize(told.dearest.steps, 'step')}, {format_cost(told.dearest.cost)}"
        yield OverviewFact(
            f"dearest prompt: {told.dearest.prompt!r}, {price}",
            f"{flightlog} session show {shlex.quote(told.dearest.address)}",
        )
    for share in told.busiest:
        work = f"{pluralize(share.sessions, 'session')}, {pluralize(share.turns, 'turn')}, ${share.cost_usd:,.2f}"
        name = one_line(share.project, PROJECT_WIDTH)
        yield OverviewFact(f"{name}: {work}", f"{flightlog} session list --project {shlex.quote(name)}")
    if told.archived:
        yield OverviewFact(f"{pluralize(told.archived, 'session')} archived (original deleted)", "flightlog status")
    if told.damaged_sessions:
        count = pluralize(len(told.damaged_sessions), "session")
        yield OverviewFact(f"{count} damaged, {told.damaged_sessions[0]} first", "flightlog doctor --verify")
    yield _retention_fact(told, zone)
    if told.holding_secrets:
        count = pluralize(len(told.holding_secrets), "session")
        verb = "holds" if len(told.holding_secrets) == 1 else "hold"
        yield OverviewFact(
            f"{count} {verb} what looks like secrets", f"flightlog privacy scan {told.holding_secrets[0]} --secrets"
        )
    if told.unknown_records or told.damaged:
        yield OverviewFact(
            f"{told.unknown_records:,} records of unknown type, {told.damaged:,} damaged spans", "flightlog doctor"
        )


def _retention_fact(told: Overview, zone: tzinfo) -> OverviewFact:
    if told.sample:
        return OverviewFact("see it work on a session made now", "flightlog demo")
    if not told.doomed:
        days = f"{told.keep_days}-day clean-up"
        return OverviewFact(f"nothing is deleted within a week by Claude Code's {days}", "flightlog doctor")
    first = told.doomed[0]
    count = pluralize(len(told.doomed), "session")
    when = format_timestamp(first.deleted_ms, zone, "%Y-%m-%d")
    name = first.session
    return OverviewFact(
        f"deleted within a week by Claude Code's {told.keep_days}-day rule: {count}, first {first.title!r}, {when}",
        f"flightlog session export {name} --format html --output {name}.html",
    )
