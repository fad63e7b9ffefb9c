"""What went wrong in a run, told from its journal, so that somebody can report it. Pure.

A verifier that says no is a result, not an incident.
"""

from collections.abc import Iterator
from datetime import datetime

from flightlog.lab.state import State
from flightlog.model.damage import Incident

ROOM = "lab"
WRONG = frozenset({"error", "timeout", "auth_error"})


def incidents(run: str, state: State) -> Iterator[Incident]:
    """Yield sessions that failed, commands that failed and lines of the journal that cannot be read."""
    for session, tries in state.attempts.items():
        for each in tries:
            if each.ended is not None and each.stop_reason in WRONG:
                text = f"a session stopped with {each.stop_reason}: {each.ended.error or 'no reason given'}"
                yield Incident("failed run", _ms(each.finished_at), ROOM, text, (f"{run}/{session}", each.session_id))
    for command in state.commands:
        if command.exit_code != 0:
            text = f"a {command.phase} command ended with {command.exit_code}: {command.output[-400:]}"
            evidence = (f"{run}/{command.phase}-{command.number}",)
            yield Incident("failed command", _ms(state.finished_at or state.started_at), ROOM, text, evidence)
    for damage in state.damage:
        text = f"{damage.length} bytes of the journal cannot be read: {damage.why}"
        yield Incident("damaged journal", _ms(state.started_at), ROOM, text, (f"{run}:{damage.offset}",))


def _ms(written: str) -> int:
    return int(datetime.fromisoformat(written).timestamp() * 1000) if written else 0
