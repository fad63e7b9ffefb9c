"""Plans drawn at random, and how each of their tasks will behave."""

import random
from typing import Any, NamedTuple

import msgspec

from flightlog.loop.plan.schema import Plan

_CONDITIONS = ("error_rate > 0.5", "metrics.coverage < 0.2", "consecutive_errors >= 3 and calls > 2", "unheard_of > 1")
_ACTIONS = ("pause_and_request_help", "pause_and_review", "alert_and_continue", "stop")
_INTERVENTION = ("ask_first", "never", "always", "on_error", "on_low_confidence")


class TaskBehavior(NamedTuple):
    """How a task behaves: how often it fails, how it fails, how long it takes, how many calls it makes."""

    fails: float
    stubborn: bool
    kind: str
    takes_s: float
    calls: int
    idle: float
    verify_fails: float


def draw_plan(chance: random.Random) -> tuple[Plan, dict[str, TaskBehavior]]:
    """Draw a plan and the manners of its tasks."""
    gentle = chance.random() < 0.3
    count = chance.randint(1, 12)
    ids = [f"{number:03}" for number in range(1, count + 1)]
    tasks = [_draw_task(chance, ids, at) for at in range(count)]
    manners = {task["task_id"]: _draw_behavior(chance, gentle=gentle) for task in tasks}
    plan = {
        "plan": "made up",
        "tasks": tasks,
        "config": _draw_config(chance, gentle=gentle),
        "budgets": {} if gentle else _draw_budgets(chance),
        "circuit_breaker": _draw_breaker(chance),
        "quality_gates": [] if gentle else _draw_gates(chance),
        "milestones": [{"name": "half", "tasks": ids[: max(count // 2, 1)]}],
        "review_points": chance.sample(ids, k=min(count, chance.choice((0, 0, 1)))),
    }
    return msgspec.convert(plan, Plan), manners


def _draw_task(chance: random.Random, ids: list[str], at: int) -> dict[str, Any]:
    before = ids[:at]
    run: dict[str, Any] = {"command": "true"}
    if chance.random() < 0.4:
        run = {"agent": "made-up", "prompt": "do it", "repeat": chance.random() < 0.3}
    return {
        "task_id": ids[at],
        "name": f"task {ids[at]}",
        "run": run,
        "dependencies": chance.sample(before, k=min(len(before), chance.choice((0, 0, 1, 2)))),
        "verify": ["true"],
        "phase": 1 + at // 5,
        "priority_score": round(chance.random(), 2),
        "error_handling": {"on_failure": chance.choice(("retry", "retry", "skip", "escalate"))},
        "delegate": {"command": "true"} if chance.random() < 0.2 else None,
        "needs": ["elevated"] if chance.random() < 0.1 else [],
        **({"max_retries": chance.randint(0, 5)} if chance.random() < 0.3 else {}),
    }


def _draw_behavior(chance: random.Random, *, gentle: bool) -> TaskBehavior:
    kind = chance.choice(("execution", "network", "permission denied", "no space left", "timeout"))
    rough = 0.0 if gentle else chance.choice((0.0, 0.0, 0.2, 0.6, 1.0))
    return TaskBehavior(
        rough, chance.random() < 0.5, kind, chance.choice((0.1, 5.0, 400.0)), chance.randint(0, 6),
        0.0 if gentle else chance.choice((0.0, 0.5, 1.0)), 0.0 if gentle else chance.choice((0.0, 0.0, 0.4)),
    )  # fmt: skip


def _draw_config(chance: random.Random, *, gentle: bool) -> dict[str, Any]:
    return {
        "max_iterations": 300 if gentle else chance.choice((3, 10, 40, 300)),
        "confidence_threshold": 0.3 if gentle else chance.choice((0.0, 0.5, 0.7, 0.9)),
        "human_intervention": "never" if gentle else chance.choice(_INTERVENTION),
        "max_retries": chance.randint(0, 4),
        "answer_timeout_seconds": 600.0,
    }


def _draw_budgets(chance: random.Random) -> dict[str, Any]:
    wanted = {
        "calls": chance.randint(1, 30),
        "tokens": chance.randint(500, 20_000),
        "usd": round(chance.uniform(0.05, 2.0), 2),
        "calls_per_hour": chance.randint(1, 12),
        "wall_time_seconds": chance.choice((60.0, 3600.0, 86_400.0)),
    }
    return {name: value for name, value in wanted.items() if chance.random() < 0.25}


def _draw_breaker(chance: random.Random) -> dict[str, Any]:
    conditions = [{"when": each, "action": chance.choice(_ACTIONS)} for each in _CONDITIONS if chance.random() < 0.15]
    return {
        "failure_threshold": chance.choice((0, 2, 5)),
        "no_progress": chance.choice((0, 2, 3)),
        "same_error": chance.choice((0, 3, 5)),
        "recovery_timeout": chance.choice((1.0, 60.0)),
        "half_open_max_calls": chance.choice((1, 3)),
        "conditions": conditions,
    }


def _draw_gates(chance: random.Random) -> list[dict[str, Any]]:
    gates: list[dict[str, Any]] = [
        {"name": "coverage", "metric": "coverage", "threshold": chance.choice((0.1, 0.9)), "phase": 1},
        {"name": "nobody reports it", "metric": "unheard_of", "threshold": 1, "operator": ">="},
    ]
    return [gate for gate in gates if chance.random() < 0.15]
