"""One simulated session from its beginning to its end, deaths and resumptions included."""

import hashlib
import random

import msgspec
from msgspec import Struct

from flightlog.loop import events as e
from flightlog.loop.core.fold import apply
from flightlog.loop.core.state import State
from flightlog.loop.plan.schema import Plan
from flightlog.loop.run.driver import Loop
from flightlog.loop.simulate.plans import Manner, draw
from flightlog.loop.simulate.referee import Referee
from flightlog.loop.simulate.world import Killed, MadeUp

STEPS_MAX = 20_000
RESUMES_MAX = 4


class Game(Struct, frozen=True):
    """How a simulated session went; `digest` is the same for the same seed."""

    seed: int
    mode: str
    status: str
    events: int
    deaths: int
    violations: tuple[str, ...]
    digest: str


class _Book:
    """A journal in memory; the runner may die just before or just after a line is written."""

    def __init__(self, world: MadeUp, referee: Referee) -> None:
        self.state = State()
        self.written: list[tuple[float, e.Event]] = []
        self._world = world
        self._referee = referee

    def append(self, event: e.Event) -> None:
        self._world.maybe_die()
        at = self._world.now()
        self.written.append((at, event))
        self._referee.see(at, event)
        apply(self.state, at, event)
        self._world.maybe_die()

    def show(self) -> None:
        """Nobody looks."""

    def reopen(self) -> None:
        """What a new runner reads."""
        self.state = State()
        for at, event in self.written:
            apply(self.state, at, event)


def play(seed: int, *, safety: bool = True) -> Game:
    """Play one session: with deaths and people (safety), or without, when it must come to its end (liveness)."""
    chance = random.Random(seed)  # noqa: S311 - a game, not a key
    plan, manners = draw(chance)
    deadly = chance.choice((0.0, 0.01, 0.05)) if safety else 0.0
    world = MadeUp(chance, manners, deadly=deadly, people=0.1 if safety else 0.0)
    referee = Referee(plan)
    book = _Book(world, referee)
    deaths = _played(plan, book, world, chance, resumes=RESUMES_MAX if safety else 0)
    faults = list(referee.violations)
    faults += _unlike(book)
    if book.state.status not in {"completed", "error", "paused"}:
        faults.append(f"it never came to an end: {book.state.status}")
    if not safety and _gentle(plan, manners) and book.state.status != "completed":
        faults.append(f"nothing stood in its way, and yet: {book.state.status}, {book.state.why}")
    digest = hashlib.sha256(msgspec.json.encode(book.written)).hexdigest()[:16]
    mode = "safety" if safety else "liveness"
    return Game(seed, mode, book.state.status, len(book.written), deaths, tuple(faults), digest)


def _played(plan: Plan, book: _Book, world: MadeUp, chance: random.Random, *, resumes: int) -> int:
    deaths = steps = 0
    start = e.SessionStarted(
        "session-001", "made up", plan.plan, "", len(plan.tasks), plan.config, plan.budgets, autonomous=True
    )
    while True:
        try:
            if not book.written:
                book.append(start)
            book.append(e.RunnerTook("made up", book.state.epoch + 1, resumed=bool(steps)))
            loop = Loop(plan, book, world)
            while steps < STEPS_MAX and loop.step():
                steps += 1
            if not resumes or book.state.status == "completed" or steps >= STEPS_MAX:
                return deaths
            resumes -= 1
            world.pass_time(chance.choice((1.0, 4000.0)))
            book.append(e.Resumed("go on"))
        except Killed:
            deaths += 1
            steps += 1
            world.pass_time(chance.choice((0.1, 100.0)))
            book.reopen()


def _unlike(book: _Book) -> list[str]:
    """Folding live and folding at the end must give the same."""
    live = msgspec.json.encode(book.state)
    book.reopen()
    return [] if msgspec.json.encode(book.state) == live else ["the fold differs between live and afterwards"]


def _gentle(plan: Plan, manners: dict[str, Manner]) -> bool:
    """Whether nothing in the plan or its tasks can keep it from being completed."""
    calm = all(not (each.fails or each.idle or each.verify_fails) for each in manners.values())
    free = not plan.quality_gates and plan.config.max_iterations >= 300 and not plan.circuit_breaker.conditions
    plain = not any(task.run.repeat or task.needs for task in plan.tasks)
    return calm and free and plain and plan.config.human_intervention == "never"
