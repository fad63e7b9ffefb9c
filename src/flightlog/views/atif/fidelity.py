"""What a recording had that its trajectory has not.

Works on any producer's documents: things are looked for by what they say or by their id, not
by where flightlog would have put them. A thing the format has no place for is counted as lost
all the same, with the reason beside it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from flightlog.model.entries import Block, Image, Text, Thinking, UnknownBlock
from flightlog.model.session import Note, NoteKind, Session, Step, ThreadContext, ToolCall, Turn
from flightlog.views.atif.findings import content_texts, dict_field, iter_dicts, iter_results, number_field

NO_PLACE = "the format has no place for it"
_COUNTED = (("prompt tokens", "prompt_tokens"), ("completion tokens", "completion_tokens"))


class FidelityCount(Struct, frozen=True):
    """How much of one kind of thing the recording had, and how much the trajectory has."""

    what: str
    recorded: int
    kept: int
    why: str = ""

    @property
    def missing_count(self) -> int:
        """How many are missing."""
        return max(self.recorded - self.kept, 0)


def measure_fidelity(
    session: Session, documents: Sequence[Any], known: Mapping[str, ThreadContext] | None = None
) -> list[FidelityCount]:
    """Compare a session with its documents, those of its subagents included."""
    told = _DocumentIndex(_all_documents(documents))
    turns = [turn for thread in (session.turns, *(lane.turns for lane in session.lanes)) for turn in thread]
    rows = [
        *_compare_texts(turns, told),
        *_compare_tools(turns, told),
        *_compare_figures(turns, told, known or {}),
        *_compare_rest(session, turns, told),
    ]
    rows += _compare_threads(session, told, known or {})
    return [row for row in rows if row.recorded]


class _DocumentIndex:
    """Everything the documents say, made searchable."""

    def __init__(self, documents: list[dict[str, Any]]) -> None:
        self.documents = documents
        self.steps = [step for document in documents for _, step in iter_dicts(document, "steps")]
        said = [(step.get("source"), text) for step in self.steps for text in content_texts(step.get("message"))]
        self.agent = _TextIndex(text for source, text in said if source == "agent")
        self.others = _TextIndex(
            [text for source, text in said if source != "agent"]
            + [text for _, result in self._orphan_results() for text in content_texts(result.get("content"))]
        )
        self.reasoning = _TextIndex(
            step["reasoning_content"] for step in self.steps if _is_text(step, "reasoning_content")
        )
        self.calls = {
            call.get("tool_call_id"): call for step in self.steps for _, call in iter_dicts(step, "tool_calls")
        }
        self.results = {
            result["source_call_id"]: _TextIndex(content_texts(result.get("content")))
            for step in self.steps
            for _, result in iter_results(step)
            if _is_text(result, "source_call_id") and result.get("content") is not None
        }
        self.extras = _TextIndex(text for step in self.steps for text in _iter_strings(_iter_extras(step)))
        self.rewritten = {name for step in self.steps for name in _rewritten_calls(step)}
        self.marked = {name for step in self.steps for name in _failed_calls(step)}
        self.pictures = sum(part.get("type") == "image" for step in self.steps for part in _iter_parts(step))

    def _orphan_results(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for step in self.steps:
            yield from (pair for pair in iter_results(step) if pair[1].get("source_call_id") is None)


class _TextIndex:
    def __init__(self, texts: Iterable[str]) -> None:
        whole = list(texts)
        self._exact = set(whole)
        self._joined = "\0".join(whole)

    def contains_text(self, text: str) -> bool:
        return text in self._exact or text in self._joined


def _compare_texts(turns: Sequence[Turn], told: _DocumentIndex) -> Iterator[FidelityCount]:
    prompts = [block.text for turn in turns for block in turn.prompt if isinstance(block, Text) and block.text]
    yield _count_found("prompts", prompts, told.others)
    content = [block for turn in turns for step in turn.steps for block in step.content]
    yield _count_found(
        "texts of the agent", [each.text for each in content if isinstance(each, Text) and each.text], told.agent
    )
    thoughts = [each for each in content if isinstance(each, Thinking)]
    yield _count_found("reasoning", [each.text for each in thoughts if each.text], told.reasoning)
    withheld = sum(not each.text for each in thoughts)
    yield FidelityCount("reasoning the API withheld", withheld, 0, "it was never shown to anybody")
    for kind in NoteKind:
        notes = [item.text for turn in turns for item in turn.items if isinstance(item, Note) and item.kind is kind]
        if kind is NoteKind.COMPACTION:
            yield FidelityCount("compactions", len(notes), sum(_is_boundary(step) for step in told.steps))
        elif kind is NoteKind.UNKNOWN:
            yield FidelityCount("records of an unknown kind", len(notes), 0, "they are in the recording")
        else:
            yield _count_found(f"notes: {kind.value}", notes, told.others)


def _compare_tools(turns: Sequence[Turn], told: _DocumentIndex) -> Iterator[FidelityCount]:
    calls = [call for turn in turns for step in turn.steps for call in step.calls]
    same = [call for call in calls if told.calls.get(call.id, {}).get("arguments") == call.input]
    yield FidelityCount("tool calls", len(calls), len(same))
    answered = [call for call in calls if call.result is not None]
    yield FidelityCount("tool results", len(answered), sum(_has_result(call, told) for call in answered))
    rewritten = [call for call in calls if call.ran_input is not None]
    yield FidelityCount("inputs a hook rewrote", len(rewritten), sum(call.id in told.rewritten for call in rewritten))
    failed = [call for call in calls if call.is_error or call.denied]
    yield FidelityCount("results marked as errors", len(failed), sum(call.id in told.marked for call in failed))
    structured = sum(isinstance(call.detail, dict | list) for call in calls)
    yield FidelityCount(
        "structured results", structured, 0, "the model saw the text; the client's own copy would say it twice"
    )
    yield FidelityCount(
        "full outputs kept in files", sum(bool(call.spilled) for call in calls), 0, "the model saw the beginning"
    )


def _has_result(call: ToolCall, told: _DocumentIndex) -> bool:
    words = told.results.get(call.id)
    return words is not None and all(
        words.contains_text(block.text) for block in call.result or () if isinstance(block, Text)
    )


def _compare_figures(
    turns: Sequence[Turn], told: _DocumentIndex, known: Mapping[str, ThreadContext]
) -> Iterator[FidelityCount]:
    copied = {message for each in known.values() for message in each.copied}
    copies = (step for step in told.steps if step.get("is_copied_context") is True)
    copied |= {str(dict_field(step, "extra").get("message_id")) for step in copies}
    steps = [step for turn in turns for step in turn.steps if step.message_id not in copied]
    for what, name in _COUNTED:
        had = sum(step.usage.prompt if name == "prompt_tokens" else step.usage.output for step in steps)
        yield FidelityCount(
            what, had, int(sum(number_field(dict_field(step, "metrics"), name) or 0 for step in told.steps))
        )
    priced = sum(step.cost.usd is not None for step in steps)
    costs = sum(number_field(dict_field(step, "metrics"), "cost_usd") is not None for step in told.steps)
    yield FidelityCount("costs", priced, costs)
    timed = sum(step.at_ms is not None for turn in turns for step in turn.steps)
    yield FidelityCount(
        "times", timed, sum(_is_text(step, "timestamp") for step in told.steps if step.get("source") == "agent")
    )


def _compare_rest(session: Session, turns: Sequence[Turn], told: _DocumentIndex) -> Iterator[FidelityCount]:
    steps: list[Step] = [step for turn in turns for step in turn.steps]
    blocks: list[Block] = [block for turn in turns for block in turn.prompt]
    blocks += [block for step in steps for call in step.calls for block in call.result or ()]
    yield FidelityCount(
        "pictures", sum(isinstance(block, Image) for block in blocks), told.pictures, "of a type the format has not"
    )
    others = sum(isinstance(block, UnknownBlock) and not block.text for block in blocks)
    yield FidelityCount("other content", others, 0, NO_PLACE)
    yield _count_found("request ids", [step.request_id for step in steps if step.request_id], told.extras)
    yield _count_found("message ids", [step.message_id for step in steps if step.message_id], told.extras)
    refs = sum(
        len(list(iter_dicts(result, "subagent_trajectory_ref")))
        for step in told.steps
        for _, result in iter_results(step)
    )
    yield FidelityCount("subagents", len(session.lanes), refs)
    yield FidelityCount("damaged places", len(session.damage), 0, "what stood there cannot be read")


def _compare_threads(
    session: Session, told: _DocumentIndex, known: Mapping[str, ThreadContext]
) -> Iterator[FidelityCount]:
    threads = [known[lane] for lane in ("", *(lane.id for lane in session.lanes)) if lane in known]
    defined = sum(
        len(list(iter_dicts(dict_field(document, "agent"), "tool_definitions"))) for document in told.documents
    )
    yield FidelityCount("tool definitions", sum(len(each.tools) for each in threads), defined)
    yield _count_found("context the client gave", [each.text for one in threads for each in one.context], told.others)
    yield _count_found("system prompts", [each.system for each in threads if each.system], told.others)


def _count_found(what: str, wanted: Sequence[str], words: _TextIndex) -> FidelityCount:
    return FidelityCount(what, len(wanted), sum(words.contains_text(text) for text in wanted))


def _all_documents(documents: Sequence[Any]) -> list[dict[str, Any]]:
    found = [document for document in documents if isinstance(document, dict)]
    for document in found:
        found.extend(each for _, each in iter_dicts(document, "subagent_trajectories"))
    return found


def _iter_parts(step: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for content in (step.get("message"), *(result.get("content") for _, result in iter_results(step))):
        yield from (part for _, part in iter_dicts({"parts": content}, "parts"))


def _rewritten_calls(step: dict[str, Any]) -> Iterator[Any]:
    """Name the calls of which the input that ran is told, beside the step or on the call."""
    yield from dict_field(dict_field(step, "extra"), "ran_inputs")
    yield from (
        call.get("tool_call_id")
        for _, call in iter_dicts(step, "tool_calls")
        if "ran_input" in dict_field(call, "extra")
    )


def _failed_calls(step: dict[str, Any]) -> Iterator[Any]:
    """Name the calls whose results are told as errors or denials."""
    beside = dict_field(dict_field(step, "extra"), "results")
    yield from (name for name in beside if dict_field(beside, name).keys() & {"is_error", "denied"})
    for _, result in iter_results(step):
        if dict_field(result, "extra").keys() & {"is_error", "denied"}:
            yield result.get("source_call_id")


def _iter_extras(step: dict[str, Any]) -> Iterator[Any]:
    yield step.get("extra")
    yield from (call.get("extra") for _, call in iter_dicts(step, "tool_calls"))
    yield from (result.get("extra") for _, result in iter_results(step))


def _iter_strings(values: Iterable[Any]) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            yield from value
            yield from _iter_strings(value.values())
        elif isinstance(value, list):
            yield from _iter_strings(value)


def _is_boundary(step: dict[str, Any]) -> bool:
    return dict_field(dict_field(step, "extra"), "context_management").get("type") == "compaction"


def _is_text(holder: dict[str, Any], name: str) -> bool:
    return isinstance(holder.get(name), str)
