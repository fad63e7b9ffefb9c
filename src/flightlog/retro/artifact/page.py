"""The artifact: one HTML file with everything in it, and nothing it could fetch or run besides its own script.

Foreign text comes in twice: as data (JSON with every `<` written as an escape, read by the script and
put on the page as text) and as escaped HTML for readers without scripts. The policy names the script
and the style by hash.
"""

import base64
import hashlib
import html
from collections.abc import Sequence
from datetime import tzinfo
from importlib.resources import files
from typing import Any

import msgspec

from flightlog.model.text import make_inert
from flightlog.retro.analysis.activity import count_activity
from flightlog.retro.analysis.findings import is_excluded
from flightlog.retro.digest import ConversationDigest
from flightlog.retro.state import RetroAnalysis

CHARTS = ("timeline", "heatmap", "topics", "lengths", "costs")
NODES_MAX = 40
_BIN = 5
_LABEL_CHARS = 140


def render_artifact(analysis: RetroAnalysis, digests: Sequence[ConversationDigest], zone: tzinfo, name: str) -> str:
    """Return the whole page; `name` keeps its annotations apart from those of other artifacts."""
    here = files("flightlog.retro.artifact")
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
