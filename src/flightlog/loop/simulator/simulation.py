"""Play a seeded session; invariant checker.

It reads the events alone and keeps its own count, apart from the core's state, so that an
error there cannot hide itself here.
"""

import hashlib
import random
from collections import Counter

import msgspec
from msgspec import Struct

from flightlog.loop import events
from flightlog.loop.decide.fold import apply_event
from flightlog.loop.plan.schema import Plan
from flightlog.loop.runner.driver import LoopDriver
from flightlog.loop.simulator.environment import RunnerKilled, SimulatedEnvironment, TaskBehavior, draw_plan
from flightlog.loop.state import LoopState

HOUR_S = 3600.0
_GIVEN_BY_PERSON = 1_000
STEPS_MAX = 20_000
RESUMES_MAX = 4


class InvariantChecker:
    """Keeps count of one session and notes every broken promise."""

    def __init__(self, plan: Plan) -> None:
        """Watch a session of `plan`."""
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

    def check_event(self, at: float, event: events.Event) -> None:
        """Look at one event."""
        if self._over and not isinstance(event, events.RunnerAcquired | events.LoopResumed):
            self._add_violation(f"{event.__struct_config__.tag} after the session was {self._over}")
        match event:
            case (
                events.TaskStarted()
                | events.UsageRecorded()
                | events.AttemptEnded()
                | events.TaskVerified()
                | events.TaskEnded()
                | events.RecoveryStarted()
            ):
                self._check_task_event(at, event)
            case events.GateChecked():
                self._gates[event.name] = bool(event.passed) or event.name in self._accepted
            case events.BreakerChanged():
                self._breaker, self._probes = event.after, 0
            case events.QuestionAsked():
                self._questions[event.question] = event
            case events.QuestionAnswered():
                self._check_answer(event)
            case events.LoopPaused() | events.LoopStopped():
                self._over = "paused"
            case events.LoopResumed():
                self._reset_after_resume()
            case events.LoopEnded():
                self._check_session_end(event)
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
            case _:
                pass

    def _add_violation(self, what: str) -> None:
        self.violations.append(what)

    def _check_start(self, at: float, event: events.TaskStarted) -> None:
        task = self._plan.find_task(event.task)
        self._starts += 1
        if self._status.get(event.task) in {"completed", "skipped", "failed", "deferred"}:
            self._add_violation(f"{event.task} was {self._status[event.task]} and began again")
        if any(self._status.get(name) != "completed" for name in task.dependencies):
            self._add_violation(f"{event.task} began before what it depends on")
        if self._breaker == "open":
            self._add_violation(f"{event.task} began while the breaker was open")
        self._probes += self._breaker == "half_open"
        if self._probes > self._plan.circuit_breaker.half_open_max_calls:
            self._add_violation("more probes than half-open allows")
        if self._starts > self._plan.config.max_iterations:
            self._add_violation("more iterations than allowed")
        if at < self._wait.get(event.task, 0.0) - 0.001:
            self._add_violation(f"{event.task} did not wait before it was tried again")
        if self._keys.setdefault(event.task, event.key) != event.key:
            self._add_violation(f"the key of {event.task} changed")
        gates = [gate for gate in self._plan.quality_gates if gate.phase is not None and gate.phase < task.phase]
        if any(not self._gates.get(gate.name) for gate in gates):
            self._add_violation(f"{event.task} began though a gate was not passed")
        retries = self._plan.config.max_retries if task.max_retries is None else task.max_retries
        more = 1 + (task.delegate is not None) + self._allowed[event.task]  # a delegate may try once more
        if self._failures[event.task] > retries + more and event.mode == "work":
            self._add_violation(f"{event.task} was tried more often than allowed")

    def _check_budgets(self, at: float, event: events.UsageRecorded) -> None:
        limits = self._plan.budgets
        spent = (
            (limits.calls, self._calls), (limits.tokens, self._tokens), (limits.usd, self._usd),
        )  # fmt: skip
        if any(limit is not None and used >= limit for limit, used in spent):
            self._add_violation("a model was called after a budget was used up")
        self._hour = [each for each in self._hour if each > at - HOUR_S]
        if limits.calls_per_hour and len(self._hour) >= limits.calls_per_hour:
            self._add_violation("more calls an hour than allowed")
        self._hour.append(at)
        self._calls += 1
        self._tokens += event.tokens
        self._usd += event.usd or 0.0

    def _record_verification(self, event: events.TaskVerified) -> None:
        if event.passed:
            self._verified.add(event.task)
        else:
            self._verified.discard(event.task)
            self._failures[event.task] += 1

    def _check_task_end(self, event: events.TaskEnded) -> None:
        if event.result == "success" and event.task not in self._verified:
            self._add_violation(f"{event.task} was completed without verification")
        if self._status.get(event.task) == "completed":
            self._add_violation(f"{event.task} ended twice")
        self._status[event.task] = {"success": "completed", "failure": "failed"}.get(event.result, event.result)

    def _check_answer(self, event: events.QuestionAnswered) -> None:
        asked = self._questions[event.question]
        if event.by == "timeout" and event.answer != asked.safe:
            self._add_violation("without an answer something else than the safe choice was taken")
        if event.answer == "retry":
            self._allowed[asked.task] += _GIVEN_BY_PERSON
        if asked.about == "gate" and event.answer == "accept":
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
        whole = all(self._status.get(task.task_id) == "completed" for task in self._plan.tasks)
        passed = all(self._gates.get(gate.name) for gate in self._plan.quality_gates)
        if (event.status == "completed") is not (whole and passed):
            self._add_violation(f"the session says {event.status}: tasks whole {whole}, gates passed {passed}")


class SimulationResult(Struct, frozen=True):
    """How a simulated session went; `digest` is the same for the same seed."""

    seed: int
    mode: str
    status: str
    events: int
    deaths: int
    violations: tuple[str, ...]
    digest: str


class _MemoryEventLog:
    """A journal in memory; the runner may die just before or just after a line is written."""

    def __init__(self, world: SimulatedEnvironment, referee: InvariantChecker) -> None:
        self.state = LoopState()
        self.written: list[tuple[float, events.Event]] = []
        self._world = world
        self._referee = referee

    def append(self, event: events.Event) -> None:
        self._world.maybe_die()
        at = self._world.now()
        self.written.append((at, event))
        self._referee.check_event(at, event)
        apply_event(self.state, at, event)
        self._world.maybe_die()

    def refresh_output(self) -> None:
        """Nobody looks."""

    def reload(self) -> None:
        """What a new runner reads."""
        self.state = LoopState()
        for at, event in self.written:
            apply_event(self.state, at, event)


def run_simulation(seed: int, *, safety: bool = True) -> SimulationResult:
    """Play one session: with deaths and people (safety), or without, when it must come to its end (liveness)."""
    chance = random.Random(seed)  # noqa: S311 - a game, not a key
    plan, manners = draw_plan(chance)
    deadly = chance.choice((0.0, 0.01, 0.05)) if safety else 0.0
    world = SimulatedEnvironment(chance, manners, deadly=deadly, people=0.1 if safety else 0.0)
    referee = InvariantChecker(plan)
    book = _MemoryEventLog(world, referee)
    deaths = _run_to_end(plan, book, world, chance, resumes=RESUMES_MAX if safety else 0)
    faults = list(referee.violations)
    faults += _fold_differences(book)
    if book.state.status not in {"completed", "error", "paused"}:
        faults.append(f"it never came to an end: {book.state.status}")
    if not safety and _must_complete(plan, manners) and book.state.status != "completed":
        faults.append(f"nothing stood in its way, and yet: {book.state.status}, {book.state.why}")
    digest = hashlib.sha256(msgspec.json.encode(book.written)).hexdigest()[:16]
    mode = "safety" if safety else "liveness"
    return SimulationResult(seed, mode, book.state.status, len(book.written), deaths, tuple(faults), digest)


def _run_to_end(
    plan: Plan, book: _MemoryEventLog, world: SimulatedEnvironment, chance: random.Random, *, resumes: int
) -> int:
    deaths = steps = 0
    start = events.LoopStarted(
        "session-001", "made up", plan.plan, "", len(plan.tasks), plan.config, plan.budgets, autonomous=True
    )
    while True:
        try:
            if not book.written:
                book.append(start)
            book.append(events.RunnerAcquired("made up", book.state.epoch + 1, resumed=bool(steps)))
            loop = LoopDriver(plan, book, world)
            while steps < STEPS_MAX and loop.step():
                steps += 1
            if not resumes or book.state.status == "completed" or steps >= STEPS_MAX:
                return deaths
            resumes -= 1
            world.pass_time(chance.choice((1.0, 4000.0)))
            book.append(events.LoopResumed("go on"))
        except RunnerKilled:
            deaths += 1
            steps += 1
            world.pass_time(chance.choice((0.1, 100.0)))
            book.reload()


def _fold_differences(book: _MemoryEventLog) -> list[str]:
    """Folding live and folding at the end must give the same."""
    live = msgspec.json.encode(book.state)
    book.reload()
    return [] if msgspec.json.encode(book.state) == live else ["the fold differs between live and afterwards"]


def _must_complete(plan: Plan, manners: dict[str, TaskBehavior]) -> bool:
    """Whether nothing in the plan or its tasks can keep it from being completed."""
    calm = all(not (each.fails or each.idle or each.verify_fails) for each in manners.values())
    free = not plan.quality_gates and plan.config.max_iterations >= 300 and not plan.circuit_breaker.conditions
    plain = not any(task.run.repeat or task.needs for task in plan.tasks)
    return calm and free and plain and plan.config.human_intervention == "never"
