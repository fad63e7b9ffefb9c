"""A session as lines of text, tool arguments first.

Decides what is told and in what order; the face decides how it looks. Text is passed on as
recorded, so every face must make it inert. Long text is cut with a word on how to see it
all, unless it is asked for in full.
"""

import enum
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, tzinfo
from typing import Any

from msgspec import Struct

from flightlog.model.addresses import Address
from flightlog.model.entries import Block, Image, PromptKind, Text, Thinking, UnknownBlock
from flightlog.model.session import Note, Session, Step, Subagent, ToolCall, Turn
from flightlog.model.text import pluralize
from flightlog.model.usage import format_cost
from flightlog.views.session.summary import outline_session
from flightlog.views.session.timeline import find_lane, find_step, find_turn

_TELLING = ("command", "file_path", "pattern", "url", "query", "prompt")
LINES_MAX = 12
NOTE_LINES_MAX = 3
LINE_WIDTH_MAX = 2_000
_WHO = {
    PromptKind.HUMAN: "person",
    PromptKind.TASK: "background task",
    PromptKind.COMMAND: "command",
    None: "before the first prompt",
}


def format_arguments(given: dict[str, Any]) -> str:
    """Write a tool's input."""
    name = next((name for name in _TELLING if isinstance(given.get(name), str)), None)
    if name is None:
        return _to_json(given) if given else ""
    body, shown = _format_body(given)
    rest = {key: value for key, value in given.items() if key not in {name, "description", *shown}}
    head = f"{given[name]} {_to_json(rest)}" if rest else str(given[name])
    return f"{head}\n{body}" if body else head


def _format_body(given: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
    """Show a change of a file line by line, as a diff does."""
    old, new, content = given.get("old_string"), given.get("new_string"), given.get("content")
    if isinstance(old, str) and isinstance(new, str):
        return f"{_mark_lines('-', old)}\n{_mark_lines('+', new)}", ("old_string", "new_string", "replace_all")
    if isinstance(content, str):
        return _mark_lines("+", content), ("content",)
    return "", ()


def _mark_lines(mark: str, text: str) -> str:
    return "\n".join(f"{mark} {line}".rstrip() for line in text.rstrip("\n").split("\n"))


def _to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


class TranscriptLineKind(enum.Enum):
    """What a line of a story is."""

    TITLE = "title"
    FACT = "fact"
    TURN = "turn"
    PROMPT = "prompt"
    STEP = "step"
    THINKING = "thinking"
    TEXT = "text"
    CALL = "call"
    RESULT = "result"
    FAILURE = "failure"
    NOTE = "note"
    LANE = "lane"


class TranscriptLine(Struct, frozen=True):
    """One paragraph of a story; `address` names the turn or step it belongs to."""

    kind: TranscriptLineKind
    depth: int
    text: str
    address: str = ""


class RenderOptions(Struct, frozen=True):
    """How to tell it; `spilled` finds an output that was too large for the transcript."""

    zone: tzinfo = UTC
    full: bool = False
    spilled: Callable[[str], str | None] | None = None


def render_session(session: Session, telling: RenderOptions) -> Iterator[TranscriptLine]:
    """Tell the whole session."""
    yield TranscriptLine(TranscriptLineKind.TITLE, 0, session.heading or "(no prompt)", session.id)
    yield from _session_facts(session, telling)
    teller = _TranscriptRenderer(session, telling)
    for turn in session.turns:
        yield from teller.render_turn(turn, Address(session.id, turn.number), 0)
    for lane in teller.unrendered_subagents():
        yield from teller.render_subagent(lane, 0)


def render_passage(session: Session, at: Address, telling: RenderOptions) -> Iterator[TranscriptLine]:
    """Tell one turn, one step or one subagent."""
    teller = _TranscriptRenderer(session, telling)
    lane = find_lane(session, at)
    if not at.turn:
        assert lane is not None, "a whole session is a story, not a passage"
        yield from teller.render_subagent(lane, 0)
        return
    home = Address(session.id, at.turn, lane=lane.id if lane else "")
    turn = find_turn(session, at)
    if not at.step:
        yield from teller.render_turn(turn, home, 0)
    else:
        step = find_step(session, at)
        yield from teller.render_step(step, Address(home.session, home.turn, step.number, home.lane), 0)


def format_timestamp(at_ms: int | None, zone: tzinfo, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Write a time."""
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC).astimezone(zone).strftime(form) if at_ms is not None else "?"


def _session_facts(session: Session, telling: RenderOptions) -> Iterator[TranscriptLine]:
    summary = outline_session(session).summary
    place = session.cwd + (f" ({session.branch})" if session.branch else "")
    yield TranscriptLine(TranscriptLineKind.FACT, 0, f"{session.agent} {session.version}, {place}")
    yield TranscriptLine(
        TranscriptLineKind.FACT,
        0,
        f"{format_timestamp(summary.started_ms, telling.zone)} to {format_timestamp(summary.ended_ms, telling.zone)}",
    )
    parts = [
        pluralize(summary.turns, "turn"),
        pluralize(summary.steps, "step"),
        pluralize(summary.tool_calls, "tool call"),
    ]
    parts += [f"{summary.failed_calls:,} failed"] if summary.failed_calls else []
    parts += [pluralize(summary.subagents, "subagent")] if summary.subagents else []
    yield TranscriptLine(
        TranscriptLineKind.FACT, 0, f"{', '.join(parts)}; {summary.usage.total:,} tokens, {format_cost(summary.cost)}"
    )
    if session.client is not None:
        yield TranscriptLine(TranscriptLineKind.FACT, 0, f"the client's own total: ${session.client.total_usd:.6f}")
    for kind, count in session.unknown:
        yield TranscriptLine(TranscriptLineKind.NOTE, 0, f"unknown record type {kind}, {count} times")
    for name, count in session.unknown_fields:
        yield TranscriptLine(TranscriptLineKind.NOTE, 0, f"unknown field {name}, {count} times")
    for damage in session.damage:
        yield TranscriptLine(
            TranscriptLineKind.NOTE, 0, f"damaged: {damage.length} bytes at {damage.offset}: {damage.why}"
        )


class _TranscriptRenderer:
    """Tells each subagent once, where it was started."""

    def __init__(self, session: Session, telling: RenderOptions) -> None:
        self._session = session
        self._telling = telling
        self._lanes = {lane.call_id: lane for lane in session.lanes if lane.call_id}
        self._told: set[str] = set()

    def render_turn(self, turn: Turn, at: Address, depth: int) -> Iterator[TranscriptLine]:
        taken_back = ", taken back" if turn.rewound else ""
        when = format_timestamp(turn.at_ms, self._telling.zone, "%H:%M:%S")
        who = "task" if at.lane and turn.kind is PromptKind.HUMAN else _WHO.get(turn.kind, "client")
        yield TranscriptLine(TranscriptLineKind.TURN, depth, f"{who}{taken_back}, {when}", str(at))
        if turn.prompt:
            yield from self._render_content(turn.prompt, TranscriptLineKind.PROMPT, depth + 1, at)
        for item in turn.items:
            if isinstance(item, Note):
                yield TranscriptLine(
                    TranscriptLineKind.NOTE,
                    depth + 1,
                    f"{item.kind.value}: {self._truncate(item.text, at, NOTE_LINES_MAX)}",
                )
            else:
                yield from self.render_step(item, Address(at.session, at.turn, item.number, at.lane), depth + 1)

    def render_step(self, step: Step, at: Address, depth: int) -> Iterator[TranscriptLine]:
        cut = ", cut off" if step.aborted else ""
        stop = f", {step.stop_reason}" if step.stop_reason not in {"", "end_turn", "tool_use"} else ""
        facts = (
            f"{step.model}, {step.usage.prompt:,} + {step.usage.output:,} tokens, {format_cost(step.cost)}{stop}{cut}"
        )
        yield TranscriptLine(TranscriptLineKind.STEP, depth, facts, str(at))
        yield from self._render_content(step.content, TranscriptLineKind.TEXT, depth + 1, at)
        for call in step.calls:
            yield from self._render_call(call, at, depth + 1)

    def render_subagent(self, lane: Subagent, depth: int) -> Iterator[TranscriptLine]:
        self._told.add(lane.id)
        kind = "warm-up" if lane.warmup else lane.agent_type or "subagent"
        task = f": {lane.description}" if lane.description else ""
        yield TranscriptLine(TranscriptLineKind.LANE, depth, f"{kind}{task}", f"{self._session.id}@{lane.id}")
        for turn in lane.turns:
            yield from self.render_turn(turn, Address(self._session.id, turn.number, lane=lane.id), depth + 1)

    def unrendered_subagents(self) -> Iterator[Subagent]:
        return (lane for lane in self._session.lanes if lane.id not in self._told)

    def _render_call(self, call: ToolCall, at: Address, depth: int) -> Iterator[TranscriptLine]:
        yield TranscriptLine(
            TranscriptLineKind.CALL, depth, f"{call.name} {self._truncate(format_arguments(call.input), at)}".rstrip()
        )
        if call.ran_input is not None:
            yield TranscriptLine(
                TranscriptLineKind.NOTE,
                depth + 1,
                f"a hook changed it to: {self._truncate(format_arguments(call.ran_input), at)}",
            )
        lane = self._lanes.get(call.id)
        if lane is not None and lane.id not in self._told:
            yield from self.render_subagent(lane, depth + 1)
        if call.result is None:
            yield TranscriptLine(TranscriptLineKind.NOTE, depth + 1, "no result on record")
            return
        if call.denied:
            yield TranscriptLine(TranscriptLineKind.NOTE, depth + 1, f"denied: {call.denied}")
        whole = (
            self._telling.spilled(call.spilled)
            if self._telling.full and self._telling.spilled and call.spilled
            else None
        )
        result = call.result if whole is None else (Text(whole),)
        yield from self._render_content(
            result, TranscriptLineKind.FAILURE if call.is_error else TranscriptLineKind.RESULT, depth + 1, at
        )
        if call.spilled and whole is None:
            yield TranscriptLine(
                TranscriptLineKind.NOTE,
                depth + 1,
                f"the whole output lies in tool-results/{call.spilled.rsplit('/', 1)[-1]}",
            )

    def _render_content(
        self, content: tuple[Block, ...], kind: TranscriptLineKind, depth: int, at: Address
    ) -> Iterator[TranscriptLine]:
        for block in content:
            match block:
                case Text():
                    yield TranscriptLine(kind, depth, self._truncate(block.text, at) or "(nothing)")
                case Thinking():
                    yield TranscriptLine(
                        TranscriptLineKind.THINKING,
                        depth,
                        "(withheld)" if block.withheld else self._truncate(block.text, at) or "(not shown)",
                    )
                case Image():
                    yield TranscriptLine(kind, depth, f"[{block.media_type or 'image'}, {block.size:,} bytes]")
                case UnknownBlock():
                    yield TranscriptLine(
                        TranscriptLineKind.NOTE,
                        depth,
                        f"unknown content {block.kind}: {self._truncate(block.text, at)}".rstrip(": "),
                    )

    def _truncate(self, text: str, at: Address, most: int = LINES_MAX) -> str:
        text = text.strip("\n")
        if self._telling.full:
            return text
        lines = text.split("\n")
        width = LINE_WIDTH_MAX
        kept = [line if len(line) <= width else line[:width] + f"… ({len(line):,} characters)" for line in lines[:most]]
        if len(lines) > most:
            kept.append(f"… {len(lines) - most} more lines: flightlog session show '{at}' --full")
        return "\n".join(kept)
