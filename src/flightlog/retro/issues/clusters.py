"""Clusters and ranks: which open issues belong together, and what comes first. Pure."""

import hashlib
import math
from collections.abc import Sequence

from flightlog.model.usage import DAY_MS
from flightlog.retro.analysis.similarity import content_words
from flightlog.retro.events import ClusterMade, IssuesClustered, IssuesPrioritized
from flightlog.retro.issues.board import FAST_TRACK, OPEN, Board, Issue

FILES_SHARED = 0.5
RECENT_MS = 7 * DAY_MS
_SEVERITY = {"critical": 4, "high": 3, "medium": 2, "low": 1}
_EASE = {"trivial": 4, "small": 3, "medium": 2, "large": 1}


def cluster_issues(board: Board, now_ms: int) -> IssuesClustered:
    """Put open issues together by files, error and meaning; a critical one stands alone."""
    issues = sorted((each for each in board.issues.values() if each.status in OPEN - {"in_progress"}), key=_age_key)
    groups: list[list[Issue]] = []
    scores: dict[str, float] = {}
    for issue in issues:
        best, where = 0.0, None
        for group in groups if issue.severity != "critical" else ():
            if group[0].severity != "critical":
                near = max(issue_similarity(issue, other) for other in group)
                best, where = (near, group) if near > best else (best, where)
        if where is not None and best >= board.cluster_threshold:
            where.append(issue)
            scores[issue.id] = round(best, 3)
        else:
            groups.append([issue])
            scores[issue.id] = 1.0
    return IssuesClustered(tuple(_make_cluster(group) for group in groups), now_ms, scores)


def issue_similarity(one: Issue, other: Issue) -> float:
    """Say how much two issues have in common, 0 to 1: the same error, shared files, or the same words."""
    if one.signature and one.signature == other.signature:
        return 1.0
    files = _shared_fraction(one.affected_files, other.affected_files)
    by_files = 0.5 + files / 2 if files >= FILES_SHARED else 0.0
    return max(by_files, _word_similarity(one, other))


def prioritize_issues(board: Board, now_ms: int) -> IssuesPrioritized:
    """Rank every clustered issue with the numbers of now."""
    waiting = {"clustered", "prioritized"}
    return IssuesPrioritized(
        {each.id: priority_score(each, now_ms) for each in board.issues.values() if each.status in waiting}, now_ms
    )


def priority_score(issue: Issue, now_ms: int) -> float:
    """Severity x log2(frequency + 1) x ease x recency; a critical issue comes first whatever its ease."""
    recency = 1.5 if now_ms - issue.updated_ms < RECENT_MS else 1.0
    severity = _SEVERITY[issue.severity or "medium"]
    score = round(severity * math.log2(issue.frequency + 1) * _EASE[issue.fix_complexity] * recency, 3)
    return max(FAST_TRACK, score) if issue.severity == "critical" else score


def _age_key(issue: Issue) -> tuple[int, str]:
    return issue.created_ms, issue.id


def _shared_fraction(one: Sequence[str], other: Sequence[str]) -> float:
    both = set(one) & set(other)
    return len(both) / max(len(set(one)), len(set(other))) if both else 0.0


def _word_similarity(one: Issue, other: Issue) -> float:
    """Cosine of the words of two issues."""
    mine, theirs = (set(content_words(f"{each.title} {each.description[:400]}")) for each in (one, other))
    return len(mine & theirs) / math.sqrt(len(mine) * len(theirs)) if mine and theirs else 0.0


def _make_cluster(group: list[Issue]) -> ClusterMade:
    names = tuple(issue.id for issue in group)
    number = hashlib.sha256(names[0].encode()).hexdigest()[:8]
    files = tuple(dict.fromkeys(path for issue in group for path in issue.affected_files))
    return ClusterMade(
        f"cluster-{number}", group[0].title, names, files, fast=group[0].severity == "critical" and group[0].generated
    )
