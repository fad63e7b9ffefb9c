"""What is wrong with running sessions, so that somebody can report it. Pure; a warning is no incident."""

from collections.abc import Iterator, Sequence
from typing import Final

from flightlog.live.state import RuntimeSession
from flightlog.model.damage import Incident, IncidentKind

ROOM: Final = "live"
_SECRETS = "Secrets detected"


def find_incidents(sessions: Sequence[RuntimeSession], broken: str, now_ms: int) -> Iterator[Incident]:
    """Yield each session whose health is critical, and a state file that cannot be read."""
    for each in sessions:
        if each.health.status == "critical":
            kind: IncidentKind = "secret" if _SECRETS in each.health.issues else "session health"
            yield Incident(kind, now_ms, ROOM, (each.session_id,), {"issues": len(each.health.issues)})
    if broken:
        yield Incident("corrupt state", now_ms, ROOM, ("runtime-state.yaml",))
