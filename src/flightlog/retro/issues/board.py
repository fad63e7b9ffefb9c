"""The board: all issues and clusters, folded from the journal, and the legal status moves.

Pure. `issue-state.json` shows this value; nothing reads that file back.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from msgspec import Struct
from msgspec.structs import asdict, replace

from flightlog.model.errors import Conflict, Invalid, NotFound
from flightlog.retro import events
from flightlog.retro.events import Complexity, Severity, Status

VERSION = 2  # schema of `issue-state.json`
# similarity from which an issue joins a cluster, as in the source document's tool
CLUSTER_THRESHOLD = 0.7
FAST_TRACK = 10.0  # lowest priority of a critical issue

# Legal moves; `check_move` refuses all others.
MOVES: Mapping[Status, frozenset[Status]] = {
    "draft": frozenset({"triaged", "wont_fix", "deferred"}),
    "triaged": frozenset({"clustered", "wont_fix", "deferred"}),
    "clustered": frozenset({"clustered", "prioritized", "wont_fix", "deferred"}),
    "prioritized": frozenset(
        {"clustered", "prioritized", "in_progress", "resolved", "wont_fix", "deferred"}
    ),
    "in_progress": frozenset({"prioritized", "resolved", "wont_fix", "deferred"}),
    "resolved": frozenset({"triaged"}),
    "wont_fix": frozenset({"triaged"}),
    "deferred": frozenset({"triaged", "wont_fix"}),
}
OPEN: frozenset[Status] = frozenset({"triaged", "clustered", "prioritized", "in_progress"})
STATUSES: tuple[Status, ...] = get_args(Status)


class Issue(Struct, frozen=True):
    """One issue; from triage on, title and description are the public ones."""

    id: str
    title: str
    description: str
    created_ms: int
    updated_ms: int
    category: str = "bug"
    tags: tuple[str, ...] = ()
    affected_files: tuple[str, ...] = ()
    status: Status = "draft"
    severity: Severity | None = None
    frequency: int = 1
    fix_complexity: Complexity = "medium"
    priority_score: float = 0.0
    cluster_id: str = ""
    similarity_score: float = 0.0
    signature: str = ""
    resolution_notes: str = ""
    resolved_by: str = ""
    is_published: bool = False
    is_generated: bool = False
    secrets: int = 0
    personal: int = 0
    context: dict[str, str] = {}


class IssueCluster(Struct, frozen=True):
    """Issues that belong together, and whether a person approved work on them."""

    id: str
    theme: str
    issue_ids: tuple[str, ...]
    affected_files: tuple[str, ...] = ()
    primary_category: str = "bug"
    aggregate_severity: Severity = "medium"
    aggregate_priority: float = 0.0
    resolution_strategy: Literal["single_pr", "multiple_prs"] = "single_pr"
    status: Literal["pending", "approved", "in_progress", "resolved"] = "pending"


class Board(Struct, frozen=True):
    """All issues, clusters, resolutions and incidents."""

    issues: dict[str, Issue] = {}
    clusters: dict[str, IssueCluster] = {}
    resolutions: tuple[events.IssueResolved, ...] = ()
    incidents: tuple[events.IncidentNoticed, ...] = ()
    last_triage_ms: int = 0
    last_cluster_ms: int = 0
    last_prioritize_ms: int = 0
    cluster_threshold: float = CLUSTER_THRESHOLD

    def find_issue(self, prefix: str) -> Issue:
        """Return the issue whose id starts with `prefix`."""
        matches = [
            issue for issue in self.issues.values() if prefix and issue.id.startswith(prefix)
        ]
        if len(matches) != 1:
            count = f"{len(matches)} issues start" if matches else "no issue starts"
            raise NotFound(f"{count} with {prefix[:40]!r}", hint="flightlog issue list")
        return matches[0]

    def open_issues(self) -> list[Issue]:
        """Return the open issues by priority."""
        issues = [issue for issue in self.issues.values() if issue.status in OPEN]
        return sorted(issues, key=lambda issue: (-issue.priority_score, issue.created_ms, issue.id))


def check_move(issue: Issue, to: Status) -> None:
    """Raise `Conflict` unless the issue may get status `to`."""
    if to not in MOVES[issue.status]:
        hint = f"allowed: {', '.join(sorted(MOVES[issue.status]))}"
        raise Conflict(f"a {issue.status} issue cannot become {to}: {issue.id}", hint=hint)


def fold_board(history: Iterable[events.Event]) -> Board:
    """Return the board after these events, oldest first."""
    issues: dict[str, Issue] = {}
    clusters: dict[str, IssueCluster] = {}
    rest: dict[str, Any] = {"resolutions": [], "incidents": []}
    for event in history:
        _apply_event(issues, clusters, rest, event)
    resolutions, incidents = tuple(rest.pop("resolutions")), tuple(rest.pop("incidents"))
    return Board(issues, _aggregate_clusters(clusters, issues), resolutions, incidents, **rest)


def _apply_event(  # noqa: C901, PLR0912 - one arm for each event
    issues: dict[str, Issue],
    clusters: dict[str, IssueCluster],
    rest: dict[str, Any],
    event: events.Event,
) -> None:
    match event:
        case events.IssueDrafted():
            issues.setdefault(event.issue, _issue_from_draft(event))
        case events.DraftRepeated():
            issues.pop(event.draft, None)
            frequency = _find_issue(issues, event.issue).frequency + 1
            _update_issue(issues, event.issue, frequency=frequency, updated_ms=event.at_ms)
        case events.IssueTriaged():
            rest["last_triage_ms"] = event.at_ms
            _update_issue(issues, event.issue, **_triaged_fields(event))
        case events.IssuesClustered():
            rest["last_cluster_ms"] = event.at_ms
            _apply_clusters(issues, clusters, event)
        case events.IssuesPrioritized():
            rest["last_prioritize_ms"] = event.at_ms
            for name, score in event.scores.items():
                _update_issue(issues, name, status="prioritized", priority_score=score)
        case events.ClusterApproved():
            clusters[event.cluster] = replace(clusters[event.cluster], status="approved")
        case events.IssueMoved():
            if _find_issue(issues, event.issue).status == "resolved":
                _mark_reopened(rest["resolutions"], event.issue, event.at_ms)
            public = _find_issue(issues, event.issue).is_published and event.status in OPEN
            _update_issue(issues, event.issue, status=event.status, is_published=public,
                          resolution_notes=event.notes, updated_ms=event.at_ms)  # fmt: skip
        case events.IssuePublished():
            _update_issue(issues, event.issue, is_published=True)
        case events.IssueResolved():
            rest["resolutions"].append(event)
            _update_issue(issues, event.issue, status="resolved", is_published=False, updated_ms=event.at_ms,
                          resolution_notes=event.notes, resolved_by=event.resolved_by)  # fmt: skip
        case events.IssueReopened():
            issues.pop(event.draft, None)
            frequency = _find_issue(issues, event.issue).frequency + 1
            _update_issue(issues, event.issue, status="triaged", frequency=frequency, updated_ms=event.at_ms,
                          cluster_id="")  # fmt: skip
            _mark_reopened(rest["resolutions"], event.issue, event.at_ms)
        case events.IncidentNoticed():
            rest["incidents"].append(event)
        case _:
            pass


def _mark_reopened(resolutions: list[events.IssueResolved], issue: str, at_ms: int) -> None:
    """Add to the last resolution of an issue that it did not last."""
    last = max(index for index, event in enumerate(resolutions) if event.issue == issue)
    date = datetime.fromtimestamp(at_ms / 1000, UTC).date()
    notes = f"{resolutions[last].notes} (reopened on {date})"
    resolutions[last] = replace(resolutions[last], notes=notes)


def _find_issue(issues: dict[str, Issue], name: str) -> Issue:
    if name not in issues:
        raise Invalid(f"a journal event names an unknown issue: {name}", hint="flightlog doctor")
    return issues[name]


def _update_issue(issues: dict[str, Issue], name: str, **fields: Any) -> None:
    issues[name] = replace(_find_issue(issues, name), **fields)


def _issue_from_draft(event: events.IssueDrafted) -> Issue:
    return Issue(
        event.issue, event.title, event.description, event.at_ms, event.at_ms, event.category, event.tags,
        event.affected_files, "draft", event.severity, is_generated=event.is_generated, context=event.context,
    )  # fmt: skip


def _triaged_fields(event: events.IssueTriaged) -> dict[str, Any]:
    fields = asdict(event)
    del fields["issue"]
    renamed = {"fix_complexity": fields.pop("complexity"), "updated_ms": fields.pop("at_ms")}
    return fields | renamed | {"status": "triaged"}


def _apply_clusters(
    issues: dict[str, Issue], clusters: dict[str, IssueCluster], event: events.IssuesClustered
) -> None:
    """Replace the clusters; one with the same issues stays approved."""
    before = dict(clusters)
    clusters.clear()
    for made in event.clusters:
        old = before.get(made.id)
        last_status = (
            old.status if old is not None and old.issue_ids == made.issue_ids else "pending"
        )
        status = "approved" if made.is_fast_tracked else last_status
        clusters[made.id] = IssueCluster(
            made.id, made.theme, made.issue_ids, made.affected_files, status=status
        )
        for name in made.issue_ids:
            score = event.scores.get(name, 0.0)
            _update_issue(
                issues, name, status="clustered", cluster_id=made.id, similarity_score=score
            )


def _aggregate_clusters(
    clusters: dict[str, IssueCluster], issues: dict[str, Issue]
) -> dict[str, IssueCluster]:
    order = get_args(Severity)
    aggregated = {}
    for cluster in clusters.values():
        members = [issues[name] for name in cluster.issue_ids if name in issues]
        if not members:
            continue
        worst = min((issue.severity or "medium" for issue in members), key=order.index)
        done = all(issue.status == "resolved" for issue in members)
        aggregated[cluster.id] = replace(
            cluster,
            primary_category=members[0].category,
            aggregate_severity=worst,
            aggregate_priority=max(issue.priority_score for issue in members),
            resolution_strategy="single_pr" if len(members) <= 3 else "multiple_prs",
            status="resolved" if done else cluster.status,
        )
    return aggregated
