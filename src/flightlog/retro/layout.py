"""Output files and the HTML artifact.

Foreign text enters the artifact twice: as JSON with every `<` escaped, which the script reads and
inserts as text nodes, and as escaped HTML for readers without scripts. The content security policy
names script and style by hash.

Public files are `Clean`: made by the redactor from values that were redacted string by string.
"""

import base64
import hashlib
import html
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, tzinfo
from importlib.resources import files
from itertools import zip_longest
from statistics import fmean, median
from typing import Any

import msgspec

from flightlog.model.output_files import OutputFile, Tier
from flightlog.model.text import make_inert, pluralize
from flightlog.privacy.json_redactor import JsonRedactor
from flightlog.privacy.redactor import Redactor
from flightlog.privacy.tiers import layout_of, render_gitattributes, render_gitignore
from flightlog.retro.analysis.digests import ConversationDigest, format_spent
from flightlog.retro.analysis.findings import is_excluded
from flightlog.retro.events import FeedbackGiven, IssueResolved
from flightlog.retro.issues.board import VERSION, Board, Issue
from flightlog.retro.state import (
    Recommendation,
    RetroAnalysis,
    describe_action,
    describe_applied,
    describe_trend,
)

CHARTS = ("timeline", "heatmap", "lengths", "costs")
_BIN = 5  # messages per bar, as in the source document's tool
_LABEL_CHARS = 140  # of a title in the list
FOLDERS = ("state", "logs", "issue-drafts", "issues", "feedback", "outputs", "tmp")
CHANGELOG = "issues/CHANGELOG.md"


def count_prompts(
    digests: Iterable[ConversationDigest], zone: tzinfo
) -> tuple[Counter[str], Counter[tuple[int, int]]]:
    """Count the prompts that have a time by ISO day, and by weekday (0 is Sunday) and hour."""
    days: Counter[str] = Counter()
    hours: Counter[tuple[int, int]] = Counter()
    for digest in digests:
        for prompt in digest.prompts:
            if prompt.at_ms:
                at = datetime.fromtimestamp(prompt.at_ms / 1000, UTC).astimezone(zone)
                days[f"{at:%Y-%m-%d}"] += 1
                hours[(at.weekday() + 1) % 7, at.hour] += 1
    return days, hours


def render_artifact(
    analysis: RetroAnalysis, digests: Sequence[ConversationDigest], zone: tzinfo, name: str
) -> str:
    """Return the HTML page; `name` separates its annotations from other artifacts'."""
    here = files("flightlog.retro") / "artifact"
    script = (here / "artifact.js").read_text("utf-8")
    style = (here / "artifact.css").read_text("utf-8")
    shell = (here / "artifact.html").read_text("utf-8")
    policy = (
        f"default-src 'none'; script-src {_csp_hash(script)}; style-src {_csp_hash(style)}; "
        "base-uri 'none'; form-action 'none'"
    )
    fallback = _render_fallback(analysis)
    data = embed_json(_artifact_data(analysis, digests, zone, name))
    parts = {"POLICY": policy, "STYLE": style, "SCRIPT": script, "FALLBACK": fallback, "DATA": data}
    # One pass from left to right, so that inserted text is never searched for placeholders.
    return "".join(parts.get(piece, piece) for piece in shell.split("@@"))


def summarize(
    digests: Sequence[ConversationDigest],
    recommended: Sequence[Recommendation],
    span: tuple[str, str] | None,
) -> tuple[str, ...]:
    """Return five sentences: what was read, what it cost, the two things to do first, how."""
    conversations = pluralize(len(digests), "conversation")
    prompts = pluralize(sum(len(digest.prompts) for digest in digests), "prompt")
    dates = f" from {' to '.join(dict.fromkeys(span))}" if span else ""
    costs = [digest.cost_usd for digest in digests if digest.cost_usd is not None]
    first = [f"{one.title.rstrip('.')}, {one.detail}." for one in recommended[:2]]
    first += [
        f"Nothing {'else ' if recommended else ''}occurred often enough to recommend a change.",
        "More conversations may show what repeats.",
    ]
    cost = f"{pluralize(len(costs), 'session')} cost {format_spent(digests)} USD." if costs else ""
    changes = [one for one in recommended if one.action.diff]
    do = f"To see and make a change: {describe_action(changes[0])}." if changes else ""
    return (
        f"This is a look back at {conversations} with {prompts}{dates}.",
        cost or "No cost is recorded.",
        *first[:2],
        do or "No file needs a change.",
    )


def embed_json(value: Any) -> str:
    """Return `value` as JSON that cannot end the element around it."""
    text = msgspec.json.encode(value).decode()
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def _csp_hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _artifact_data(
    analysis: RetroAnalysis, digests: Sequence[ConversationDigest], zone: tzinfo, name: str
) -> dict[str, Any]:
    shown = [digest for digest in digests if not is_excluded(digest, analysis.user_preferences)]
    shown.sort(key=lambda digest: (-digest.started_ms, digest.id))
    days, hours = count_prompts(shown, zone)
    return {
        "name": name,
        "meta": analysis.meta,
        "first_chart": analysis.user_preferences.preferred_viz or CHARTS[0],
        "timeline": [{"date": day, "count": count} for day, count in sorted(days.items())],
        "heatmap": [
            {"day": day, "hour": hour, "count": count}
            for (day, hour), count in sorted(hours.items())
        ],
        "lengths": _length_histogram([digest.messages for digest in shown]),
        "costs": _cost_histogram([digest.cost_usd for digest in shown if digest.cost_usd]),
        "summary": [make_inert(sentence) for sentence in analysis.summary],
        "recommendations": [_recommendation_data(one) for one in analysis.recommendations],
        "applied": [describe_applied(one) for one in analysis.applied],
        "chats": [
            [digest.id, make_inert(digest.title)[:_LABEL_CHARS], digest.started_ms,
             digest.messages, digest.source, digest.cost_usd or 0]
            for digest in shown
        ],
    }  # fmt: skip


def _recommendation_data(one: Recommendation) -> dict[str, Any]:
    return {
        "id": one.id,
        "kind": one.kind,
        "label": make_inert(one.title),
        "detail": one.detail,
        "trend": describe_trend(one),
        "evidence": [
            [address, make_inert(text)]
            for address, text in zip_longest(one.evidence, one.quotes, fillvalue="")
        ],
        "diff": make_inert(one.action.diff),
        "next": describe_action(one),
    }


def _length_histogram(counts: Sequence[int]) -> dict[str, Any]:
    ordered = sorted(counts)
    bins = Counter(count // _BIN * _BIN for count in ordered)
    stats = {
        "total": sum(ordered),
        "min": ordered[0] if ordered else 0,
        "max": ordered[-1] if ordered else 0,
        "mean": round(fmean(ordered), 1) if ordered else 0,
        "median": float(median(ordered)) if ordered else 0,
    }
    return {
        "bins": [{"from": start, "count": count} for start, count in bins.items()],
        "stats": stats,
    }


def _cost_histogram(amounts: Sequence[float]) -> dict[str, Any]:
    edges = (0.01, 0.1, 0.5, 1, 5, 10, 50)
    bins = [0] * (len(edges) + 1)
    for amount in amounts:
        bins[sum(amount >= edge for edge in edges)] += 1
    return {"edges": edges, "bins": bins, "total": round(sum(amounts), 2)}


def _render_fallback(analysis: RetroAnalysis) -> str:
    escape = html.escape
    rows = "".join(
        f"<li><b>{escape(make_inert(one.title))}</b> {escape(one.detail)}<br>{escape(describe_action(one))}</li>"
        for one in analysis.recommendations
    )
    return f"<p>{escape(make_inert(' '.join(analysis.summary)))}</p><ol>{rows}</ol>"


def render_markdown(analysis: RetroAnalysis) -> str:
    """Return the analysis as Markdown with front matter; foreign text is in code spans."""
    meta = analysis.meta
    count = f"conversations: {meta.conversation_count}"
    lines = ["---", f"created: {meta.last_updated}", count, "---", ""]
    lines += ["# Retro", "", _code_span(" ".join(analysis.summary)), ""]
    for one in analysis.recommendations:
        lines += [f"## {one.kind}: {_code_span(one.title)}", "", one.detail, ""]
        lines += [trend, ""] if (trend := describe_trend(one)) else []
        lines += [f"- {_code_span(address)}" for address in one.evidence]
        lines += ["", _code_span(describe_action(one)), ""]
    for pattern in analysis.patterns:
        lines += [f"## {pattern.kind}: {_code_span(pattern.title)}", ""]
        lines += [f"{pattern.detail} (confidence {pattern.confidence:.2f})", ""]
        lines += [
            f"- {_code_span(place.address)} {_code_span(place.text)}" for place in pattern.evidence
        ]
        lines.append("")
    return "\n".join(lines)


def _code_span(text: str) -> str:
    plain = " ".join(make_inert(text).split())
    runs = (len(run) for run in plain.split() if set(run) == {"`"})
    fence = "`" * (max(runs, default=0) + 1 + plain.count("`"))
    return f"{fence} {plain} {fence}" if plain else "` `"


def guard_pages(redactor: Redactor) -> list[OutputFile]:
    """Return the files that make git keep the directories and ignore private content."""
    layout = layout_of("retro")
    bodies = {
        ".gitignore": render_gitignore(layout, root=""),
        ".gitattributes": render_gitattributes(layout, root=""),
    }
    bodies |= {f"{folder}/.gitkeep": "" for folder in FOLDERS}
    clean = redactor.redact_as_clean
    return [OutputFile(path, Tier.TRACKED, clean(body)) for path, body in bodies.items()]


def analysis_page(analysis: RetroAnalysis) -> OutputFile:
    """Return `state/analysis.json`."""
    return OutputFile("state/analysis.json", Tier.PRIVATE, _pretty_json(analysis))


def board_page(board: Board) -> OutputFile:
    """Return `issue-state.json`."""
    document = {
        "schema_version": VERSION,
        "issues": {name: _issue_state(issue) for name, issue in board.issues.items()},
        "clusters": {
            name: msgspec.to_builtins(cluster) for name, cluster in board.clusters.items()
        },
        "last_triage_run": _format_timestamp(board.last_triage_ms),
        "last_cluster_run": _format_timestamp(board.last_cluster_ms),
        "last_prioritize_run": _format_timestamp(board.last_prioritize_ms),
        "cluster_threshold": board.cluster_threshold,
    }
    return OutputFile("issue-state.json", Tier.PRIVATE, _pretty_json(document))


def issue_name(issue: Issue) -> str:
    """Return the path of an issue's public file."""
    return f"issues/issue_{issue.id}.json"


def issue_page(issue: Issue, redactor: Redactor) -> OutputFile:
    """Return `issues/issue_<id>.json`: the public fields, nothing of the context."""
    document = {
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
    body = JsonRedactor(redactor).redact_rows([document])
    return OutputFile(issue_name(issue), Tier.TRACKED, body)


def changelog_page(resolutions: tuple[IssueResolved, ...], redactor: Redactor) -> OutputFile:
    """Return `issues/CHANGELOG.md`: a heading per day, newest first, a line per issue."""
    lines = ["# Changelog", ""]
    for date in sorted({resolution.date for resolution in resolutions}, reverse=True):
        lines.append(f"## {date}")
        dated = [resolution for resolution in resolutions if resolution.date == date]
        lines += [f"- **{one.issue}**: {' '.join(one.notes.split())}" for one in dated]
        lines.append("")
    return OutputFile(CHANGELOG, Tier.TRACKED, redactor.redact_as_clean("\n".join(lines)))


def feedback_page(feedback: FeedbackGiven) -> OutputFile:
    """Return `feedback/feedback_<session>_<time>.json`."""
    time = "".join(filter(str.isdigit, feedback.timestamp))[:14]
    path = f"feedback/feedback_{feedback.session_id}_{time}.json"
    return OutputFile(path, Tier.PRIVATE, _pretty_json(msgspec.to_builtins(feedback)))


def _issue_state(issue: Issue) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(issue)
    created, updated = document.pop("created_ms"), document.pop("updated_ms")
    return document | {"created": _format_timestamp(created), "updated": _format_timestamp(updated)}


def _format_timestamp(at_ms: int) -> str | None:
    if at_ms:
        return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat().replace("+00:00", "Z")
    return None


def _pretty_json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"
