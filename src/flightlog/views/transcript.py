"""A session as transcript lines.

Selects and orders what is shown; `transcript_formats` and the interfaces decide how it looks.
The text is as recorded, so they must make it inert. Long text is cut, with the command that
shows all of it, unless `full` is set.
"""

import enum
import json
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, tzinfo
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from flightlog.model import usage
from flightlog.model.addresses import Address
from flightlog.model.entries import Block, Image, PromptKind, Text, Thinking, UnknownBlock
from flightlog.model.session import Note, Session, Step, Subagent, ToolCall, Turn
from flightlog.model.text import pluralize
from flightlog.views.session.summary import outline_session
from flightlog.views.session.timeline import find_lane, find_step, find_turn, group_by_call
from flightlog.views.session.tools import CONTENT_NAMES, NEW_NAMES, OLD_NAMES, first_text

_MAIN_ARGUMENTS = tuple(
    "command file_path pattern url query prompt cmd filePath description".split()
)
LINES_MAX = 12  # of a text; a result of this length still leaves its call on the screen
NOTE_LINES_MAX = 3
BRIEF_LINES_MAX = 3
LINE_WIDTH_MAX = 2_000  # characters; minified files have lines of megabytes
_WHO = {
    PromptKind.HUMAN: "person",
    PromptKind.TASK: "background task",
    PromptKind.COMMAND: "command",
    None: "before the first prompt",
}


def format_arguments(arguments: dict[str, Any]) -> str:
    """Return a tool's input: the main argument, the others as JSON, a file change as a diff."""
    name = next((name for name in _MAIN_ARGUMENTS if isinstance(arguments.get(name), str)), None)
    if name is None:
        return _to_json(arguments) if arguments else ""
    body, shown = _format_change(arguments)
    known = {name, "description", *shown}
    rest = {key: value for key, value in arguments.items() if key not in known}
    head = f"{arguments[name]} {_to_json(rest)}" if rest else str(arguments[name])
    return f"{head}\n{body}" if body else head


def _format_change(arguments: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
    """Return a change of a file as diff lines, and the arguments it shows."""
    old, new = first_text(arguments, OLD_NAMES), first_text(arguments, NEW_NAMES)
    if old is not None and new is not None:
        shown = (*OLD_NAMES, *NEW_NAMES, "replace_all", "replaceAll")
        return f"{_mark_lines('-', old)}\n{_mark_lines('+', new)}", shown
    content = first_text(arguments, CONTENT_NAMES)
    return ("", ()) if content is None else (_mark_lines("+", content), CONTENT_NAMES)


def _mark_lines(mark: str, text: str) -> str:
    return "\n".join(f"{mark} {line}".rstrip() for line in text.rstrip("\n").split("\n"))


def _to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


class TranscriptLineKind(enum.Enum):
    """The kind of a transcript line."""

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
    LANE = "subagent"


_BRIEF_KINDS = {
    *(TranscriptLineKind.TITLE, TranscriptLineKind.FACT, TranscriptLineKind.TURN),
    *(TranscriptLineKind.PROMPT, TranscriptLineKind.FAILURE, TranscriptLineKind.NOTE),
}


class TranscriptLine(Struct, frozen=True):
    """One paragraph; `address` names the turn or step that it starts."""

    kind: TranscriptLineKind
    depth: int
    text: str
    address: str = ""


class RenderOptions(Struct, frozen=True):
    """How to render.

    `read_result_file` reads an output that was too large for the transcript; `program` is how the
    user called us, "" if the session cannot be shown again. `own_usage` is the usage without
    responses copied from another session; `findings` are lines shown before the first turn.
    """

    zone: tzinfo = UTC
    is_full: bool = False
    read_result_file: Callable[[str], str | None] | None = None
    program: str = "flightlog"
    own_usage: usage.UsageRow | None = None
    findings: tuple[str, ...] = ()


def render_session(session: Session, options: RenderOptions) -> Iterator[TranscriptLine]:
    """Yield the lines of the whole session."""
    yield TranscriptLine(TranscriptLineKind.TITLE, 0, session.heading or "(no prompt)", session.id)
    yield from _session_facts(session, options)
    yield from (_note(0, finding) for finding in options.findings)
    renderer = _TranscriptRenderer(session, options)
    for turn in session.turns:
        yield from renderer.render_turn(turn, Address(session.id, turn.number), 0)
    for subagent in session.subagents:
        if subagent.id not in renderer.rendered:
            yield from renderer.render_subagent(subagent, 0)


def render_passage(
    session: Session, at: Address, options: RenderOptions
) -> Iterator[TranscriptLine]:
    """Yield the lines of one turn, step or subagent."""
    renderer = _TranscriptRenderer(session, options)
    subagent = find_lane(session, at)
    if not at.turn:
        assert subagent is not None, "a whole session is rendered by render_session"
        yield from renderer.render_subagent(subagent, 0)
        return
    thread = subagent.id if subagent else ""
    if at.step:
        step = find_step(session, at)
        yield from renderer.render_step(step, Address(session.id, at.turn, step.number, thread), 0)
    else:
        place = Address(session.id, at.turn, subagent=thread)
        yield from renderer.render_turn(find_turn(session, at), place, 0)


def select_brief(lines: Iterable[TranscriptLine]) -> Iterator[TranscriptLine]:
    """Yield prompts, the last answer of each turn, failures and notes; subagents are left out."""
    answer: TranscriptLine | None = None
    hidden_depth: int | None = None
    for line in lines:
        if hidden_depth is not None and line.depth > hidden_depth:
            continue
        hidden_depth = line.depth if line.kind is TranscriptLineKind.LANE else None
        if line.kind is TranscriptLineKind.TEXT:
            answer = line
        elif line.kind in _BRIEF_KINDS:
            if line.kind is TranscriptLineKind.TURN and answer:
                yield answer
                answer = None
            yield replace(line, text=_first_of(line.text, BRIEF_LINES_MAX))
    if answer:
        yield answer


def _first_of(text: str, lines_max: int) -> str:
    lines = text.split("\n")
    return "\n".join(lines[:lines_max]) + (" …" if len(lines) > lines_max else "")


def format_timestamp(at_ms: int | None, zone: tzinfo, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Return a time as text; `?` if it is unknown."""
    if at_ms is not None:
        return datetime.fromtimestamp(at_ms / 1000, tz=UTC).astimezone(zone).strftime(form)
    return "?"


def describe_client(agent: str, version: str, cwd: str) -> str:
    """Return who wrote a session and where; what is not recorded is left out."""
    return ", ".join(filter(None, (f"{agent} {version}".strip(), cwd)))


def _session_facts(session: Session, options: RenderOptions) -> Iterator[TranscriptLine]:
    summary, zone = outline_session(session).summary, options.zone
    shown = summary.usage.total_tokens
    if options.own_usage is not None:
        summary = replace(summary, **usage.row_fields(options.own_usage))
    counts = [pluralize(summary.turns, "turn"), pluralize(summary.steps, "step")]
    counts.append(pluralize(summary.tool_calls, "tool call"))
    counts += [f"{summary.failed_tool_calls:,} failed"] if summary.failed_tool_calls else []
    counts += [pluralize(summary.subagents, "subagent")] if summary.subagents else []
    branch = f" ({session.branch})" if session.branch else ""
    tokens = usage.format_tokens(summary.usage.total_tokens, summary.usage, summary.cost)
    facts = [
        describe_client(session.agent, session.version, session.cwd) + branch,
        f"{format_timestamp(summary.started_ms, zone)} to {format_timestamp(summary.ended_ms, zone)}",
        f"{', '.join(counts)}; {tokens} tokens, {usage.format_cost(summary.cost)}",
    ]
    if copied := max(0, shown - summary.usage.total_tokens):
        facts.append(f"{copied:,} more tokens, of copied responses, count in another session")
    if session.client_totals is not None:
        facts.append(f"the client's own total: {usage.format_client_total(session.client_totals)}")
    yield from (TranscriptLine(TranscriptLineKind.FACT, 0, fact) for fact in facts)
    for kind, count in session.unknown_record_types:
        yield _note(0, f"unknown record type {kind}, {pluralize(count, 'time')}")
    for name, count in session.unknown_fields:
        yield _note(0, f"unknown field {name}, {pluralize(count, 'time')}")
    for reason in sorted({damage.reason for damage in session.damage}):
        spans = [damage for damage in session.damage if damage.reason == reason]
        place = f"in {len(spans):,} spans from {spans[0].offset:,} on" if spans[1:] else ""
        place = place or f"at {spans[0].offset:,}"
        length = sum(span.length for span in spans)
        yield _note(0, f"damaged: {length:,} bytes {place}: {reason}")


def _note(depth: int, text: str) -> TranscriptLine:
    return TranscriptLine(TranscriptLineKind.NOTE, depth, text)


class _TranscriptRenderer:
    """Renders each subagent once, below the call that started it."""

    def __init__(self, session: Session, options: RenderOptions) -> None:
        self._session = session
        self._options = options
        self._subagents = group_by_call(session.subagents)
        self.rendered: set[str] = set()

    def render_turn(self, turn: Turn, at: Address, depth: int) -> Iterator[TranscriptLine]:
        rewound = ", taken back" if turn.is_rewound else ""
        time = format_timestamp(turn.at_ms, self._options.zone, "%H:%M:%S")
        is_task = at.subagent and turn.kind is PromptKind.HUMAN
        who = "task" if is_task else _WHO.get(turn.kind, "client")
        yield TranscriptLine(TranscriptLineKind.TURN, depth, f"{who}{rewound}, {time}", str(at))
        if turn.prompt:
            yield from self._render_content(turn.prompt, TranscriptLineKind.PROMPT, depth + 1, at)
        for item in turn.items:
            if isinstance(item, Note):
                text = self._truncate(item.text, at, NOTE_LINES_MAX)
                yield _note(depth + 1, f"{item.kind.value}: {text}")
            else:
                address = Address(at.session, at.turn, item.number, at.subagent)
                yield from self.render_step(item, address, depth + 1)

    def render_step(self, step: Step, at: Address, depth: int) -> Iterator[TranscriptLine]:
        output = usage.format_tokens(step.output_tokens, step.usage, step.cost)
        tokens = f"{step.usage.prompt_tokens:,} + {output} tokens"
        tokens = "tokens unknown" if usage.is_unknown(step.usage, step.cost) else tokens
        facts = [step.model or "unknown model", tokens, usage.format_cost(step.cost)]
        facts += [step.stop_reason] if step.stop_reason not in {"", "end_turn", "tool_use"} else []
        facts += ["cut off"] if step.is_aborted else []
        yield TranscriptLine(TranscriptLineKind.STEP, depth, ", ".join(facts), str(at))
        yield from self._render_content(step.content, TranscriptLineKind.TEXT, depth + 1, at)
        for call in step.tool_calls:
            yield from self._render_call(call, at, depth + 1)

    def render_subagent(self, subagent: Subagent, depth: int) -> Iterator[TranscriptLine]:
        self.rendered.add(subagent.id)
        kind = subagent.agent_type or "subagent"
        task = f": {subagent.description}" if subagent.description else ""
        address = f"{self._session.id}@{subagent.id}"
        yield TranscriptLine(TranscriptLineKind.LANE, depth, f"{kind}{task}", address)
        for turn in subagent.turns:
            place = Address(self._session.id, turn.number, subagent=subagent.id)
            yield from self.render_turn(turn, place, depth + 1)

    def _render_call(self, call: ToolCall, at: Address, depth: int) -> Iterator[TranscriptLine]:
        # The subagent's thread begins with its prompt, so the call does not repeat it.
        started = self._subagents.get(call.id, ())
        is_delegated = any(one.turns and one.turns[0].prompt for one in started)
        given = {key: call.input[key] for key in call.input if key != "prompt" or not is_delegated}
        arguments = self._truncate(format_arguments(given), at)
        yield TranscriptLine(TranscriptLineKind.CALL, depth, f"{call.name} {arguments}".rstrip())
        if call.executed_input is not None:
            arguments = self._truncate(format_arguments(call.executed_input), at)
            yield _note(depth + 1, f"a hook changed it to: {arguments}")
        if facts := _describe_hooks(call):
            yield _note(depth + 1, facts)
        for subagent in self._subagents.get(call.id, ()):
            if subagent.id not in self.rendered:
                yield from self.render_subagent(subagent, depth + 1)
        if call.result is None:
            yield _note(depth + 1, "no result on record")
            return
        if call.denial_reason:
            yield _note(depth + 1, f"denied: {call.denial_reason}")
        read_spilled = self._options.read_result_file if self._options.is_full else None
        whole = read_spilled(call.result_file) if read_spilled and call.result_file else None
        content = call.result if whole is None else (Text(whole),)
        kind = TranscriptLineKind.FAILURE if call.is_error else TranscriptLineKind.RESULT
        yield from self._render_content(content, kind, depth + 1, at)
        if call.result_file and whole is None:
            text = f"the whole output is in tool-results/{call.result_file.rsplit('/', 1)[-1]}"
            yield _note(depth + 1, text)

    def _render_content(
        self, content: tuple[Block, ...], kind: TranscriptLineKind, depth: int, at: Address
    ) -> Iterator[TranscriptLine]:
        for block in content:
            match block:
                case Text() if block.text.strip() or kind is not TranscriptLineKind.TEXT:
                    yield TranscriptLine(kind, depth, self._truncate(block.text, at) or "(nothing)")
                case Text():
                    pass  # clients 2.1.30 to 2.1.50 began many responses with empty lines
                case Thinking():
                    shown = self._truncate(block.text, at) or "(not shown)"
                    text = "(withheld)" if block.is_withheld else shown
                    yield TranscriptLine(TranscriptLineKind.THINKING, depth, text)
                case Image():
                    text = f"[{block.media_type or 'image'}, {block.size_bytes:,} bytes]"
                    yield TranscriptLine(kind, depth, text)
                case UnknownBlock():
                    text = f"unknown content {block.kind}: {self._truncate(block.text, at)}"
                    yield _note(depth, text.rstrip(": "))

    def _truncate(self, text: str, at: Address, lines_max: int = LINES_MAX) -> str:
        text = text.strip("\n")
        if self._options.is_full:
            return text
        lines = text.split("\n")
        short = [_truncate_line(line) for line in lines[:lines_max]]
        if len(lines) > lines_max:
            more = pluralize(len(lines) - lines_max, "more line")
            command = f": {self._options.program} session show '{at}' --full"
            short.append(f"… {more}{command if self._options.program else ''}")
        return "\n".join(short)


def _describe_hooks(call: ToolCall) -> str:
    """Return time, exit code and permission of a call, "" if nothing; the usual goes without saying."""
    facts = [f"ran {call.duration_ms:,} ms"] if call.duration_ms is not None else []
    if call.exit_code and not call.output.startswith("Exit code"):  # Claude Code's output begins so
        facts.append(f"exit code {call.exit_code}")
    is_unexplained = call.permission_decision == "deny" and not call.denial_reason
    if call.permission_decision == "ask" or is_unexplained:
        facts.append(f"permission: {call.permission_decision}")
    return ", ".join(facts)


def _truncate_line(line: str) -> str:
    if len(line) <= LINE_WIDTH_MAX:
        return line
    return f"{line[:LINE_WIDTH_MAX]}… ({len(line):,} characters)"
