"""The state of a run, folded from its journal.

Pure. A session is pending, running (or was, when its process died), ended or skipped. Every attempt
stays on record, and its cost counts however it ended.
"""

from collections.abc import Iterable
from typing import assert_never

from msgspec import Struct, field

from flightlog.lab import events
from flightlog.model.errors import Damage
from flightlog.store.journal import JournalRecord, UnknownEvent


class SessionAttempt(Struct):
    session: str
    number: int
    session_id: str
    tree: str
    started_at: str
    parent: str = ""
    parent_id: str = ""
    has_private_tree: bool = False
    process: str = ""
    snapshots: list[events.SnapshotSaved] = field(default_factory=list)
    spent_usd: float = 0.0
    end: events.RunSessionEnded | None = None
    counts: events.RunSessionSummarized | None = None
    finished_at: str = ""
    certificate: events.BranchCertified | None = None
    later_requests: events.LaterRequestsCompared | None = None
    verifications: list[events.SessionVerified] = field(default_factory=list)

    @property
    def stop_reason(self) -> str:
        """Why it stopped; "" while it runs."""
        return self.end.stop_reason if self.end else ""


class RunState(Struct):
    start: events.RunStarted | None = None
    started_at: str = ""
    finished_at: str = ""
    takeover_count: int = 0
    process: str = ""
    baseline: events.BaselineSaved | None = None
    branch: events.BranchCreated | None = None
    commands: list[events.CommandRan] = field(default_factory=list)
    attempts: dict[str, list[SessionAttempt]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    added_replicates: dict[int, int] = field(default_factory=dict)
    resample_batches: dict[str, events.SamplesUpdated] = field(default_factory=dict)
    tree: str = ""
    found_tree: str = ""
    end: events.RunEnded | None = None
    is_abandoned: bool = False
    """Whether the process that carries it out died; set by the store, not by an event."""
    damage: list[Damage] = field(default_factory=list)
    unrecognized_events: int = 0

    def last_attempt(self, session: str) -> SessionAttempt | None:
        return self.attempts[session][-1] if self.attempts.get(session) else None

    @property
    def in_flight(self) -> list[SessionAttempt]:
        return [attempts[-1] for attempts in self.attempts.values() if attempts[-1].end is None]

    @property
    def spent_usd(self) -> float:
        """The cost of all attempts, interrupted ones included."""
        return sum(attempt.spent_usd for attempts in self.attempts.values() for attempt in attempts)


def fold_run(records: Iterable[JournalRecord[events.RunEvent] | UnknownEvent | Damage]) -> RunState:
    state = RunState()
    for record in records:
        match record:
            case Damage():
                state.damage.append(record)
            case UnknownEvent():
                state.unrecognized_events += 1
            case JournalRecord():
                add_event(state, record)
            case _:
                assert_never(record)
    return state


def add_event(state: RunState, record: JournalRecord[events.RunEvent]) -> None:  # noqa: C901 - a case per event
    event = record.event
    if isinstance(event, events.AttemptEvent):
        _add_attempt_event(state, event, record.ts)
        return
    match event:
        case events.RunStarted():
            state.start, state.started_at = event, record.ts
        case events.RunResumed():
            state.is_abandoned = False
            state.takeover_count, state.process = state.takeover_count + 1, event.process
            state.end, state.finished_at = None, ""
        case events.BaselineSaved():
            state.baseline, state.tree = event, event.tree
        case events.BranchCreated():
            state.branch = event
        case events.WorkTreeRestored():
            state.tree, state.found_tree = event.tree, event.found
        case events.RunEnded():
            state.end, state.tree, state.finished_at = event, event.tree, record.ts
        case events.CommandRan():
            state.commands.append(event)
        case events.RunSessionSkipped():
            state.skipped[event.session] = event.reason
        case events.ReplicatesAdded():
            state.added_replicates[event.session_index] = (
                state.added_replicates.get(event.session_index, 0) + event.count
            )
        case events.SamplesUpdated():
            state.resample_batches[event.batch] = event
        case _:
            assert_never(event)


def _add_attempt_event(  # noqa: C901 - a case per event
    state: RunState, event: events.AttemptEvent, at: str
) -> None:
    attempts = state.attempts.setdefault(event.session, [])
    if isinstance(event, events.RunSessionStarted):
        state.skipped.pop(event.session, None)
        start = (event.session, event.attempt, event.session_id, event.tree, at)
        origin = (event.parent, event.parent_id, event.has_private_tree)
        attempts.append(SessionAttempt(*start, *origin))
        return
    attempt = next(
        (candidate for candidate in reversed(attempts) if candidate.number == event.attempt), None
    )
    if attempt is None:
        return  # Its start was on a damaged line, which `damage` counts; its files remain.
    match event:
        case events.AgentStarted():
            attempt.process = event.process
        case events.SnapshotSaved():
            attempt.snapshots.append(event)
        case events.CostRecorded():
            attempt.spent_usd += event.cost_usd
        case events.BranchCertified():
            attempt.certificate = event
        case events.LaterRequestsCompared():
            attempt.later_requests = event
        case events.SessionVerified():
            attempt.verifications.append(event)
        case events.RunSessionSummarized():
            attempt.counts = event
        case events.RunSessionEnded():
            attempt.end, attempt.finished_at = event, at
            attempt.session_id = event.session_id or attempt.session_id
        case _:
            assert_never(event)
