"""Which step each record of a session belongs to."""

from collections.abc import Iterator

from flightlog.model.address import Address
from flightlog.model.session import Session, Turn


def addresses(session: Session) -> dict[str, str]:
    """Map the ids of records to the addresses that open them."""
    found: dict[str, str] = {}
    threads = [("", session.turns), *((lane.id, lane.turns) for lane in session.lanes)]
    for lane, turns in threads:
        for turn in turns:
            for uuid, step in _records(turn):
                found.setdefault(uuid, str(Address(session.id, turn.number, step, lane)))
    return found


def _records(turn: Turn) -> Iterator[tuple[str, int]]:
    if turn.uuid:
        yield turn.uuid, 0
    for step in turn.steps:
        yield from ((uuid, step.number) for uuid in step.uuids)
        yield from ((call.result_uuid, step.number) for call in step.calls if call.result_uuid)
