"""The Jinja environment with its filters, and Markdown.

Markdown is rendered without raw HTML and images, then sanitized by a second library, so that text
of a model cannot make a page load anything. All other text is escaped. Foreign text is made inert
first, so that control and bidirectional characters become visible.
"""

import functools
import hashlib
import re
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any
from urllib.parse import quote

import nh3
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup, escape

from flightlog.agents import agent_label
from flightlog.model import usage
from flightlog.model.addresses import short_address
from flightlog.model.entries import Image
from flightlog.model.session import Subagent, ToolCall, Turn
from flightlog.model.text import (
    folder_name,
    format_age,
    format_bytes,
    make_inert,
    one_line,
    pluralize,
)
from flightlog.views.overview import judge_health
from flightlog.views.session.calls import describe_call, strip_gutter
from flightlog.views.session.edits import FileDiff, changed_files, diffs_of_call
from flightlog.views.session.outline import SubagentSummary
from flightlog.views.session.timeline import TimelineRow
from flightlog.views.session.tools import DiffSign
from flightlog.views.transcript import format_timestamp
from flightlog.views.transcript_formats import agent_icon
from flightlog.web.highlight import highlight_code, highlight_lines
from flightlog.web.session_page import PageRow

CHARS_MAX = 60_000  # longer text is shown as plain text, because Markdown takes too long
_TAGS = frozenset(
    {"p", "br", "hr", "em", "i", "strong", "s", "del", "code", "pre", "blockquote", "ul", "ol", "li", "a"}
    | {"h1", "h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td"}
)  # fmt: skip
HERE = Path(__file__).parent
STATIC = HERE / "static"
VENDOR = ("vendor/htmx.js", "vendor/d3.js", "vendor/plot.js")
IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
IMAGE_CHARS_MAX = 8_000_000  # base64 characters, 6 MB of image
OUTPUT_LINES = 14  # of a tool's output before "more lines"
OUTPUT_CHARS = 4_000  # the same in characters, for very long lines
WHOLE_CHARS = 400_000  # bounds even the full output, to keep pages responsive
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}", re.ASCII)


@functools.lru_cache(maxsize=200)
def render_markdown(text: str) -> Markup:
    """Render Markdown as sanitized HTML; very long text is shown as plain text."""
    if len(text) > CHARS_MAX:
        return Markup("<pre>") + make_inert(text) + Markup("</pre>")
    html = nh3.clean(
        _markdown_parser().render(make_inert(text)),
        tags=set(_TAGS),
        # Only our own highlighter writes <i>: the parser escapes the HTML of a text.
        attributes={"a": {"href"}, "ol": {"start"}, "i": {"class"}},
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer nofollow",
    )
    return Markup(html)  # noqa: S704 - sanitized by nh3 above


def _color_fence(text: str, language: str, _: str) -> str:
    return str(highlight_code(text.rstrip("\n"), language)) + "\n"


@functools.cache
def _markdown_parser() -> MarkdownIt:
    plain = MarkdownIt("commonmark", {"html": False, "linkify": False, "highlight": _color_fence})
    return plain.enable(["table", "strikethrough"]).disable("image")


class Excerpt(str):
    """The beginning of a text, with the number of lines that follow."""

    __slots__ = ("more",)
    more: int


def make_environment(zone: tzinfo, now_ms: Callable[[], int], root: str = "") -> Environment:
    """Return the environment for a server with its pages below `root`, or for one share file."""
    env = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters.update(_session_filters())
    env.filters.update(
        ago=lambda at_ms: f"{format_age(now_ms() - at_ms)} ago" if at_ms else "?",
        iso=_format_iso,
        days=lambda first_ms, last_ms: " to ".join(
            dict.fromkeys(format_timestamp(at, zone, "%Y-%m-%d") for at in (first_ms, last_ms))
        ),
        when=lambda at_ms, form="%Y-%m-%d %H:%M": format_timestamp(at_ms, zone, form),
        amount=usage.format_cost,
        brief=lambda address: _UUID.sub(lambda match: match[0][:8], address),
        bytes=format_bytes,
        clock=lambda text: re.sub(r"T([\d:]{8})[.\d]*Z", r" \1 UTC", text or "none"),
        compact=format_count,
        cost=_render_cost,
        counted=pluralize,
        duration=format_duration,
        flat=lambda text: re.sub(r"\s+", " ", make_inert(text)),
        folder=lambda path: make_inert(folder_name(path)) or "?",
        inert=make_inert,
        line=one_line,
        model=short_model,
        place=lambda address: make_inert(short_address(address)),
        money=lambda usd: usage.format_cost(usage.Cost(usd, usage.CostSource.TABLE)),
        plain=lambda text: make_inert(re.sub(r"\*\*|`+|^#+ ", "", text)),
        short=lambda session: session[:8],
        tokens=_format_tokens,
        units=usage.format_units,
    )
    env.globals.update(has_vendor=has_vendor, root=root, took=format_tool_duration)
    env.globals["asset"] = lambda name: root + asset_address(name)
    return env


def _session_filters() -> dict[str, Callable[..., Any]]:
    """Return the filters that show parts of a session."""
    return {
        "agent": _render_agent,
        "changes": diffs_of_call,
        "code": lambda text, path: Markup("\n").join(highlight_lines(text.split("\n"), path)),
        "colored": color_diff,
        "command": lambda text: highlight_code(text, "bash"),
        "client_total": lambda totals: usage.format_client_total(totals, 4),
        "data_uri": data_uri,
        "excerpt": make_excerpt,
        "files": changed_files,
        "fingerprint": row_fingerprint,
        "health": judge_health,
        "markdown": render_markdown,
        "step_link": step_link,
        "step_count": count_subagent_steps,
        "ungutter": strip_gutter,
        "view": describe_call,
    }


def _render_agent(name: str) -> Markup:
    """Return the icon and the label of an agent."""
    named = Markup('<span class="agent-name">{} {}</span>')
    return named.format(agent_icon(name), agent_label(name))


def has_vendor() -> bool:
    """Return whether the front-end packages were installed at build time."""
    return all((STATIC / name).is_file() for name in VENDOR)


@functools.cache
def asset_address(name: str) -> str:
    """Return the address of a static file; it contains a digest, so that browsers may cache it."""
    digest = hashlib.blake2b((STATIC / name).read_bytes(), digest_size=6).hexdigest()
    return f"/static/{name}?v={digest}"


def format_count(number: int) -> str:
    """Return a short count: 1,234 as 1.23 k, 5,600,000 as 5.6 M."""
    for unit, factor in (("G", 1_000_000_000), ("M", 1_000_000), ("k", 1_000)):
        if abs(number) >= factor:
            return f"{number / factor:.3g} {unit}"
    return f"{number:,}"


def _format_tokens(count: int, item: usage.UsageRow | usage.TokensAndCost) -> str:
    """Return a short count of an item's tokens: exact, a lower bound, or unknown."""
    if usage.is_unknown(item.usage, item.cost):
        return "unknown"
    return f"≥ {format_count(count)}" if item.cost.lacks_tokens else format_count(count)


def format_duration(ms: int | None) -> str:
    """Return a duration with its unit."""
    if ms is None:
        return "?"
    seconds = max(ms, 0) / 1000
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} days"


def format_tool_duration(call: ToolCall) -> str:
    """Return how long a tool ran, or "" if that is not recorded; hooks measure it without waits."""
    if call.duration_ms is not None:
        return format_duration(call.duration_ms)
    is_complete = call.started_ms is not None and call.ended_ms is not None
    return format_duration(call.ended_ms - call.started_ms) if is_complete else ""  # type: ignore[operator]


def color_diff(change: FileDiff, lines: int) -> list[tuple[str, str, Markup]]:
    """Return the first lines of a diff: sign name, sign and colored text."""
    shown = change.lines[:lines] if lines else change.lines
    places = [line.sign is DiffSign.PLACE for line in shown]
    pairs = zip(shown, places, strict=True)
    source = ["" if place else make_inert(line.text) for line, place in pairs]
    colored = highlight_lines(source, change.path)
    return [
        (line.sign.name.lower(), line.sign.value, escape(make_inert(line.text)) if place else text)
        for line, place, text in zip(shown, places, colored, strict=True)
    ]


def make_excerpt(text: str, lines: int | None = OUTPUT_LINES) -> Excerpt:
    """Return the first lines of a text, all for 0, within a limit that None does not have.

    `more` is the number of lines left out.
    """
    body = text.strip("\n")
    limit = OUTPUT_CHARS if lines else WHOLE_CHARS if lines is not None else len(body)
    all_lines = body[:limit].split("\n")
    shown = all_lines[:lines] if lines else all_lines
    excerpt = Excerpt(make_inert("\n".join(shown)))
    excerpt.more = body.count("\n") + 1 - len(shown) or int(len(body) > limit)
    return excerpt


def data_uri(image: Image) -> str:
    """Return a raster image as a data URI, or "" if it is too large or of another type."""
    plain = image.media_type in IMAGE_TYPES and len(image.data) <= IMAGE_CHARS_MAX
    is_sound = plain and BASE64.fullmatch(image.data)
    return f"data:{image.media_type};base64,{image.data}" if is_sound else ""


def step_link(address: str) -> str:
    """Return the path and query of the page that shows a step, given its address."""
    thread, _, at = address.partition("#")
    session, _, subagent = thread.partition("@")
    query = f"subagent={quote(subagent)}&" if subagent else ""
    return f"/sessions/{quote(session)}?{query}at={at}#{at}"


def short_model(name: str) -> str:
    """Return a model's name without vendor and date."""
    return re.sub(r"-20\d{6}$", "", make_inert(name).removeprefix("claude-")) or "?"


def row_fingerprint(row: TimelineRow | PageRow) -> str:
    """Return a digest of a row's content, by which a page knows whether it has this version."""
    item = row.item
    content = repr((item.prompt, item.is_rewound) if isinstance(item, Turn) else item)
    content += repr([(subagent.id, count_subagent_steps(subagent)) for subagent in row.subagents])
    return hashlib.blake2b(content.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


def count_subagent_steps(subagent: Subagent | SubagentSummary) -> int:
    """Return the number of steps of a subagent."""
    if isinstance(subagent, SubagentSummary):
        return subagent.steps
    return sum(len(turn.steps) for turn in subagent.turns)


def _render_cost(cost: usage.Cost) -> Markup:
    """Return a cost as HTML; an unknown cost is spelled out."""
    if cost.usd is None:
        return Markup('<span class="soft">cost unknown</span>')
    return Markup('<span class="cost">{}</span>').format(usage.format_cost(cost))


def _format_iso(at_ms: int | None) -> str:
    return datetime.fromtimestamp((at_ms or 0) / 1000, tz=UTC).isoformat(timespec="seconds")
