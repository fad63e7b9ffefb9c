"""When to stop going on: the breaker's rules, the plan's own conditions, and the budgets.

Each rule is a sentence that names its figures, because that sentence is what a person reads.
"""

from typing import NamedTuple

from flightlog.loop.plan import expression
from flightlog.loop.plan.schema import Plan
from flightlog.loop.state import HOUR_S, LoopState
from flightlog.model.text import pluralize

HELP = "pause_and_request_help"
BUDGET = "budget"


class BreakerTrip(NamedTuple):
    """A reason to open the breaker, and what to do then."""

    condition: str
    action: str


def find_trip(state: LoopState, plan: Plan) -> BreakerTrip | None:
    """The first rule that says stop, or None."""
    rules, breaker = plan.circuit_breaker, state.breaker
    wrong = breaker.recent.count(False)
    enough = len(breaker.recent) >= rules.error_rate_over
    low = _low_confidence_streak(state, rules.low_confidence)
    found = (
        (
            rules.error_rate and enough and wrong / len(breaker.recent) > rules.error_rate,
            f"error_rate > {rules.error_rate:g} ({wrong} of the last {len(breaker.recent)} attempts failed)",
        ),
        (
            rules.failure_threshold and breaker.consecutive >= rules.failure_threshold,
            f"{pluralize(breaker.consecutive, 'failure')} in a row",
        ),
        (
            rules.same_error and breaker.same >= rules.same_error,
            f"the same error {pluralize(breaker.same, 'time')} in a row",
        ),
        (
            rules.no_progress and breaker.idle >= rules.no_progress,
            f"no progress in {pluralize(breaker.idle, 'attempt')}",
        ),
        (
            rules.permission_denials and breaker.denials >= rules.permission_denials,
            f"permission denied in {pluralize(breaker.denials, 'attempt')} in a row",
        ),
        (
            rules.low_confidence_times and low >= rules.low_confidence_times,
            f"confidence < {rules.low_confidence:g} {pluralize(low, 'time')} in a row",
        ),
    )
    for holds, sentence in found:
        if holds:
            return BreakerTrip(sentence, HELP)
    return _find_condition_trip(state, plan)


def unknown_conditions(state: LoopState, plan: Plan) -> list[str]:
    """Conditions of the plan that could not be evaluated and were not told about yet."""
    names = condition_variables(state)
    said = set(state.alerts)
    return [
        each.when
        for each in plan.circuit_breaker.conditions
        if each.when not in said
        and expression.evaluate_expression(expression.parse_expression(each.when), names) is None
    ]


def find_alerts(state: LoopState, plan: Plan) -> list[str]:
    """Conditions that hold and only ask to be told, each once."""
    names = condition_variables(state)
    return [
        each.when
        for each in plan.circuit_breaker.conditions
        if each.action == "alert_and_continue"
        and each.when not in state.alerts
        and expression.evaluate_expression(expression.parse_expression(each.when), names)
    ]


def condition_variables(state: LoopState) -> dict[str, float]:
    """The names a condition may use."""
    breaker, totals = state.breaker, state.totals
    recent = len(breaker.recent)
    counts = {name: float(len(value)) for name, value in state.context.items() if isinstance(value, list)}
    told = {name: float(value) for name, value in state.context.items() if isinstance(value, int | float)}
    own = {
        "errors": float(totals.errors),
        "consecutive_errors": float(breaker.consecutive),
        "same_error": float(breaker.same),
        "no_progress": float(breaker.idle),
        "permission_denials": float(breaker.denials),
        "iterations": float(state.iterations),
        "tasks_completed": float(state.completed_count),
        "usd": totals.usd,
        "tokens": float(totals.tokens),
        "calls": float(totals.calls),
        "help_requests": float(totals.help_requests),
        **({"error_rate": breaker.recent.count(False) / recent} if recent >= 1 else {}),
        **({"validation_failure_rate": breaker.verify_failures / breaker.verifies} if breaker.verifies else {}),
        **({"confidence": state.confidence} if state.confidence is not None else {}),
    }
    return {**counts, **told, **{f"metrics.{name}": value for name, value in state.metrics.items()}, **own}


def exhausted_budget(state: LoopState, now: float, *, begun: bool = False) -> str:  # noqa: PLR0911 - one for each budget
    """Which budget is used up, in a sentence, or nothing; an iteration that has begun may end."""
    limits, totals = state.budgets, state.totals
    if not begun and state.iterations >= state.config.max_iterations:
        return f"{BUDGET}: {state.iterations} of {state.config.max_iterations} iterations are used"
    if limits.calls is not None and totals.calls >= limits.calls:
        return f"{BUDGET}: {totals.calls} of {limits.calls} model calls are used"
    if limits.tokens is not None and totals.tokens >= limits.tokens:
        return f"{BUDGET}: {totals.tokens} of {limits.tokens:g} tokens are used"
    if limits.usd is not None and totals.usd >= limits.usd:
        return f"{BUDGET}: {totals.usd:.4f} of {limits.usd:g} USD are used"
    if limits.usd is not None and totals.unpriced:
        unknown = f"the price of {pluralize(totals.unpriced, 'model call')} is not known"
        return f"{BUDGET}: {unknown}, so {limits.usd:g} USD cannot be kept"
    worked = now - (state.started_at or now) - state.rested_s
    if limits.wall_time_seconds is not None and worked >= limits.wall_time_seconds:
        return f"{BUDGET}: {worked:.0f} of {limits.wall_time_seconds:g} seconds are used"
    return ""


def hour_full_until(state: LoopState, now: float) -> float:
    """When the next model call is allowed by `calls_per_hour`; 0 when it is now."""
    limit = state.budgets.calls_per_hour
    within = [at for at in state.calls_at if at > now - HOUR_S]
    return within[-limit] + HOUR_S if limit and len(within) >= limit else 0.0


def _low_confidence_streak(state: LoopState, below: float) -> int:
    count = 0
    for confidence in reversed(state.breaker.confidences):
        if confidence >= below:
            break
        count += 1
    return count


def _find_condition_trip(state: LoopState, plan: Plan) -> BreakerTrip | None:
    """The plan's own conditions; a rate over fewer attempts than the plan asks for is no rate yet."""
    names = condition_variables(state)
    if len(state.breaker.recent) < plan.circuit_breaker.error_rate_over:
        names.pop("error_rate", None)
    for each in plan.circuit_breaker.conditions:
        if each.action != "alert_and_continue" and expression.evaluate_expression(
            expression.parse_expression(each.when), names
        ):
            return BreakerTrip(each.when, each.action)
    return None
