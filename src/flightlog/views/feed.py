"""A session as it happens: what each new record adds to the story, without telling it again.

One record in, a few lines out, whatever the length of the session; so results stand where
they arrived, not beside their calls as in `views.story`.
"""

from collections.abc import Iterator
from datetime import UTC

from flightlog.model.events import (
    ApiError,
    AssistantReply,
    ClientNote,
    ContextCompacted,
    Entry,
    Image,
    PromptKind,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    UnknownRecord,
    UserPrompt,
    text_of,
)
from flightlog.model.text import pluralize
from flightlog.views.arguments import format_arguments
from flightlog.views.session.turns import describe_note
from flightlog.views.story import TranscriptLine, TranscriptLineKind, format_timestamp

LINES_MAX = 12


class FollowFormatter:
    """Remembers which responses were announced; nothing else."""

    def __init__(self) -> None:
        """Begin with nothing told."""
        self._announced: set[str] = set()
        self._seen: set[str] = set()

    def render_lines(self, entry: Entry) -> Iterator[TranscriptLine]:
        """Tell what `entry` adds; a repeated record adds nothing."""
        if entry.key in self._seen:
            return
        self._seen.add(entry.key)
        depth = 2 if entry.lane else 0
        match entry.event:
            case UserPrompt() as event:
                yield from _render_prompt(entry, event, depth)
            case AssistantReply() as event:
                yield from self._render_reply(entry, event, depth)
            case ToolResult() as event:
                yield from _render_result(event, depth + 2)
            case ContextCompacted() | ApiError() | ClientNote() | UnknownRecord() as event:
                kind, said = describe_note(event)
                yield TranscriptLine(TranscriptLineKind.NOTE, depth + 1, f"{kind.value}: {first_lines(said)}")
            case _:
                pass

    def _render_reply(self, entry: Entry, event: AssistantReply, depth: int) -> Iterator[TranscriptLine]:
        if event.message_id not in self._announced and not event.synthetic:
            self._announced.add(event.message_id)
            lane = f", subagent {entry.lane}" if entry.lane else ""
            yield TranscriptLine(TranscriptLineKind.STEP, depth + 1, f"{event.model}{lane}")
        for block in event.content:
            match block:
                case Text():
                    yield TranscriptLine(
                        TranscriptLineKind.NOTE if event.synthetic else TranscriptLineKind.TEXT,
                        depth + 2,
                        first_lines(block.text),
                    )
                case Thinking():
                    yield TranscriptLine(
                        TranscriptLineKind.THINKING, depth + 2, first_lines(block.text) or "(not shown)"
                    )
                case ToolUse():
                    yield TranscriptLine(
                        TranscriptLineKind.CALL,
                        depth + 2,
                        f"{block.name} {first_lines(format_arguments(block.input))}".rstrip(),
                    )
                case _:
                    yield TranscriptLine(
                        TranscriptLineKind.NOTE, depth + 2, f"content of kind {block.__struct_config__.tag}"
                    )


def _render_prompt(entry: Entry, event: UserPrompt, depth: int) -> Iterator[TranscriptLine]:
    who = "person" if event.kind is PromptKind.HUMAN and not entry.lane else event.kind.value
    yield TranscriptLine(TranscriptLineKind.TURN, depth, f"{who}, {format_timestamp(entry.at_ms, UTC, '%H:%M:%S')} UTC")
    yield TranscriptLine(TranscriptLineKind.PROMPT, depth + 1, first_lines(text_of(event.content)))


def _render_result(event: ToolResult, depth: int) -> Iterator[TranscriptLine]:
    images = sum(isinstance(block, Image) for block in event.content)
    said = first_lines(text_of(event.content)) or (pluralize(images, "image") if images else "(nothing)")
    yield TranscriptLine(TranscriptLineKind.FAILURE if event.is_error else TranscriptLineKind.RESULT, depth, said)


def first_lines(text: str) -> str:
    """Keep the first lines."""
    lines = text.strip("\n").split("\n")
    more = [f"… {len(lines) - LINES_MAX} more lines"] if len(lines) > LINES_MAX else []
    return "\n".join([*lines[:LINES_MAX], *more])
