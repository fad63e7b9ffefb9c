"""Rules about figures: what each step used, and whether the totals are their sums."""

import math
from collections.abc import Iterator
from typing import Any

from flightlog.views.atif.findings import LintFinding
from flightlog.views.atif.values import dict_field, iter_dicts, iter_results, number_field

_COUNTS = ("prompt_tokens", "completion_tokens", "cached_tokens")
_LENGTHS = (
    ("prompt_token_ids", "prompt_tokens"),
    ("completion_token_ids", "completion_tokens"),
    ("logprobs", "completion_tokens"),
)
_USD_NOISE = 1e-6


def sum_rules(document: dict[str, Any]) -> Iterator[LintFinding]:
    """Yield figures that cannot be, and totals that are no sums."""
    for place, step in iter_dicts(document, "steps"):
        yield from _check_metrics(dict_field(step, "metrics"), f"steps[{place}].metrics")
    final = dict_field(document, "final_metrics")
    for name, value in final.items():
        yield from _check_figure(value, f"final_metrics.{name}")
    yield from _step_count(document, final)
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


def _step_count(document: dict[str, Any], final: dict[str, Any]) -> Iterator[LintFinding]:
    said, steps = number_field(final, "total_steps"), document.get("steps")
    if said is not None and isinstance(steps, list) and said != len(steps) and not document.get("notes"):
        yield LintFinding("step-count", "final_metrics.total_steps", f"{said} for {len(steps)} steps")


def _check_total(document: dict[str, Any], final: dict[str, Any], name: str) -> Iterator[LintFinding]:
    """A total below the sum is wrong; one above it needs a subagent, a copied step or a step without figures."""
    said = number_field(final, f"total_{name}")
    if said is None or not _states_metric(document, name):
        return
    own = _sum_steps(document, name)
    complete = all(number_field(dict_field(step, "metrics"), name) is not None for step in _agent_steps(document))
    if said < own or (said > own and complete and not _is_part(document)):
        yield LintFinding("totals", f"final_metrics.total_{name}", f"{said}, but the steps add up to {own}")


def _check_total_cost(document: dict[str, Any], final: dict[str, Any]) -> Iterator[LintFinding]:
    said = number_field(final, "total_cost_usd")
    if said is None or not math.isfinite(said) or not _states_metric(document, "cost_usd"):
        return
    own = _sum_steps(document, "cost_usd")
    if said < own - _USD_NOISE or (said > own + _USD_NOISE and not _is_part(document)):
        yield LintFinding("total-cost", "final_metrics.total_cost_usd", f"{said:g}, but the steps add up to {own:g}")


def _is_part(document: dict[str, Any]) -> bool:
    """Whether more was used than the document's own steps say: by subagents, or before it began."""
    steps = [step for _, step in iter_dicts(document, "steps")]
    refs = any(result.get("subagent_trajectory_ref") for step in steps for _, result in iter_results(step))
    return refs or any(step.get("is_copied_context") is True for step in steps)


def _agent_steps(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for _, step in iter_dicts(document, "steps"):
        called = step.get("source") == "agent" and step.get("llm_call_count") != 0
        if called and step.get("is_copied_context") is not True:
            yield step


def _states_metric(document: dict[str, Any], name: str) -> bool:
    return any(number_field(dict_field(step, "metrics"), name) is not None for _, step in iter_dicts(document, "steps"))


def _sum_steps(document: dict[str, Any], name: str) -> int | float:
    """Add up the document's own steps; what copied ones used was counted where they were first said."""
    steps = (step for _, step in iter_dicts(document, "steps") if step.get("is_copied_context") is not True)
    return sum(number_field(dict_field(step, "metrics"), name) or 0 for step in steps)
