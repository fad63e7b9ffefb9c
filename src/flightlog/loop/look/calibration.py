"""Whether we were as sure as we should have been: of all decisions with 0.85, 85 % should be right.

Pairs of confidence and outcome, a reliability curve, the Brier score; and the table with which
the next session reads its confidence.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from flightlog.loop import events as e
from flightlog.loop.look.session import LoopEvent, iter_events
from flightlog.loop.run.where import JOURNAL

BINS = 10
_PRIOR = 5.0
_PAIRS_MIN = 10


class ConfidenceOutcome(Struct, frozen=True):
    """How sure we were, and whether it was right."""

    raw: float
    confidence: float
    right: bool
    event: int


class CalibrationBin(Struct, frozen=True):
    """A stretch of the reliability curve."""

    low: float
    high: float
    count: int
    confidence: float
    right: float


class Calibration(Struct, frozen=True):
    """How well confidence and outcome went together; nothing is said of no decisions."""

    decisions: int
    brier: float | None
    gap: float | None
    curve: tuple[CalibrationBin, ...]


def pair_outcomes(told: Iterable[LoopEvent]) -> list[ConfidenceOutcome]:
    """Each decision to do something, with how the attempt that followed came out."""
    waiting: dict[str, tuple[int, e.DecisionMade]] = {}
    found: list[ConfidenceOutcome] = []

    def settle(task: str, *, right: bool) -> None:
        if task in waiting:
            seq, made = waiting.pop(task)
            found.append(ConfidenceOutcome(made.raw, made.confidence, right, seq))

    for each in told:
        match each.event:
            case e.DecisionMade() as made if made.action in {"execute", "retry", "delegate"}:
                waiting[made.task] = (each.seq, made)
            case e.TaskStarted(mode="diagnose") as begun:
                waiting.pop(begun.task, None)
            case e.AttemptEnded() as ended if ended.result in {"failure", "timeout"}:
                settle(ended.task, right=False)
            case e.TaskVerified() as checked:
                settle(checked.task, right=checked.passed)
            case _:
                pass
    return found


def measure_calibration(found: Sequence[ConfidenceOutcome]) -> Calibration:
    """Hold confidence against outcome."""
    if not found:
        return Calibration(0, None, None, ())
    brier = sum((pair.confidence - pair.right) ** 2 for pair in found) / len(found)
    curve = []
    for number in range(BINS):
        low, high = number / BINS, (number + 1) / BINS
        inside = [
            pair for pair in found if low <= pair.confidence < high or (number == BINS - 1 and pair.confidence == 1)
        ]
        if inside:
            mean = sum(pair.confidence for pair in inside) / len(inside)
            right = sum(pair.right for pair in inside) / len(inside)
            curve.append(CalibrationBin(low, high, len(inside), round(mean, 4), round(right, 4)))
    gap = sum(each.count * abs(each.confidence - each.right) for each in curve) / len(found)
    return Calibration(len(found), round(brier, 4), round(gap, 4), tuple(curve))


def calibration_table(directories: Iterable[Path]) -> tuple[tuple[float, float], ...]:
    """What raw confidence was worth in these sessions, drawn towards itself where there is little evidence."""
    found = [pair for path in directories if (path / JOURNAL).is_file() for pair in pair_outcomes(iter_events(path))]
    if len(found) < _PAIRS_MIN:
        return ()
    points = []
    for number in range(BINS):
        low, high = number / BINS, (number + 1) / BINS
        inside = [pair for pair in found if low <= pair.raw < high or (number == BINS - 1 and pair.raw == 1)]
        if inside:
            middle = sum(pair.raw for pair in inside) / len(inside)
            worth = (sum(pair.right for pair in inside) + _PRIOR * middle) / (len(inside) + _PRIOR)
            points.append((round(middle, 4), round(worth, 4)))
    return tuple(points)
