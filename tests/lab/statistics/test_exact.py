"""Exact tests agree with the ones of scipy; Holm's rule with its definition."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import fisher_exact, permutation_test

from flightlog.lab.statistics.inference import (
    EVERY,
    PERMUTED,
    adjust_p_values,
    compare_kinds,
    compare_means,
    fisher_p_value,
)

COUNT = st.integers(0, 40)


@settings(max_examples=60, deadline=None)
@given(COUNT, COUNT, COUNT, COUNT)
def test_fisher_p_value_equals_that_of_scipy(a, b, c, d):
    ours = fisher_p_value((a, a + b), (c, c + d))

    assert ours == pytest.approx(fisher_exact([[a, b], [c, d]]).pvalue, abs=1e-9)


def test_permutation_test_is_exact_for_few_splits_and_draws_for_many():
    rng = np.random.default_rng(2)
    few, many = (
        (rng.normal(0, 1, 7).tolist(), rng.normal(1, 1, 6).tolist()),
        (rng.normal(0, 1, 30), rng.normal(0.4, 1, 30)),
    )

    exact = permutation_test(few, lambda x, y, axis: np.abs(x.mean(axis) - y.mean(axis)), vectorized=True,
                             n_resamples=np.inf, alternative="greater")  # fmt: skip
    assert compare_means(*few, seed=1) == (pytest.approx(exact.pvalue), EVERY)
    p, name = compare_means(many[0].tolist(), many[1].tolist(), seed=1)
    near = permutation_test(many, lambda x, y, axis: np.abs(x.mean(axis) - y.mean(axis)), vectorized=True,
                            n_resamples=9_999, alternative="greater", rng=5)  # fmt: skip
    assert name == PERMUTED
    assert p == pytest.approx(near.pvalue, abs=0.02)
    assert compare_means(many[0].tolist(), many[1].tolist(), seed=1)[0] == p


def test_permutation_of_two_kinds_equals_fishers_exact_test():
    one, other = ["a"] * 5 + ["b"], ["a"] + ["b"] * 5

    assert compare_kinds(one, other, seed=0)[0] == pytest.approx(fisher_p_value((5, 6), (1, 6)))
    assert compare_kinds(["a"] * 6, ["a"] * 6, seed=0)[0] == 1.0
    assert compare_means([0.1] * 6, [0.1] * 6, seed=0)[0] == 1.0


def test_holm_takes_the_smallest_times_their_number_and_never_goes_down():
    assert adjust_p_values([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert adjust_p_values([]) == []
    assert adjust_p_values([0.5, 0.9]) == [1.0, 1.0]
