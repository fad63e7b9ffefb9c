"""What is wrong with running sessions, so that somebody can report it. Pure; a warning is no incident."""

from collections.abc import Iterator, Sequence

from flightlog.live.state import RuntimeSession
from flightlog.model.damage import Incident

ROOM = "live"
_SECRETS = "Secrets detected"


def incidents(sessions: Sequence[RuntimeSession], broken: str, now_ms: int) -> Iterator[Incident]:
    """Yield each session whose health is critical, and a state file that cannot be read."""
    for each in sessions:
        if each.health.status == "critical":
            kind = "secret" if _SECRETS in each.health.issues else "session health"
            yield Incident(kind, now_ms, ROOM, "; ".join(each.health.issues), (each.session_id,))
    if broken:
        yield Incident("corrupt state", now_ms, ROOM, f"runtime-state.yaml cannot be read: {broken}")
