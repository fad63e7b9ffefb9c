"""Which sessions a configuration means, and what each waits for.

    isolated   a new conversation each time, in the work tree the one before left
    chained    each goes on with the conversation and the tree of the one before
    forked     each goes on from session 1, conversation and tree, whatever its siblings did
    fork_from  the same from any earlier session, in every mode

Replicates (`count`) start from the same place; where something follows, it follows the first. More
may be added when the run is over: nothing follows those, and they leave the work directory alone.
Pure: it knows no run, only what one is to be.
"""

from collections.abc import Collection, Iterator, Mapping

from msgspec import Struct

from flightlog.lab.config import RunConfig, SessionConfig


class PlannedSession(Struct, frozen=True):
    """One session to run: its directory's name, and the sessions it continues in words and in files."""

    name: str
    index: int
    replicate: int
    count: int
    parent: str = ""
    tree_of: str = ""
    added: bool = False

    @property
    def required_sessions(self) -> frozenset[str]:
        """The sessions that must be finished first."""
        return frozenset({self.parent, self.tree_of} - {""})


def plan_sessions(config: RunConfig, added: Mapping[int, int] | None = None) -> tuple[PlannedSession, ...]:
    """List every session of a run, in order; `added` are more replicates, by the session's index."""
    more = added or {}
    return tuple(
        each
        for session in config.sessions
        for each in _plan_replicates(config, session, more.get(session.session_index, 0))
    )


def ready_sessions(
    planned: Collection[PlannedSession], done: Collection[str], left: Collection[str]
) -> list[PlannedSession]:
    """The sessions among `left` that wait for nothing any more."""
    return [each for each in planned if each.name in left and each.required_sessions <= set(done)]


def session_dir_name(index: int, replicate: int = 0) -> str:
    """Name a session's directory; replicate 0 is a session that has none."""
    return f"session_{index:02d}" + (f"_r{replicate:02d}" if replicate else "")


def final_session(planned: Collection[PlannedSession]) -> PlannedSession:
    """The session whose tree is the run's: the last one, its first replicate."""
    last = max(each.index for each in planned)
    return next(each for each in planned if each.index == last)


def _plan_replicates(config: RunConfig, session: SessionConfig, added: int) -> Iterator[PlannedSession]:
    before = session.session_index - 1
    forked = session.fork_from or (1 if config.session_mode == "forked" and before else None)
    chained = before if config.session_mode == "chained" else 0
    parent = _first_dir_name(config, forked or chained)
    tree_of = _first_dir_name(config, forked or before)
    for number in range(1, session.count + 1):
        replicate = number if session.count > 1 else 0
        name = session_dir_name(session.session_index, replicate)
        yield PlannedSession(name, session.session_index, replicate, session.count + added, parent, tree_of)
    last = session.count if session.count > 1 else 0
    for number in range(last + 1, last + added + 1):
        name = session_dir_name(session.session_index, number)
        yield PlannedSession(name, session.session_index, number, session.count + added, parent, tree_of, added=True)


def _first_dir_name(config: RunConfig, index: int) -> str:
    """The directory of a session that others follow; nothing for session 0."""
    return session_dir_name(index, 1 if config.sessions[index - 1].count > 1 else 0) if index else ""
