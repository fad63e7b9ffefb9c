"""Events of the retro journal: a closed union.

Everything in the runtime directory except drafts, artifacts and logs is a fold of these events.
Their text is private and may be raw; public files are made from `IssueTriaged`, which is
redacted.
"""

from typing import Literal

from msgspec import Struct

from flightlog.model.errors import Incident

Severity = Literal["critical", "high", "medium", "low"]
Complexity = Literal["trivial", "small", "medium", "large"]
Status = Literal[
    "draft",
    "triaged",
    "clustered",
    "prioritized",
    "in_progress",
    "resolved",
    "wont_fix",
    "deferred",
]


class IssueDrafted(Struct, frozen=True, tag="Drafted"):
    """A person or a feature reported a problem."""

    issue: str
    title: str
    description: str
    at_ms: int
    category: str = "bug"
    severity: Severity | None = None
    tags: tuple[str, ...] = ()
    affected_files: tuple[str, ...] = ()
    context: dict[str, str] = {}
    is_generated: bool = False
    """Whether it is the unchanged draft of an incident. Only such drafts are approved automatically."""


class IssueTriaged(Struct, frozen=True, tag="Triaged"):
    """A draft got its public form; a later report of the same problem has its `signature`."""

    issue: str
    title: str
    description: str
    signature: str
    at_ms: int
    severity: Severity = "medium"
    complexity: Complexity = "medium"
    tags: tuple[str, ...] = ()
    affected_files: tuple[str, ...] = ()
    category: str = "bug"
    secrets: int = 0
    personal: int = 0


class DraftRepeated(Struct, frozen=True, tag="Repeated"):
    """A draft reports the problem of an existing issue."""

    draft: str
    issue: str
    at_ms: int


class ClusterMade(Struct, frozen=True):
    """Issues that belong together; one with `is_fast_tracked` is approved at once."""

    id: str
    theme: str
    issue_ids: tuple[str, ...]
    affected_files: tuple[str, ...] = ()
    is_fast_tracked: bool = False


class IssuesClustered(Struct, frozen=True, tag="Clustered"):
    """The open issues were clustered again."""

    clusters: tuple[ClusterMade, ...]
    at_ms: int
    scores: dict[str, float] = {}


class IssuesPrioritized(Struct, frozen=True, tag="Prioritized"):
    """Open issues were ranked."""

    scores: dict[str, float]
    at_ms: int


class ClusterApproved(Struct, frozen=True, tag="Approved"):
    """A person, or `--yes`, approved a cluster."""

    cluster: str
    at_ms: int


class IssueMoved(Struct, frozen=True, tag="Moved"):
    """An issue got another status."""

    issue: str
    status: Status
    at_ms: int
    notes: str = ""


class IssuePublished(Struct, frozen=True, tag="Published"):
    """An issue became a tracked file."""

    issue: str
    at_ms: int


class IssueResolved(Struct, frozen=True, tag="Resolved"):
    """An issue was resolved; `notes` are redacted."""

    issue: str
    notes: str
    date: str
    at_ms: int
    resolved_by: str = ""


class IssueReopened(Struct, frozen=True, tag="Reopened"):
    """A resolved problem was reported again."""

    issue: str
    draft: str
    at_ms: int


class PreferenceSet(Struct, frozen=True, tag="Preferred"):
    """A person chose what to focus on, exclude, or draw first."""

    name: Literal["focus_areas", "excluded_topics", "preferred_viz"]
    values: tuple[str, ...]


class Rating(Struct, frozen=True):
    """A person's rating of a finding, 1 to 5."""

    pattern_id: str
    rating: int
    timestamp: str
    comment: str = ""


class QualityAnswer(Struct, frozen=True):
    """An answer to a quality question."""

    question_id: str
    question_text: str
    response: str
    timestamp: str
    rating: int | None = None


class CoverageGap(Struct, frozen=True):
    """A pattern that the analysis missed."""

    description: str
    category: str
    priority: Literal["low", "medium", "high"]
    timestamp: str


class FeedbackGiven(Struct, frozen=True, tag="FeedbackGiven"):
    """Feedback of one session."""

    session_id: str
    timestamp: str
    ratings: tuple[Rating, ...] = ()
    quality_responses: tuple[QualityAnswer, ...] = ()
    gaps: tuple[CoverageGap, ...] = ()


class ExportRead(Struct, frozen=True, tag="ExportRead"):
    """An export was read completely."""

    fingerprint: str
    file_hash: str
    format: Literal["chatgpt", "claude"]
    conversations: int
    damaged_count: int = 0
    conversation_names: tuple[str, ...] = ()
    digest_version: int = 0


class IncidentNoticed(Struct, frozen=True, tag="Noticed"):
    """A feature reported an incident, which becomes a draft."""

    incident: Incident


class AnalystFinding(Struct, frozen=True):
    """A finding that an analyst added, with addresses that were shown to it."""

    label: str
    detail: str = ""
    evidence: tuple[str, ...] = ()


class AnalystRan(Struct, frozen=True, tag="Judged"):
    """The names and findings that an analyst gave."""

    labels: dict[str, str] = {}
    findings: tuple[AnalystFinding, ...] = ()


class ArtifactDrawn(Struct, frozen=True, tag="Drawn"):
    """An artifact was written."""

    date: str
    artifact: str


class RecommendationApplied(Struct, frozen=True, tag="Applied"):
    """A person let a recommendation change a file: `removed` bytes were replaced by `inserted`."""

    recommendation: str
    title: str
    file: str
    at_ms: int
    removed: bytes
    inserted: bytes
    is_new_file: bool = False


class RecommendationUndone(Struct, frozen=True, tag="Undone"):
    """The change of a recommendation was taken back, or could not be written."""

    recommendation: str
    at_ms: int


IssueEvent = (IssueDrafted | IssueTriaged | DraftRepeated | IssuesClustered | IssuesPrioritized) | (
    ClusterApproved | IssueMoved | IssuePublished | IssueResolved | IssueReopened
)
AnalysisEvent = ExportRead | IncidentNoticed | AnalystRan | ArtifactDrawn
PersonEvent = PreferenceSet | FeedbackGiven | RecommendationApplied | RecommendationUndone
Event = IssueEvent | AnalysisEvent | PersonEvent
