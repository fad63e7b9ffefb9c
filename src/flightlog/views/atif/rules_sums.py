"""Rules about figures: what each step used, and whether the totals are their sums."""

import math
from collections.abc import Iterator
from typing import Any

from flightlog.views.atif.findings import Finding
from flightlog.views.atif.values import dicts, inner, number, results

_COUNTS = ("prompt_tokens", "completion_tokens", "cached_tokens")
_LENGTHS = (
    ("prompt_token_ids", "prompt_tokens"),
    ("completion_token_ids", "completion_tokens"),
    ("logprobs", "completion_tokens"),
)
_USD_NOISE = 1e-6


def sum_rules(document: dict[str, Any]) -> Iterator[Finding]:
    """Yield figures that cannot be, and totals that are no sums."""
    for place, step in dicts(document, "steps"):
        yield from _metrics(inner(step, "metrics"), f"steps[{place}].metrics")
    final = inner(document, "final_metrics")
    for name, value in final.items():
        yield from _figure(value, f"final_metrics.{name}")
    yield from _step_count(document, final)
    for name in _COUNTS:
        yield from _total(document, final, name)
    yield from _cost(document, final)


def _metrics(metrics: dict[str, Any], where: str) -> Iterator[Finding]:
    for name in (*_COUNTS, "cost_usd"):
        yield from _figure(metrics.get(name), f"{where}.{name}")
    prompt, cached = number(metrics, "prompt_tokens"), number(metrics, "cached_tokens")
    if prompt is not None and cached is not None and cached > prompt:
        yield Finding("cached-above-prompt", f"{where}.cached_tokens", f"{cached} of {prompt}")
    for name, counted in _LENGTHS:
        listed, count = metrics.get(name), number(metrics, counted)
        if isinstance(listed, list) and count is not None and len(listed) != count:
            yield Finding("lengths", f"{where}.{name}", f"{len(listed)} for {count} tokens")


def _figure(value: Any, where: str) -> Iterator[Finding]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if not math.isfinite(value):
        yield Finding("not-a-number", where, "not a finite number")
    elif value < 0:
        yield Finding("negative", where, f"{value}")


def _step_count(document: dict[str, Any], final: dict[str, Any]) -> Iterator[Finding]:
    said, steps = number(final, "total_steps"), document.get("steps")
    if said is not None and isinstance(steps, list) and said != len(steps) and not document.get("notes"):
        yield Finding("step-count", "final_metrics.total_steps", f"{said} for {len(steps)} steps")


def _total(document: dict[str, Any], final: dict[str, Any], name: str) -> Iterator[Finding]:
    """A total below the sum is wrong; one above it needs a subagent, a copied step or a step without figures."""
    said = number(final, f"total_{name}")
    if said is None or not _states(document, name):
        return
    own = _sum(document, name)
    complete = all(number(inner(step, "metrics"), name) is not None for step in _agent_steps(document))
    if said < own or (said > own and complete and not _is_part(document)):
        yield Finding("totals", f"final_metrics.total_{name}", f"{said}, but the steps add up to {own}")


def _cost(document: dict[str, Any], final: dict[str, Any]) -> Iterator[Finding]:
    said = number(final, "total_cost_usd")
    if said is None or not math.isfinite(said) or not _states(document, "cost_usd"):
        return
    own = _sum(document, "cost_usd")
    if said < own - _USD_NOISE or (said > own + _USD_NOISE and not _is_part(document)):
        yield Finding("total-cost", "final_metrics.total_cost_usd", f"{said:g}, but the steps add up to {own:g}")


def _is_part(document: dict[str, Any]) -> bool:
    """Whether more was used than the document's own steps say: by subagents, or before it began."""
    steps = [step for _, step in dicts(document, "steps")]
    refs = any(result.get("subagent_trajectory_ref") for step in steps for _, result in results(step))
    return refs or any(step.get("is_copied_context") is True for step in steps)


def _agent_steps(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for _, step in dicts(document, "steps"):
        called = step.get("source") == "agent" and step.get("llm_call_count") != 0
        if called and step.get("is_copied_context") is not True:
            yield step


def _states(document: dict[str, Any], name: str) -> bool:
    return any(number(inner(step, "metrics"), name) is not None for _, step in dicts(document, "steps"))


def _sum(document: dict[str, Any], name: str) -> int | float:
    """Add up the document's own steps; what copied ones used was counted where they were first said."""
    steps = (step for _, step in dicts(document, "steps") if step.get("is_copied_context") is not True)
    return sum(number(inner(step, "metrics"), name) or 0 for step in steps)
