"""The circuit breaker: its rules, the plan's own conditions, and the budgets.

The result of a rule is a sentence with its figures, for a person to read.
"""

from itertools import takewhile
from typing import NamedTuple

from flightlog.loop.plan import expression
from flightlog.loop.plan.schema import Plan
from flightlog.loop.state import HOUR_S, LoopState
from flightlog.model.text import pluralize

HELP, REVIEW = "pause_and_request_help", "pause_and_review"


class BreakerTrip(NamedTuple):
    """The condition that opens the breaker, and the action that follows."""

    condition: str
    action: str


def find_trip(state: LoopState, plan: Plan) -> BreakerTrip | None:
    """Return the first rule or condition that opens the breaker, or None."""
    rules, breaker = plan.circuit_breaker, state.breaker
    wrong, total = breaker.recent_results.count(False), len(breaker.recent_results)
    if rules.error_rate and total >= rules.error_rate_over and wrong / total > rules.error_rate:
        rate = f"error_rate > {rules.error_rate:g}"
        return BreakerTrip(f"{rate} ({wrong} of the last {total} attempts failed)", HELP)
    low = _low_confidence_streak(state, rules.low_confidence)
    unsure, denied = f"confidence < {rules.low_confidence:g}", "permission denied in {} in a row"
    in_a_row = (
        (rules.failure_threshold, breaker.consecutive_failures, "{} in a row", "failure"),
        (rules.same_error, breaker.same_error_count, "the same error {} in a row", "time"),
        (rules.no_progress, breaker.no_progress_count, "no progress in {}", "attempt"),
        (rules.permission_denials, breaker.permission_denials, denied, "attempt"),
        (rules.low_confidence_times, low, f"{unsure} {{}} in a row", "time"),
    )
    for limit, count, sentence, noun in in_a_row:
        if limit and count >= limit:
            # A probe would be denied as well, so the loop pauses instead.
            action = REVIEW if sentence is denied else HELP
            return BreakerTrip(sentence.format(pluralize(count, noun)), action)
    return _find_condition_trip(state, plan)


def unknown_conditions(state: LoopState, plan: Plan) -> list[str]:
    """Return conditions of the plan that cannot be evaluated and have no alert yet."""
    names = _condition_variables(state)
    conditions = [condition.when for condition in plan.circuit_breaker.conditions]
    return [
        when for when in conditions if when not in state.alerts and _evaluate(when, names) is None
    ]


def find_alerts(state: LoopState, plan: Plan) -> list[str]:
    """Return conditions with `alert_and_continue` that hold and have no alert yet."""
    names = _condition_variables(state)
    conditions = plan.circuit_breaker.conditions
    alerts = [one.when for one in conditions if one.action == "alert_and_continue"]
    return [when for when in alerts if when not in state.alerts and _evaluate(when, names)]


def _evaluate(when: str, names: dict[str, float]) -> float | None:
    return expression.evaluate_expression(expression.parse_expression(when), names)


def _condition_variables(state: LoopState) -> dict[str, float]:
    breaker, totals, context = state.breaker, state.totals, state.context
    recent = len(breaker.recent_results)
    lengths = {
        name: float(len(value)) for name, value in context.items() if isinstance(value, list)
    }
    numbers = {
        name: float(value) for name, value in context.items() if isinstance(value, int | float)
    }
    metrics = {f"metrics.{name}": value for name, value in state.metrics.items()}
    own = {
        "errors": float(totals.errors),
        "consecutive_errors": float(breaker.consecutive_failures),
        "same_error": float(breaker.same_error_count),
        "no_progress": float(breaker.no_progress_count),
        "permission_denials": float(breaker.permission_denials),
        "iterations": float(state.iterations),
        "tasks_completed": float(state.completed_count),
        "usd": totals.cost_usd,
        "tokens": float(totals.total_tokens),
        "calls": float(totals.calls),
        "help_requests": float(totals.help_requests),
    }
    if recent:
        own["error_rate"] = breaker.recent_results.count(False) / recent
    if breaker.verify_count:
        own["validation_failure_rate"] = breaker.verify_failures / breaker.verify_count
    if state.confidence is not None:
        own["confidence"] = state.confidence
    return {**lengths, **numbers, **metrics, **own}


class UsedBudget(NamedTuple):
    """A limit that is used up: its name, its value and a sentence."""

    name: str
    limit: float
    sentence: str


def find_used_budget(state: LoopState, now: float, *, begun: bool = False) -> UsedBudget | None:
    """Return the limit that is used up, or None; a begun iteration may end."""
    limits, totals = state.budgets, state.totals
    iterations = None if begun else state.config.max_iterations
    worked = now - (state.started_at or now) - state.rested_s
    if limits.usd is not None and totals.unpriced_calls:
        calls = pluralize(totals.unpriced_calls, "model call")
        why = f"budget: the price of {calls} is not known, so {limits.usd:g} USD cannot be kept"
        return UsedBudget("usd", 0, why)
    pairs: tuple[tuple[str, float, float | None, str], ...] = (
        ("max_iterations", state.iterations, iterations, "{:.0f} of {:g} iterations"),
        ("calls", totals.calls, limits.calls, "{:.0f} of {:g} model calls"),
        ("tokens", totals.total_tokens, limits.tokens, "{:.0f} of {:g} tokens"),
        ("usd", totals.cost_usd, limits.usd, "{:.4f} of {:g} USD"),
        ("wall_time_seconds", worked, limits.wall_time_seconds, "{:.0f} of {:g} seconds"),
    )
    for name, used, limit, words in pairs:
        if limit is not None and used >= limit:
            return UsedBudget(name, limit, f"budget: {words.format(used, limit)} are used")
    return None


def hour_full_until(state: LoopState, now: float) -> float:
    """Return when `calls_per_hour` allows the next model call; 0 if now."""
    limit = state.budgets.calls_per_hour
    within = [at for at in state.call_times if at > now - HOUR_S]
    return within[-limit] + HOUR_S if limit and len(within) >= limit else 0.0


def _low_confidence_streak(state: LoopState, below: float) -> int:
    latest = reversed(state.breaker.confidences)
    return sum(1 for _ in takewhile(lambda confidence: confidence < below, latest))


def _find_condition_trip(state: LoopState, plan: Plan) -> BreakerTrip | None:
    names = _condition_variables(state)
    if len(state.breaker.recent_results) < plan.circuit_breaker.error_rate_over:
        names.pop("error_rate", None)  # too few attempts for a rate
    for condition in plan.circuit_breaker.conditions:
        if condition.action != "alert_and_continue" and _evaluate(condition.when, names):
            return BreakerTrip(condition.when, condition.action)
    return None
