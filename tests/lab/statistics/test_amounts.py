"""Means and their bootstrap intervals: they cover for few and lopsided samples, or are not given."""

import numpy as np
import pytest

from flightlog.lab.statistics.inference import estimate_difference, estimate_mean

DRAWS = {
    "even": (lambda rng, n: rng.normal(10, 2, n), 10.0),
    "lopsided": (lambda rng, n: rng.lognormal(0, 0.5, n), np.exp(0.125)),
    "waiting": (lambda rng, n: rng.exponential(1, n), 1.0),
}


@pytest.mark.parametrize(("kind", "n"), [("even", 10), ("lopsided", 20), ("waiting", 30)])
def test_intervals_of_a_mean_cover_in_over_93_of_100_experiments(kind, n):
    draw, truth = DRAWS[kind]
    rng = np.random.default_rng(4)

    intervals = [estimate_mean(draw(rng, n).tolist(), seed).interval for seed in range(1_000)]

    assert sum(interval.low <= truth <= interval.high for interval in intervals) >= 930


def test_the_interval_of_a_difference_covers_too():
    rng = np.random.default_rng(6)
    intervals = [
        estimate_difference(
            rng.lognormal(0, 0.5, 12).tolist(), (0.4 + rng.lognormal(0, 0.5, 20)).tolist(), seed
        ).interval
        for seed in range(1_000)
    ]

    assert sum(interval.low <= 0.4 <= interval.high for interval in intervals) >= 930


def test_too_few_or_equal_values_have_no_interval():
    assert estimate_mean([], 0) is None
    assert estimate_mean([1.0, 2.0, 3.0, 4.0], 0).interval is None
    assert estimate_mean([2.0] * 50, 0).interval is None
    # Four of five are equal: a third of all draws have no spread.
    assert estimate_mean([1.0, 1.0, 1.0, 1.0, 2.0], 0).interval is None
    assert estimate_mean([1.0, 1.0, 1.0, 1.0, 2.0], 0).mean == 1.2
    # Draws of 0.1 alone have a spread only by rounding: an interval from it would have no end.
    assert estimate_mean([0.1] * 6 + [0.2], 0).interval is None


def test_same_seed_gives_the_same_interval():
    values = [1.0, 2.0, 2.5, 4.0, 9.0, 3.0]

    assert estimate_mean(values, 7) == estimate_mean(values, 7)
    assert estimate_mean(values, 7) != estimate_mean(values, 8)
