"""Cluster open issues and rank them. Pure."""

import hashlib
import math
from collections.abc import Sequence

from flightlog.model.usage import DAY_MS
from flightlog.retro.analysis.similarity import content_words
from flightlog.retro.events import ClusterMade, IssuesClustered, IssuesPrioritized
from flightlog.retro.issues.board import FAST_TRACK, OPEN, Board, Issue

FILES_SHARED = 0.5  # share of common files from which two issues belong together
RECENT_MS = 7 * DAY_MS  # issues updated within it rank higher
# Factors of the priority, as in the source document's tool.
_SEVERITY = {"critical": 4, "high": 3, "medium": 2, "low": 1}
_EASE = {"trivial": 4, "small": 3, "medium": 2, "large": 1}


def cluster_issues(board: Board, now_ms: int) -> IssuesClustered:
    """Cluster open issues by files, error and words; a critical issue gets its own cluster."""
    candidates = [issue for issue in board.issues.values() if issue.status in OPEN - {"in_progress"}]
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
    return IssuesPrioritized(
        {issue.id: priority_score(issue, now_ms) for issue in board.issues.values() if issue.status in waiting}, now_ms
    )


def priority_score(issue: Issue, now_ms: int) -> float:
    """Return severity x log2(frequency + 1) x ease x recency, at least 10 if critical."""
    recency = 1.5 if now_ms - issue.updated_ms < RECENT_MS else 1.0
    severity = _SEVERITY[issue.severity or "medium"]
    score = round(severity * math.log2(issue.frequency + 1) * _EASE[issue.fix_complexity] * recency, 3)
    return max(FAST_TRACK, score) if issue.severity == "critical" else score


def _shared_fraction(one: Sequence[str], other: Sequence[str]) -> float:
    both = set(one) & set(other)
    return len(both) / max(len(set(one)), len(set(other))) if both else 0.0


def _word_similarity(one: Issue, other: Issue) -> float:
    """Return the cosine of the words of two issues."""
    mine, theirs = (set(content_words(f"{issue.title} {issue.description[:400]}")) for issue in (one, other))
    return len(mine & theirs) / math.sqrt(len(mine) * len(theirs)) if mine and theirs else 0.0


def _make_cluster(group: list[Issue]) -> ClusterMade:
    names = tuple(issue.id for issue in group)
    number = hashlib.sha256(names[0].encode()).hexdigest()[:8]
    files = tuple(dict.fromkeys(path for issue in group for path in issue.affected_files))
    return ClusterMade(
        f"cluster-{number}", group[0].title, names, files, fast=group[0].severity == "critical" and group[0].generated
    )
