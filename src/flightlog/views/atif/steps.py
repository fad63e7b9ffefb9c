"""Convert one thread to ATIF steps.

A text in brackets replaces content that ATIF cannot represent, so that a reader sees that
something is missing.

One model response is one agent step. Messages of the client become system steps with their
kind, never user or agent steps. A compaction becomes a context boundary with the summary; turns
that a person took back are followed by a boundary too.
"""

import base64
import binascii
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from flightlog.model.addresses import Address
from flightlog.model.entries import Block, Image, PromptKind, Text, Thinking, ToolUse, UnknownBlock
from flightlog.model.session import Note, NoteKind, Step, ToolCall, Turn
from flightlog.model.usage import ClientTotals
from flightlog.views.atif.document import (
    AtifStep,
    AtifToolCall,
    Content,
    ContentPart,
    FinalMetrics,
    MediaSource,
    Observation,
    ObservationResult,
    StepMetrics,
    SubagentRef,
)

FOLDER = "images"
_ENDINGS = {"image/jpeg": "jpg", "image/png": "png", "image/gif": "gif", "image/webp": "webp"}
_USD_DIGITS = 9  # as in usage reports: finer than any price, coarser than float noise
_BY_PERSON = frozenset({PromptKind.HUMAN, PromptKind.COMMAND})


class ImageFiles:
    """The pictures of one bundle, named by their content so that each is stored once."""

    def __init__(self, *, keep: bool) -> None:
        """Start without pictures; without `keep` every picture is replaced by a text."""
        self.files: dict[str, bytes] = {}
        self._keep = keep

    def picture_part(self, image: Image) -> ContentPart:
        """Return the part for `image`, or a text if its type or its data is not supported."""
        body = _decode_image(image) if self._keep and image.media_type in _ENDINGS else b""
        if not body:
            return ContentPart("text", text=omission_marker(image.media_type or "image"))
        path = f"{FOLDER}/{hashlib.sha256(body).hexdigest()[:16]}.{_ENDINGS[image.media_type]}"
        self.files[path] = body
        return ContentPart("image", source=MediaSource(image.media_type, path))


def omission_marker(kind: str) -> str:
    """Return the text that replaces content that ATIF cannot represent."""
    return f"[{kind} left out]"


def build_content(blocks: Sequence[Block], pictures: ImageFiles) -> Content:
    """Return a single text block as a string, and anything else as parts."""
    parts = [part for block in blocks for part in _block_parts(block, pictures)]
    if not parts:
        return ""
    only = parts[0]
    return only.text if len(parts) == 1 and isinstance(only.text, str) else parts


def join_text_blocks(blocks: Sequence[Block], pictures: ImageFiles) -> Content:
    """Return an agent's texts as one string with blank lines between, or as parts with pictures."""
    if any(isinstance(block, Image | UnknownBlock) for block in blocks):
        return build_content(blocks, pictures)
    return "\n\n".join(block.text for block in blocks if isinstance(block, Text) and block.text)


def reasoning_text(blocks: Sequence[Block]) -> str:
    """Return an agent's visible thinking as one string."""
    return "\n\n".join(block.text for block in blocks if isinstance(block, Thinking) and block.text)


def _block_parts(block: Block, pictures: ImageFiles) -> list[ContentPart]:
    match block:
        case Text():
            return [ContentPart("text", text=block.text)]
        case Image():
            return [pictures.picture_part(block)]
        case UnknownBlock():
            return [ContentPart("text", text=block.text or omission_marker(block.kind))]
        case Thinking() | ToolUse():
            return []


def _decode_image(image: Image) -> bytes:
    try:
        return base64.b64decode(image.data, validate=True)
    except (binascii.Error, ValueError):
        return b""


def build_metrics(step: Step) -> StepMetrics:
    """Return the tokens and the cost of one response; an unknown cost is absent."""
    usage = step.usage
    counts = {
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_creation_1h_input_tokens": usage.cache_write_1h_tokens,
        "web_search_requests": usage.web_searches,
    }
    return StepMetrics(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.output_tokens,
        cached_tokens=usage.cache_read_tokens,
        cost_usd=_round_usd(step.cost_usd),
        extra={**without_empty(counts), "cost_source": step.cost_source.value},
    )


def sum_final_metrics(
    own: Sequence[AtifStep], below: Sequence[AtifStep], client: ClientTotals | None
) -> FinalMetrics:
    """Return the tokens of the `own` steps, and the cost of these and of the subagents' `below`."""
    metrics = [step.metrics for step in (*own, *below) if isinstance(step.metrics, StepMetrics)]
    costs = [step.cost_usd for step in metrics if isinstance(step.cost_usd, float)]
    extra: dict[str, Any] = {}
    if below:
        names = ("prompt_tokens", "completion_tokens", "cached_tokens")
        extra["subagents"] = {name: _sum_metric(below, name) for name in names}
    if client is not None:
        dollars = {} if client.cost_usd is None else {"cost_usd": client.cost_usd}
        totals = dollars | client.known_units
        extra |= {f"client_total_{key}": amount for key, amount in totals.items()}
    return FinalMetrics(
        total_prompt_tokens=_sum_metric(own, "prompt_tokens"),
        total_completion_tokens=_sum_metric(own, "completion_tokens"),
        total_cached_tokens=_sum_metric(own, "cached_tokens"),
        total_cost_usd=_round_usd(sum(costs) if len(costs) == len(metrics) else None),
        total_steps=len(own),
        extra=extra or UNSET,
    )


def _sum_metric(steps: Sequence[AtifStep], name: str) -> int:
    metrics = (step.metrics for step in steps)
    return sum(getattr(one, name) for one in metrics if isinstance(one, StepMetrics))


def _round_usd(usd: float | None) -> float | UnsetType:
    return UNSET if usd is None else round(float(usd), _USD_DIGITS)


class AtifThread(Struct, frozen=True):
    """A thread, the copied responses in it, and the trajectories its tool calls started.

    With `extras`, calls and results have an `extra` of their own (from version 1.7 on).
    """

    address: Address
    turns: Sequence[Turn]
    copied_message_ids: frozenset[str]
    refs: Mapping[str, list[SubagentRef]]
    pictures: ImageFiles
    extras: bool


def build_steps(thread: AtifThread) -> list[AtifStep]:
    """Return the steps of a thread; all up to the last copied response are copied context.

    Copied steps have no metrics, because their usage counts in the original session.
    """
    steps = list(_thread_steps(thread))
    copied, numbered = thread.copied_message_ids, enumerate(steps, 1)
    count = max((number for number, step in numbered if _message_id(step) in copied), default=0)
    copies = [replace(step, is_copied_context=True, metrics=UNSET) for step in steps[:count]]
    return [*copies, *steps[count:]]


def number_steps(steps: Sequence[AtifStep]) -> list[AtifStep]:
    """Return the steps numbered from 1."""
    return [replace(step, step_id=number) for number, step in enumerate(steps, 1)]


def without_empty(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields whose value is not empty, zero or false."""
    return {name: value for name, value in fields.items() if value}


def format_timestamp(at_ms: int | None) -> str | UnsetType:
    """Return a time as ISO 8601 in UTC."""
    if at_ms is None:
        return UNSET
    return f"{datetime.fromtimestamp(at_ms // 1000, UTC):%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03}Z"


def system_step(kind: str, text: str, at_ms: int | None, **extra: Any) -> AtifStep:
    """Return a system step; `kind` says what it reports."""
    return AtifStep(0, "system", text, format_timestamp(at_ms), extra={"kind": kind, **extra})


def _thread_steps(thread: AtifThread) -> Iterator[AtifStep]:
    before: Turn | None = None
    summary_pending = False
    for turn in thread.turns:
        if before is not None and before.is_rewound and not turn.is_rewound:
            yield _rewind_step(thread, before, turn)
        if turn.kind is not None:
            yield _prompt_step(turn, thread)
        for index, item in enumerate(turn.items):
            if isinstance(item, Step):
                summary_pending = False
                yield _response_step(item, turn, thread)
            elif item.kind is NoteKind.COMPACTION:
                summary = _find_summary(turn.items[index + 1 :])
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
    if turn.is_rewound:
        extra["taken_back"] = True
    source: Literal["user", "system"] = "user" if turn.kind in _BY_PERSON else "system"
    content, at = build_content(turn.prompt, thread.pictures), format_timestamp(turn.at_ms)
    return AtifStep(0, source, content, at, extra=extra)


def _rewind_step(thread: AtifThread, last: Turn, after: Turn) -> AtifStep:
    """Return a boundary: the turns a person took back are not in the context from here on."""
    first = last.number
    while first > 1 and thread.turns[first - 2].is_rewound:
        first -= 1
    turns = f"turn {first}" if first == last.number else f"turns {first} to {last.number}"
    text = f"{turns} taken back"
    boundary = {"type": "pruning", "boundary": "truncate"}
    return system_step("taken back", text, after.at_ms, context_management=boundary)


def _find_summary(rest: Sequence[Step | Note]) -> Note | None:
    """Return the summary of a compaction, which comes before the next response, if there is one."""
    for item in rest:
        if isinstance(item, Step) or item.kind is NoteKind.COMPACTION:
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


def _response_step(step: Step, turn: Turn, thread: AtifThread) -> AtifStep:
    results = [result for call in step.tool_calls for result in _build_results(call, thread)]
    return AtifStep(
        0,
        "agent",
        join_text_blocks(step.content, thread.pictures),
        format_timestamp(step.at_ms),
        model_name=step.model or UNSET,
        reasoning_effort=step.effort or UNSET,
        reasoning_content=reasoning_text(step.content) or UNSET,
        tool_calls=[_build_tool_call(call, thread) for call in step.tool_calls] or UNSET,
        observation=Observation(results) if results else UNSET,
        metrics=build_metrics(step),
        llm_call_count=1 if thread.extras else UNSET,
        extra=_step_extra(step, turn, thread),
    )


def _build_tool_call(call: ToolCall, thread: AtifThread) -> AtifToolCall:
    is_shown = call.executed_input is not None and thread.extras
    ran = {"ran_input": call.executed_input} if is_shown else UNSET
    return AtifToolCall(call.id, call.name, call.input, ran)


def _build_results(call: ToolCall, thread: AtifThread) -> list[ObservationResult]:
    refs = thread.refs.get(call.id)
    if call.result is None and not refs:
        return []
    about = _describe_result(call)
    content = UNSET if call.result is None else build_content(call.result, thread.pictures)
    extra = about if about and thread.extras else UNSET
    return [ObservationResult(call.id, content, refs or UNSET, extra)]


def _describe_result(call: ToolCall) -> dict[str, Any]:
    name = call.result_file.replace("\\", "/").rsplit("/", 1)[-1]
    about = {"is_error": call.is_error, "denied": call.denial_reason, "full_output": name}
    return without_empty({**about, "exit_code": call.exit_code})


def _step_extra(step: Step, turn: Turn, thread: AtifThread) -> dict[str, Any]:
    """Return links to the recording, and before 1.7 what belongs on calls and results."""
    at = Address(thread.address.session, turn.number, step.number, thread.address.subagent)
    calls = [call for call in step.tool_calls if not thread.extras]
    fields = {
        "address": str(at),
        "message_id": step.message_id,
        "request_id": step.request_id,
        "stop_reason": step.stop_reason,
        "uuids": [uuid for uuid in step.record_uuids if uuid],
        "aborted": step.is_aborted,
        "taken_back": turn.is_rewound,
        "withheld_thinking": sum(
            isinstance(block, Thinking) and not block.text for block in step.content
        ),
        "unanswered": [call.id for call in step.tool_calls if call.result is None],
        "ran_inputs": {
            call.id: call.executed_input for call in calls if call.executed_input is not None
        },
        "results": {call.id: about for call in calls if (about := _describe_result(call))},
        "result_uuids": {call.id: call.result_uuid for call in step.tool_calls if call.result_uuid},
    }
    return without_empty(fields)


def _message_id(step: AtifStep) -> str:
    return str(step.extra.get("message_id", "")) if isinstance(step.extra, dict) else ""
