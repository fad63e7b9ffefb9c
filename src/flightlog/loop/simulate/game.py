"""One simulated session from its beginning to its end, deaths and resumptions included."""

import hashlib
import random

import msgspec
from msgspec import Struct

from flightlog.loop import events as e
from flightlog.loop.core.fold import apply_event
from flightlog.loop.core.state import LoopState
from flightlog.loop.plan.schema import Plan
from flightlog.loop.run.driver import LoopDriver
from flightlog.loop.simulate.plans import TaskBehavior, draw_plan
from flightlog.loop.simulate.referee import InvariantChecker
from flightlog.loop.simulate.world import RunnerKilled, SimulatedEnvironment

STEPS_MAX = 20_000
RESUMES_MAX = 4


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
        self.written: list[tuple[float, e.Event]] = []
        self._world = world
        self._referee = referee

    def append(self, event: e.Event) -> None:
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
    start = e.LoopStarted(
        "session-001", "made up", plan.plan, "", len(plan.tasks), plan.config, plan.budgets, autonomous=True
    )
    while True:
        try:
            if not book.written:
                book.append(start)
            book.append(e.RunnerAcquired("made up", book.state.epoch + 1, resumed=bool(steps)))
            loop = LoopDriver(plan, book, world)
            while steps < STEPS_MAX and loop.step():
                steps += 1
            if not resumes or book.state.status == "completed" or steps >= STEPS_MAX:
                return deaths
            resumes -= 1
            world.pass_time(chance.choice((1.0, 4000.0)))
            book.append(e.LoopResumed("go on"))
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
