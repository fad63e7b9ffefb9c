"""Transcript lines as plain text and Markdown, and lines from single records for `--follow`.

`FollowFormatter` keeps no session in memory, so results come when they arrive, not below their
calls as in `views.transcript`.

Recorded text is inert in every format: no control characters in text, fences that no content can
close in Markdown. HTML pages are rendered by `web.share`.
"""

import re
import zlib
from collections.abc import Iterable, Iterator
from datetime import UTC

from markupsafe import Markup
from msgspec.structs import replace

from flightlog.model import entries
from flightlog.model.addresses import short_address
from flightlog.model.session import Session
from flightlog.model.text import make_inert, pluralize
from flightlog.views.json_output import as_json
from flightlog.views.session.turns import describe_note
from flightlog.views.transcript import (
    RenderOptions,
    TranscriptLine,
    TranscriptLineKind,
    describe_client,
    format_arguments,
    format_timestamp,
    render_session,
)

LINES_MAX = 12  # as in a transcript
MARKS = {
    TranscriptLineKind.PROMPT: "> ",
    TranscriptLineKind.THINKING: "~ ",
    TranscriptLineKind.CALL: "→ ",
    TranscriptLineKind.RESULT: "← ",
    TranscriptLineKind.FAILURE: "✗ ",
    TranscriptLineKind.NOTE: "! ",
}
_MARKDOWN = {
    TranscriptLineKind.TITLE: "# {text}\n",
    TranscriptLineKind.TURN: "\n## {at}{text}\n",
    TranscriptLineKind.FACT: "- {text}",
    TranscriptLineKind.STEP: "\n### {at}{text}\n",
    TranscriptLineKind.LANE: "\n### {at}{text}\n",
    TranscriptLineKind.NOTE: "\n*{text}*\n",
}  # the other kinds are fenced

_ICON = Markup(
    '<svg class="agent" width="16" height="16" viewBox="0 0 16 16" role="img" aria-label="{agent}">'
    '<rect width="16" height="16" rx="4" fill="{color}"/><text x="8" y="11.5" font-size="9"'
    ' font-weight="700" text-anchor="middle" fill="#fff">{letters}</text></svg>'
)
# White letters are readable on each: contrast 4.5 or more.
_COLORS = ("#8a4b2d", "#2f6f4f", "#2b5fa8", "#7a3e9d", "#9c2f55", "#4d5b1f", "#166d78", "#555e6b")


class FollowFormatter:
    """Formats records one by one; remembers the ids of records and responses it has shown."""

    def __init__(self, agent: str = "") -> None:
        """Start without records of a session of `agent`."""
        self._agent = agent
        self._announced: set[str] = set()
        self._seen: set[str] = set()

    def render_lines(self, entry: entries.Entry) -> Iterator[TranscriptLine]:
        """Yield the lines of `entry`; a repeated record has none."""
        if entry.key in self._seen:
            return
        self._seen.add(entry.key)
        context = entry.context
        # Some agents do not record their version; Claude Code's first records have none.
        is_message = isinstance(entry.event, entries.UserPrompt | entries.AssistantReply)
        if self._agent and (context.version or is_message):
            head = describe_client(self._agent, context.version, context.cwd)
            yield TranscriptLine(TranscriptLineKind.FACT, 0, head)
            self._agent = ""
        depth = 2 if entry.subagent else 0
        match entry.event:
            case entries.UserPrompt() as event:
                yield from _render_prompt(entry, event, depth)
            case entries.AssistantReply() as event:
                yield from self._render_reply(entry, event, depth)
            case entries.ToolResult() as event:
                yield from _render_result(event, depth + 2)
            case (
                entries.ContextCompacted()
                | entries.ApiError()
                | entries.ClientNote()
                | entries.UnknownRecord() as event
            ):
                kind, text = describe_note(event)
                text = f"{kind.value}: {first_lines(text)}"
                yield TranscriptLine(TranscriptLineKind.NOTE, depth + 1, text)
            case _:
                pass

    def _render_reply(
        self, entry: entries.Entry, event: entries.AssistantReply, depth: int
    ) -> Iterator[TranscriptLine]:
        if event.message_id not in self._announced and not event.is_synthetic:
            self._announced.add(event.message_id)
            subagent = f", subagent {entry.subagent}" if entry.subagent else ""
            yield TranscriptLine(TranscriptLineKind.STEP, depth + 1, f"{event.model}{subagent}")
        for block in event.content:
            kind, text = _describe_block(block)
            if kind is TranscriptLineKind.TEXT and event.is_synthetic:
                kind = TranscriptLineKind.NOTE
            yield TranscriptLine(kind, depth + 2, text)


def _describe_block(block: entries.Block) -> tuple[TranscriptLineKind, str]:
    match block:
        case entries.Text():
            return TranscriptLineKind.TEXT, first_lines(block.text)
        case entries.Thinking():
            return TranscriptLineKind.THINKING, first_lines(block.text) or "(not shown)"
        case entries.ToolUse():
            text = f"{block.name} {first_lines(format_arguments(block.input))}".rstrip()
            return TranscriptLineKind.CALL, text
        case _:
            return TranscriptLineKind.NOTE, f"content of kind {block.__struct_config__.tag}"


def _render_prompt(
    entry: entries.Entry, event: entries.UserPrompt, depth: int
) -> Iterator[TranscriptLine]:
    who = event.kind.value
    if event.kind is entries.PromptKind.HUMAN:
        who = "task" if entry.subagent else "person"
    time = format_timestamp(entry.at_ms, UTC, "%H:%M:%S")
    yield TranscriptLine(TranscriptLineKind.TURN, depth, f"{who}, {time} UTC")
    yield TranscriptLine(
        TranscriptLineKind.PROMPT, depth + 1, first_lines(entries.text_of(event.content))
    )


def _render_result(event: entries.ToolResult, depth: int) -> Iterator[TranscriptLine]:
    images = sum(isinstance(block, entries.Image) for block in event.content)
    nothing = pluralize(images, "image") if images else "(nothing)"
    text = first_lines(entries.text_of(event.content)) or nothing
    kind = TranscriptLineKind.FAILURE if event.is_error else TranscriptLineKind.RESULT
    yield TranscriptLine(kind, depth, text)


def first_lines(text: str) -> str:
    """Return the first lines of `text`, and how many more there are."""
    lines = text.strip("\n").split("\n")
    more = [f"… {pluralize(len(lines) - LINES_MAX, 'more line')}"] if len(lines) > LINES_MAX else []
    return "\n".join([*lines[:LINES_MAX], *more])


def export_session(session: Session, form: str, options: RenderOptions) -> str:
    """Return a whole session as `md` or `json`."""
    if form == "json":
        return as_json(replace(session, title=session.heading)) + "\n"
    return as_markdown(render_session(session, options))


def as_text(lines: Iterable[TranscriptLine]) -> str:
    """Return plain text, indented by depth."""
    return "".join(f"{line}\n" for paragraph in lines for line in text_lines(paragraph))


def text_lines(line: TranscriptLine) -> list[str]:
    """Return one paragraph as lines of text."""
    indent = "  " * line.depth
    mark = MARKS.get(line.kind, "")
    address = shown_address(line)
    first, *rest = make_inert(line.text).split("\n")
    text = [f"{indent}{mark}{address}{'  ' if address else ''}{first}"]
    text += [f"{indent}{' ' * len(mark)}{more}" for more in rest]
    return ["", *text] if line.kind is TranscriptLineKind.TURN and not line.depth else text


def as_markdown(lines: Iterable[TranscriptLine]) -> str:
    """Return Markdown."""
    return "\n".join(_render_markdown_line(line) for line in lines) + "\n"


def agent_icon(agent: str) -> Markup:
    """Return a small picture of our own for an agent: two letters of its name on its color."""
    second = re.search("[bcdfghjklmnpqrstvwxz]", agent[1:])
    letters = (agent[:1].upper() + second[0]) if second else agent[:2].capitalize()
    color = _COLORS[zlib.crc32(agent.encode()) % len(_COLORS)]
    return _ICON.format(agent=agent, color=color, letters=letters)


def shown_address(line: TranscriptLine) -> str:
    is_title = line.kind is TranscriptLineKind.TITLE
    return "" if is_title else make_inert(short_address(line.address))


def _render_markdown_line(line: TranscriptLine) -> str:
    text = make_inert(line.text)
    at = f"`{make_inert(short_address(line.address))}` " if line.address else ""
    if line.kind in _MARKDOWN:
        return _MARKDOWN[line.kind].format(at=at, text=_escape_markdown(text))
    return f"\n{line.kind.value}:\n\n{_fence_text(text)}"


def _escape_markdown(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>#|!&])", r"\\\1", " ".join(text.split()))


def _fence_text(text: str) -> str:
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"
