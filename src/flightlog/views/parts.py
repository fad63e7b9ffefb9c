"""Finding the part of a session that an address names."""

from flightlog.model.address import Address
from flightlog.model.errors import Invalid, NotFound
from flightlog.model.session import Lane, Session, Step, Turn


def part_at(session: Session, at: Address) -> Session | Lane | Turn | Step:
    """Return whatever the address names."""
    if at.step:
        return step_at(session, at)
    if at.turn:
        return turn_at(session, at)
    return lane_at(session, at) or session


def lane_at(session: Session, at: Address) -> Lane | None:
    """Return the subagent the address is in; None is the main thread."""
    if not at.lane:
        return None
    begin = [lane for lane in session.lanes if lane.id.startswith(at.lane)]
    named = [lane for lane in begin if lane.id == at.lane] or begin
    if not named:
        raise NotFound(f"no subagent {at.lane!r} in {session.id}", hint=f"flightlog session show {session.id}")
    if len(named) > 1:
        some = ", ".join(lane.id for lane in named[:5])
        raise Invalid(f"{len(named)} subagents begin with {at.lane!r}", hint=f"write more of it: {some}")
    return named[0]


def turn_at(session: Session, at: Address) -> Turn:
    """Return the turn the address is in."""
    lane = lane_at(session, at)
    turns = lane.turns if lane else session.turns
    turn = next((turn for turn in turns if turn.number == at.turn), None)
    if turn is None:
        raise NotFound(
            f"no turn {at.turn} in {session.id}; it has {len(turns)}", hint=f"flightlog session show {session.id}"
        )
    return turn


def step_at(session: Session, at: Address) -> Step:
    """Return the step the address names."""
    turn = turn_at(session, at)
    step = next((step for step in turn.steps if step.number == at.step), None)
    if step is None:
        raise NotFound(
            f"no step {at.step} in turn {at.turn}; it has {len(turn.steps)}",
            hint=f"flightlog session show '{Address(session.id, at.turn, lane=at.lane)}'",
        )
    return step
