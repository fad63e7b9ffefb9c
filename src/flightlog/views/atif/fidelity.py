"""Compare a recording with its trajectory and count what is missing.

Works on any producer's documents: content is searched by its text or its id, not where flightlog
would put it. What the format cannot represent counts as missing, with that reason.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from flightlog.model.entries import Block, Image, Text, Thinking, UnknownBlock
from flightlog.model.session import Note, NoteKind, Session, Step, ThreadContext, ToolCall, Turn
from flightlog.views.atif.findings import (
    content_texts,
    dict_field,
    iter_dicts,
    iter_results,
    number_field,
)

NO_FIELD = "the format has no field for it"


class FidelityCount(Struct, frozen=True):
    """How much of one kind of content the recording and the trajectory have."""

    element: str
    recorded_count: int
    exported_count: int
    reason: str = ""

    @property
    def missing_count(self) -> int:
        """The number that is missing."""
        return max(self.recorded_count - self.exported_count, 0)


def measure_fidelity(
    session: Session, documents: Sequence[Any], contexts: Mapping[str, ThreadContext] | None = None
) -> list[FidelityCount]:
    """Return the counts of a session and of its documents, subagents included."""
    index = _DocumentIndex(_all_documents(documents))
    threads = (session.turns, *(subagent.turns for subagent in session.subagents))
    turns = [turn for thread in threads for turn in thread]
    rows = [
        *_compare_texts(turns, index),
        *_compare_tools(turns, index),
        *_compare_figures(turns, index, contexts or {}),
        *_compare_rest(session, turns, index),
        *_compare_threads(session, index, contexts or {}),
    ]
    return [row for row in rows if row.recorded_count]


class _DocumentIndex:
    """The texts, calls, results and marks of all documents."""

    def __init__(self, documents: list[dict[str, Any]]) -> None:
        self.documents = documents
        self.steps = [step for document in documents for _, step in iter_dicts(document, "steps")]
        pairs = ((step.get("source"), content_texts(step.get("message"))) for step in self.steps)
        messages = [(source, text) for source, texts in pairs for text in texts]
        results = [result for step in self.steps for _, result in iter_results(step)]
        uncalled = [one.get("content") for one in results if one.get("source_call_id") is None]
        self.agent = _TextIndex(text for source, text in messages if source == "agent")
        self.others = _TextIndex(
            [text for source, text in messages if source != "agent"]
            + [text for content in uncalled for text in content_texts(content)]
        )
        thoughts = (step for step in self.steps if _is_text(step, "reasoning_content"))
        self.reasoning = _TextIndex(step["reasoning_content"] for step in thoughts)
        calls = (call for step in self.steps for _, call in iter_dicts(step, "tool_calls"))
        self.calls = {call.get("tool_call_id"): call for call in calls}
        self.results = {
            result["source_call_id"]: _TextIndex(content_texts(result.get("content")))
            for result in results
            if _is_text(result, "source_call_id") and result.get("content") is not None
        }
        extras = (_iter_strings(_iter_extras(step)) for step in self.steps)
        self.extras = _TextIndex(text for texts in extras for text in texts)
        self.rewritten = {name for step in self.steps for name in _rewritten_calls(step)}
        self.marked = {name for step in self.steps for name in _failed_calls(step)}
        parts = (part for step in self.steps for part in _iter_parts(step))
        self.pictures = sum(part.get("type") == "image" for part in parts)
        refs = (iter_dicts(result, "subagent_trajectory_ref") for result in results)
        self.refs = sum(len(list(found)) for found in refs)

    def sum_metric(self, name: str) -> int:
        return int(sum(number_field(dict_field(step, "metrics"), name) or 0 for step in self.steps))


class _TextIndex:
    def __init__(self, texts: Iterable[str]) -> None:
        self._exact = set(texts)
        self._joined = "\0".join(self._exact)

    def contains_text(self, text: str) -> bool:
        return text in self._exact or text in self._joined


def _compare_texts(turns: Sequence[Turn], index: _DocumentIndex) -> Iterator[FidelityCount]:
    blocks = (block for turn in turns for block in turn.prompt)
    prompts = [block.text for block in blocks if isinstance(block, Text) and block.text]
    yield _count_texts("prompts", prompts, index.others)
    content = [block for turn in turns for step in turn.steps for block in step.content]
    texts = [block.text for block in content if isinstance(block, Text) and block.text]
    yield _count_texts("texts of the agent", texts, index.agent)
    thinking = [block.text for block in content if isinstance(block, Thinking)]
    yield _count_texts("reasoning", [text for text in thinking if text], index.reasoning)
    reason = "the API never returned it"
    yield FidelityCount("reasoning the API withheld", thinking.count(""), 0, reason)
    for kind in NoteKind:
        items = (item for turn in turns for item in turn.items if isinstance(item, Note))
        notes = [item.text for item in items if item.kind is kind]
        if kind is NoteKind.COMPACTION:
            yield FidelityCount("compactions", len(notes), sum(map(_is_boundary, index.steps)))
        elif kind is NoteKind.UNKNOWN:
            reason = "they are in the recording"
            yield FidelityCount("records of an unknown kind", len(notes), 0, reason)
        else:
            yield _count_texts(f"notes: {kind.value}", notes, index.others)


def _compare_tools(turns: Sequence[Turn], index: _DocumentIndex) -> Iterator[FidelityCount]:
    calls = [call for turn in turns for step in turn.steps for call in step.tool_calls]
    same = [call for call in calls if index.calls.get(call.id, {}).get("arguments") == call.input]
    yield FidelityCount("tool calls", len(calls), len(same))
    answered = [call for call in calls if call.result is not None]
    recorded = sum(_has_result(call, index) for call in answered)
    yield FidelityCount("tool results", len(answered), recorded)
    rewritten = [call for call in calls if call.executed_input is not None]
    text = "inputs a hook rewrote"
    yield FidelityCount(text, len(rewritten), sum(call.id in index.rewritten for call in rewritten))
    failed = [call for call in calls if call.is_error or call.denial_reason]
    text = "results marked as errors"
    yield FidelityCount(text, len(failed), sum(call.id in index.marked for call in failed))
    structured = sum(isinstance(call.detail, dict | list) for call in calls)
    text = "the model saw the text; this is the client's own copy"
    yield FidelityCount("structured results", structured, 0, text)
    spilled = sum(bool(call.result_file) for call in calls)
    yield FidelityCount("full outputs kept in files", spilled, 0, "the model saw the beginning")


def _has_result(call: ToolCall, index: _DocumentIndex) -> bool:
    texts = index.results.get(call.id)
    blocks = [block for block in call.result or () if isinstance(block, Text)]
    return texts is not None and all(texts.contains_text(block.text) for block in blocks)


def _compare_figures(
    turns: Sequence[Turn], index: _DocumentIndex, contexts: Mapping[str, ThreadContext]
) -> Iterator[FidelityCount]:
    copied = {message for context in contexts.values() for message in context.copied_message_ids}
    copies = (step for step in index.steps if step.get("is_copied_context") is True)
    copied |= {str(dict_field(step, "extra").get("message_id")) for step in copies}
    steps = [step for turn in turns for step in turn.steps if step.message_id not in copied]
    prompt = sum(step.usage.prompt_tokens for step in steps)
    output = sum(step.usage.output_tokens for step in steps)
    yield FidelityCount("prompt tokens", prompt, index.sum_metric("prompt_tokens"))
    yield FidelityCount("completion tokens", output, index.sum_metric("completion_tokens"))
    priced = sum(step.cost_usd is not None for step in steps)
    metrics = (dict_field(step, "metrics") for step in index.steps)
    costs = sum(number_field(metric, "cost_usd") is not None for metric in metrics)
    yield FidelityCount("costs", priced, costs)
    timed = sum(step.at_ms is not None for turn in turns for step in turn.steps)
    replies = (step for step in index.steps if step.get("source") == "agent")
    yield FidelityCount("times", timed, sum(_is_text(step, "timestamp") for step in replies))


def _compare_rest(
    session: Session, turns: Sequence[Turn], index: _DocumentIndex
) -> Iterator[FidelityCount]:
    steps: list[Step] = [step for turn in turns for step in turn.steps]
    blocks: list[Block] = [block for turn in turns for block in turn.prompt]
    blocks += [block for step in steps for call in step.tool_calls for block in call.result or ()]
    pictures = sum(isinstance(block, Image) for block in blocks)
    yield FidelityCount("pictures", pictures, index.pictures, "the format does not have their type")
    others = sum(isinstance(block, UnknownBlock) and not block.text for block in blocks)
    yield FidelityCount("other content", others, 0, NO_FIELD)
    requests = [step.request_id for step in steps if step.request_id]
    yield _count_texts("request ids", requests, index.extras)
    messages = [step.message_id for step in steps if step.message_id]
    yield _count_texts("message ids", messages, index.extras)
    yield FidelityCount("subagents", len(session.subagents), index.refs)
    yield FidelityCount("damaged places", len(session.damage), 0, "they cannot be read")


def _compare_threads(
    session: Session, index: _DocumentIndex, contexts: Mapping[str, ThreadContext]
) -> Iterator[FidelityCount]:
    names = ("", *(subagent.id for subagent in session.subagents))
    threads = [contexts[name] for name in names if name in contexts]
    agents = [dict_field(document, "agent") for document in index.documents]
    defined = sum(len(list(iter_dicts(agent, "tool_definitions"))) for agent in agents)
    yield FidelityCount("tool definitions", sum(len(thread.tools) for thread in threads), defined)
    context = [item.text for thread in threads for item in thread.context]
    yield _count_texts("context the client gave", context, index.others)
    prompts = [thread.system for thread in threads if thread.system]
    yield _count_texts("system prompts", prompts, index.others)


def _count_texts(what: str, texts: Sequence[str], index: _TextIndex) -> FidelityCount:
    return FidelityCount(what, len(texts), sum(index.contains_text(text) for text in texts))


def _all_documents(values: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the documents among `values`, and those embedded in them."""
    documents = [value for value in values if isinstance(value, dict)]
    for document in documents:
        documents.extend(inner for _, inner in iter_dicts(document, "subagent_trajectories"))
    return documents


def _iter_parts(step: dict[str, Any]) -> Iterator[dict[str, Any]]:
    results = (result.get("content") for _, result in iter_results(step))
    for content in (step.get("message"), *results):
        yield from (part for _, part in iter_dicts({"parts": content}, "parts"))


def _rewritten_calls(step: dict[str, Any]) -> Iterator[Any]:
    """Yield the calls whose rewritten input is in the step's or the call's `extra`."""
    yield from dict_field(dict_field(step, "extra"), "ran_inputs")
    calls = (call for _, call in iter_dicts(step, "tool_calls"))
    rewritten = (call for call in calls if "ran_input" in dict_field(call, "extra"))
    yield from (call.get("tool_call_id") for call in rewritten)


def _failed_calls(step: dict[str, Any]) -> Iterator[Any]:
    """Yield the calls whose results are marked as errors or denials."""
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
