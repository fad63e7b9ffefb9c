"""What looking back offers to a trace: findings and issues, each with the places that show it."""

import re
from collections.abc import Iterator

from flightlog.model.addresses import TraceLink
from flightlog.model.session import Session
from flightlog.retro.issues.board import Board, Issue
from flightlog.retro.state import PatternEvidence, RetroAnalysis

_COMMIT = re.compile(r"[0-9a-f]{7,40}")


class RetroLinks:
    """The findings of the last analysis, and the issues."""

    def __init__(self, analysis: RetroAnalysis | None, board: Board) -> None:
        """Offer these."""
        findings = [
            _finding_link(each.id, each.label, each.evidence) for each in (analysis.patterns if analysis else ())
        ]
        self._links = [*findings, *map(_issue_link, board.issues.values())]

    def find_links(self, written: str) -> Iterator[TraceLink]:
        """Yield the findings and issues whose id begins with `written`."""
        return (link for link in self._links if link.address.startswith(written))

    def links_for_session(self, session: Session) -> Iterator[TraceLink]:
        """Yield those that name a place in `session`."""
        return (link for link in self._links if any(_session_id(at) == session.id for at in link.at))


def _finding_link(name: str, label: str, evidence: tuple[PatternEvidence, ...]) -> TraceLink:
    return TraceLink("finding", name, label, tuple(each.address for each in evidence))


def _issue_link(issue: Issue) -> TraceLink:
    at = tuple(issue.context.get("evidence", "").split())
    pattern = issue.context.get("pattern", "")
    names = [("finding", pattern)] if pattern else []
    names += [("commit", issue.resolved_by)] if _COMMIT.fullmatch(issue.resolved_by) else []
    return TraceLink("issue", issue.id, f"{issue.status}: {issue.title}", at, tuple(names))


def _session_id(address: str) -> str:
    return re.split(r"[@#]", address, maxsplit=1)[0]
