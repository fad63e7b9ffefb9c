"""The events of a run's journal.

The journal (`.journal.jsonl`) lies in the run's directory, so a run can be moved and still be read
and continued; `lab.state` folds it. A session is identified by its directory (`session_03_r01`) and
the attempt: running it again makes a second attempt and keeps the first on record. Trees are
snapshots in `.shadow_git`.
"""

from msgspec import Struct


class RunEventBase(Struct, frozen=True, tag_field="kind", tag="event"):
    """Base of all events: the tag."""


class AttemptEventBase(RunEventBase, frozen=True):
    """Base of all events of one attempt at a session."""

    session: str
    attempt: int


class RunStarted(RunEventBase, frozen=True, tag="run_started"):
    """A run was created; its configuration is final and no agent has started."""

    run_name: str
    harness_version: str
    agent: str
    agent_version: str
    permission_mode: str
    permission_note: str = ""
    isolation: str = ""
    isolation_note: str = ""


class RunResumed(RunEventBase, frozen=True, tag="run_taken"):
    """A process started to work on the run: the first one, or one after a crash."""

    process: str


class CommandRan(RunEventBase, frozen=True, tag="command_ran"):
    """A command before or after the sessions ended."""

    phase: str
    number: int
    exit_code: int
    duration_s: float
    output: str = ""


class BaselineSaved(RunEventBase, frozen=True, tag="baseline_taken"):
    """The work directory was saved before the first session."""

    tree: str
    notes: tuple[str, ...] = ()


class SideEffect(Struct, frozen=True):
    """An effect that a replay cannot undo; turn 0 means no particular turn."""

    turn: int
    kind: str
    description: str


class BranchCreated(RunEventBase, frozen=True, tag="branched"):
    """The run is a replay: its first session continues at turn `turn` of another run's session.

    Data of the source (recorded request, transcript so far) is in `.source`; `tree` names the files
    before that turn. An empty `resume_at` resumes at the end of the truncated transcript;
    `is_fresh` means that no turn came before. `rebuilt_fidelity` is that of a request that was not
    captured but rebuilt from the transcript. With `uses_cursor` the session starts from its
    beginning (`tree` is its first snapshot) and recorded answers are served up to the turn. `arm` is
    the arm of the experiment whose settings the branch has, and what of them differs.
    """

    source_run: str
    source_session: int
    source_session_dir: str
    source_session_id: str
    turn: int
    number: int
    count: int
    tree: str
    replicate: int = 0
    prompt: str = ""
    resume_at: str = ""
    is_fresh: bool = False
    allow_drift: bool = False
    request_index: int = 0
    headers: dict[str, str] = {}
    client: str = ""
    effects: tuple[SideEffect, ...] = ()
    is_scrubbed: bool = False
    rebuilt_fidelity: str = ""
    uses_cursor: bool = False
    arm: str = ""


class BranchCertified(AttemptEventBase, frozen=True, tag="certified"):
    """A branch was compared with the recording before its first request was sent."""

    verdict: str
    method: str
    first_difference: str = ""
    replacements: tuple[str, ...] = ()
    is_refused: bool = False
    context: str = "unknown"
    files: str = "unknown"
    repository: str = "unknown"
    environment: str = "unknown"
    sent_requests: int = 0


class LaterRequestsCompared(AttemptEventBase, frozen=True, tag="later_compared"):
    """Later requests of a branch, as long as the model repeated what it said in the recording."""

    compared: int
    equal: int
    first_difference: str = ""


class SessionVerified(AttemptEventBase, frozen=True, tag="verified"):
    """A verifier checked the files that a session left."""

    name: str
    passed: bool
    exit_code: int
    duration_s: float
    output: str = ""


class RunSessionStarted(AttemptEventBase, frozen=True, tag="session_started"):
    """An agent is about to start; `tree` is the snapshot of its files."""

    session_id: str
    tree: str
    parent: str = ""
    parent_id: str = ""
    has_private_tree: bool = False


class AgentStarted(AttemptEventBase, frozen=True, tag="agent_started"):
    """The agent's process started; `process` includes its start time, so it is unique."""

    process: str


class SnapshotSaved(AttemptEventBase, frozen=True, tag="saved"):
    """The work tree was saved while request `request_index` was in flight, or, with 0, at the end.

    Without captured requests it is saved after tool call `tool_call_id`, and `request_index`
    is only a counter.
    """

    tree: str
    request_index: int
    subagent: str = ""
    at_ms: int = 0
    tool_call_id: str = ""


class CostRecorded(AttemptEventBase, frozen=True, tag="spent"):
    """A response was paid for."""

    cost_usd: float
    message_id: str = ""


class RunSessionEnded(AttemptEventBase, frozen=True, tag="session_ended"):
    """An agent ended and its output was collected."""

    stop_reason: str
    tree: str
    exit_code: int | None = None
    error: str = ""
    num_turns: int = 0
    client_cost_usd: float | None = None
    session_id: str = ""


class RunSessionSummarized(AttemptEventBase, frozen=True, tag="session_counted"):
    """The counts of an ended session were computed and its output files written."""

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
    """A session could not start."""

    session: str
    reason: str


class ReplicatesAdded(RunEventBase, frozen=True, tag="replicates_added"):
    """More replicates of session `session_index` were requested."""

    session_index: int
    count: int


class SamplesUpdated(RunEventBase, frozen=True, tag="resampled"):
    """Totals of a batch of samples: answers, errors, cost so far."""

    batch: str
    samples: int
    errors: int
    cost_usd: float
    unpriced_samples: int = 0


class WorkTreeRestored(RunEventBase, frozen=True, tag="tree_settled"):
    """The work directory was restored to a snapshot.

    `found` is the snapshot of what a killed run had left in the directory.
    """

    tree: str
    found: str = ""


class RunEnded(RunEventBase, frozen=True, tag="run_ended"):
    """No session is left to run; `stop_reason` is `completed` or why the run stopped early."""

    stop_reason: str
    tree: str


# Events of one attempt at a session; the others belong to the run as a whole.
SessionEvent = RunSessionStarted | RunSessionEnded | RunSessionSummarized | SessionVerified
BranchEvent = BranchCertified | LaterRequestsCompared
AttemptEvent = SessionEvent | BranchEvent | AgentStarted | SnapshotSaved | CostRecorded
TreeEvent = BaselineSaved | BranchCreated | WorkTreeRestored
WorkEvent = RunStarted | RunResumed | RunEnded | CommandRan | TreeEvent
RunEvent = WorkEvent | RunSessionSkipped | ReplicatesAdded | SamplesUpdated | AttemptEvent
