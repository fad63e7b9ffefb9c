"""What it takes: mean tokens or cost, with a bootstrap interval, and the difference of two means.

The interval is the studentised bootstrap (bootstrap-t): each draw is measured in its own standard
errors, which keeps the promise also for few and lopsided samples, where plain percentiles are too
narrow. Where so many values are equal that draws have no spread there is no honest interval, and none
is given. Pure given a seed; numpy is imported when it is needed.
"""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from msgspec import Struct

from flightlog.lab.statistics.shares import CONFIDENCE, ConfidenceInterval

BOOTSTRAP = "bootstrap-t, 1,999 draws"
DRAWS = 1_999
SAMPLES_MIN = 5


class MeanEstimate(Struct, frozen=True):
    """A mean of `n` values; without an interval where nothing honest can be said."""

    mean: float
    n: int
    interval: ConfidenceInterval | None


def estimate_mean(values: Sequence[float], seed: int, confidence: float = CONFIDENCE) -> MeanEstimate | None:
    """The mean of what was measured, and where the true one lies."""
    return MeanEstimate(fmean(values), len(values), _bootstrap_interval([values], seed, confidence)) if values else None


def estimate_difference(
    one: Sequence[float], other: Sequence[float], seed: int, confidence: float = CONFIDENCE
) -> MeanEstimate:
    """How much more the second takes than the first."""
    interval = _bootstrap_interval([one, other], seed, confidence)
    return MeanEstimate(fmean(other) - fmean(one), len(one) + len(other), interval)


def _bootstrap_interval(groups: Sequence[Sequence[float]], seed: int, confidence: float) -> ConfidenceInterval | None:
    if any(len(each) < SAMPLES_MIN for each in groups):
        return None
    import numpy as np  # noqa: PLC0415 - a tenth of a second, and not every command counts

    seen = [np.asarray(each, dtype=float) for each in groups]
    mean, error = _mean_and_error([each[None, :] for each in seen])
    rng = np.random.default_rng(seed)
    drawn = [each[rng.integers(0, len(each), (DRAWS, len(each)))] for each in seen]
    means, errors = _mean_and_error(drawn)
    if not error[0]:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = np.where(errors > 0, (means - mean) / errors, np.where(means == mean, 0.0, np.inf * (means - mean)))
    low, high = np.quantile(apart, [(1 - confidence) / 2, (1 + confidence) / 2], method="inverted_cdf")
    if not (np.isfinite(low) and np.isfinite(high)):
        return None
    middle, unit = float(mean[0]), float(error[0])
    return ConfidenceInterval(middle - float(high) * unit, middle - float(low) * unit, BOOTSTRAP, confidence)


def _mean_and_error(groups: Sequence[Any]) -> tuple[Any, Any]:
    """The mean of the last group less that of the first one, if there are two, and its standard error, row by row."""
    means = [each.mean(axis=1) for each in groups]
    spread = sum(each.var(axis=1, ddof=1) / each.shape[1] for each in groups)
    return (means[0] if len(groups) == 1 else means[1] - means[0]), spread**0.5
