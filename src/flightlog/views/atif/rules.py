"""The rules on steps, calls, links and sums of a trajectory."""

import math
import re
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from datetime import datetime
from typing import Any

from flightlog.views.atif.findings import (
    LintFinding,
    agent_steps,
    content_texts,
    dict_field,
    iter_dicts,
    iter_results,
    iter_texts,
    number_field,
    states_metric,
    step_metric,
    sum_steps,
)

Exists = Callable[[str], bool]
_AGENT_ONLY = ("model_name", "reasoning_effort", "reasoning_content", "tool_calls", "metrics")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
# The first bytes of PNG, JPEG, GIF and WebP in base64, and enough of the rest to exclude prose.
_PICTURE = re.compile(r"(?:iVBORw0KGgo|/9j/[A-Za-z0-9+/]{4}|R0lGOD[dl]h|UklGR)[A-Za-z0-9+/]{200,}")
_STDOUT = "[stdout]"
_BOUNDARIES = {
    "type": {"compaction", "pruning", "injection"},
    "boundary": {"replace", "append", "truncate"},
}
_COUNTS = ("prompt_tokens", "completion_tokens", "cached_tokens")
_LENGTHS = (
    ("prompt_token_ids", "prompt_tokens"),
    ("completion_token_ids", "completion_tokens"),
    ("logprobs", "completion_tokens"),
)
_USD_NOISE = 1e-6  # rounding of summed costs
_ECHO_CHARS_MIN = 8  # shorter texts repeat by chance


def call_rules(document: dict[str, Any]) -> Iterator[LintFinding]:
    """Yield what is wrong with calls and their results."""
    seen: set[str] = set()
    defined = yield from _check_definitions(document)
    for index, step in iter_dicts(document, "steps"):
        where = f"steps[{index}]"
        own: set[str] = set()
        for number, call in iter_dicts(step, "tool_calls"):
            yield from _check_call(call, f"{where}.tool_calls[{number}]", seen, defined)
            if isinstance(call.get("tool_call_id"), str):
                own.add(call["tool_call_id"])
        yield from _check_answers(step, where, own)


def _check_definitions(document: dict[str, Any]) -> Generator[LintFinding, None, set[str] | None]:
    """Yield malformed definitions; return the defined names, or None if they are not all known."""
    agent = dict_field(document, "agent")
    if not isinstance(agent.get("tool_definitions"), list) or not agent["tool_definitions"]:
        return None
    names: set[str] | None = set()
    for index, tool in iter_dicts(agent, "tool_definitions"):
        function = tool.get("function") if tool.get("type") == "function" else None
        name = function.get("name") if isinstance(function, dict) else None
        if isinstance(name, str) and names is not None:
            names.add(name)
        elif (
            isinstance(tool.get("type"), str)
            and isinstance(tool.get("name"), str)
            and names is not None
        ):
            names.add(tool["name"])  # a server-side tool, defined by its type
        else:
            names = None
            where = f"agent.tool_definitions[{index}]"
            yield LintFinding("tool-definition", where, "not {type: function, function: …}")
    return names


def _check_call(
    call: dict[str, Any], where: str, seen: set[str], defined: set[str] | None
) -> Iterator[LintFinding]:
    name = call.get("tool_call_id")
    if name == "":
        yield LintFinding("empty-id", f"{where}.tool_call_id", "empty")
    elif isinstance(name, str):
        if name in seen:
            text = f"{name[:60]!r} was used before"
            yield LintFinding("repeated-call", f"{where}.tool_call_id", text)
        seen.add(name)
    function = call.get("function_name")
    if defined is not None and isinstance(function, str) and function not in defined:
        text = f"{function[:60]!r} is not defined"
        yield LintFinding("undefined-tool", f"{where}.function_name", text)


def _check_answers(step: dict[str, Any], where: str, own: set[str]) -> Iterator[LintFinding]:
    answered: set[str] = set()
    for index, result in iter_results(step):
        source = result.get("source_call_id")
        at = f"{where}.observation.results[{index}].source_call_id"
        if not isinstance(source, str):
            continue
        if source not in own:
            yield LintFinding("unknown-call", at, f"{source[:60]!r} is no call of this step")
        if source in answered:
            yield LintFinding("repeated-result", at, f"{source[:60]!r} has a result already")
        answered.add(source)
    listed = dict_field(step, "extra").get("unanswered")
    names = listed if isinstance(listed, list) else []
    unanswered = {name for name in names if isinstance(name, str)}
    for name in sorted(own - answered - unanswered):
        yield LintFinding("unanswered-call", f"{where}.tool_calls", f"{name[:60]!r} has no result")


def link_rules(document: dict[str, Any], exists: Exists, minor: int) -> Iterator[LintFinding]:
    """Yield broken references, and embedded subagents without a reference."""
    inner = iter_dicts(document, "subagent_trajectories")
    embedded = [trajectory.get("trajectory_id") for _, trajectory in inner]
    named: set[str] = set()
    for index, step in iter_dicts(document, "steps"):
        where = f"steps[{index}]"
        yield from _check_pictures(step.get("message"), f"{where}.message", exists)
        for number, result in iter_results(step):
            at = f"{where}.observation.results[{number}]"
            yield from _check_pictures(result.get("content"), f"{at}.content", exists)
            for position, ref in iter_dicts(result, "subagent_trajectory_ref"):
                named.add(str(ref.get("trajectory_id")))
                name = f"{at}.subagent_trajectory_ref[{position}]"
                yield from _check_ref(ref, name, embedded, exists, minor=minor)
    name = "continued_trajectory_ref"
    yield from _check_file(document.get(name), name, exists)
    yield from _check_embedded(document, embedded, named)


def _check_embedded(
    document: dict[str, Any], embedded: list[Any], named: set[str]
) -> Iterator[LintFinding]:
    counts = Counter(name for name in embedded if isinstance(name, str))
    own = document.get("trajectory_id")
    for index, name in enumerate(embedded):
        where = f"subagent_trajectories[{index}].trajectory_id"
        if not isinstance(name, str):
            yield LintFinding("missing", where, "an embedded trajectory needs one")
        elif counts[name] > 1 or name == own:
            text = f"{name[:60]!r} is another trajectory's as well"
            yield LintFinding("repeated-id", where, text)
        elif name not in named:
            yield LintFinding("unreferenced", where, f"nothing refers to {name[:60]!r}")


def _check_ref(
    ref: dict[str, Any], where: str, embedded: list[Any], exists: Exists, *, minor: int
) -> Iterator[LintFinding]:
    path, name = ref.get("trajectory_path"), ref.get("trajectory_id")
    if minor < 7 and ref.get("session_id") is None:
        yield LintFinding("unlinked", where, "session_id is required up to version 1.6")
    if minor >= 7 and path is None and name is None:
        text = "trajectory_id or trajectory_path is required from version 1.7 on"
        yield LintFinding("unlinked", where, text)
    yield from _check_file(path, f"{where}.trajectory_path", exists)
    if name is not None and path is None and name not in embedded:
        text = "no trajectory in this document has that id"
        yield LintFinding("dangling-id", f"{where}.trajectory_id", text)


def _check_pictures(content: Any, where: str, exists: Exists) -> Iterator[LintFinding]:
    for index, part in iter_dicts({"parts": content}, "parts"):
        path = dict_field(part, "source").get("path")
        yield from _check_file(path, f"{where}[{index}].source.path", exists)


def _check_file(path: Any, where: str, exists: Exists) -> Iterator[LintFinding]:
    if not isinstance(path, str) or "://" in path:
        return
    parts = path.replace("\\", "/").split("/")
    if path.startswith(("/", "~")) or ".." in parts or path[1:3] == ":\\":
        yield LintFinding("outside", where, "leaves the document's directory")
    if not exists(path):
        yield LintFinding("missing-file", where, "no such file")


def step_rules(document: dict[str, Any]) -> Iterator[LintFinding]:
    """Yield what is wrong with single steps, their numbers and times."""
    steps = list(iter_dicts(document, "steps"))
    yield from _check_step_numbers(document)
    if steps and steps[0][1].get("source") == "agent":
        yield LintFinding("agent-first", "steps[0]", "no prompt comes before it")
    for index, step in steps:
        for finding in _check_step(step):
            yield LintFinding(finding.rule, f"steps[{index}]{finding.location}", finding.message)
    yield from _check_times(steps)
    own = {key: value for key, value in document.items() if key != "subagent_trajectories"}
    for where, text in iter_texts(own, ""):
        if _LONE_SURROGATE.search(text):
            yield LintFinding("half-character", where, "half of a surrogate pair")


def _check_step_numbers(document: dict[str, Any]) -> Iterator[LintFinding]:
    steps = document.get("steps")
    if isinstance(steps, list) and not steps:
        yield LintFinding("step-order", "steps", "there are no steps")
    for index, step in iter_dicts(document, "steps"):
        if step.get("step_id") != index + 1:
            yield LintFinding("step-order", f"steps[{index}].step_id", f"{index + 1} is expected")
            return


def _check_step(step: dict[str, Any]) -> Iterator[LintFinding]:
    source = step.get("source")
    if source in {"system", "user"}:
        for name in _AGENT_ONLY:
            if step.get(name) is not None:
                yield LintFinding("agent-only", f".{name}", f"is on a {source} step")
    if source == "user" and step.get("observation") is not None:
        yield LintFinding("observed-by-user", ".observation", "is on a user step")
    if step.get("message") == []:
        yield LintFinding("empty-message", ".message", "an empty list; use an empty text")
    if step.get("llm_call_count") == 0 and source == "agent":
        for name in ("metrics", "reasoning_content"):
            if step.get(name) is not None:
                text = "the step says that no model was called"
                yield LintFinding("deterministic", f".{name}", text)
    if step.get("model_name") == "<synthetic>":
        yield LintFinding("synthetic", ".model_name", "not a model")
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
        value = management.get(name) if isinstance(management, dict) else None
        if value not in known:
            text = f"is none of {', '.join(sorted(known))}"
            yield LintFinding("boundary", f"{where}.{name}", text)


def _check_flattened_content(step: dict[str, Any]) -> Iterator[LintFinding]:
    """Yield content that was turned into text, or repeated."""
    contents = [(".message", step.get("message"))]
    contents += [
        (f".observation.results[{index}].content", result.get("content"))
        for index, result in iter_results(step)
    ]
    for where, content in contents:
        for text in content_texts(content):
            head, stdout, tail = text.partition(_STDOUT)
            first, last = head.strip(), tail.strip()
            if stdout and len(first) > _ECHO_CHARS_MIN and last.startswith(first):
                yield LintFinding("doubled-text", where, "the text is repeated as [stdout]")
            if text.startswith(('{"type": "text"', '{"type":"text"', '[{"type":')):
                yield LintFinding("block-as-text", where, "a content block written out as JSON")
            if _PICTURE.search(text):
                message = "the bytes of a picture; pictures are files"
                yield LintFinding("picture-as-text", where, message)


def _check_times(steps: list[tuple[int, dict[str, Any]]]) -> Iterator[LintFinding]:
    """Yield bad timestamps; after a compaction, steps put back into the context may be older."""
    before: datetime | None = None
    put_back = False
    for index, step in steps:
        timestamp = step.get("timestamp")
        if dict_field(dict_field(step, "extra"), "context_management").get("boundary") == "replace":
            put_back = True
        elif step.get("source") == "agent" and step.get("is_copied_context") is not True:
            put_back = False
        if not isinstance(timestamp, str):
            continue
        where = f"steps[{index}].timestamp"
        try:
            time = datetime.fromisoformat(timestamp)
        except ValueError:
            yield LintFinding("time", where, f"not a time: {timestamp[:40]!r}")
            continue
        if len(timestamp) <= len("2026-01-31") or time.tzinfo is None:
            yield LintFinding("vague-time", where, "no time of day or no zone")
            continue
        if before is not None and time < before and not put_back:
            text = f"{(before - time).total_seconds():g} s before the step above"
            yield LintFinding("time-backwards", where, text)
        before = time if before is None or not put_back else max(before, time)


def sum_rules(document: dict[str, Any]) -> Iterator[LintFinding]:
    """Yield impossible figures, and totals that are not the sum of the steps."""
    for index, step in iter_dicts(document, "steps"):
        yield from _check_metrics(dict_field(step, "metrics"), f"steps[{index}].metrics")
    final = dict_field(document, "final_metrics")
    for name, value in final.items():
        yield from _check_figure(value, f"final_metrics.{name}")
    yield from _check_step_count(document, final)
    for name in _COUNTS:
        yield from _check_total(document, final, name)
    yield from _check_total_cost(document, final)


def _check_metrics(metrics: dict[str, Any], where: str) -> Iterator[LintFinding]:
    for name in (*_COUNTS, "cost_usd"):
        yield from _check_figure(metrics.get(name), f"{where}.{name}")
    prompt, cached = number_field(metrics, "prompt_tokens"), number_field(metrics, "cached_tokens")
    if prompt is not None and cached is not None and cached > prompt:
        yield LintFinding("cached-above-prompt", f"{where}.cached_tokens", f"{cached} of {prompt}")
    for name, counted in _LENGTHS:
        listed, count = metrics.get(name), number_field(metrics, counted)
        if isinstance(listed, list) and count is not None and len(listed) != count:
            yield LintFinding("lengths", f"{where}.{name}", f"{len(listed)} for {count} tokens")


def _check_figure(value: Any, where: str) -> Iterator[LintFinding]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if not math.isfinite(value):
        yield LintFinding("not-a-number", where, "not a finite number")
    elif value < 0:
        yield LintFinding("negative", where, f"{value}")


def _check_step_count(document: dict[str, Any], final: dict[str, Any]) -> Iterator[LintFinding]:
    total, steps = number_field(final, "total_steps"), document.get("steps")
    count = len(steps) if isinstance(steps, list) else total
    if total not in {None, count} and not document.get("notes"):
        yield LintFinding("step-count", "final_metrics.total_steps", f"{total} for {count} steps")


def _check_total(
    document: dict[str, Any], final: dict[str, Any], name: str
) -> Iterator[LintFinding]:
    """Yield a total below the sum; one above it needs subagents, copied steps or missing figures."""
    total = number_field(final, f"total_{name}")
    if total is None or not states_metric(document, name):
        return
    own = sum_steps(document, name)
    is_complete = all(step_metric(step, name) is not None for step in agent_steps(document))
    if total < own or (total > own and is_complete and not _is_part(document)):
        text = f"{total}, but the steps add up to {own}"
        yield LintFinding("totals", f"final_metrics.total_{name}", text)


def _check_total_cost(document: dict[str, Any], final: dict[str, Any]) -> Iterator[LintFinding]:
    total = number_field(final, "total_cost_usd")
    if total is None or not math.isfinite(total) or not states_metric(document, "cost_usd"):
        return
    own = sum_steps(document, "cost_usd")
    extra = final.get("extra")
    own += (number_field(extra, "side_calls_cost_usd") or 0) if isinstance(extra, dict) else 0
    if total < own - _USD_NOISE or (total > own + _USD_NOISE and not _is_part(document)):
        text = f"{total:g}, but the steps add up to {own:g}"
        yield LintFinding("total-cost", "final_metrics.total_cost_usd", text)


def _is_part(document: dict[str, Any]) -> bool:
    """Return whether the totals may include more than its steps: subagents, or copied context."""
    steps = [step for _, step in iter_dicts(document, "steps")]
    results = (result for step in steps for _, result in iter_results(step))
    refs = any(result.get("subagent_trajectory_ref") for result in results)
    return refs or any(step.get("is_copied_context") is True for step in steps)
