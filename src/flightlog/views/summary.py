"""A session in a few facts: what a list shows and what the first screen is made of."""

from collections import Counter
from collections.abc import Iterable, Iterator

from msgspec import Struct

from flightlog.model.events import PromptKind
from flightlog.model.session import Lane, Session, Step, Turn
from flightlog.model.text import one_line
from flightlog.model.usage import Cost, Usage, sum_costs

PROMPT_WIDTH = 100


class TurnCost(Struct, frozen=True):
    """What one prompt led to."""

    address: str
    prompt: str
    steps: int
    cost: Cost


class SessionSummary(Struct, frozen=True):
    """One line of a list."""

    session: str
    agent: str
    title: str
    project: str
    branch: str
    version: str
    started_ms: int | None
    ended_ms: int | None
    turns: int
    steps: int
    tool_calls: int
    failed_calls: int
    subagents: int
    models: tuple[str, ...]
    usage: Usage
    cost: Cost
    dearest: TurnCost | None
    compactions: int = 0
    unknown_records: int = 0
    damaged: int = 0
    changed_ms: int = 0


def summarise(session: Session, changed_ms: int = 0) -> SessionSummary:
    """Reduce `session` to a line."""
    steps = list(all_steps(session))
    calls = [call for step in steps for call in step.calls]
    notes = Counter(item.kind.value for turn in session.turns for item in turn.items if not isinstance(item, Step))
    return SessionSummary(
        session=session.id,
        agent=session.agent,
        title=session.heading,
        project=session.cwd,
        branch=session.branch,
        version=session.version,
        started_ms=session.started_ms,
        ended_ms=session.ended_ms,
        turns=sum(1 for turn in session.turns if turn.kind is not None),
        steps=len(steps),
        tool_calls=len(calls),
        failed_calls=sum(call.is_error for call in calls),
        subagents=sum(not lane.warmup for lane in session.lanes),
        models=tuple(sorted({step.model for step in steps})),
        usage=sum((step.usage for step in steps), Usage()),
        cost=sum_costs(step.cost for step in steps),
        dearest=dearest(session),
        compactions=notes["compaction"],
        unknown_records=sum(count for _, count in session.unknown),
        damaged=len(session.damage),
        changed_ms=changed_ms,
    )


def all_steps(session: Session) -> Iterator[Step]:
    """Every step, subagents included."""
    for turn in _all_turns(session):
        yield from turn.steps


def turn_steps(session: Session, turn: Turn) -> Iterator[Step]:
    """The steps of a turn and of the subagents it started."""
    lanes = {lane.call_id: lane for lane in session.lanes if lane.call_id}
    yield from _with_lanes(turn.steps, lanes, set())


def dearest(session: Session) -> TurnCost | None:
    """The prompt of a person that cost most, with all that it set in motion."""
    costs = []
    for turn in session.turns:
        steps = list(turn_steps(session, turn))
        if turn.kind in {PromptKind.HUMAN, PromptKind.COMMAND} and steps:
            address = f"{session.id}#{turn.number}"
            costs.append(
                TurnCost(address, one_line(turn.text, PROMPT_WIDTH), len(steps), sum_costs(s.cost for s in steps))
            )
    return max(costs, key=lambda told: (told.cost.usd or 0.0, told.steps), default=None)


def _with_lanes(steps: Iterable[Step], lanes: dict[str, Lane], seen: set[str]) -> Iterator[Step]:
    for step in steps:
        yield step
        for call in step.calls:
            lane = lanes.get(call.id)
            if lane is not None and lane.id not in seen:
                seen.add(lane.id)
                yield from _with_lanes((inner for turn in lane.turns for inner in turn.steps), lanes, seen)


def _all_turns(session: Session) -> Iterator[Turn]:
    yield from session.turns
    for lane in session.lanes:
        yield from lane.turns
