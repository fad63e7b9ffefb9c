"""One thread of a session as ATIF steps, in order.

One model response is one agent step. What the client said by itself becomes a system step
that says what it is, never an agent's or a person's. A compaction becomes a context boundary
that carries the summary; turns a person took back are followed by a boundary as well.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from flightlog.model.address import Address
from flightlog.model.events import PromptKind, Thinking
from flightlog.model.session import Note, NoteKind, Turn
from flightlog.model.session import Step as Told
from flightlog.model.session import ToolCall as Called
from flightlog.views.atif.content import ImageFiles, build_content, join_text_blocks, reasoning_text
from flightlog.views.atif.document import AtifStep, AtifToolCall, Observation, ObservationResult, SubagentRef
from flightlog.views.atif.metrics import build_metrics

_BY_PERSON = frozenset({PromptKind.HUMAN, PromptKind.COMMAND})


class AtifThread(Struct, frozen=True):
    """A thread and what is needed to tell it.

    `copied` names responses that another session gave first, `refs` the trajectories a tool
    call started. `extras` says that calls and results may carry data of their own (from 1.7).
    """

    at: Address
    turns: Sequence[Turn]
    copied: frozenset[str]
    refs: Mapping[str, list[SubagentRef]]
    pictures: ImageFiles
    extras: bool


def build_steps(thread: AtifThread) -> list[AtifStep]:
    """Tell a thread; everything up to the last response that is a copy is copied context."""
    told = list(_thread_steps(thread))
    copies = [place for place, step in enumerate(told) if _message_id(step) in thread.copied]
    copied = max(copies, default=-1) + 1
    return [*map(_mark_as_copy, told[:copied]), *told[copied:]]


def number_steps(told: Sequence[AtifStep]) -> list[AtifStep]:
    """Number steps from 1."""
    return [replace(step, step_id=place) for place, step in enumerate(told, 1)]


def format_timestamp(at_ms: int | None) -> str | UnsetType:
    """Write a time as ISO 8601 in UTC."""
    if at_ms is None:
        return UNSET
    return f"{datetime.fromtimestamp(at_ms // 1000, UTC):%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03}Z"


def system_step(kind: str, text: str, at_ms: int | None, **extra: Any) -> AtifStep:
    """Make a system step that says what kind of thing it reports."""
    return AtifStep(0, "system", text, format_timestamp(at_ms), extra={"kind": kind, **extra})


def _thread_steps(thread: AtifThread) -> Iterator[AtifStep]:
    before: Turn | None = None
    summary_pending = False
    for turn in thread.turns:
        if before is not None and before.rewound and not turn.rewound:
            yield _rewind_step(thread, before, turn)
        if turn.kind is not None:
            yield _prompt_step(turn, thread)
        for place, item in enumerate(turn.items):
            if isinstance(item, Told):
                summary_pending = False
                yield _response_step(item, turn, thread)
            elif item.kind is NoteKind.COMPACTION:
                summary = _find_summary(turn.items[place + 1 :])
                summary_pending = summary is not None
                yield _boundary_step(item, summary)
            elif item.kind is NoteKind.SUMMARY and summary_pending:
                summary_pending = False
            elif item.kind is NoteKind.SUMMARY:
                yield _boundary_step(item, item)
            elif item.kind is not NoteKind.UNKNOWN:
                yield system_step(item.kind.value, item.text, item.at_ms)
        before = turn


def _prompt_step(turn: Turn, thread: AtifThread) -> AtifStep:
    assert turn.kind is not None
    extra: dict[str, Any] = {"kind": turn.kind.value}
    if turn.uuid:
        extra["uuid"] = turn.uuid
    if turn.rewound:
        extra["taken_back"] = True
    source: Literal["user", "system"] = "user" if turn.kind in _BY_PERSON else "system"
    return AtifStep(0, source, build_content(turn.prompt, thread.pictures), format_timestamp(turn.at_ms), extra=extra)


def _rewind_step(thread: AtifThread, last: Turn, after: Turn) -> AtifStep:
    """Say that the steps a person took back are no part of the context from here on."""
    first = last.number
    while first > 1 and thread.turns[first - 2].rewound:
        first -= 1
    text = f"turn {first} taken back" if first == last.number else f"turns {first} to {last.number} taken back"
    boundary = {"type": "pruning", "boundary": "truncate"}
    return system_step("taken back", text, after.at_ms, context_management=boundary)


def _find_summary(rest: Sequence[Told | Note]) -> Note | None:
    """Find the summary that belongs to a compaction: it comes before the next response."""
    for item in rest:
        if isinstance(item, Told) or item.kind is NoteKind.COMPACTION:
            return None
        if item.kind is NoteKind.SUMMARY:
            return item
    return None


def _boundary_step(note: Note, summary: Note | None) -> AtifStep:
    text = note.text if note is not summary else "context compacted"
    management = {"type": "compaction", "boundary": "replace"}
    step = system_step(NoteKind.COMPACTION.value, text, note.at_ms, context_management=management)
    if summary is None:
        return step
    return replace(step, observation=Observation([ObservationResult(content=summary.text)]))


def _response_step(step: Told, turn: Turn, thread: AtifThread) -> AtifStep:
    results = [result for call in step.calls for result in _build_results(call, thread)]
    return AtifStep(
        0,
        "agent",
        join_text_blocks(step.content, thread.pictures),
        format_timestamp(step.at_ms),
        model_name=step.model or UNSET,
        reasoning_effort=step.effort or UNSET,
        reasoning_content=reasoning_text(step.content) or UNSET,
        tool_calls=[_build_tool_call(call, thread) for call in step.calls] or UNSET,
        observation=Observation(results) if results else UNSET,
        metrics=build_metrics(step),
        llm_call_count=1 if thread.extras else UNSET,
        extra=_step_extra(step, turn, thread),
    )


def _build_tool_call(call: Called, thread: AtifThread) -> AtifToolCall:
    ran = {"ran_input": call.ran_input} if call.ran_input is not None and thread.extras else UNSET
    return AtifToolCall(call.id, call.name, call.input, ran)


def _build_results(call: Called, thread: AtifThread) -> list[ObservationResult]:
    refs = thread.refs.get(call.id)
    if call.result is None and not refs:
        return []
    about = _describe_result(call)
    return [
        ObservationResult(
            call.id,
            UNSET if call.result is None else build_content(call.result, thread.pictures),
            refs or UNSET,
            about if about and thread.extras else UNSET,
        )
    ]


def _describe_result(call: Called) -> dict[str, Any]:
    said = {"is_error": call.is_error, "denied": call.denied, "full_output": _file_name(call.spilled)}
    return {name: value for name, value in said.items() if value}


def _file_name(path: str) -> str:
    return path.replace("\\", "/").rsplit("/", 1)[-1]


def _step_extra(step: Told, turn: Turn, thread: AtifThread) -> dict[str, Any]:
    """What joins the step to the recording, and what calls and results may not say before 1.7."""
    at = Address(thread.at.session, turn.number, step.number, thread.at.lane)
    calls = [call for call in step.calls if not thread.extras]
    told = {
        "address": str(at),
        "message_id": step.message_id,
        "request_id": step.request_id,
        "stop_reason": step.stop_reason,
        "uuids": [uuid for uuid in step.uuids if uuid],
        "aborted": step.aborted,
        "taken_back": turn.rewound,
        "withheld_thinking": sum(isinstance(block, Thinking) and not block.text for block in step.content),
        "unanswered": [call.id for call in step.calls if call.result is None],
        "ran_inputs": {call.id: call.ran_input for call in calls if call.ran_input is not None},
        "results": {call.id: about for call in calls if (about := _describe_result(call))},
        "result_uuids": {call.id: call.result_uuid for call in step.calls if call.result_uuid},
    }
    return {name: value for name, value in told.items() if value}


def _message_id(step: AtifStep) -> str:
    return str(step.extra.get("message_id", "")) if isinstance(step.extra, dict) else ""


def _mark_as_copy(step: AtifStep) -> AtifStep:
    """Mark a step as copied; what it used was counted where it was first said."""
    return replace(step, is_copied_context=True, metrics=UNSET)
