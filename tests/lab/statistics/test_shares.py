"""Intervals of shares hold what they promise, worked out exactly and in simulated experiments."""

import itertools
from math import comb

import numpy as np
import pytest
from scipy.stats import binomtest

from flightlog.lab.statistics.inference import (
    ALWAYS,
    NEWCOMBE,
    WILSON,
    HitCount,
    difference_interval,
    share_interval,
)

SHARES = np.linspace(0.001, 0.999, 999)


@pytest.mark.parametrize(("hits", "n"), [(0, 5), (1, 5), (3, 20), (10, 20), (20, 20), (199, 200)])
def test_share_interval_equals_the_wilson_interval_of_scipy(hits, n):
    ours = share_interval(HitCount(hits, n))

    assert ours.method == WILSON
    assert (ours.low, ours.high) == pytest.approx(
        tuple(binomtest(hits, n).proportion_ci(method="wilsoncc"))
    )


@pytest.mark.parametrize("n", [5, 6, 7, 8, 10, 15, 20, 30, 50, 100])
def test_the_interval_covers_at_its_level_for_every_true_share(n):
    chances = np.array([comb(n, k) * SHARES**k * (1 - SHARES) ** (n - k) for k in range(n + 1)])
    limits = [share_interval(HitCount(k, n)) for k in range(n + 1)]
    holds = np.array([(interval.low <= SHARES) & (interval.high >= SHARES) for interval in limits])

    assert (chances * holds).sum(axis=0).min() >= 0.945


@pytest.mark.parametrize("one", [0.05, 0.3, 0.5])
@pytest.mark.parametrize("n", [10, 30])
def test_the_interval_of_a_difference_covers_too(one, n):
    other = one + 0.2
    chances = {
        p: [comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)] for p in (one, other)
    }

    covered = 0.0
    for a, b in itertools.product(range(n + 1), repeat=2):
        interval = difference_interval(HitCount(a, n), HitCount(b, n))
        assert interval.method == NEWCOMBE
        covered += (
            chances[one][a]
            * chances[other][b]
            * (interval.low <= 0.2 + 1e-12 and interval.high >= 0.2 - 1e-12)
        )
    assert covered >= 0.945


def test_interval_after_a_stopping_rule_is_wider():
    fixed, stopped = (
        share_interval(HitCount(30, 100)),
        share_interval(HitCount(30, 100, is_stopped_early=True)),
    )

    assert stopped.method == ALWAYS
    assert stopped.low < fixed.low
    assert stopped.high > fixed.high
