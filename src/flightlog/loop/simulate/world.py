"""A made-up world: a clock that jumps, tasks that succeed or fail by chance, people who answer or do not, death."""

import random
from collections.abc import Callable, Sequence

from flightlog.loop import events as e
from flightlog.loop.core import breaker
from flightlog.loop.core.decide import RunTask, VerifyTask
from flightlog.loop.core.state import LoopState
from flightlog.loop.run.world import ControlRequest, TaskResult, VerifyResult
from flightlog.loop.simulate.plans import TaskBehavior

_MESSAGES = {"network": "connection reset", "permission denied": "permission denied", "no space left": "no space left"}


class RunnerKilled(Exception):
    """The runner died here."""


class SimulatedEnvironment:
    """The world of one simulated session."""

    def __init__(
        self, chance: random.Random, manners: dict[str, TaskBehavior], *, deadly: float, people: float
    ) -> None:
        """`deadly` is the chance to die at any point, `people` that somebody does something."""
        self._chance = chance
        self._manners = manners
        self._deadly = deadly
        self._people = people
        self._now = 1_700_000_000.0
        self.rounds: dict[str, int] = {}

    def now(self) -> float:
        """The time."""
        return self._now

    def pass_time(self, by: float) -> None:
        """Let time go by."""
        self._now += by

    def maybe_die(self) -> None:
        """Die, sometimes."""
        if self._chance.random() < self._deadly:
            raise RunnerKilled

    def sleep_until(self, until: float, state: LoopState) -> None:
        """Time passes at once; now and then something wakes the loop early."""
        del state
        whole = self._chance.random() >= 0.2
        self._now = until if whole else self._now + (until - self._now) * self._chance.random()
        self.maybe_die()

    def read_requests(self, state: LoopState) -> Sequence[ControlRequest]:
        """People answer, pause and stop as they please."""
        if self._chance.random() >= self._people:
            return []
        if state.question is not None:
            answer = self._chance.choice([*state.question.asked.options, "nonsense"])
            return [ControlRequest("answer", state.question.asked.question, answer)]
        return (
            [ControlRequest(self._chance.choice(("pause", "stop", "answer")), "", "go")]
            if self._chance.random() < 0.2
            else []
        )

    def run_attempt(self, effect: RunTask, state: LoopState, emit: Callable[[e.Event], None]) -> TaskResult:
        """Let a task go as its manner says."""
        manner = self._manners[effect.task.task_id]
        began = self._now
        name = effect.task.task_id
        self.rounds[name] = self.rounds.get(name, 0) + 1
        run = effect.task.delegate if effect.mode == "delegate" and effect.task.delegate else effect.task.run
        calls = manner.calls if run.agent is not None else 0
        for number in range(calls):
            self._now += manner.takes_s / calls
            self.maybe_die()
            message = f"{name}-{self.rounds[name]}-{number}"
            emit(e.UsageRecorded(name, effect.attempt, message, "made-up", self._chance.randint(1, 900), 0.01))
            if stopped := _must_stop(state, self._now):
                return TaskResult(*stopped, limit_s=max(breaker.hour_full_until(state, self._now) - self._now, 0.0))
        self._now += manner.takes_s * self._chance.random()
        self._report_metric(effect, emit)
        self.maybe_die()
        return self._attempt_result(effect, manner, self._now - began)

    def verify_task(self, effect: VerifyTask, state: LoopState) -> VerifyResult:
        """Verification fails by chance too."""
        del state
        self._now += 0.5
        self.maybe_die()
        passed = self._chance.random() >= self._manners[effect.task.task_id].verify_fails
        return VerifyResult(passed, (("true", 0 if passed else 1),), (), "" if passed else "expected 2, got 3", 0.5)

    def _report_metric(self, effect: RunTask, emit: Callable[[e.Event], None]) -> None:
        if self._chance.random() < 0.3:
            coverage = round(self._chance.random(), 2)
            emit(e.TaskReported(effect.task.task_id, effect.attempt, "metric", "coverage", coverage))

    def _attempt_result(self, effect: RunTask, manner: TaskBehavior, took: float) -> TaskResult:
        agent = effect.task.run.agent is not None
        progress = self._chance.random() >= manner.idle if agent else None
        if agent and self._chance.random() < 0.05:
            return TaskResult("limited", took, message="usage limit", limit_s=self._chance.choice((60.0, 7200.0)))
        if self._chance.random() < 0.03:
            return TaskResult("interrupted", took)
        if self._chance.random() >= manner.fails:
            signs = ("status", "tests")[: self._chance.choice((0, 1, 2, 2))]
            exits = self._chance.random() < 0.7
            return TaskResult("success", took, 0, progress=progress, exit_signal=exits, indicators=signs)
        if manner.kind == "timeout":
            return TaskResult("timeout", took, None, "no end in sight", progress=progress)
        message = _MESSAGES.get(manner.kind, "it went wrong")
        more = "" if manner.stubborn else f" in {self._chance.choice(('north', 'south', 'east', 'west'))}"
        denials = int(manner.kind == "permission denied" and agent)
        return TaskResult("failure", took, 1, message + more, denials=denials, progress=progress)


def _must_stop(state: LoopState, now: float) -> tuple[str, float] | None:
    if breaker.exhausted_budget(state, now, begun=True):
        return "budget", 0.0
    return ("limited", 0.0) if breaker.hour_full_until(state, now) > now else None
