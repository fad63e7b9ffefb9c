"""What each command prints with `--json`, as types: our structs, and here those that have no struct.

The test runs the commands of the freeze and compares their keys with these types.
"""

from typing import Any, NotRequired, TypedDict

from flightlog.analysis.findings import Finding
from flightlog.dataset.check import DatasetProblem
from flightlog.dataset.compact import Compaction
from flightlog.dataset.extract.sync import SyncReport
from flightlog.dataset.remote import PullResult, PushResult, RemoteSafety
from flightlog.dataset.retention import RemovalReport
from flightlog.lab.collect import CollectResult
from flightlog.lab.experiment.report import ExperimentReport
from flightlog.lab.experiment.store import ExperimentStatus
from flightlog.lab.replay.branch_points import BranchSuggestion
from flightlog.lab.replay.source import ReplayTurn
from flightlog.lab.resample.requests import RequestListing
from flightlog.loop.amend import Rollback
from flightlog.loop.analysis import LoopAnalysis
from flightlog.loop.report import Insight
from flightlog.loop.retention import RetentionReport
from flightlog.loop.status import LoopColumn, LoopStatus
from flightlog.model.entries import Entry
from flightlog.model.retention import RetentionMove
from flightlog.model.session import Session, Step, Subagent, Turn
from flightlog.model.usage import ClientCacheReport
from flightlog.recorder.settle import SettleReport
from flightlog.retro.issues.board import Issue, IssueCluster
from flightlog.retro.state import FeedbackSummary, Pattern, Preferences, RetroAnalysis
from flightlog.setup.doctor import ArchiveVerification, CheckResult
from flightlog.setup.init import Leftover
from flightlog.tracing.blame import BlameLine
from flightlog.tracing.trace import Trace
from flightlog.views.atif.fidelity import FidelityCount
from flightlog.views.atif.findings import LintFinding
from flightlog.views.overview import Overview
from flightlog.views.session.outline import SessionSummary


class UsageTotals(TypedDict):
    """Tokens and cost, wherever they are printed; null is unknown."""

    input_tokens: int | None
    output_tokens: int | None
    cache_read_tokens: int | None
    cache_write_tokens: int | None
    cache_write_1h_tokens: int | None
    web_searches: int | None
    cost_usd: float | None
    cost_source: str
    is_lower_bound: NotRequired[bool]
    lacks_tokens: NotRequired[bool]


class UnrecordedUsage(UsageTotals):
    """What the client counted and the files do not hold, or less than nothing where they hold more."""

    reason: str | None
    parts: list[dict[str, Any]]


class UsageReportRow(UsageTotals):
    """One day, session, month, model, project or block; the first key is the one of `--by`."""

    responses: int
    sessions: int
    models: list[str]
    unpriced_models: list[str]
    unknown_responses: int
    estimated_output_tokens: NotRequired[int]
    estimated_cost_usd: NotRequired[float | None]
    day: NotRequired[str]
    session: NotRequired[str]
    month: NotRequired[str]
    model: NotRequired[str]
    project: NotRequired[str]
    agent: NotRequired[str]
    block: NotRequired[str]
    client_total: NotRequired[dict[str, Any] | None]
    inherited_usage: NotRequired[dict[str, Any] | None]
    unrecorded_usage: NotRequired[UnrecordedUsage | None]


class UsageReportOutput(TypedDict):
    """The report of `session usage`."""

    by: str
    total: UsageReportRow
    rows: list[UsageReportRow]
    unrecorded: UnrecordedUsage
    timezone: str
    damaged_lines: int
    price_table: dict[str, str]
    active_block: NotRequired[dict[str, float]]


class CacheRequestOutput(TypedDict):
    """One request: what the prompt cache did for it (`cold rebuild miss partial hit`) and why.

    `changes` says what changed, for each of `causes`; `done_by` what changed it.
    """

    address: str
    at_ms: int | None
    model: str
    verdict: str
    causes: list[str]
    changes: list[str]
    done_by: list[str]
    recached_tokens: int
    extra_cost_usd: float | None


class CacheTotalsOutput(TypedDict):
    """The sum of misses; `causes` counts the misses of each cause."""

    misses: int
    recached_tokens: int
    extra_cost_usd: float | None
    causes: dict[str, int]


class CacheRowOutput(TypedDict):
    """The misses of one cause, project, day or model; it is under the name of what `--by` gives."""

    cause: NotRequired[str]
    project: NotRequired[str]
    day: NotRequired[str]
    model: NotRequired[str]
    misses: int
    sessions: int
    recached_tokens: int
    extra_cost_usd: float | None


class CacheSessionOutput(TypedDict):
    """The requests of a session; `client` is the client's own count, if the status line gave it.

    `causes_known` is false if the client logged no requests.
    """

    requests: list[CacheRequestOutput]
    totals: CacheTotalsOutput
    causes_known: bool
    client: NotRequired[ClientCacheReport]
    differences: NotRequired[list[str]]


class ContextPartOutput(TypedDict):
    """Tokens of one kind in a prompt, exact or a share of a known sum by characters.

    Kinds: `start system tools memory context summary prompt response thinking tool_result other`. A
    `start` is what the first request of a window held; its `shares` add up to it.
    """

    kind: str
    name: str
    tokens: int
    exact: bool
    shares: NotRequired[list[dict[str, Any]]]


class ContextRequestOutput(TypedDict):
    """What one request held: `parts` add up to `input_tokens`, all that the model read."""

    address: str
    input_tokens: int
    parts: list[ContextPartOutput]


class ContextBlockOutput(TypedDict):
    """One block of context; the cost is that of the requests that read it again."""

    address: str
    kind: str
    name: str
    chars: int
    tokens: int
    exact: bool
    times_read: int
    carrying_cost_usd: float | None


class ContextSessionOutput(TypedDict):
    """The requests of a session, and its blocks, the most expensive first."""

    requests: list[ContextRequestOutput]
    blocks: list[ContextBlockOutput]


class ContextArchiveOutput(TypedDict):
    """The most expensive blocks of all sessions."""

    blocks: list[ContextBlockOutput]


class SessionShowOutput(Session, frozen=True):
    """A session, and what went wrong in it."""

    findings: tuple[Finding, ...] = ()


class FindingsOutput(TypedDict):
    """What went wrong in a session or in all, the most expensive first."""

    findings: list[Finding]


class CacheArchiveOutput(TypedDict):
    """The misses of all sessions."""

    rows: list[CacheRowOutput]
    totals: CacheTotalsOutput


class SearchHitOutput(TypedDict):
    """One hit; `address` opens it, `cost_usd` is the session's cost."""

    address: str
    session: str
    project: str
    at_ms: int | None
    cost_usd: float | None
    snippet: str
    agent: str
    is_lower_bound: bool


class SearchOutput(TypedDict):
    """The hits, the newest first, and how many there are in all."""

    hits: list[SearchHitOutput]
    total: int


class AgentFidelityOutput(TypedDict):
    """`doctor --formats`: a finding for each agent, with what its recordings contain."""

    level: str
    subject: str
    message: str
    next_command: str
    agent: str
    prompt: bool
    tools: bool
    thinking: bool
    usage: bool
    exit_codes: bool
    permissions: bool
    files: bool


class ConfigSettingOutput(TypedDict):
    """One setting and where its value comes from."""

    name: str
    value: Any
    origin: str


class UninstallOutput(TypedDict):
    """`uninstall`: what it removes, and what stays."""

    removals: list[str]
    is_written: bool
    leftovers: list[Leftover]


class InitOutput(TypedDict):
    """What was or would be written to the agent's settings."""

    settings_path: str
    events: list[str]
    is_needed: bool
    is_written: bool
    backup_path: str | None
    diff: str


class GuardedFileOutput(TypedDict):
    """One file of the index; one JSON line each."""

    path: str
    state: str
    tier: str
    rule: str
    is_allowed: bool
    reason: str


class SecretOutput(TypedDict):
    """One finding of a scan; one JSON line each."""

    session: NotRequired[str]
    path: str
    line: int
    start: int
    end: int
    rule: str
    kind: str
    confidence: str
    masked_value: str


class DetectionRuleOutput(TypedDict):
    """One rule; one JSON line each."""

    id: str
    provider: str
    forms: list[str]
    near: list[str]
    entropy: float


class PreviewOutput(TypedDict):
    """A file as it would be published."""

    path: str
    is_changed: bool
    text: str


class KeyOutput(TypedDict):
    """The key that makes tags; `path` or `key` by command."""

    fingerprint: str
    path: NotRequired[str]
    key: NotRequired[str]


class TrustOutput(TypedDict):
    """What a directory or a run may do."""

    kind: str
    name: str
    effects: dict[str, Any]
    is_trusted: bool
    dataset: NotRequired[dict[str, Any]]


class ShareOutput(TypedDict):
    """A session as one redacted HTML file."""

    session: str
    removed_count: int
    secrets: int
    personal: int
    images: int
    html: str


class CompletionOutput(TypedDict):
    """A shell's completion script."""

    shell: str
    script: str
    install: str


class ConfigDirOutput(TypedDict):
    """One configuration directory of the agent; `state` as in runtime-state.md."""

    config_dir: str
    error: str
    state: dict[str, Any]


class StateFileOutput(TypedDict):
    """One `runtime-state.yaml`; `state` as in runtime-state.md."""

    path: str
    error: str
    state: dict[str, Any]


class StatusLineOutput(TypedDict):
    """A status line and its template."""

    line: str
    template: str


class ProfileSwitchOutput(TypedDict):
    """A session's new profile."""

    session: str
    profile: str
    since: str


class LoopPlanOutput(TypedDict):
    """The order of a plan's tasks (`--dry-run`)."""

    plan: str
    tasks: list[dict[str, Any]]


class LogEntryOutput(TypedDict):
    """One line of `execution-log.json`."""

    timestamp: str
    event_type: str
    task_id: NotRequired[str]
    task_name: NotRequired[str]
    result: NotRequired[str]
    duration_seconds: NotRequired[float]
    details: dict[str, Any]


class LoopReportOutput(TypedDict):
    """The text of `final-report.md`."""

    session: str
    report: str


class SimulationOutput(TypedDict):
    """Outcomes of simulated sessions; `simulations` holds those that failed, or a single one."""

    mode: str
    first_seed: int
    sessions: int
    failed_count: int
    simulations: list[dict[str, Any]]


class RunComparisonOutput(TypedDict):
    """Runs side by side, with statistics."""

    runs: list[dict[str, Any]]
    config_differences: dict[str, Any]
    sessions: list[dict[str, Any]]
    side_by_side: dict[str, Any] | None
    statistics: dict[str, Any]
    divergence: list[dict[str, Any]]


class LintOutput(TypedDict):
    """What is wrong with one trajectory, and what it kept of the recording."""

    path: str
    findings: list[LintFinding]
    fidelity: list[FidelityCount]


class BatchOutput(TypedDict):
    """A batch of samples."""

    batch: str
    stop_reason: str
    samples: int
    errors: int
    remaining: int
    cost_usd: float
    max_budget_usd: float | None
    targets: list[dict[str, Any]]
    expected_cost_usd: NotRequired[float]


class PublishOutput(TypedDict):
    """The files of a publication."""

    files: list[str]
    is_written: bool


class HookFilesOutput(TypedDict):
    """The hook files of a repository."""

    changes: list[dict[str, Any]]
    is_done: bool


class DatasetStatsOutput(TypedDict):
    """Counts, size, tokens and quality of a repository's rows."""

    counts: dict[str, int]
    total_bytes: int
    pending_shards: int
    words: dict[str, Any]
    tokens: dict[str, int]
    milestones: dict[str, Any]
    growth: dict[str, int]
    projected_bytes: dict[str, int]
    quality: dict[str, float]
    duplicate_rows: dict[str, int]
    superseded_rows: int
    tombstones: int
    damage_count: int
    safety: dict[str, Any]
    now_ms: int


# Commands by their words. A list of several types: one of them, by the command's options.
OUTPUTS: dict[str, Any] = {
    "up": Overview,
    "help": dict[str, dict[str, str]],
    "init": InitOutput,
    "uninstall": UninstallOutput,
    "doctor": list[CheckResult | AgentFidelityOutput] | ArchiveVerification,
    "watch": list[ConfigDirOutput],
    "settle": SettleReport,
    "config show": list[ConfigSettingOutput],
    "privacy check": GuardedFileOutput,
    "privacy key export": KeyOutput,
    "privacy key show": KeyOutput,
    "privacy preview": PreviewOutput,
    "privacy rules": DetectionRuleOutput,
    "privacy scan": SecretOutput,
    "trust": TrustOutput,
    "completion": CompletionOutput,
    "session follow": Entry,
    "session list": list[SessionSummary],
    "search": SearchOutput,
    "session search": SearchOutput,
    "session findings": FindingsOutput,
    "session show": SessionShowOutput | Subagent | Turn | Step,
    "session usage": UsageReportOutput,
    "cache": CacheSessionOutput | CacheArchiveOutput,
    "context": ContextSessionOutput | ContextArchiveOutput,
    "trace": Trace,
    "blame": list[BlameLine],
    "share": ShareOutput,
    "live cleanup": list[str],
    "live state": list[StateFileOutput],
    "live statusline": StatusLineOutput,
    "live swap": ProfileSwitchOutput,
    "loop run": LoopPlanOutput,
    "loop retain": RetentionReport,
    "loop simulate": SimulationOutput,
    "loop status": list[LoopStatus] | LoopStatus,
    "loop monitor": LoopStatus,
    "loop logs": LogEntryOutput,
    "loop generate-report": LoopReportOutput,
    "loop analyze": LoopAnalysis,
    "loop insights": list[Insight],
    "loop compare": list[LoopColumn],
    "loop rollback": Rollback,
    "lab branch-points": list[BranchSuggestion],
    "lab collect": list[CollectResult],
    "lab compare": RunComparisonOutput,
    "lab experiment add-attempts": ExperimentReport,
    "lab experiment report": ExperimentReport,
    "lab experiment resume": ExperimentReport,
    "lab experiment run": ExperimentReport,
    "lab experiment status": list[ExperimentStatus],
    "lab lint": list[LintOutput],
    "lab replay": list[ReplayTurn],
    "lab resample": list[RequestListing] | BatchOutput,
    "retro analyze": RetroAnalysis,
    "retro feedback summary": FeedbackSummary,
    "retro patterns": list[Pattern],
    "retro prefs show": Preferences,
    "retro retain": list[RetentionMove],
    "retro show": Pattern,
    "issue clusters": list[IssueCluster],
    "issue drafts": list[str],
    "issue list": list[Issue],
    "issue publish": PublishOutput,
    "dataset check": list[DatasetProblem],
    "dataset forget": RemovalReport,
    "dataset install-hooks": HookFilesOutput,
    "dataset pull": PullResult,
    "dataset push": PushResult,
    "dataset retain": list[RetentionMove],
    "dataset session sync-to-jsonl": SyncReport,
    "dataset stats": DatasetStatsOutput,
    "dataset status": RemoteSafety,
    "dataset strip-words": RemovalReport,
    "dataset tracked compact": Compaction,
}
# Commands whose JSON is described on another page, or repeats the arguments and a path.
ELSEWHERE = {
    "demo": "the figures of the demonstration",
    "demo rewind": "the figures of the demonstration",
    "status": "the dashboard of `watch`, other agents' sessions (`recent`), the recordings and the dataset",
    "privacy key import": "the fingerprint",
    "session export": "the session itself (`session show`), or where it was written",
    "serve": "the address of the pages",
    "live label": "a profile, as in runtime-state.md",
    "live profiles": "profiles, as in runtime-state.md, each with its `urgency`",
    "loop resume": "the status and the session's directory",
    "loop pause": "the session and the request",
    "loop stop": "the session and the request",
    "loop answer": "the session and the answer",
    "loop redo": "the session, the task and the next command",
    "loop accept": "the session, the gate and the next command",
    "loop reset-breaker": "the session and the next command",
    "loop import": "the plan's file and its number of tasks",
    "loop example": "the files that were written",
    "loop schema": "loop-plan.schema.json",
    "lab inspect": "a run, session or step, in the words of run-directory.md",
    "lab list": "`run_meta.json` of each run, as in run-directory.md",
    "lab resample-edit": "the request as it would be sent, or a batch",
    "lab resample-session": "`run_meta.json`, as in run-directory.md",
    "lab run": "`run_meta.json`, as in run-directory.md",
    "lab track": "the tracked directories",
    "retro apply": "the file, its diff, and whether it was written",
    "retro draw": "where the file was written",
    "retro feedback answer": "the feedback that was stored",
    "retro feedback gap": "the feedback that was stored",
    "retro feedback import": "the feedback that was stored",
    "retro feedback rate": "the feedback that was stored",
    "retro prefs set": "the preferences",
    "retro undo": "the file that was restored",
    "issue approve": "the issues that changed",
    "issue defer": "the issue",
    "issue preview": "paths and texts",
    "issue process": "counts",
    "issue reopen": "the issue",
    "issue report-bug": "the draft and its path",
    "issue resolve": "the issue",
    "issue start": "the issue",
    "issue wontfix": "the issue",
    "dataset export": "where it was written",
    "dataset judge": "the row that was written",
}
