"""Rules about single steps and their order: numbers, sources, times, texts, context boundaries."""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from flightlog.views.atif.findings import LintFinding
from flightlog.views.atif.values import content_texts, dict_field, iter_dicts, iter_results, iter_texts

_AGENT_ONLY = ("model_name", "reasoning_effort", "reasoning_content", "tool_calls", "metrics")
_HALF = re.compile("[\ud800-\udfff]")
_PICTURE = re.compile(r"(?:iVBORw0KGgo|/9j/[A-Za-z0-9+/]{4}|R0lGOD[dl]h|UklGR)[A-Za-z0-9+/]{200,}")
_STDOUT = "[stdout]"
_BOUNDARIES = {"type": {"compaction", "pruning", "injection"}, "boundary": {"replace", "append", "truncate"}}


def step_rules(document: dict[str, Any]) -> Iterator[LintFinding]:
    """Yield what is wrong with steps by themselves."""
    steps = list(iter_dicts(document, "steps"))
    yield from _check_step_numbers(document)
    if steps and steps[0][1].get("source") == "agent":
        yield LintFinding("agent-first", "steps[0]", "nobody asked for it here")
    for place, step in steps:
        for finding in _check_step(step):
            yield LintFinding(finding.rule, f"steps[{place}]{finding.where}", finding.text)
    yield from _check_times(steps)
    for where, text in iter_texts(
        {key: value for key, value in document.items() if key != "subagent_trajectories"}, ""
    ):
        if _HALF.search(text):
            yield LintFinding("half-character", where, "half of a surrogate pair")


def _check_step_numbers(document: dict[str, Any]) -> Iterator[LintFinding]:
    steps = document.get("steps")
    if isinstance(steps, list) and not steps:
        yield LintFinding("step-order", "steps", "there are no steps")
    for place, step in iter_dicts(document, "steps"):
        if step.get("step_id") != place + 1:
            yield LintFinding("step-order", f"steps[{place}].step_id", f"{place + 1} is expected")
            return


def _check_step(step: dict[str, Any]) -> Iterator[LintFinding]:
    source = step.get("source")
    if source in {"system", "user"}:
        for name in _AGENT_ONLY:
            if step.get(name) is not None:
                yield LintFinding("agent-only", f".{name}", f"stands on a {source} step")
    if source == "user" and step.get("observation") is not None:
        yield LintFinding("observed-by-user", ".observation", "stands on a user step")
    if step.get("message") == []:
        yield LintFinding("empty-message", ".message", "an empty list; write an empty text")
    if step.get("llm_call_count") == 0 and source == "agent":
        for name in ("metrics", "reasoning_content"):
            if step.get(name) is not None:
                yield LintFinding("deterministic", f".{name}", "the step says that no model was called")
    if step.get("model_name") == "<synthetic>":
        yield LintFinding("synthetic", ".model_name", "no model said this")
    yield from _check_boundary(step)
    yield from _check_flattened_content(step)


def _check_boundary(step: dict[str, Any]) -> Iterator[LintFinding]:
    management = dict_field(step, "extra").get("context_management")
    if management is None:
        return
    where = ".extra.context_management"
    if step.get("source") != "system":
        yield LintFinding("boundary", where, "only a system step can be a boundary")
    for name, known in _BOUNDARIES.items():
        said = management.get(name) if isinstance(management, dict) else None
        if said not in known:
            yield LintFinding("boundary", f"{where}.{name}", f"is none of {', '.join(sorted(known))}")


def _check_flattened_content(step: dict[str, Any]) -> Iterator[LintFinding]:
    """Look for content that was turned into text, or told twice."""
    contents = [(".message", step.get("message"))]
    contents += [
        (f".observation.results[{place}].content", result.get("content")) for place, result in iter_results(step)
    ]
    for where, content in contents:
        for text in content_texts(content):
            head, stdout, tail = text.partition(_STDOUT)
            if stdout and len(head.strip()) > 8 and tail.strip().startswith(head.strip()):
                yield LintFinding("doubled-text", where, "the text stands there again as [stdout]")
            if text.startswith(('{"type": "text"', '{"type":"text"', '[{"type":')):
                yield LintFinding("block-as-text", where, "a content block written out as JSON")
            if _PICTURE.search(text):
                yield LintFinding("picture-as-text", where, "the bytes of a picture; pictures are files")


def _check_times(steps: list[tuple[int, dict[str, Any]]]) -> Iterator[LintFinding]:
    """Look at time stamps; after a context was replaced, what is put back into it may be older."""
    before: datetime | None = None
    put_back = False
    for place, step in steps:
        said = step.get("timestamp")
        if dict_field(dict_field(step, "extra"), "context_management").get("boundary") == "replace":
            put_back = True
        elif step.get("source") == "agent":
            put_back = False
        if not isinstance(said, str):
            continue
        where = f"steps[{place}].timestamp"
        moment = _parse_timestamp(said)
        if moment is None:
            yield LintFinding("time", where, f"not a time: {said[:40]!r}")
            continue
        if len(said) < 11 or moment.tzinfo is None:
            yield LintFinding("vague-time", where, "no time of day or no zone")
            continue
        if before is not None and moment < before and not put_back:
            yield LintFinding("time-backwards", where, f"{(before - moment).total_seconds():g} s before the step above")
        before = moment if before is None or not put_back else max(before, moment)


def _parse_timestamp(said: str) -> datetime | None:
    try:
        return datetime.fromisoformat(said)
    except ValueError:
        return None
