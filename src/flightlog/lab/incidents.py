"""What went wrong in a run, told from its journal, so that somebody can report it. Pure.

A verifier that says no is a result, not an incident.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from flightlog.lab.state import RunState
from flightlog.model.damage import Incident

ROOM: Final = "lab"
WRONG = frozenset({"error", "timeout", "auth_error"})


def find_incidents(run: str, state: RunState) -> Iterator[Incident]:
    """Yield sessions that failed, commands that failed and lines of the journal that cannot be read."""
    for session, tries in state.attempts.items():
        for each in tries:
            if each.ended is not None and each.stop_reason in WRONG:
                yield Incident("failed run", _parse_ms(each.finished_at), ROOM, (f"{run}/{session}", each.session_id))
    for command in state.commands:
        if command.exit_code != 0:
            at_ms = _parse_ms(state.finished_at or state.started_at)
            place = f"{run}/{command.phase}-{command.number}"
            yield Incident("failed command", at_ms, ROOM, (place,), {"exit code": command.exit_code})
    for damage in state.damage:
        place = f"{run}:{damage.offset}"
        yield Incident("damaged journal", _parse_ms(state.started_at), ROOM, (place,), {"bytes": damage.length})


def _parse_ms(written: str) -> int:
    return int(datetime.fromisoformat(written).timestamp() * 1000) if written else 0
