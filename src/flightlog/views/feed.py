"""A session as it happens: what each new record adds to the story, without telling it again.

One record in, a few lines out, whatever the length of the session; so results stand where
they arrived, not beside their calls as in `views.story`.
"""

from collections.abc import Iterator
from datetime import UTC

from flightlog.model.events import (
    ApiFailed,
    Compacted,
    Entry,
    Image,
    Noted,
    Prompted,
    PromptKind,
    Replied,
    Text,
    Thinking,
    ToolReturned,
    ToolUse,
    Unknown,
    words,
)
from flightlog.model.text import counted
from flightlog.views.arguments import arguments
from flightlog.views.session.turns import describe_note
from flightlog.views.story import Kind, Line, moment

LINES_MAX = 12


class Feed:
    """Remembers which responses were announced; nothing else."""

    def __init__(self) -> None:
        """Begin with nothing told."""
        self._announced: set[str] = set()
        self._seen: set[str] = set()

    def lines(self, entry: Entry) -> Iterator[Line]:
        """Tell what `entry` adds; a repeated record adds nothing."""
        if entry.key in self._seen:
            return
        self._seen.add(entry.key)
        depth = 2 if entry.lane else 0
        match entry.event:
            case Prompted() as event:
                yield from _prompt(entry, event, depth)
            case Replied() as event:
                yield from self._reply(entry, event, depth)
            case ToolReturned() as event:
                yield from _result(event, depth + 2)
            case Compacted() | ApiFailed() | Noted() | Unknown() as event:
                kind, said = describe_note(event)
                yield Line(Kind.NOTE, depth + 1, f"{kind.value}: {cut(said)}")
            case _:
                pass

    def _reply(self, entry: Entry, event: Replied, depth: int) -> Iterator[Line]:
        if event.message_id not in self._announced and not event.synthetic:
            self._announced.add(event.message_id)
            lane = f", subagent {entry.lane}" if entry.lane else ""
            yield Line(Kind.STEP, depth + 1, f"{event.model}{lane}")
        for block in event.content:
            match block:
                case Text():
                    yield Line(Kind.NOTE if event.synthetic else Kind.TEXT, depth + 2, cut(block.text))
                case Thinking():
                    yield Line(Kind.THINKING, depth + 2, cut(block.text) or "(not shown)")
                case ToolUse():
                    yield Line(Kind.CALL, depth + 2, f"{block.name} {cut(arguments(block.input))}".rstrip())
                case _:
                    yield Line(Kind.NOTE, depth + 2, f"content of kind {block.__struct_config__.tag}")


def _prompt(entry: Entry, event: Prompted, depth: int) -> Iterator[Line]:
    who = "person" if event.kind is PromptKind.HUMAN and not entry.lane else event.kind.value
    yield Line(Kind.TURN, depth, f"{who}, {moment(entry.at_ms, UTC, '%H:%M:%S')} UTC")
    yield Line(Kind.PROMPT, depth + 1, cut(words(event.content)))


def _result(event: ToolReturned, depth: int) -> Iterator[Line]:
    images = sum(isinstance(block, Image) for block in event.content)
    said = cut(words(event.content)) or (counted(images, "image") if images else "(nothing)")
    yield Line(Kind.FAILURE if event.is_error else Kind.RESULT, depth, said)


def cut(text: str) -> str:
    """Keep the first lines."""
    lines = text.strip("\n").split("\n")
    more = [f"… {len(lines) - LINES_MAX} more lines"] if len(lines) > LINES_MAX else []
    return "\n".join([*lines[:LINES_MAX], *more])
