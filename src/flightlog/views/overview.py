"""The first screen: true things about somebody's sessions, each with its next command."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from msgspec import Struct

from flightlog.model.usage import Cost, Usage
from flightlog.views.summary import SessionSummary, TurnCost

DAY_MS = 86_400_000


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
