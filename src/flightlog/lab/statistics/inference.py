"""Wilson, bootstrap-t, Fisher, permutation, Holm, confidence sequence.

Looking after each sample and stopping when it looks good spoils an ordinary interval. The interval
here is a confidence sequence: it holds at *every* number of samples at once, so it holds at the one
where somebody stops, whatever made them stop. For a true share p, after n samples with s hits,

    M(p) = B(s + 1/2, n - s + 1/2) / B(1/2, 1/2)  /  p^s (1 - p)^(n - s)

is a non-negative martingale that begins at 1 (the likelihood of the samples under a mixture of
shares over that under p); by Ville's inequality it ever reaches 1/a with a chance of at most a. The
interval is every p for which it did not. Its price: about three times the samples a count fixed
beforehand would take to the same width. Pure functions of counts, without numpy.

The interval is Wilson's with a continuity correction. Without the correction it holds its promise on
average only: for rare actions and few samples the plain one covers in as few as 83 of 100
experiments; corrected it stays at its level or above for every share and every number of samples
(`tests/lab/statistics/test_shares.py` works this out exactly). Where a stopping rule decided how many
samples there are, the interval is that of `stopping`. Pure; numbers in, numbers out.

The interval is the studentised bootstrap (bootstrap-t): each draw is measured in its own standard
errors, which keeps the promise also for few and lopsided samples, where plain percentiles are too
narrow. Where so many values are equal that draws have no spread there is no honest interval, and none
is given. Pure given a seed; numpy is imported when it is needed.

Fisher's test is worked out in whole numbers. A permutation test deals the pooled values out again
in every way there is, or, where those are too many, in `DRAWS` ways drawn with a seed and counting
the one that was seen, which keeps its level exactly. Pure; numpy is imported when it is needed.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from math import comb, exp, hypot, inf, lgamma, log, sqrt
from statistics import NormalDist, fmean
from typing import Any

from msgspec import Struct

_PRIOR = 0.5
_HALVINGS = 60
STOPPING_SAMPLES_MIN = 5
CONFIDENCE = 0.95
WILSON = "Wilson, continuity-corrected"
ALWAYS = "confidence sequence, valid under the stopping rule"
NEWCOMBE = "Newcombe, from Wilson limits"
BOTH = "from two confidence sequences"
BOOTSTRAP = "bootstrap-t, 1,999 draws"
BOOTSTRAP_DRAWS = 1_999
SAMPLES_MIN = 5
WAYS_MAX = 13_000
PERMUTATION_DRAWS = 9_999
FISHER = "Fisher's exact test"
PERMUTED = "permutation test"
EVERY = "exact permutation test"
HOLM = "Holm"
_TIE = 1e-9


def has_enough_samples(counts: Iterable[int], width: float, confidence: float = 0.95) -> bool:
    """Whether each share of `counts` (how often each action was seen) is known to `width`, with five at least."""
    seen = list(counts)
    n = sum(seen)
    if n < STOPPING_SAMPLES_MIN:
        return False
    # The share nearest to one half is the widest; nothing else needs to be looked at.
    low, high = sequential_interval(min(seen, key=lambda count: abs(2 * count - n)), n, confidence)
    return high - low <= width


def sequential_interval(hits: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Say where the true share lies, however it was decided to stop at `n`."""
    assert 0 <= hits <= n, "a part is at most the whole"
    if n == 0:
        return 0.0, 1.0
    bound = -log(1 - confidence)
    share = hits / n
    low = 0.0 if hits == 0 else _find_bound(hits, n, bound, (0.0, share))
    high = 1.0 if hits == n else _find_bound(hits, n, bound, (1.0, share))
    return low, high


def sequential_p_value(one: tuple[int, int], other: tuple[int, int]) -> float:
    """How well two groups `(hits, n)` agree with one share: a p-value that holds wherever either was stopped.

    The product of two such martingales is one, for each common share; the smallest over all shares is
    at the share of both together.
    """
    hits, n = one[0] + other[0], one[1] + other[1]
    if n == 0:
        return 1.0
    evidence = _log_mixture(*one) + _log_mixture(*other) - _log_likelihood(hits, n, hits / n)
    return min(1.0, exp(-evidence)) if evidence > 0 else 1.0


def _find_bound(hits: int, n: int, bound: float, between: tuple[float, float]) -> float:
    """The share between one outside and one inside the interval where the martingale meets its bound."""
    mixture = _log_mixture(hits, n)
    outside, inside = between
    for _ in range(_HALVINGS):
        middle = (outside + inside) / 2
        if mixture - _log_likelihood(hits, n, middle) >= bound:
            outside = middle
        else:
            inside = middle
    return outside


def _log_mixture(hits: int, n: int) -> float:
    def beta(a: float, b: float) -> float:
        return lgamma(a) + lgamma(b) - lgamma(a + b)

    return beta(hits + _PRIOR, n - hits + _PRIOR) - beta(_PRIOR, _PRIOR)


def _log_likelihood(hits: int, n: int, share: float) -> float:
    def part(count: int, chance: float) -> float:
        return 0.0 if count == 0 else -inf if chance <= 0 else count * log(chance)

    return part(hits, share) + part(n - hits, 1 - share)


class ConfidenceInterval(Struct, frozen=True):
    """Where a number lies; `method` names the interval."""

    low: float
    high: float
    method: str
    confidence: float = CONFIDENCE


class HitCount(Struct, frozen=True):
    """So many `hits` of `n`; `stopped` says that a stopping rule decided on `n`."""

    hits: int
    n: int
    stopped: bool = False

    @property
    def share(self) -> float:
        """The share seen."""
        return self.hits / self.n


def share_interval(count: HitCount, confidence: float = CONFIDENCE) -> ConfidenceInterval:
    """Say where the true share lies."""
    if count.stopped:
        return ConfidenceInterval(*sequential_interval(count.hits, count.n, confidence), ALWAYS, confidence)
    return ConfidenceInterval(*_wilson_bounds(count.hits, count.n, confidence), WILSON, confidence)


def difference_interval(one: HitCount, other: HitCount, confidence: float = CONFIDENCE) -> ConfidenceInterval:
    """Say where the difference of two shares lies, the second less the first."""
    if one.stopped or other.stopped:
        half = (1 + confidence) / 2  # Each errs half as often, so that both together hold what is promised.
        a, b = (
            sequential_interval(one.hits, one.n, half),
            sequential_interval(other.hits, other.n, half),
        )
        return ConfidenceInterval(max(b[0] - a[1], -1.0), min(b[1] - a[0], 1.0), BOTH, confidence)
    (low_one, high_one), (low_other, high_other) = (
        _wilson_bounds(each.hits, each.n, confidence) for each in (one, other)
    )
    difference = other.share - one.share
    below = hypot(other.share - low_other, high_one - one.share)
    above = hypot(high_other - other.share, one.share - low_one)
    return ConfidenceInterval(max(difference - below, -1.0), min(difference + above, 1.0), NEWCOMBE, confidence)


def _wilson_bounds(hits: int, n: int, confidence: float) -> tuple[float, float]:
    assert 0 <= hits <= n, "a part is at most the whole"
    assert n > 0, "nothing can be said of no samples"
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share, square = hits / n, z * z
    middle, scale = 2 * hits + square, 2 * (n + square)
    low = middle - 1 - z * sqrt(square - 2 - 1 / n + 4 * share * (n * (1 - share) + 1))
    high = middle + 1 + z * sqrt(square + 2 - 1 / n + 4 * share * (n * (1 - share) - 1))
    return (0.0 if hits == 0 else max(low / scale, 0.0), 1.0 if hits == n else min(high / scale, 1.0))


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
    if any(len(group) < SAMPLES_MIN for group in groups):
        return None
    import numpy as np  # noqa: PLC0415 - a tenth of a second, and not every command counts

    seen = [np.asarray(group, dtype=float) for group in groups]
    mean, error = _mean_and_error([each[None, :] for each in seen])
    rng = np.random.default_rng(seed)
    drawn = [each[rng.integers(0, len(each), (BOOTSTRAP_DRAWS, len(each)))] for each in seen]
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
    means = [group.mean(axis=1) for group in groups]
    spread = sum(group.var(axis=1, ddof=1) / group.shape[1] for group in groups)
    return (means[0] if len(groups) == 1 else means[1] - means[0]), spread**0.5


def fisher_p_value(one: tuple[int, int], other: tuple[int, int]) -> float:
    """Two-sided p-value for the same share in two groups `(hits, n)`."""
    hits, n = one[0] + other[0], one[1] + other[1]
    ways = {
        k: comb(one[1], k) * comb(other[1], hits - k) for k in range(max(0, hits - other[1]), min(hits, one[1]) + 1)
    }
    return sum(way for way in ways.values() if way <= ways[one[0]]) / comb(n, hits)


def compare_means(one: Sequence[float], other: Sequence[float], seed: int) -> tuple[float, str]:
    """P-value for the same mean, and which test it is."""
    return _permutation_test([[each] for each in (*one, *other)], len(one), _mean_distance, seed)


def compare_kinds(one: Sequence[str], other: Sequence[str], seed: int) -> tuple[float, str]:
    """P-value for the same distribution over kinds, and which test it is; far is how far shares are apart in all."""
    kinds = sorted({*one, *other})
    rows = [[float(each == kind) for kind in kinds] for each in (*one, *other)]
    return _permutation_test(rows, len(one), _mean_distance, seed)


def adjust_p_values(values: Sequence[float]) -> list[float]:
    """Adjust p-values for their number: what stays below a level is found with that chance of *any* false finding."""
    adjusted = [1.0] * len(values)
    least = 0.0
    for rank, place in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        least = max(least, min(1.0, (len(values) - rank) * values[place]))
        adjusted[place] = least
    return adjusted


def _permutation_test(
    rows: Sequence[Sequence[float]], first: int, far: Callable[..., Any], seed: int
) -> tuple[float, str]:
    import numpy as np  # noqa: PLC0415 - a tenth of a second, and not every command tests

    pooled = np.asarray(rows)
    every = comb(len(rows), first) <= WAYS_MAX
    chosen = _all_splits(len(rows), first) if every else _draw_splits(len(rows), first, seed)
    seen = np.zeros(len(rows))
    seen[:first] = 1
    distances = far(chosen, pooled, first)
    as_far = distances >= far(seen[None, :], pooled, first)[0] - _TIE * (1 + np.abs(pooled).max(initial=0))
    if every:
        return float(as_far.mean()), EVERY
    return float((1 + as_far.sum()) / (1 + len(chosen))), PERMUTED


def _mean_distance(chosen: Any, pooled: Any, first: int) -> Any:
    """How far apart the means of the two groups are, added up over the columns, for each way to choose the first."""
    sums = chosen @ pooled
    others = pooled.sum(axis=0) - sums
    return abs(sums / first - others / (len(pooled) - first)).sum(axis=1)


@functools.lru_cache(maxsize=32)
def _all_splits(total: int, first: int) -> Any:
    import numpy as np  # noqa: PLC0415 - as above

    ways = np.zeros((comb(total, first), total))
    for row, places in enumerate(combinations(range(total), first)):
        ways[row, list(places)] = 1
    return ways


def _draw_splits(total: int, first: int, seed: int) -> Any:
    import numpy as np  # noqa: PLC0415 - as above

    ways = np.zeros((PERMUTATION_DRAWS, total))
    ways[:, :first] = 1
    return np.random.default_rng(seed).permuted(ways, axis=1)
