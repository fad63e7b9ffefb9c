"""Intervals and tests for shares and means, and Holm's rule.

Shares: Wilson's interval with a continuity correction. Without the correction it holds its level on
average only: for rare actions and few samples the plain interval covers in as few as 83 of 100
experiments; corrected it stays at its level or above for every share and every number of samples
(`tests/lab/statistics/test_shares.py` computes this exactly).

Shares under a stopping rule: looking after each sample and stopping when the result looks good
invalidates an ordinary interval. The confidence sequence holds at *every* number of samples at
once, so it holds wherever sampling stops. For a true share p, after n samples with s hits,

    M(p) = B(s + 1/2, n - s + 1/2) / B(1/2, 1/2)  /  p^s (1 - p)^(n - s)

is a non-negative martingale that starts at 1 (the likelihood of the samples under a mixture of
shares over that under p). By Ville's inequality it reaches 1/a with a probability of at most a. The
interval is every p for which it did not. It needs about three times the samples of a fixed number.

Means: the studentized bootstrap (bootstrap-t), which keeps the level also for few and skewed samples.
If so many values are equal that draws have no spread, no interval is given. A permutation test uses
every split of the pooled values, or, if those are too many, splits drawn with a seed plus the
observed one. Pure for a given seed; numpy is imported only when needed, as it takes 0.1 s.
"""

import functools
from collections.abc import Iterable, Sequence
from itertools import combinations
from math import comb, exp, hypot, inf, isfinite, lgamma, log
from statistics import fmean
from typing import Any

from msgspec import Struct

from flightlog.model.shares import wilson_bounds

_PRIOR = 0.5  # Jeffreys' prior, the 1/2 in the formula above
_HALVINGS = 60  # more than the 52 bits of a float's fraction
STOPPING_SAMPLES_MIN = 5
CONFIDENCE = 0.95
WILSON = "Wilson, continuity-corrected"
ALWAYS = "confidence sequence, valid under the stopping rule"
NEWCOMBE = "Newcombe, from Wilson limits"
BOTH = "from two confidence sequences"
BOOTSTRAP = "bootstrap-t, 1,999 draws"
BOOTSTRAP_DRAWS = 1_999
SAMPLES_MIN = 5  # below that, draws repeat so often that the interval means nothing
WAYS_MAX = 13_000  # every split of 8 and 8 (12,870) is still enumerated
PERMUTATION_DRAWS = 9_999
FISHER = "Fisher's exact test"
PERMUTED = "permutation test"
EVERY = "exact permutation test"
HOLM = "Holm"
_TIE = 1e-9  # relative: equal distances may differ by rounding
_SPREAD_MIN = 0.01  # of the observed error; a draw with less has as good as equal values


def has_enough_samples(counts: Iterable[int], width: float) -> bool:
    """Return whether each share in `counts` is known to `width`, with at least five samples."""
    hits = list(counts)
    n = sum(hits)
    if n < STOPPING_SAMPLES_MIN:
        return False
    # The share nearest to one half has the widest interval, so it alone decides.
    low, high = sequential_interval(min(hits, key=lambda count: abs(2 * count - n)), n)
    return high - low <= width


def sequential_interval(hits: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the interval of a share that holds under any stopping rule."""
    assert 0 <= hits <= n, "a part is at most the whole"
    if n == 0:
        return 0.0, 1.0
    bound = -log(1 - confidence)
    share = hits / n
    low = 0.0 if hits == 0 else _find_bound(hits, n, bound, (0.0, share))
    high = 1.0 if hits == n else _find_bound(hits, n, bound, (1.0, share))
    return low, high


def sequential_p_value(one: tuple[int, int], other: tuple[int, int]) -> float:
    """Return a p-value for equal shares of two groups `(hits, n)`, valid under any stopping rule.

    The product of two such martingales is one, for each common share; its smallest value over all
    shares is at the pooled share.
    """
    hits, n = one[0] + other[0], one[1] + other[1]
    if n == 0:
        return 1.0
    evidence = _log_mixture(*one) + _log_mixture(*other) - _log_likelihood(hits, n, hits / n)
    return min(1.0, exp(-evidence)) if evidence > 0 else 1.0


def _find_bound(hits: int, n: int, bound: float, between: tuple[float, float]) -> float:
    """Return where the martingale crosses `bound`, by bisection between outside and inside."""
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
    """Limits of an estimate; `method` names the interval."""

    low: float
    high: float
    method: str
    confidence: float = CONFIDENCE


class HitCount(Struct, frozen=True):
    """`hits` of `n`; `stopped` means that a stopping rule decided `n`."""

    count: int
    n: int
    is_stopped_early: bool = False

    @property
    def share(self) -> float:
        return self.count / self.n


def share_interval(count: HitCount) -> ConfidenceInterval:
    if count.is_stopped_early:
        return ConfidenceInterval(*sequential_interval(count.count, count.n), ALWAYS)
    return ConfidenceInterval(*wilson_bounds(count.count, count.n), WILSON)


def difference_interval(one: HitCount, other: HitCount) -> ConfidenceInterval:
    """Return the interval of the difference of two shares, the second minus the first."""
    if one.is_stopped_early or other.is_stopped_early:
        half = (1 + CONFIDENCE) / 2  # Bonferroni: each may fail half as often.
        a, b = (sequential_interval(count.count, count.n, half) for count in (one, other))
        return ConfidenceInterval(max(b[0] - a[1], -1.0), min(b[1] - a[0], 1.0), BOTH)
    (low_one, high_one), (low_other, high_other) = (
        wilson_bounds(count.count, count.n) for count in (one, other)
    )
    difference = other.share - one.share
    below = hypot(other.share - low_other, high_one - one.share)
    above = hypot(high_other - other.share, one.share - low_one)
    low = max(difference - below, -1.0)
    return ConfidenceInterval(low, min(difference + above, 1.0), NEWCOMBE)


class MeanEstimate(Struct, frozen=True):
    """A mean of `n` values; without an interval where none is valid."""

    mean: float
    n: int
    interval: ConfidenceInterval | None


def estimate_mean(values: Sequence[float], seed: int) -> MeanEstimate | None:
    if not values:
        return None
    has_enough = len(values) >= SAMPLES_MIN
    interval = weighted_interval([values], (1.0,), seed) if has_enough else None
    return MeanEstimate(fmean(values), len(values), interval)


def estimate_difference(one: Sequence[float], other: Sequence[float], seed: int) -> MeanEstimate:
    """Return the second mean minus the first, and its interval."""
    has_enough = min(len(one), len(other)) >= SAMPLES_MIN
    interval = weighted_interval([one, other], (-1.0, 1.0), seed) if has_enough else None
    return MeanEstimate(fmean(other) - fmean(one), len(one) + len(other), interval)


def weighted_interval(
    groups: Sequence[Sequence[float]], weights: Sequence[float], seed: int
) -> ConfidenceInterval | None:
    """Return the interval of the weighted sum of the groups' means, if one is valid."""
    if any(len(group) < 2 for group in groups):  # one value has no spread
        return None
    import numpy as np  # noqa: PLC0415 - 0.1 s to import, and few commands need it

    samples = [np.asarray(group, dtype=float) for group in groups]
    rng = np.random.default_rng(seed)
    drawn = [
        sample[rng.integers(0, len(sample), (BOOTSTRAP_DRAWS, len(sample)))] for sample in samples
    ]
    observed = [sample[None, :] for sample in samples]
    # Few values have less spread than those that they stand for; simulated for lopsided costs.
    return studentized_interval(observed, drawn, weights, 1 + 1 / sum(map(len, samples)))


def studentized_interval(
    observed: Sequence[Any], drawn: Sequence[Any], weights: Sequence[float], wider: float
) -> ConfidenceInterval | None:
    """Return the interval of a weighted sum of means; `drawn` has a row for each draw of a group.

    None if none is valid. The distances to the mean are multiplied by `wider`.
    """
    import numpy as np  # noqa: PLC0415 - as above

    middle, error = (float(value[0]) for value in _mean_and_error(observed, weights))
    means, errors = _mean_and_error(drawn, weights)
    if error <= _TIE * (1 + abs(middle)):  # equal values, up to rounding
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        studentized = np.where(
            errors > _SPREAD_MIN * error,
            (means - middle) / errors,
            np.where(means == middle, 0.0, np.inf * (means - middle)),
        )
    tails = [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]
    low, high = map(float, np.quantile(studentized, tails, method="inverted_cdf"))
    if not (isfinite(low) and isfinite(high)):
        return None
    low, high = middle - high * error * wider, middle - low * error * wider
    return ConfidenceInterval(low, high, BOOTSTRAP)


def _mean_and_error(groups: Sequence[Any], weights: Sequence[float]) -> tuple[Any, Any]:
    """Return the weighted sum of the groups' means and its standard error, row by row."""
    pairs = list(zip(groups, weights, strict=True))
    spread = sum(weight**2 * group.var(axis=1, ddof=1) / group.shape[1] for group, weight in pairs)
    return sum(weight * group.mean(axis=1) for group, weight in pairs), spread**0.5


def fisher_p_value(one: tuple[int, int], other: tuple[int, int]) -> float:
    """Return the two-sided p-value for equal shares of two groups `(hits, n)`."""
    hits, n = one[0] + other[0], one[1] + other[1]
    tables = {
        k: comb(one[1], k) * comb(other[1], hits - k)
        for k in range(max(0, hits - other[1]), min(hits, one[1]) + 1)
    }
    return sum(count for count in tables.values() if count <= tables[one[0]]) / comb(n, hits)


def compare_means(one: Sequence[float], other: Sequence[float], seed: int) -> tuple[float, str]:
    """Return the p-value for equal means, and the name of the test."""
    return _permutation_test([[value] for value in (*one, *other)], len(one), seed)


def compare_kinds(one: Sequence[str], other: Sequence[str], seed: int) -> tuple[float, str]:
    """Return the p-value for equal distributions over kinds, and the name of the test."""
    kinds = sorted({*one, *other})
    rows = [[float(value == kind) for kind in kinds] for value in (*one, *other)]
    return _permutation_test(rows, len(one), seed)


def adjust_p_values(values: Sequence[float]) -> list[float]:
    """Return p-values adjusted by Holm's rule for the chance of any false finding."""
    adjusted = [1.0] * len(values)
    adjusted_min = 0.0
    for rank, index in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        adjusted_min = max(adjusted_min, min(1.0, (len(values) - rank) * values[index]))
        adjusted[index] = adjusted_min
    return adjusted


def _permutation_test(rows: Sequence[Sequence[float]], first: int, seed: int) -> tuple[float, str]:
    import numpy as np  # noqa: PLC0415 - 0.1 s to import, and few commands need it

    pooled = np.asarray(rows)
    is_exact = comb(len(rows), first) <= WAYS_MAX
    observed = np.zeros((1, len(rows)))
    observed[:, :first] = 1
    if is_exact:
        splits = _all_splits(len(rows), first)
    else:
        drawn = np.repeat(observed, PERMUTATION_DRAWS, axis=0)
        splits = np.random.default_rng(seed).permuted(drawn, axis=1)
    tolerance = _TIE * (1 + np.abs(pooled).max(initial=0))
    observed_distance = _mean_distance(observed, pooled, first)[0]
    at_least_as_far = _mean_distance(splits, pooled, first) >= observed_distance - tolerance
    if is_exact:
        return float(at_least_as_far.mean()), EVERY
    return float((1 + at_least_as_far.sum()) / (1 + len(splits))), PERMUTED


def _mean_distance(splits: Any, pooled: Any, first: int) -> Any:
    """Return the distance of the group means, summed over columns, for each split."""
    sums = splits @ pooled
    others = pooled.sum(axis=0) - sums
    return abs(sums / first - others / (len(pooled) - first)).sum(axis=1)


@functools.lru_cache(maxsize=32)
def _all_splits(total: int, first: int) -> Any:
    import numpy as np  # noqa: PLC0415 - as above

    splits = np.zeros((comb(total, first), total))
    for row, members in enumerate(combinations(range(total), first)):
        splits[row, list(members)] = 1
    return splits
