"""What an analysis says: values only, as they go over the wire."""

from typing import Any

import msgspec
from msgspec import Struct

from flightlog.lab.statistics.amounts import MeanEstimate
from flightlog.lab.statistics.exact import HOLM
from flightlog.lab.statistics.shares import CONFIDENCE, ConfidenceInterval

SAMPLES_MIN = 5
FINDING = 0.05
DIFFERS, NONE, FEW = "differs", "no difference found", "too few samples"


class ShareEstimate(Struct, frozen=True):
    """How often one thing was seen in a group, and in which trials."""

    name: str
    hits: int
    n: int
    share: float
    interval: ConfidenceInterval
    places: tuple[str, ...]
    label: str = ""


class GroupSummary(Struct, frozen=True):
    """One group: what was done, how it ended, what it took.

    `agreement` is the chance that two of its trials do the same; `as_recorded` the share that did what
    was done then. `failed` are trials that gave no answer: they count nowhere.
    """

    name: str
    label: str
    model: str
    n: int
    stopped: bool
    actions: tuple[ShareEstimate, ...]
    agreement: float | None
    as_recorded: ShareEstimate | None
    outcomes: tuple[ShareEstimate, ...]
    amounts: dict[str, MeanEstimate | None]
    places: tuple[str, ...]
    failed: tuple[str, ...]


class Comparison(Struct, frozen=True):
    """One comparison of a group with the first. `effect` is a difference of shares or of means."""

    group: str
    what: str
    of: str
    effect: float
    interval: ConfidenceInterval | None
    test: str
    p: float
    p_adjusted: float = 1.0
    places: tuple[str, ...] = ()

    @property
    def is_finding(self) -> bool:
        """Whether it stands after Holm's rule."""
        return self.p_adjusted <= FINDING


class GroupComparison(Struct, frozen=True):
    """One group against the first: the tests that were made, and what they amount to."""

    group: str
    base: str
    verdict: str
    tests: tuple[Comparison, ...]


class QuestionResult(Struct, frozen=True):
    """One question, answered as far as it can be."""

    name: str
    groups: tuple[GroupSummary, ...]
    against: tuple[GroupComparison, ...]
    recorded: str = ""


class ExperimentAnalysis(Struct, frozen=True):
    """Every question of an experiment, and the rules they were answered by."""

    answers: tuple[QuestionResult, ...]
    tests: int
    rule: str = HOLM
    level: float = FINDING
    confidence: float = CONFIDENCE
    samples_min: int = SAMPLES_MIN
    seed: int = 0


def as_wire(analysis: ExperimentAnalysis) -> Any:
    """The analysis as JSON shows it."""
    return msgspec.to_builtins(analysis)
