"""Run a seeded session and check its invariants.

The checker reads only the events and counts by itself, independently of the folded state, so that
an error in the fold cannot hide itself.
"""

import hashlib
import random
from collections import Counter, defaultdict

import msgspec
from msgspec import Struct

from flightlog.loop import events
from flightlog.loop.decide.fold import apply_event
from flightlog.loop.plan.schema import Plan
from flightlog.loop.runner.driver import LoopDriver
from flightlog.loop.simulator.environment import (
    RunnerKilled,
    SimulatedEnvironment,
    TaskBehavior,
    draw_plan,
)
from flightlog.loop.state import HOUR_S, LoopState

_GIVEN_BY_PERSON = 1_000  # additional failures after a person said to retry: no limit in practice
STEPS_MAX = 20_000  # more than any drawn plan needs; a session that reaches it does not end
RESUMES_MAX = 4


class InvariantChecker:
    """Collects the violations of invariants in one session."""

    def __init__(self, plan: Plan) -> None:
        """Check a session of `plan`."""
        self._plan = plan
        self.violations: list[str] = []
        self._status: dict[str, str] = {}
        self._verified: set[str] = set()
        self._failures: Counter[str] = Counter()
        self._allowed: Counter[str] = Counter()
        self._keys: dict[str, str] = {}
        self._wait: dict[str, float] = {}
        self._gates: dict[str, bool] = {}
        self._accepted: set[str] = set()
        self._breaker, self._probes = "closed", 0
        self._starts = self._calls = self._tokens = 0
        self._usd = 0.0
        self._hour: list[float] = []
        self._over = ""
        self._questions: dict[str, events.QuestionAsked] = {}
        self._running = ""  # the task whose run has no end yet
        self._cut = ""  # the task whose run a kill ended, until that is recorded
        self._ran_s: dict[str, float] = defaultdict(float)

    def check_event(self, at: float, event: events.Event) -> None:
        """Check one event."""
        by_person = events.RunnerAcquired | events.LoopResumed | events.TaskReopened
        if self._over and not isinstance(event, by_person):
            tag = event.__struct_config__.tag
            self.violations.append(f"{tag} after the session was {self._over}")
        self._check_runs(event)
        match event:
            case events.GateChecked():
                self._gates[event.name] = bool(event.passed) or event.name in self._accepted
            case events.BreakerChanged():
                self._breaker, self._probes = event.to_state, 0
            case events.QuestionAsked():
                self._questions[event.question_id] = event
            case events.QuestionAnswered():
                self._check_answer(event)
            case events.LoopPaused() | events.LoopStopped():
                self._over = "paused"
            case events.LoopResumed():
                self._reset_after_resume()
            case events.LoopEnded():
                self._check_session_end(event)
            case _:
                self._check_task_event(at, event)

    def _check_runs(self, event: events.Event) -> None:
        """Check that each run has one end, and each task the time of its runs."""
        match event:
            case events.RunnerAcquired():
                self._cut, self._running = self._running or self._cut, ""
            case events.AttemptRunStarted():
                if self._running or self._cut:
                    self.violations.append(f"{event.task} runs, but a run before it has no end")
                self._running = event.task
            case events.AttemptEnded():
                if event.task != (self._cut if event.result == "cut" else self._running):
                    self.violations.append(f"{event.task} ended as {event.result} without a run")
                self._running = self._cut = ""
                self._ran_s[event.task] += event.duration_s
            case events.TaskVerified():
                self._ran_s[event.task] += event.duration_s
            case events.TaskEnded() if abs(event.duration_s - self._ran_s[event.task]) > 0.01:
                self.violations.append(f"the duration of {event.task} is not that of its runs")
            case _:
                pass

    def _check_task_event(self, at: float, event: events.Event) -> None:
        match event:
            case events.TaskStarted():
                self._check_start(at, event)
            case events.UsageRecorded():
                self._check_budgets(at, event)
            case events.AttemptEnded() if event.result in {"failure", "timeout"}:
                self._failures[event.task] += 1
            case events.TaskVerified():
                self._record_verification(event)
            case events.TaskEnded():
                self._check_task_end(event)
            case events.RecoveryStarted():
                self._wait[event.task] = at + event.wait_s
            case events.TaskReopened():
                self._status[event.task] = "pending"
                self._verified.discard(event.task)
                self._keys.pop(event.task, None)
                self._allowed[event.task] += _GIVEN_BY_PERSON
            case _:
                pass

    def _check_start(self, at: float, event: events.TaskStarted) -> None:
        task = self._plan.find_task(event.task)
        self._starts += 1
        if self._status.get(event.task) in {"completed", "skipped", "failed", "deferred"}:
            self.violations.append(f"{event.task} was {self._status[event.task]} and began again")
        if any(self._status.get(name) != "completed" for name in task.dependencies):
            self.violations.append(f"{event.task} began before what it depends on")
        if self._breaker == "open":
            self.violations.append(f"{event.task} began while the breaker was open")
        self._probes += self._breaker == "half_open"
        if self._probes > self._plan.circuit_breaker.half_open_max_calls:
            self.violations.append("more probes than half-open allows")
        if self._starts > self._plan.config.max_iterations:
            self.violations.append("more iterations than allowed")
        if at < self._wait.get(event.task, 0.0) - 0.001:
            self.violations.append(f"{event.task} did not wait before it was tried again")
        if self._keys.setdefault(event.task, event.effect_id) != event.effect_id:
            self.violations.append(f"the key of {event.task} changed")
        phases = ((gate, gate.phase) for gate in self._plan.quality_gates)
        gates = [gate for gate, phase in phases if phase is not None and phase < task.phase]
        if any(not self._gates.get(gate.name) for gate in gates):
            self.violations.append(f"{event.task} began though a gate was not passed")
        retries = self._plan.config.max_retries if task.max_retries is None else task.max_retries
        # A delegate may try once more.
        more = 1 + (task.delegate is not None) + self._allowed[event.task]
        if self._failures[event.task] > retries + more and event.mode == "work":
            self.violations.append(f"{event.task} was tried more often than allowed")

    def _check_budgets(self, at: float, event: events.UsageRecorded) -> None:
        limits = self._plan.budgets
        budgets = (
            (limits.calls, self._calls),
            (limits.tokens, self._tokens),
            (limits.usd, self._usd),
        )
        if any(limit is not None and used >= limit for limit, used in budgets):
            self.violations.append("a model was called after a budget was used up")
        self._hour = [time for time in self._hour if time > at - HOUR_S]
        if limits.calls_per_hour and len(self._hour) >= limits.calls_per_hour:
            self.violations.append("more calls an hour than allowed")
        self._hour.append(at)
        self._calls += 1
        self._tokens += event.total_tokens
        self._usd += event.cost_usd or 0.0

    def _record_verification(self, event: events.TaskVerified) -> None:
        if event.passed:
            self._verified.add(event.task)
        else:
            self._verified.discard(event.task)
            self._failures[event.task] += 1

    def _check_task_end(self, event: events.TaskEnded) -> None:
        if event.result == "success" and event.task not in self._verified:
            self.violations.append(f"{event.task} was completed without verification")
        if self._status.get(event.task) == "completed":
            self.violations.append(f"{event.task} ended twice")
        self._status[event.task] = {"success": "completed", "failure": "failed"}.get(
            event.result, event.result
        )

    def _check_answer(self, event: events.QuestionAnswered) -> None:
        asked = self._questions[event.question_id]
        if event.answered_by == "timeout" and event.answer != asked.default_answer:
            self.violations.append("without an answer another option than the safe one was chosen")
        by_person = event.answered_by == "person"
        if event.answer in {"retry", "allow"} or (asked.trigger == "agent" and by_person):
            self._allowed[asked.task] += _GIVEN_BY_PERSON
        if asked.trigger == "gate" and event.answer == "accept":
            self._gates[asked.task] = True
            self._accepted.add(asked.task)

    def _reset_after_resume(self) -> None:
        self._over = ""
        self._breaker = "half_open" if self._breaker == "open" else self._breaker
        self._probes = 0
        for task, status in list(self._status.items()):
            if status in {"deferred", "failed"}:
                self._status[task] = "pending"
                self._allowed[task] += _GIVEN_BY_PERSON

    def _check_session_end(self, event: events.LoopEnded) -> None:
        self._over = event.status
        done = all(self._status.get(task.task_id) == "completed" for task in self._plan.tasks)
        passed = all(self._gates.get(gate.name) for gate in self._plan.quality_gates)
        if (event.status == "completed") is not (done and passed):
            figures = f"tasks completed {done}, gates passed {passed}"
            self.violations.append(f"the session ended as {event.status}: {figures}")


class SimulationResult(Struct, frozen=True):
    """Result of a simulated session; the same seed gives the same `digest`."""

    seed: int
    mode: str
    status: str
    events: int
    crashes: int
    violations: tuple[str, ...]
    digest: str


class _MemoryEventLog:
    """A journal in memory; the runner may be killed just before or just after an append."""

    def __init__(self, environment: SimulatedEnvironment, checker: InvariantChecker) -> None:
        self.state = LoopState()
        self.records: list[tuple[float, events.Event]] = []
        self._environment = environment
        self._checker = checker

    def append(self, event: events.Event) -> None:
        self._environment.maybe_die()
        at = self._environment.now()
        self.records.append((at, event))
        self._checker.check_event(at, event)
        apply_event(self.state, at, event)
        self._environment.maybe_die()

    def refresh_output(self) -> None:
        """Do nothing: a simulation has no output files."""

    def reload(self) -> None:
        """Fold all events again, as a new runner does."""
        self.state = LoopState()
        for at, event in self.records:
            apply_event(self.state, at, event)


def run_simulation(seed: int, *, safety: bool = True) -> SimulationResult:
    """Run one session: with kills and requests (safety), or without, so it must end (liveness)."""
    chance = random.Random(seed)  # noqa: S311 - no secret depends on it
    plan, manners = draw_plan(chance)
    deadly = chance.choice((0.0, 0.01, 0.05)) if safety else 0.0
    people = 0.1 if safety else 0.0
    environment = SimulatedEnvironment(chance, manners, deadly=deadly, people=people)
    checker = InvariantChecker(plan)
    log = _MemoryEventLog(environment, checker)
    deaths = _run_to_end(plan, log, environment, chance, resumes=RESUMES_MAX if safety else 0)
    violations = [*checker.violations, *_fold_differences(log)]
    status = log.state.status
    if status not in {"completed", "error", "paused"}:
        violations.append(f"the session did not end: {status}")
    if not safety and _must_complete(plan, manners) and status != "completed":
        violations.append(f"not completed without any obstacle: {status}, {log.state.reason}")
    digest = hashlib.sha256(msgspec.json.encode(log.records)).hexdigest()[:16]
    mode = "safety" if safety else "liveness"
    return SimulationResult(seed, mode, status, len(log.records), deaths, tuple(violations), digest)


def _run_to_end(
    plan: Plan,
    log: _MemoryEventLog,
    environment: SimulatedEnvironment,
    chance: random.Random,
    *,
    resumes: int,
) -> int:
    """Run a session with new runners until it ends; return how often a runner was killed."""
    deaths = steps = 0
    name, count, limits = "session-001", len(plan.tasks), (plan.config, plan.budgets)
    start = events.LoopStarted(name, "made up", plan.plan, "", count, *limits, is_autonomous=True)
    while True:
        try:
            if not log.records:
                log.append(start)
            log.append(
                events.RunnerAcquired("made up", log.state.epoch + 1, is_resumed=bool(steps))
            )
            driver = LoopDriver(plan, log, environment)
            while steps < STEPS_MAX and driver.step():
                steps += 1
            if not resumes or log.state.status == "completed" or steps >= STEPS_MAX:
                return deaths
            resumes -= 1
            environment.pass_time(chance.choice((1.0, 4000.0)))
            ended = [name for name, task in log.state.tasks.items() if task.ended_at is not None]
            if ended and chance.random() < 0.3 and (again := chance.choice(ended)):
                log.append(events.TaskReopened(again, "a person wants it"))
            log.append(events.LoopResumed("go on"))
        except RunnerKilled:
            deaths += 1
            steps += 1
            environment.pass_time(chance.choice((0.1, 100.0)))
            log.reload()


def _fold_differences(log: _MemoryEventLog) -> list[str]:
    live = msgspec.json.encode(log.state)
    log.reload()
    same = msgspec.json.encode(log.state) == live
    return [] if same else ["the state differs after all events are folded again"]


def _must_complete(plan: Plan, manners: dict[str, TaskBehavior]) -> bool:
    """Return whether nothing in the plan or its tasks can prevent completion."""
    calm = not any(task.fails or task.idle or task.verify_fails for task in manners.values())
    free = plan.config.max_iterations >= 300 and plan.config.human_intervention == "never"
    plain = not any(task.run.repeat or task.needs for task in plan.tasks)
    return calm and free and plain and not (plan.quality_gates or plan.circuit_breaker.conditions)
