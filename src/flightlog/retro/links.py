"""Trace links of retro: findings and issues with the addresses of their evidence."""

import re
from collections.abc import Iterator

from flightlog.model.addresses import TraceLink
from flightlog.model.session import Session
from flightlog.retro.issues.board import Board, Issue
from flightlog.retro.state import Pattern, RetroAnalysis

_COMMIT = re.compile(r"[0-9a-f]{7,40}")


class RetroLinks:
    """Links to the findings of the last analysis and to the issues."""

    def __init__(self, analysis: RetroAnalysis | None, board: Board) -> None:
        patterns = analysis.patterns if analysis else ()
        self._links = [*map(_finding_link, patterns), *map(_issue_link, board.issues.values())]

    def find_links(self, prefix: str) -> Iterator[TraceLink]:
        """Yield the findings and issues whose id starts with `prefix`."""
        return (link for link in self._links if link.address.startswith(prefix))

    def links_for_session(self, session: Session) -> Iterator[TraceLink]:
        """Yield the findings and issues with evidence in `session`."""
        return (
            link
            for link in self._links
            if any(re.split("[@#]", at)[0] == session.id for at in link.session_addresses)
        )


def _finding_link(pattern: Pattern) -> TraceLink:
    session_addresses = tuple(place.address for place in pattern.evidence)
    return TraceLink("finding", pattern.id, pattern.label, session_addresses)


def _issue_link(issue: Issue) -> TraceLink:
    at = tuple(issue.context.get("evidence", "").split())
    pattern = issue.context.get("pattern", "")
    names = [("finding", pattern)] if pattern else []
    names += [("commit", issue.resolved_by)] if _COMMIT.fullmatch(issue.resolved_by) else []
    return TraceLink("issue", issue.id, f"{issue.status}: {issue.title}", at, tuple(names))
