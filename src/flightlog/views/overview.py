"""The first screen: true things about somebody's sessions, each with its next command."""

import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import tzinfo

from msgspec import Struct

from flightlog.model.text import counted, one_line
from flightlog.model.usage import DAY_MS, Cost, Usage, format_cost
from flightlog.views.session.outline import SessionSummary, TurnCost
from flightlog.views.story import moment

CENT_FRACTION = 0.00005
PROJECT_WIDTH = 500


class Doomed(Struct, frozen=True):
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
    doomed: tuple[Doomed, ...]
    keep_days: int
    unknown_records: int
    damaged: int
    sample: bool
    holding_secrets: tuple[str, ...] = ()
    archived: int = 0
    damaged_sessions: tuple[str, ...] = ()


def doomed(summaries: Sequence[SessionSummary], keep_days: int, now_ms: int, within_days: int) -> tuple[Doomed, ...]:
    """Find the sessions that will be deleted within so many days, the first one first."""
    until = now_ms + within_days * DAY_MS
    found = [
        Doomed(told.session, told.title, told.changed_ms + keep_days * DAY_MS)
        for told in summaries
        if told.changed_ms + keep_days * DAY_MS <= until
    ]
    return tuple(sorted(found, key=lambda each: (each.deleted_ms, each.session)))


def busiest(summaries: Sequence[SessionSummary], most: int) -> tuple[ProjectShare, ...]:
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


def dearest(summaries: Sequence[SessionSummary]) -> TurnCost | None:
    """The one prompt that cost most."""
    told = [summary.dearest for summary in summaries if summary.dearest is not None]
    return max(told, key=lambda each: (each.cost.usd or 0.0, each.steps, each.address), default=None)


class Fact(Struct, frozen=True):
    """One true thing, and the command that shows more of it."""

    text: str
    next: str


def facts(told: Overview, zone: tzinfo) -> Iterator[Fact]:
    """Say it in words, the widest view first."""
    flightlog = "flightlog --samples" if told.sample else "flightlog"
    span = f"{moment(told.first_ms, zone, '%Y-%m-%d')} to {moment(told.last_ms, zone, '%Y-%m-%d')}"
    counts = (counted(told.sessions, "session"), counted(told.projects, "project"), counted(told.turns, "turn"))
    yield Fact(f"{counts[0]} in {counts[1]}, {counts[2]}, {span}", f"{flightlog} session list")
    cost = f"{format_cost(told.cost)} for {told.usage.total:,} tokens"
    yield Fact(f"they cost {cost}, each response counted once", f"{flightlog} session usage")
    if abs(told.unrecorded_usd) >= CENT_FRACTION:
        more = f"${abs(told.unrecorded_usd):,.4f} {'more' if told.unrecorded_usd > 0 else 'less'} than is on record"
        yield Fact(
            f"the clients counted {more}; each difference has a reason", f"{flightlog} session usage --by session"
        )
    if told.dearest is not None:
        price = f"{counted(told.dearest.steps, 'step')}, {format_cost(told.dearest.cost)}"
        yield Fact(
            f"dearest prompt: {told.dearest.prompt!r}, {price}",
            f"{flightlog} session show {shlex.quote(told.dearest.address)}",
        )
    for share in told.busiest:
        work = f"{counted(share.sessions, 'session')}, {counted(share.turns, 'turn')}, ${share.cost_usd:,.2f}"
        name = one_line(share.project, PROJECT_WIDTH)
        yield Fact(f"{name}: {work}", f"{flightlog} session list --project {shlex.quote(name)}")
    if told.archived:
        yield Fact(f"{counted(told.archived, 'session')} archived (original deleted)", "flightlog status")
    if told.damaged_sessions:
        count = counted(len(told.damaged_sessions), "session")
        yield Fact(f"{count} damaged, {told.damaged_sessions[0]} first", "flightlog doctor --verify")
    yield _keeping(told, zone)
    if told.holding_secrets:
        count = counted(len(told.holding_secrets), "session")
        verb = "holds" if len(told.holding_secrets) == 1 else "hold"
        yield Fact(
            f"{count} {verb} what looks like secrets", f"flightlog privacy scan {told.holding_secrets[0]} --secrets"
        )
    if told.unknown_records or told.damaged:
        yield Fact(
            f"{told.unknown_records:,} records of unknown type, {told.damaged:,} damaged spans", "flightlog doctor"
        )


def _keeping(told: Overview, zone: tzinfo) -> Fact:
    if told.sample:
        return Fact("see it work on a session made now", "flightlog demo")
    if not told.doomed:
        days = f"{told.keep_days}-day clean-up"
        return Fact(f"nothing is deleted within a week by Claude Code's {days}", "flightlog doctor")
    first = told.doomed[0]
    count = counted(len(told.doomed), "session")
    when = moment(first.deleted_ms, zone, "%Y-%m-%d")
    name = first.session
    return Fact(
        f"deleted within a week by Claude Code's {told.keep_days}-day rule: {count}, first {first.title!r}, {when}",
        f"flightlog session export {name} --format html --output {name}.html",
    )
