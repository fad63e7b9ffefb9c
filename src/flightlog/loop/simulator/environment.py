"""Random plans, and a simulated environment: task behavior, clock, people."""

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from flightlog.loop import events
from flightlog.loop.decide import breaker
from flightlog.loop.decide.decide import CloseAttempt, CommitTask, RunTask, VerifyTask
from flightlog.loop.plan.schema import Plan
from flightlog.loop.runner.driver import ControlRequest, TaskResult, VerifyResult
from flightlog.loop.state import LoopState

_CONDITIONS = (
    "error_rate > 0.5",
    "metrics.coverage < 0.2",
    "consecutive_errors >= 3 and calls > 2",
    "unheard_of > 1",
)
_ACTIONS = ("pause_and_request_help", "pause_and_review", "alert_and_continue", "stop")
_INTERVENTION = ("ask_first", "never", "always", "on_error", "on_low_confidence")
_MESSAGES = {
    "network": "connection reset",
    "permission denied": "permission denied",
    "no space left": "no space left",
}


class TaskBehavior(NamedTuple):
    """How a task behaves: probability and kind of failures, duration, model calls, questions."""

    fails: float
    stubborn: bool
    kind: str
    takes_s: float
    calls: int
    idle: float
    verify_fails: float
    asks: float = 0.0
    denied: float = 0.0


def draw_plan(chance: random.Random) -> tuple[Plan, dict[str, TaskBehavior]]:
    """Draw a plan and the behavior of its tasks."""
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
        0.0 if gentle else chance.choice((0.0, 0.0, 0.5)), 0.0 if gentle else chance.choice((0.0, 0.0, 0.2)),
    )  # fmt: skip


def _draw_config(chance: random.Random, *, gentle: bool) -> dict[str, Any]:
    return {
        "max_iterations": 300 if gentle else chance.choice((3, 10, 40, 300)),
        "confidence_threshold": 0.3 if gentle else chance.choice((0.0, 0.5, 0.7, 0.9)),
        "human_intervention": "never" if gentle else chance.choice(_INTERVENTION),
        "max_retries": chance.randint(0, 4),
        "answer_timeout_seconds": 600.0,
        "commit_per_task": chance.random() < 0.2,
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
    conditions = [
        {"when": when, "action": chance.choice(_ACTIONS)}
        for when in _CONDITIONS
        if chance.random() < 0.15
    ]
    return {
        "failure_threshold": chance.choice((0, 2, 5)),
        "no_progress": chance.choice((0, 2, 3)),
        "same_error": chance.choice((0, 3, 5)),
        "recovery_timeout": chance.choice((1.0, 60.0)),
        "half_open_max_calls": chance.choice((1, 3)),
        "conditions": conditions,
    }


def _draw_gates(chance: random.Random) -> list[dict[str, Any]]:
    threshold = chance.choice((0.1, 0.9))
    gates: list[dict[str, Any]] = [
        {"name": "coverage", "metric": "coverage", "threshold": threshold, "phase": 1},
        {"name": "never reported", "metric": "unheard_of", "threshold": 1, "operator": ">="},
    ]
    return [gate for gate in gates if chance.random() < 0.15]


class RunnerKilled(Exception):
    """The runner died here."""


class SimulatedEnvironment:
    """The environment of one simulated session."""

    def __init__(
        self,
        chance: random.Random,
        manners: dict[str, TaskBehavior],
        *,
        deadly: float,
        people: float,
    ) -> None:
        """Set probabilities: `deadly` to be killed at any point, `people` of a request."""
        self._chance = chance
        self._manners = manners
        self._deadly = deadly
        self._people = people
        self._now = 1_700_000_000.0
        self.rounds: dict[str, int] = {}

    def now(self) -> float:
        """Return the simulated time."""
        return self._now

    def pass_time(self, by: float) -> None:
        """Advance the clock."""
        self._now += by

    def maybe_die(self) -> None:
        """Raise `RunnerKilled` with the probability `deadly`."""
        if self._chance.random() < self._deadly:
            raise RunnerKilled

    def sleep_until(self, until: float, state: LoopState) -> None:
        """Advance the clock to `until`, or sometimes only a part of the way."""
        del state
        whole = self._chance.random() >= 0.2
        self._now = until if whole else self._now + (until - self._now) * self._chance.random()
        self.maybe_die()

    def read_requests(self, state: LoopState) -> Sequence[ControlRequest]:
        """Return random answers, pauses and stops."""
        if self._chance.random() >= self._people:
            return []
        if state.question is not None:
            answer = self._chance.choice([*state.question.event.options, "nonsense"])
            return [ControlRequest("answer", state.question.event.question_id, answer)]
        if self._chance.random() >= 0.2:
            return []
        return [ControlRequest(self._chance.choice(("pause", "stop", "answer")), "", "go")]

    def run_attempt(
        self, effect: RunTask, state: LoopState, emit: Callable[[events.Event], None]
    ) -> TaskResult:
        """Return a random result according to the task's behavior."""
        manner = self._manners[effect.task.task_id]
        began = self._now
        name = effect.task.task_id
        self.rounds[name] = self.rounds.get(name, 0) + 1
        delegate = effect.task.delegate if effect.mode == "delegate" else None
        run = delegate or effect.task.run
        session = f"{name}-{self.rounds[name]}" if run.agent is not None else ""
        emit(events.AttemptRunStarted(name, effect.attempt, agent_session=session))
        calls = manner.calls if run.agent is not None else 0
        for number in range(calls):
            self._now += manner.takes_s / calls
            self.maybe_die()
            message, tokens = f"{name}-{self.rounds[name]}-{number}", self._chance.randint(1, 900)
            emit(events.UsageRecorded(name, effect.attempt, message, "made-up", tokens, 0.01))
            wait_s = max(breaker.hour_full_until(state, self._now) - self._now, 0.0)
            spent = breaker.find_used_budget(state, self._now, begun=True)
            if spent or wait_s:
                took = self._now - began
                return TaskResult("budget" if spent else "limited", took, limit_s=wait_s)
        self._now += manner.takes_s * self._chance.random()
        self._report_metric(effect, emit)
        self.maybe_die()
        return self._attempt_result(effect, manner, self._now - began)

    def close_attempt(self, effect: CloseAttempt, state: LoopState) -> TaskResult:
        """Return the attempt that a kill cut short."""
        self.maybe_die()
        task = state.task_state(effect.task.task_id)
        return TaskResult("cut", task.cut_s, agent_session=task.agent_session)

    def commit_task(self, effect: CommitTask, state: LoopState) -> events.TaskCommitted:
        """Pretend to commit."""
        del state
        self.maybe_die()
        return events.TaskCommitted(effect.task.task_id, "0" * 40)

    def verify_task(self, effect: VerifyTask, state: LoopState) -> VerifyResult:
        """Return a random result."""
        del state
        self._now += 0.5
        self.maybe_die()
        passed = self._chance.random() >= self._manners[effect.task.task_id].verify_fails
        message = "" if passed else "expected 2, got 3"
        return VerifyResult(passed, (("true", 0 if passed else 1),), (), message, 0.5)

    def _report_metric(self, effect: RunTask, emit: Callable[[events.Event], None]) -> None:
        if self._chance.random() < 0.3:
            coverage = round(self._chance.random(), 2)
            attempt = (effect.task.task_id, effect.attempt)
            emit(events.TaskReported(*attempt, "metric", "coverage", coverage))

    def _attempt_result(self, effect: RunTask, manner: TaskBehavior, took: float) -> TaskResult:
        agent = effect.task.run.agent is not None
        progress = self._chance.random() >= manner.idle if agent else None
        if agent and self._chance.random() < 0.05:
            limit_s = self._chance.choice((60.0, 7200.0))
            return TaskResult("limited", took, message="usage limit", limit_s=limit_s)
        if self._chance.random() < 0.03:
            return TaskResult("interrupted", took)
        if self._chance.random() >= manner.fails:
            indicators = ("status", "tests")[: self._chance.choice((0, 1, 2, 2))]
            done = self._chance.random() < 0.7
            asks = "this or that?" if agent and self._chance.random() < manner.asks else ""
            denied = ("Write",) if agent and self._chance.random() < manner.denied else ()
            return TaskResult(
                "success",
                took,
                0,
                made_progress=progress,
                exit_signal=done,
                indicators=indicators,
                question=asks,
                permission_denials=len(denied),
                denied_tools=denied,
            )
        if manner.kind == "timeout":
            return TaskResult("timeout", took, None, "no end in sight", made_progress=progress)
        message = _MESSAGES.get(manner.kind, "it went wrong")
        more = ""
        if not manner.stubborn:
            more = f" in {self._chance.choice(('north', 'south', 'east', 'west'))}"
        denials = int(manner.kind == "permission denied" and agent)
        return TaskResult(
            "failure", took, 1, message + more, permission_denials=denials, made_progress=progress
        )
