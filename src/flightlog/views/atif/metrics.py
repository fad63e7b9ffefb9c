"""Tokens and cost in ATIF's terms: all input is prompt, what came from the cache is a part of it."""

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, UnsetType

from flightlog.model.session import Step as Told
from flightlog.model.usage import ClientTotals
from flightlog.views.atif.document import FinalMetrics, Metrics, Step

_USD_DIGITS = 9


def metrics_of(step: Told) -> Metrics:
    """Return what one response used; a cost nobody knows is absent."""
    use = step.usage
    classes = {
        "cache_creation_input_tokens": use.cache_write,
        "cache_creation_1h_input_tokens": use.cache_write_1h,
        "web_search_requests": use.web_searches,
    }
    return Metrics(
        prompt_tokens=use.prompt,
        completion_tokens=use.output,
        cached_tokens=use.cache_read,
        cost_usd=_usd(step.cost.usd),
        extra={**{name: count for name, count in classes.items() if count}, "cost_source": step.cost.source.value},
    )


def final(own: Sequence[Step], below: Sequence[Step], client: ClientTotals | None) -> FinalMetrics:
    """Sum up what steps say: tokens of the trajectory's own, cost with that of the subagents `below`."""
    cost = _cost([*own, *below])
    extra: dict[str, Any] = {}
    if below:
        names = ("prompt_tokens", "completion_tokens", "cached_tokens")
        extra["subagents"] = {name: _sum(below, name) for name in names}
    if client is not None:
        extra["client_total_cost_usd"] = client.total_usd
    return FinalMetrics(
        total_prompt_tokens=_sum(own, "prompt_tokens"),
        total_completion_tokens=_sum(own, "completion_tokens"),
        total_cached_tokens=_sum(own, "cached_tokens"),
        total_cost_usd=_usd(cost),
        total_steps=len(own),
        extra=extra or UNSET,
    )


def _sum(steps: Sequence[Step], name: str) -> int:
    return sum(getattr(step.metrics, name) for step in steps if isinstance(step.metrics, Metrics))


def _cost(steps: Sequence[Step]) -> float | None:
    """What steps cost together; unknown as soon as one is."""
    costs = [step.metrics.cost_usd for step in steps if isinstance(step.metrics, Metrics)]
    known = [cost for cost in costs if isinstance(cost, float)]
    return sum(known) if len(known) == len(costs) else None


def _usd(usd: float | None) -> float | UnsetType:
    return UNSET if usd is None else round(float(usd), _USD_DIGITS)
