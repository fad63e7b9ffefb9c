"""Process, approve, publish and resolve issues; turn incidents into drafts.

A feature reports incidents from its journal or from checking its files; here they are values. An
incident that a check reports again is ignored until an issue of that feature was resolved: then it
is a recurrence.

Every step appends its event and then writes the output files that follow from it, so that an
interrupted run can continue. Nothing is published before `validate_issue` saw the exact bytes.
"""

import hashlib
import math
from collections.abc import Iterable, Sequence

from msgspec import Struct

from flightlog.model.errors import Conflict, Incident, Invalid
from flightlog.model.output_files import Clean, OutputFile
from flightlog.model.text import format_utc_ms
from flightlog.model.usage import DAY_MS
from flightlog.retro import events
from flightlog.retro.analysis.similarity import content_words
from flightlog.retro.events import ClusterMade, IssuesClustered, IssuesPrioritized
from flightlog.retro.issues import triage
from flightlog.retro.issues.board import FAST_TRACK, OPEN, Board, Issue, IssueCluster, check_move
from flightlog.retro.layout import board_page, changelog_page, issue_name, issue_page
from flightlog.retro.store import RetroStore
from flightlog.store import files, output_files

FILES_SHARED = 0.5  # share of common files from which two issues belong together
RECENT_MS = 7 * DAY_MS  # issues updated within it rank higher
# Factors of the priority, as in the source document's tool.
_SEVERITY = {"critical": 4, "high": 3, "medium": 2, "low": 1}
_EASE = {"trivial": 4, "small": 3, "medium": 2, "large": 1}


def cluster_issues(board: Board, now_ms: int) -> IssuesClustered:
    """Cluster open issues by files, error and words; a critical issue gets its own cluster."""
    candidates = [
        issue for issue in board.issues.values() if issue.status in OPEN - {"in_progress"}
    ]
    issues = sorted(candidates, key=lambda issue: (issue.created_ms, issue.id))
    groups: list[list[Issue]] = []
    scores: dict[str, float] = {}
    for issue in issues:
        best, nearest = 0.0, None
        for group in groups if issue.severity != "critical" else ():
            if group[0].severity != "critical":
                similarity = max(issue_similarity(issue, other) for other in group)
                best, nearest = (similarity, group) if similarity > best else (best, nearest)
        if nearest is not None and best >= board.cluster_threshold:
            nearest.append(issue)
            scores[issue.id] = round(best, 3)
        else:
            groups.append([issue])
            scores[issue.id] = 1.0
    return IssuesClustered(tuple(_make_cluster(group) for group in groups), now_ms, scores)


def issue_similarity(one: Issue, other: Issue) -> float:
    """Return what two issues have in common, 0 to 1: the same error, files, or words."""
    if one.signature and one.signature == other.signature:
        return 1.0
    files = _shared_fraction(one.affected_files, other.affected_files)
    by_files = 0.5 + files / 2 if files >= FILES_SHARED else 0.0
    return max(by_files, _word_similarity(one, other))


def prioritize_issues(board: Board, now_ms: int) -> IssuesPrioritized:
    """Return the current priority of every clustered issue."""
    waiting = {"clustered", "prioritized"}
    open_issues = [issue for issue in board.issues.values() if issue.status in waiting]
    scores = {issue.id: priority_score(issue, now_ms) for issue in open_issues}
    return IssuesPrioritized(scores, now_ms)


def priority_score(issue: Issue, now_ms: int) -> float:
    """Return severity x log2(frequency + 1) x ease x recency, at least 10 if critical."""
    recency = 1.5 if now_ms - issue.updated_ms < RECENT_MS else 1.0
    severity = _SEVERITY[issue.severity or "medium"]
    score = round(
        severity * math.log2(issue.frequency + 1) * _EASE[issue.fix_complexity] * recency, 3
    )
    return max(FAST_TRACK, score) if issue.severity == "critical" else score


def _shared_fraction(one: Sequence[str], other: Sequence[str]) -> float:
    both = set(one) & set(other)
    return len(both) / max(len(set(one)), len(set(other))) if both else 0.0


def _word_similarity(one: Issue, other: Issue) -> float:
    """Return the cosine of the words of two issues."""
    mine, theirs = (
        set(content_words(f"{issue.title} {issue.description[:400]}")) for issue in (one, other)
    )
    return len(mine & theirs) / math.sqrt(len(mine) * len(theirs)) if mine and theirs else 0.0


def _make_cluster(group: list[Issue]) -> ClusterMade:
    names = tuple(issue.id for issue in group)
    number = hashlib.sha256(names[0].encode()).hexdigest()[:8]
    files = tuple(dict.fromkeys(path for issue in group for path in issue.affected_files))
    is_fast_tracked = group[0].severity == "critical" and group[0].is_generated
    return ClusterMade(
        f"cluster-{number}", group[0].title, names, files, is_fast_tracked=is_fast_tracked
    )


def draft_incidents(store: RetroStore, incidents: Iterable[Incident]) -> list[Incident]:
    """Store drafts of the new ones among these incidents, and return those."""
    board = store.load_board()
    known: dict[tuple[str, ...], int] = {}
    for event in board.incidents:
        key = _incident_key(event.incident)
        known[key] = max(known.get(key, 0), event.incident.at_ms)
    new = []
    for incident in incidents:
        key = _incident_key(incident)
        if key not in known or _has_recurred(incident, known[key], board):
            known[key] = incident.at_ms
            store.journal.append(events.IncidentNoticed(incident), durable=True)
            store.store_draft(triage.draft_from_incident(incident))
            new.append(incident)
    return new


def _incident_key(incident: Incident) -> tuple[str, ...]:
    return (incident.feature, incident.kind, *incident.evidence)


def _has_recurred(incident: Incident, before_ms: int, board: Board) -> bool:
    """Return whether an incident is newer than `before_ms` and its feature's issue was resolved.

    An incident from a journal keeps its time; one from a check has the time of the check.
    """
    if incident.at_ms <= before_ms:
        return False
    tags = {incident.feature, "incident"}
    own_issues = {issue.id for issue in board.issues.values() if tags <= set(issue.tags)}
    later = [one for one in board.resolutions if one.at_ms > before_ms]
    return any(resolution.issue in own_issues for resolution in later)


class ProcessResult(Struct, frozen=True):
    """Ids of imported, repeated and reopened issues; unreadable drafts; the board."""

    imported_issues: tuple[str, ...]
    duplicate_drafts: tuple[str, ...]
    reopened_issues: tuple[str, ...]
    unreadable_drafts: tuple[str, ...]
    board: Board


def process_drafts(store: RetroStore) -> ProcessResult:
    """Import, triage, cluster and prioritize every draft."""
    imported, unreadable = _import_drafts(store)
    repeated, reopened = _triage_drafts(store)
    now = store.now_ms()
    board = store.load_board()
    if board.open_issues():
        store.journal.append(cluster_issues(board, now))
        store.journal.append(prioritize_issues(store.load_board(), now), durable=True)
    board = _write_pages(store)
    return ProcessResult(
        tuple(imported), tuple(repeated), tuple(reopened), tuple(unreadable), board
    )


def approve_clusters(store: RetroStore, prefix: str = "") -> list[str]:
    """Approve the cluster whose id starts with `prefix`, or all pending ones; return their ids.

    Findings repeat words of a conversation, so a cluster with a finding needs its id.
    """
    board = store.load_board()
    named = [one for one in board.clusters.values() if one.id.startswith(prefix)]
    chosen = [cluster for cluster in named if prefix or not has_finding(board, cluster)]
    if prefix and len(chosen) != 1:
        hint = "flightlog issue clusters"
        raise Invalid(f"{len(chosen)} clusters start with {prefix[:40]!r}", hint=hint)
    for cluster in chosen:
        if cluster.status == "pending":
            store.journal.append(events.ClusterApproved(cluster.id, store.now_ms()))
    _write_pages(store)
    return [cluster.id for cluster in chosen]


def has_finding(board: Board, cluster: IssueCluster) -> bool:
    """Return whether text of a cluster comes from a conversation."""
    return any(triage.FINDING in board.issues[name].tags for name in cluster.issue_ids)


def preview_issues(store: RetroStore, prefix: str = "") -> list[OutputFile]:
    """Return the files publishing would write: of one issue, or of all approved open ones."""
    board = store.load_board()
    if prefix:
        return [validate_issue(store, board.find_issue(prefix))]
    approved = [one for one in board.clusters.values() if one.status == "approved"]
    chosen = [issue for cluster in approved for issue in cluster.issue_ids]
    issues = [board.issues[name] for name in chosen]
    return [validate_issue(store, issue) for issue in issues if issue.status in OPEN]


def validate_issue(store: RetroStore, issue: Issue) -> OutputFile:
    """Return the public file of an issue.

    Raise `Conflict` if it is not open, `Invalid` if its text still looks private.
    """
    if issue.status not in OPEN:
        hint = "flightlog issue process"
        raise Conflict(f"cannot publish a {issue.status} issue: {issue.id}", hint=hint)
    page = issue_page(issue, store.redactor)
    assert isinstance(page.body, Clean)
    rules = {finding.rule for finding in store.redactor.find_in_text(page.body.text)}
    problem = f"private-looking text ({', '.join(sorted(rules))})" if rules else ""
    texts = (issue.title, issue.description, issue.category, *issue.tags, *issue.affected_files)
    names = store.collect_names()
    if any(triage.without_private_text(text, names) != text for text in texts):
        problem = "conversation, names or addresses"
    if problem:
        hint = "edit the draft, then: flightlog issue process"
        raise Invalid(f"the issue still contains {problem}: {issue.id}", hint=hint)
    return page


def publish_issues(store: RetroStore, prefix: str = "") -> list[str]:
    """Write the public files of approved issues, or of one issue; return their paths."""
    board, pages = store.load_board(), preview_issues(store, prefix)
    output_files.write_output_files(store.root, pages)
    names = {issue_name(issue): issue.id for issue in board.issues.values()}
    for page in pages:
        if not board.issues[names[page.path]].is_published:
            store.journal.append(events.IssuePublished(names[page.path], store.now_ms()))
    _write_pages(store)
    return [page.path for page in pages]


def move_issue(store: RetroStore, prefix: str, to: events.Status, notes: str = "") -> Issue:
    """Change the status of an issue, or raise `Conflict`; a closed issue loses its public file."""
    issue = store.load_board().find_issue(prefix)
    check_move(issue, to)
    store.journal.append(
        events.IssueMoved(issue.id, to, store.now_ms(), _public_text(store, notes)), durable=True
    )
    if to not in OPEN:
        files.remove_files([files.resolve_inside(store.root, issue_name(issue))])
    return _write_pages(store).issues[issue.id]


def resolve_issue(store: RetroStore, prefix: str, notes: str, by: str = "") -> Issue:
    """Resolve an issue: remove its public file and add it to the changelog."""
    issue = store.load_board().find_issue(prefix)
    check_move(issue, "resolved")
    if not notes.strip():
        raise Invalid("resolution notes are missing", hint='flightlog issue resolve ID --notes "…"')
    now = store.now_ms()
    notes, by = _public_text(store, notes), _public_text(store, by)
    date = format_utc_ms(now)[:10]
    store.journal.append(events.IssueResolved(issue.id, notes, date, now, by), durable=True)
    files.remove_files([files.resolve_inside(store.root, issue_name(issue))])
    return _write_pages(store).issues[issue.id]


def _public_text(store: RetroStore, text: str) -> str:
    return triage.public_texts([text], store.redactor, store.collect_names()).value[0]


def _import_drafts(store: RetroStore) -> tuple[list[str], list[str]]:
    """Append the drafts to the journal; a file is removed only after its event is on disk."""
    history = list(store.iter_events())
    known = {event.issue for event in history if isinstance(event, events.IssueDrafted)}
    incidents = [event.incident for event in history if isinstance(event, events.IncidentNoticed)]
    imported, unreadable, imported_files = [], [], []
    for path in sorted((store.root / "issue-drafts").glob("*.json")):
        try:
            draft = triage.read_draft(path.name, path.read_bytes())
        except Invalid as error:
            unreadable.append(f"{path.name}: {error.message}")
            continue
        if draft.id not in known:
            store.journal.append(triage.draft_event(draft, incidents), durable=True)
            known.add(draft.id)
            imported.append(draft.id)
        imported_files.append(path)
    files.remove_files(imported_files)
    return imported, unreadable


def _triage_drafts(store: RetroStore) -> tuple[list[str], list[str]]:
    repeated, reopened = [], []
    drafts = [issue for issue in store.load_board().issues.values() if issue.status == "draft"]
    for issue in sorted(drafts, key=lambda draft: (draft.created_ms, draft.id)):
        triaged = [other for other in store.load_board().issues.values() if other.status != "draft"]
        now = store.now_ms()
        new = triage.triage_issue(issue, store.redactor, now, store.collect_names())
        same = triage.find_same_issue(new, triaged)
        if same is None:
            store.journal.append(new)
        elif same.status == "resolved":
            store.journal.append(events.IssueReopened(same.id, issue.id, now), durable=True)
            reopened.append(same.id)
        else:
            store.journal.append(events.DraftRepeated(issue.id, same.id, now), durable=True)
            repeated.append(issue.id)
    return repeated, reopened


def _write_pages(store: RetroStore) -> Board:
    """Write the output files that follow from the journal, and return the board."""
    board = store.load_board()
    pages = [board_page(board)]
    if board.resolutions:
        pages.append(changelog_page(board.resolutions, store.redactor))
    pages += [
        issue_page(issue, store.redactor) for issue in board.issues.values() if issue.is_published
    ]
    output_files.write_output_files(store.root, pages)
    return board
