"""How a run stands, folded from its journal.

Pure. A session is pending, running (or was, when its process died), ended, or skipped; every
attempt stays on record. What was spent counts whatever became of the session.
"""

from collections.abc import Iterable
from typing import assert_never

from msgspec import Struct, field

from flightlog.lab import events as lab
from flightlog.model.damage import Damage
from flightlog.store.journal import Record, Unrecognised

_OfSession = (
    lab.SessionStarted
    | lab.AgentStarted
    | lab.Saved
    | lab.Spent
    | lab.SessionEnded
    | lab.SessionCounted
    | lab.Certified
    | lab.Verified
)


class Attempt(Struct):
    """One try at one session."""

    session: str
    number: int
    session_id: str
    tree: str
    started_at: str
    parent: str = ""
    parent_id: str = ""
    private: bool = False
    process: str = ""
    saved: list[lab.Saved] = field(default_factory=list)
    spent_usd: float = 0.0
    ended: lab.SessionEnded | None = None
    counted: lab.SessionCounted | None = None
    finished_at: str = ""
    certificate: lab.Certified | None = None
    verified: list[lab.Verified] = field(default_factory=list)

    @property
    def stop_reason(self) -> str:
        """Why it stopped, or nothing while it runs."""
        return self.ended.stop_reason if self.ended else ""


class State(Struct):
    """A run as its journal tells it."""

    started: lab.RunStarted | None = None
    started_at: str = ""
    finished_at: str = ""
    taken: int = 0
    process: str = ""
    baseline: lab.BaselineTaken | None = None
    branch: lab.Branched | None = None
    commands: list[lab.CommandRan] = field(default_factory=list)
    attempts: dict[str, list[Attempt]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    added: dict[int, int] = field(default_factory=dict)
    resampled: dict[str, lab.Resampled] = field(default_factory=dict)
    tree: str = ""
    ended: lab.RunEnded | None = None
    damage: list[Damage] = field(default_factory=list)
    unrecognised: int = 0

    def last(self, session: str) -> Attempt | None:
        """The latest attempt at a session."""
        return self.attempts[session][-1] if self.attempts.get(session) else None

    @property
    def in_flight(self) -> list[Attempt]:
        """Attempts that began and have no end on record."""
        return [tries[-1] for tries in self.attempts.values() if tries[-1].ended is None]

    @property
    def spent_usd(self) -> float:
        """What everything cost so far, attempts that were lost included."""
        return sum(each.spent_usd for tries in self.attempts.values() for each in tries)


def fold(records: Iterable[Record[lab.RunEvent] | Unrecognised | Damage]) -> State:
    """Fold a whole journal."""
    state = State()
    for record in records:
        match record:
            case Damage():
                state.damage.append(record)
            case Unrecognised():
                state.unrecognised += 1
            case Record():
                add(state, record)
            case _:
                assert_never(record)
    return state


def add(state: State, record: Record[lab.RunEvent]) -> None:
    """Take one more event into account."""
    event = record.event
    match event:
        case lab.RunStarted():
            state.started, state.started_at = event, record.ts
        case lab.RunTaken():
            state.taken, state.process, state.ended, state.finished_at = state.taken + 1, event.process, None, ""
        case lab.CommandRan() | lab.SessionSkipped() | lab.ReplicatesAdded() | lab.Resampled():
            _beside(state, event)
        case lab.BaselineTaken():
            state.baseline, state.tree = event, event.tree
        case lab.Branched():
            state.branch = event
        case lab.TreeSettled():
            state.tree = event.tree
        case lab.RunEnded():
            state.ended, state.tree, state.finished_at = event, event.tree, record.ts
        case (
            lab.SessionStarted()
            | lab.AgentStarted()
            | lab.Saved()
            | lab.Spent()
            | lab.SessionEnded()
            | lab.SessionCounted()
            | lab.Certified()
            | lab.Verified()
        ):
            _of_session(state, event, record.ts)
        case _:
            assert_never(event)


def _beside(state: State, event: lab.CommandRan | lab.SessionSkipped | lab.ReplicatesAdded | lab.Resampled) -> None:
    match event:
        case lab.CommandRan():
            state.commands.append(event)
        case lab.SessionSkipped():
            state.skipped[event.session] = event.why
        case lab.ReplicatesAdded():
            state.added[event.session_index] = state.added.get(event.session_index, 0) + event.count
        case lab.Resampled():
            state.resampled[event.batch] = event
        case _:
            assert_never(event)


def _of_session(state: State, event: _OfSession, at: str) -> None:
    tries = state.attempts.setdefault(event.session, [])
    if isinstance(event, lab.SessionStarted):
        state.skipped.pop(event.session, None)
        place = (event.session_id, event.tree, at, event.parent, event.parent_id, event.private)
        tries.append(Attempt(event.session, event.attempt, *place))
        return
    attempt = next((each for each in reversed(tries) if each.number == event.attempt), None)
    if attempt is None:
        return  # The line that began it was damaged; that is counted, and what it left is still on disk.
    match event:
        case lab.AgentStarted():
            attempt.process = event.process
        case lab.Saved():
            attempt.saved.append(event)
        case lab.Spent():
            attempt.spent_usd += event.usd
        case lab.Certified():
            attempt.certificate = event
        case lab.Verified():
            attempt.verified.append(event)
        case lab.SessionCounted():
            attempt.counted = event
        case lab.SessionEnded():
            attempt.ended, attempt.finished_at = event, at
            attempt.session_id = event.session_id or attempt.session_id
        case _:
            assert_never(event)
