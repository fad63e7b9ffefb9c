"""Tokens and cost in ATIF's terms: all input is prompt, what came from the cache is a part of it."""

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, UnsetType

from flightlog.model.session import Step as Told
from flightlog.model.usage import ClientTotals
from flightlog.views.atif.document import AtifStep, FinalMetrics, StepMetrics

_USD_DIGITS = 9


def build_metrics(step: Told) -> StepMetrics:
    """Return what one response used; a cost nobody knows is absent."""
    use = step.usage
    classes = {
        "cache_creation_input_tokens": use.cache_write,
        "cache_creation_1h_input_tokens": use.cache_write_1h,
        "web_search_requests": use.web_searches,
    }
    return StepMetrics(
        prompt_tokens=use.prompt,
        completion_tokens=use.output,
        cached_tokens=use.cache_read,
        cost_usd=_round_usd(step.cost.usd),
        extra={**{name: count for name, count in classes.items() if count}, "cost_source": step.cost.source.value},
    )


def sum_final_metrics(own: Sequence[AtifStep], below: Sequence[AtifStep], client: ClientTotals | None) -> FinalMetrics:
    """Sum up what steps say: tokens of the trajectory's own, cost with that of the subagents `below`."""
    cost = _sum_costs([*own, *below])
    extra: dict[str, Any] = {}
    if below:
        names = ("prompt_tokens", "completion_tokens", "cached_tokens")
        extra["subagents"] = {name: _sum_metric(below, name) for name in names}
    if client is not None:
        extra["client_total_cost_usd"] = client.total_usd
    return FinalMetrics(
        total_prompt_tokens=_sum_metric(own, "prompt_tokens"),
        total_completion_tokens=_sum_metric(own, "completion_tokens"),
        total_cached_tokens=_sum_metric(own, "cached_tokens"),
        total_cost_usd=_round_usd(cost),
        total_steps=len(own),
        extra=extra or UNSET,
    )


def _sum_metric(steps: Sequence[AtifStep], name: str) -> int:
    return sum(getattr(step.metrics, name) for step in steps if isinstance(step.metrics, StepMetrics))


def _sum_costs(steps: Sequence[AtifStep]) -> float | None:
    """What steps cost together; unknown as soon as one is."""
    costs = [step.metrics.cost_usd for step in steps if isinstance(step.metrics, StepMetrics)]
    known = [cost for cost in costs if isinstance(cost, float)]
    return sum(known) if len(known) == len(costs) else None


def _round_usd(usd: float | None) -> float | UnsetType:
    return UNSET if usd is None else round(float(usd), _USD_DIGITS)
