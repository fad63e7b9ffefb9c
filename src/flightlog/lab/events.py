"""What happens in a run: the closed union its journal holds.

The journal lies beside the run's pages (`.journal.jsonl`), so a run can be moved and still be
inspected and taken up again; `lab.state` folds it. A session is named by its directory
(`session_03_r01`) and by the attempt: one that was in flight when everything died and is run
again is a second attempt, and the first stays on record. Trees are snapshots in `.shadow_git`.
"""

from msgspec import Struct


class RunEventBase(Struct, frozen=True, tag_field="kind", tag="event"):
    """What all events of a run have in common: a tag."""


class RunStarted(RunEventBase, frozen=True, tag="run_started"):
    """A run was set up: its configuration is frozen, nothing was asked yet."""

    run_name: str
    harness_version: str
    agent: str
    agent_version: str
    permission_mode: str
    permission_note: str = ""
    isolation: str = ""
    isolation_note: str = ""


class RunResumed(RunEventBase, frozen=True, tag="run_taken"):
    """A process took the run up, the first one or one after a crash."""

    process: str


class CommandRan(RunEventBase, frozen=True, tag="command_ran"):
    """A command before or after the sessions ended."""

    phase: str
    number: int
    exit_code: int
    seconds: float
    output: str = ""


class BaselineSaved(RunEventBase, frozen=True, tag="baseline_taken"):
    """The work directory as it was before the first session."""

    tree: str
    notes: tuple[str, ...] = ()


class SideEffect(Struct, frozen=True):
    """Something a session did that going back does not undo; turn 0 is nobody's in particular."""

    turn: int
    kind: str
    what: str


class BranchCreated(RunEventBase, frozen=True, tag="branched"):
    """The run is a replay: its first session goes on from turn `turn` of another run's session.

    What it needs of the other run (the request as recorded, the words until then) lies in `.source`;
    `tree` names the files before that turn. An empty `resume_at` resumes at the end of what is kept
    of the transcript; `fresh` says that nothing was said before. `rebuilt` is the grade of a request
    that was not captured but rebuilt from the transcript. With `cursor` the session begins anew (`tree`
    is what it found) and recorded answers are served up to the turn.
    """

    source_run: str
    source_session: int
    source_dir: str
    source_session_id: str
    turn: int
    number: int
    count: int
    tree: str
    replicate: int = 0
    prompt: str = ""
    resume_at: str = ""
    fresh: bool = False
    allow_drift: bool = False
    request: int = 0
    betas: str = ""
    effects: tuple[SideEffect, ...] = ()
    scrubbed: bool = False
    rebuilt: str = ""
    cursor: bool = False


class BranchCertified(RunEventBase, frozen=True, tag="certified"):
    """The first request of a branch was compared with the recorded one, before it was sent."""

    session: str
    attempt: int
    verdict: str
    method: str
    first_difference: str = ""
    replaced: tuple[str, ...] = ()
    refused: bool = False


class SessionVerified(RunEventBase, frozen=True, tag="verified"):
    """A verifier looked at the files a session left."""

    session: str
    attempt: int
    name: str
    passed: bool
    exit_code: int
    seconds: float
    output: str = ""


class RunSessionStarted(RunEventBase, frozen=True, tag="session_started"):
    """An agent is about to be started; `tree` is what it finds."""

    session: str
    attempt: int
    session_id: str
    tree: str
    parent: str = ""
    parent_id: str = ""
    private: bool = False


class AgentStarted(RunEventBase, frozen=True, tag="agent_started"):
    """The agent's process, named so that no other has the name."""

    session: str
    attempt: int
    process: str


class SnapshotSaved(RunEventBase, frozen=True, tag="saved"):
    """The work tree was saved: when request `request` was on its way, or, with 0, at the end.

    Without captured requests it is saved after tool call `call_id`, and `request` only counts.
    """

    session: str
    attempt: int
    tree: str
    request: int
    lane: str = ""
    at_ms: int = 0
    call_id: str = ""


class CostRecorded(RunEventBase, frozen=True, tag="spent"):
    """A response was paid for."""

    session: str
    attempt: int
    usd: float
    message_id: str = ""


class RunSessionEnded(RunEventBase, frozen=True, tag="session_ended"):
    """An agent came to its end and everything it left was taken in."""

    session: str
    attempt: int
    stop_reason: str
    tree: str
    exit_code: int | None = None
    error: str = ""
    num_turns: int = 0
    client_cost_usd: float | None = None
    session_id: str = ""


class RunSessionSummarized(RunEventBase, frozen=True, tag="session_counted"):
    """What an ended session amounts to, counted once from what it left; its pages are written."""

    session: str
    attempt: int
    step_count: int
    turn_count: int
    tool_call_count: int
    compaction_count: int
    subagent_count: int
    file_writes: int
    cost_usd: float | None
    cost_source: str
    has_transcript: bool = True
    captured_requests: int = 0


class RunSessionSkipped(RunEventBase, frozen=True, tag="session_skipped"):
    """A session could not be started."""

    session: str
    why: str


class ReplicatesAdded(RunEventBase, frozen=True, tag="replicates_added"):
    """More sessions were asked for that start where session `session_index` did."""

    session_index: int
    count: int


class SamplesUpdated(RunEventBase, frozen=True, tag="resampled"):
    """How a batch of samples stands: the answers it has, the errors, and what it cost so far."""

    batch: str
    samples: int
    errors: int
    usd: float
    unpriced: int = 0


class WorkTreeRestored(RunEventBase, frozen=True, tag="tree_settled"):
    """The work directory was brought to a tree."""

    tree: str


class RunEnded(RunEventBase, frozen=True, tag="run_ended"):
    """No session is left that could run; `stop_reason` is `completed` or why it stopped early."""

    stop_reason: str
    tree: str


RunEvent = (
    RunStarted
    | RunResumed
    | CommandRan
    | BaselineSaved
    | BranchCreated
    | BranchCertified
    | SessionVerified
    | RunSessionStarted
    | AgentStarted
    | SnapshotSaved
    | CostRecorded
    | RunSessionEnded
    | RunSessionSummarized
    | RunSessionSkipped
    | ReplicatesAdded
    | SamplesUpdated
    | WorkTreeRestored
    | RunEnded
)
