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
from flightlog.views.atif.content import Pictures, content, reasoning, said
from flightlog.views.atif.document import Observation, Ref, Result, Step, ToolCall
from flightlog.views.atif.metrics import metrics_of

_BY_PERSON = frozenset({PromptKind.HUMAN, PromptKind.COMMAND})


class Thread(Struct, frozen=True):
    """A thread and what is needed to tell it.

    `copied` names responses that another session gave first, `refs` the trajectories a tool
    call started. `extras` says that calls and results may carry data of their own (from 1.7).
    """

    at: Address
    turns: Sequence[Turn]
    copied: frozenset[str]
    refs: Mapping[str, list[Ref]]
    pictures: Pictures
    extras: bool


def steps(thread: Thread) -> list[Step]:
    """Tell a thread; everything up to the last response that is a copy is copied context."""
    told = list(_told(thread))
    copies = [place for place, step in enumerate(told) if _message_id(step) in thread.copied]
    copied = max(copies, default=-1) + 1
    return [*map(_as_copy, told[:copied]), *told[copied:]]


def numbered(told: Sequence[Step]) -> list[Step]:
    """Number steps from 1."""
    return [replace(step, step_id=place) for place, step in enumerate(told, 1)]


def stamp(at_ms: int | None) -> str | UnsetType:
    """Write a time as ISO 8601 in UTC."""
    if at_ms is None:
        return UNSET
    return f"{datetime.fromtimestamp(at_ms // 1000, UTC):%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03}Z"


def system(kind: str, text: str, at_ms: int | None, **extra: Any) -> Step:
    """Make a system step that says what kind of thing it reports."""
    return Step(0, "system", text, stamp(at_ms), extra={"kind": kind, **extra})


def _told(thread: Thread) -> Iterator[Step]:
    before: Turn | None = None
    summary_pending = False
    for turn in thread.turns:
        if before is not None and before.rewound and not turn.rewound:
            yield _taken_back(thread, before, turn)
        if turn.kind is not None:
            yield _prompt(turn, thread)
        for place, item in enumerate(turn.items):
            if isinstance(item, Told):
                summary_pending = False
                yield _response(item, turn, thread)
            elif item.kind is NoteKind.COMPACTION:
                summary = _summary(turn.items[place + 1 :])
                summary_pending = summary is not None
                yield _boundary(item, summary)
            elif item.kind is NoteKind.SUMMARY and summary_pending:
                summary_pending = False
            elif item.kind is NoteKind.SUMMARY:
                yield _boundary(item, item)
            elif item.kind is not NoteKind.UNKNOWN:
                yield system(item.kind.value, item.text, item.at_ms)
        before = turn


def _prompt(turn: Turn, thread: Thread) -> Step:
    assert turn.kind is not None
    extra: dict[str, Any] = {"kind": turn.kind.value}
    if turn.uuid:
        extra["uuid"] = turn.uuid
    if turn.rewound:
        extra["taken_back"] = True
    source: Literal["user", "system"] = "user" if turn.kind in _BY_PERSON else "system"
    return Step(0, source, content(turn.prompt, thread.pictures), stamp(turn.at_ms), extra=extra)


def _taken_back(thread: Thread, last: Turn, after: Turn) -> Step:
    """Say that the steps a person took back are no part of the context from here on."""
    first = last.number
    while first > 1 and thread.turns[first - 2].rewound:
        first -= 1
    text = f"turn {first} taken back" if first == last.number else f"turns {first} to {last.number} taken back"
    boundary = {"type": "pruning", "boundary": "truncate"}
    return system("taken back", text, after.at_ms, context_management=boundary)


def _summary(rest: Sequence[Told | Note]) -> Note | None:
    """Find the summary that belongs to a compaction: it comes before the next response."""
    for item in rest:
        if isinstance(item, Told) or item.kind is NoteKind.COMPACTION:
            return None
        if item.kind is NoteKind.SUMMARY:
            return item
    return None


def _boundary(note: Note, summary: Note | None) -> Step:
    text = note.text if note is not summary else "context compacted"
    management = {"type": "compaction", "boundary": "replace"}
    step = system(NoteKind.COMPACTION.value, text, note.at_ms, context_management=management)
    if summary is None:
        return step
    return replace(step, observation=Observation([Result(content=summary.text)]))


def _response(step: Told, turn: Turn, thread: Thread) -> Step:
    results = [result for call in step.calls for result in _result(call, thread)]
    return Step(
        0,
        "agent",
        said(step.content, thread.pictures),
        stamp(step.at_ms),
        model_name=step.model or UNSET,
        reasoning_effort=step.effort or UNSET,
        reasoning_content=reasoning(step.content) or UNSET,
        tool_calls=[_call(call, thread) for call in step.calls] or UNSET,
        observation=Observation(results) if results else UNSET,
        metrics=metrics_of(step),
        llm_call_count=1 if thread.extras else UNSET,
        extra=_extra(step, turn, thread),
    )


def _call(call: Called, thread: Thread) -> ToolCall:
    ran = {"ran_input": call.ran_input} if call.ran_input is not None and thread.extras else UNSET
    return ToolCall(call.id, call.name, call.input, ran)


def _result(call: Called, thread: Thread) -> list[Result]:
    refs = thread.refs.get(call.id)
    if call.result is None and not refs:
        return []
    about = _about(call)
    return [
        Result(
            call.id,
            UNSET if call.result is None else content(call.result, thread.pictures),
            refs or UNSET,
            about if about and thread.extras else UNSET,
        )
    ]


def _about(call: Called) -> dict[str, Any]:
    said = {"is_error": call.is_error, "denied": call.denied, "full_output": _name(call.spilled)}
    return {name: value for name, value in said.items() if value}


def _name(path: str) -> str:
    return path.replace("\\", "/").rsplit("/", 1)[-1]


def _extra(step: Told, turn: Turn, thread: Thread) -> dict[str, Any]:
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
        "results": {call.id: about for call in calls if (about := _about(call))},
        "result_uuids": {call.id: call.result_uuid for call in step.calls if call.result_uuid},
    }
    return {name: value for name, value in told.items() if value}


def _message_id(step: Step) -> str:
    return str(step.extra.get("message_id", "")) if isinstance(step.extra, dict) else ""


def _as_copy(step: Step) -> Step:
    """Mark a step as copied; what it used was counted where it was first said."""
    return replace(step, is_copied_context=True, metrics=UNSET)
