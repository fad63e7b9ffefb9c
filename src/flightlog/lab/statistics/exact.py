"""Exact tests: how often chance alone makes two groups differ as much as they do; and Holm's rule for many tests.

Fisher's test is worked out in whole numbers. A permutation test deals the pooled values out again
in every way there is, or, where those are too many, in `DRAWS` ways drawn with a seed and counting
the one that was seen, which keeps its level exactly. Pure; numpy is imported when it is needed.
"""

import functools
from collections.abc import Callable, Sequence
from itertools import combinations
from math import comb
from typing import Any

WAYS_MAX = 13_000
DRAWS = 9_999
FISHER = "Fisher's exact test"
PERMUTED = "permutation test"
EVERY = "exact permutation test"
HOLM = "Holm"
_TIE = 1e-9


def fisher_p_value(one: tuple[int, int], other: tuple[int, int]) -> float:
    """Two-sided p-value for the same share in two groups `(hits, n)`."""
    hits, n = one[0] + other[0], one[1] + other[1]
    ways = {
        k: comb(one[1], k) * comb(other[1], hits - k) for k in range(max(0, hits - other[1]), min(hits, one[1]) + 1)
    }
    return sum(each for each in ways.values() if each <= ways[one[0]]) / comb(n, hits)


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

    ways = np.zeros((DRAWS, total))
    ways[:, :first] = 1
    return np.random.default_rng(seed).permuted(ways, axis=1)
