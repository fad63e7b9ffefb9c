"""Output files and the HTML artifact.

Foreign text comes in twice: as data (JSON with every `<` written as an escape, read by the script and
put on the page as text) and as escaped HTML for readers without scripts. The policy names the script
and the style by hash.

Public pages are `Clean`: made by the redactor from values that were redacted string by string before.
"""

import base64
import hashlib
import html
from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from importlib.resources import files
from typing import Any

import msgspec

from flightlog.model.output_files import OutputFile, Tier
from flightlog.model.text import make_inert
from flightlog.privacy.json_redactor import JsonRedactor
from flightlog.privacy.redactor import Redactor
from flightlog.privacy.tiers import layout_of, render_gitattributes, render_gitignore
from flightlog.retro.analysis.digests import ConversationDigest
from flightlog.retro.analysis.findings import count_activity, is_excluded
from flightlog.retro.events import FeedbackGiven, IssueResolved
from flightlog.retro.issues.board import VERSION, Board, Issue
from flightlog.retro.state import RetroAnalysis, encode_analysis

CHARTS = ("timeline", "heatmap", "topics", "lengths", "costs")
NODES_MAX = 40
_BIN = 5
_LABEL_CHARS = 140
FOLDERS = ("state", "logs", "issue-drafts", "issues", "feedback", "outputs", "tmp")
CHANGELOG = "issues/CHANGELOG.md"


def render_artifact(analysis: RetroAnalysis, digests: Sequence[ConversationDigest], zone: tzinfo, name: str) -> str:
    """Return the whole page; `name` keeps its annotations apart from those of other artifacts."""
    here = files("flightlog.retro") / "artifact"
    script = (here / "artifact.js").read_text("utf-8")
    style = (here / "artifact.css").read_text("utf-8")
    shell = (here / "artifact.html").read_text("utf-8")
    data = embed_json(_artifact_data(analysis, digests, zone, name))
    policy = (
        f"default-src 'none'; script-src {_csp_hash(script)}; style-src {_csp_hash(style)}; "
        "base-uri 'none'; form-action 'none'"
    )
    parts = {
        "POLICY": policy,
        "STYLE": style,
        "SCRIPT": script,
        "FALLBACK": _render_fallback(analysis),
        "DATA": data,
    }
    # One pass from left to right: what was put in is never looked at again.
    return "".join(parts.get(piece, piece) for piece in shell.split("@@"))


def embed_json(value: Any) -> str:
    """Write `value` as JSON that cannot end the element it stands in."""
    text = msgspec.json.encode(value).decode()
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _csp_hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _artifact_data(
    analysis: RetroAnalysis, digests: Sequence[ConversationDigest], zone: tzinfo, name: str
) -> dict[str, Any]:
    shown = [each for each in digests if not is_excluded(each, analysis.user_preferences)]
    shown.sort(key=lambda each: (-each.started_ms, each.id))
    when = count_activity(shown, zone)
    topics = [each for each in analysis.patterns if each.kind == "topic"]
    topic_of = {conversation: place for place, each in enumerate(topics) for conversation in each.conversation_ids}
    return {
        "name": name,
        "meta": analysis.meta,
        "first": analysis.user_preferences.preferred_viz or CHARTS[0],
        "timeline": [{"date": day, "count": count} for day, count in when.days.items()],
        "heatmap": [
            {"day": day, "hour": hour, "count": count}
            for day, row in enumerate(when.grid)
            for hour, count in enumerate(row)
            if count
        ],
        "graph": _build_graph(analysis),
        "lengths": _length_histogram([each.messages for each in shown]),
        "costs": _cost_histogram([each.usd for each in shown if each.usd]),
        "topics": [each.title for each in topics],
        "patterns": [
            {"id": each.id, "kind": each.kind, "label": make_inert(each.title), "detail": each.detail,
             "sure": each.confidence, "evidence": [[one.address, make_inert(one.text)] for one in each.evidence]}
            for each in analysis.patterns
        ],
        "chats": [
            [each.id, _digest_title(each), each.started_ms,
             each.messages, topic_of.get(each.id, -1), each.source, each.usd or 0]
            for each in shown
        ],
    }  # fmt: skip


def _digest_title(digest: ConversationDigest) -> str:
    return make_inert(digest.title or (digest.prompts[0].text if digest.prompts else ""))[:_LABEL_CHARS]


def _build_graph(analysis: RetroAnalysis) -> dict[str, Any]:
    """Topics and repeated questions as nodes, joined by the conversations they share."""
    chosen = [each for each in analysis.patterns if each.kind in {"topic", "question again", "friction"}][:NODES_MAX]
    members = [set(each.conversation_ids) for each in chosen]
    nodes = [
        {
            "id": each.id,
            "group": each.kind,
            "count": len(each.conversation_ids),
            "type": each.type,
            "label": make_inert(each.title),
        }
        for each in chosen
    ]
    links = [
        {"source": chosen[one].id, "target": chosen[two].id, "value": shared}
        for one in range(len(chosen))
        for two in range(one + 1, len(chosen))
        if (shared := len(members[one] & members[two]))
    ]
    return {"nodes": nodes, "links": links}


def _length_histogram(counts: Sequence[int]) -> dict[str, Any]:
    ordered = sorted(counts)
    bins: dict[int, int] = {}
    for count in ordered:
        bins[count // _BIN * _BIN] = bins.get(count // _BIN * _BIN, 0) + 1
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2 if ordered else 0
    stats = {
        "total": sum(ordered),
        "min": ordered[0] if ordered else 0,
        "max": ordered[-1] if ordered else 0,
        "mean": round(sum(ordered) / len(ordered), 1) if ordered else 0,
        "median": middle,
    }
    return {"bins": [{"from": start, "count": count} for start, count in bins.items()], "stats": stats}


def _cost_histogram(amounts: Sequence[float]) -> dict[str, Any]:
    edges = (0.01, 0.1, 0.5, 1, 5, 10, 50)
    bins = [0] * (len(edges) + 1)
    for amount in amounts:
        bins[sum(amount >= edge for edge in edges)] += 1
    return {"edges": edges, "bins": bins, "total": round(sum(amounts), 2)}


def _render_fallback(analysis: RetroAnalysis) -> str:
    rows = "".join(
        f"<li><b>{html.escape(make_inert(each.title))}</b> {html.escape(each.kind)}: {html.escape(each.detail)}</li>"
        for each in analysis.patterns[:200]
    )
    return f"<ul>{rows}</ul>"


def render_markdown(analysis: RetroAnalysis) -> str:
    """Return the analysis as Markdown with front matter; foreign text stands in code spans."""
    meta = analysis.meta
    lines = [
        "---",
        f"created: {meta.last_updated}",
        f"conversations: {meta.conversation_count}",
        "---",
        "",
        "# Retro",
        "",
    ]
    for each in analysis.patterns:
        lines += [f"## {each.kind}: {_code_span(each.title)}", "", f"{each.detail} (sure {each.confidence:.2f})", ""]
        lines += [f"- {_code_span(one.address)} {_code_span(one.text)}" for one in each.evidence]
        lines.append("")
    return "\n".join(lines)


def _code_span(text: str) -> str:
    plain = " ".join(make_inert(text).split())
    fence = "`" * (max((len(run) for run in plain.split() if set(run) == {"`"}), default=0) + 1 + plain.count("`"))
    return f"{fence} {plain} {fence}" if plain else "` `"


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
