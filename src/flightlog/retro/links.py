"""What looking back offers to a trace: findings and issues, each with the places that show it."""

import re
from collections.abc import Iterator

from flightlog.model.links import Link
from flightlog.model.session import Session
from flightlog.retro.issues.board import Board, Issue
from flightlog.retro.state import Analysis, Evidence

_COMMIT = re.compile(r"[0-9a-f]{7,40}")


class Lookback:
    """The findings of the last analysis, and the issues."""

    def __init__(self, analysis: Analysis | None, board: Board) -> None:
        """Offer these."""
        findings = [_finding(each.id, each.label, each.evidence) for each in (analysis.patterns if analysis else ())]
        self._links = [*findings, *map(_issue, board.issues.values())]

    def find(self, written: str) -> Iterator[Link]:
        """Yield the findings and issues whose id begins with `written`."""
        return (link for link in self._links if link.address.startswith(written))

    def of(self, session: Session) -> Iterator[Link]:
        """Yield those that name a place in `session`."""
        return (link for link in self._links if any(_session(at) == session.id for at in link.at))


def _finding(name: str, label: str, evidence: tuple[Evidence, ...]) -> Link:
    return Link("finding", name, label, tuple(each.address for each in evidence))


def _issue(issue: Issue) -> Link:
    at = tuple(issue.context.get("evidence", "").split())
    pattern = issue.context.get("pattern", "")
    names = [("finding", pattern)] if pattern else []
    names += [("commit", issue.resolved_by)] if _COMMIT.fullmatch(issue.resolved_by) else []
    return Link("issue", issue.id, f"{issue.status}: {issue.title}", at, tuple(names))


def _session(address: str) -> str:
    return re.split(r"[@#]", address, maxsplit=1)[0]
