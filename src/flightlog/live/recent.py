"""Recent sessions of agents without hooks: known by their records alone, so not said to run."""

from msgspec import Struct

from flightlog.agents.recordings import find_agent_dirs
from flightlog.archive.archive import Archive
from flightlog.live.health import LIVE_MS
from flightlog.model.runtime import Runtime
from flightlog.model.session import DEFAULT_AGENT


class RecentSession(Struct, frozen=True):
    """A session with a record of the last hour; whether its agent still runs is not known."""

    session: str
    agent: str
    project: str
    last_record_ms: int


def list_recent(runtime: Runtime) -> list[RecentSession]:
    """Return the sessions of other agents than Claude Code with a new record, newest first."""
    dirs = {
        name: paths for name, paths in find_agent_dirs(runtime).items() if name != DEFAULT_AGENT
    }
    archive, since_ms = Archive(dirs), runtime.clock.now_ms() - LIVE_MS
    recent = []
    for recording in archive.recordings.values():
        if recording.changed_ms > since_ms:
            last_ms = archive.last_record_ms(recording)
            if last_ms > since_ms:
                cwd = archive.first_cwd(recording)
                recent.append(RecentSession(recording.session, recording.agent, cwd, last_ms))
    return sorted(recent, key=lambda session: (-session.last_record_ms, session.session))
