"""The runtime directory's pages: pure functions of the board, the analysis and the feedback.

Public pages are `Clean`: made by the redactor from values that were redacted string by string before.
"""

from datetime import UTC, datetime
from typing import Any

import msgspec

from flightlog.model.pages import OutputFile, Tier
from flightlog.privacy.records import JsonRedactor
from flightlog.privacy.redact import Redactor
from flightlog.privacy.tiers import layout_of, render_gitattributes, render_gitignore
from flightlog.retro.events import FeedbackGiven, IssueResolved
from flightlog.retro.issues.board import VERSION, Board, Issue
from flightlog.retro.state import RetroAnalysis, encode_analysis

FOLDERS = ("state", "logs", "issue-drafts", "issues", "feedback", "outputs", "tmp")
CHANGELOG = "issues/CHANGELOG.md"


def guard_pages(redactor: Redactor) -> list[OutputFile]:
    """The files that make git keep the directories and ignore what is private in them."""
    one = layout_of("retro")
    own = {".gitignore": render_gitignore(one, root=""), ".gitattributes": render_gitattributes(one, root="")}
    kept = {f"{folder}/.gitkeep": "" for folder in FOLDERS}
    return [OutputFile(path, Tier.TRACKED, redactor.redact_as_clean(body)) for path, body in (own | kept).items()]


def analysis_page(analysis: RetroAnalysis) -> OutputFile:
    """`state/analysis.json`."""
    return OutputFile("state/analysis.json", Tier.PRIVATE, encode_analysis(analysis))


def board_page(board: Board) -> OutputFile:
    """`issue-state.json`."""
    told = {
        "schema_version": VERSION,
        "issues": {name: _issue_state(issue) for name, issue in board.issues.items()},
        "clusters": {name: msgspec.to_builtins(cluster) for name, cluster in board.clusters.items()},
        "last_triage_run": _format_timestamp(board.last_triage_ms),
        "last_cluster_run": _format_timestamp(board.last_cluster_ms),
        "last_prioritize_run": _format_timestamp(board.last_prioritize_ms),
        "cluster_threshold": board.cluster_threshold,
    }
    return OutputFile("issue-state.json", Tier.PRIVATE, _pretty_json(told))


def issue_name(issue: Issue) -> str:
    """Name the public file of an issue."""
    return f"issues/issue_{issue.id}.json"


def issue_page(issue: Issue, redactor: Redactor) -> OutputFile:
    """`issues/issue_<id>.json`: what may be read by everybody, and nothing of the context."""
    told = {
        "id": issue.id,
        "title": issue.title,
        "description": issue.description,
        "category": issue.category,
        "tags": list(issue.tags),
        "affected_files": list(issue.affected_files),
        "severity": issue.severity or "unknown",
        "frequency": issue.frequency,
        "created": _format_timestamp(issue.created_ms),
        "removed": {"secrets": issue.secrets, "personal": issue.personal},
    }
    return OutputFile(issue_name(issue), Tier.TRACKED, JsonRedactor(redactor).redact_rows([told]))


def changelog_page(resolutions: tuple[IssueResolved, ...], redactor: Redactor) -> OutputFile:
    """`issues/CHANGELOG.md`: one heading a day, newest first, one line for each issue."""
    lines = ["# Changelog", ""]
    for date in sorted({each.date for each in resolutions}, reverse=True):
        lines.append(f"## {date}")
        lines += [f"- **{each.issue}**: {' '.join(each.notes.split())}" for each in resolutions if each.date == date]
        lines.append("")
    return OutputFile(CHANGELOG, Tier.TRACKED, redactor.redact_as_clean("\n".join(lines)))


def feedback_page(given: FeedbackGiven) -> OutputFile:
    """`feedback/feedback_<session>_<time>.json`."""
    when = "".join(each for each in given.timestamp if each.isdigit())[:14]
    return OutputFile(
        f"feedback/feedback_{given.session_id}_{when}.json", Tier.PRIVATE, _pretty_json(msgspec.to_builtins(given))
    )


def _issue_state(issue: Issue) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(issue)
    created, updated = told.pop("created_ms"), told.pop("updated_ms")
    return told | {"created": _format_timestamp(created), "updated": _format_timestamp(updated)}


def _format_timestamp(at_ms: int) -> str | None:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat().replace("+00:00", "Z") if at_ms else None


def _pretty_json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"
