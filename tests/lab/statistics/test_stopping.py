"""The stopping rule keeps coverage: whoever stops when the shares are known well enough is told the truth."""

from collections import Counter

import numpy as np
import pytest

from flightlog.lab.statistics import inference
from flightlog.lab.statistics.inference import HitCount, estimate_mean, share_interval

EXPERIMENTS = 1_000


def sample_until_enough(shares, width, rng, most=1_500):
    """Sample actions one by one until the rule says enough; return how often each was seen."""
    drawn = rng.choice(len(shares), size=most, p=shares)
    running = np.eye(len(shares), dtype=int)[drawn].cumsum(axis=0)
    # The rule is asked after every sample; what it answered for the share nearest to one half is kept.
    for n in range(1, most + 1):
        seen = running[n - 1]
        nearest = min(seen, key=lambda count: abs(2 * count - n))
        if (nearest, n) not in KNOWN:
            KNOWN[nearest, n] = inference.has_enough_samples(
                [int(nearest), n - int(nearest)], width
            )
        if KNOWN[nearest, n]:
            assert inference.has_enough_samples([int(count) for count in seen], width)
            return [int(count) for count in seen], drawn[:n]
    raise AssertionError("never enough")


KNOWN: dict[tuple[int, int], bool] = {}


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.85, 0.1, 0.05), (0.97, 0.03)], ids=str)
def test_intervals_cover_in_over_93_of_100_stopped_experiments(shares):
    rng = np.random.default_rng(11)
    KNOWN.clear()
    covered = np.zeros(len(shares))
    sizes = []

    for _ in range(EXPERIMENTS):
        seen, drawn = sample_until_enough(shares, 0.3, rng)
        sizes.append(len(drawn))
        for place, (hits, share) in enumerate(zip(seen, shares, strict=True)):
            interval = share_interval(HitCount(hits, len(drawn), is_stopped_early=True))
            covered[place] += interval.low <= share <= interval.high
            assert interval.high - interval.low <= 0.3

    assert (covered / EXPERIMENTS >= 0.93).all(), covered / EXPERIMENTS
    assert len(set(sizes)) > 3, "the rule looked at what was seen"


def test_ordinary_intervals_fail_under_optional_stopping():
    """What the sequence is for: stop as soon as one half is excluded, and see how often that is wrong."""
    rng = np.random.default_rng(5)
    fooled = Counter()
    for _ in range(200):
        hits = (rng.random(300) < 0.5).cumsum()
        for name, is_stopped in (("wilson", False), ("sequence", True)):
            for n in range(5, 301, 3):
                interval = share_interval(
                    HitCount(int(hits[n - 1]), n, is_stopped_early=is_stopped)
                )
                if not interval.low <= 0.5 <= interval.high:
                    fooled[name] += 1
                    break

    assert fooled["wilson"] > 200 * 0.12
    assert fooled["sequence"] <= 200 * 0.05


def test_cost_keeps_its_coverage_where_the_actions_decided_when_to_stop():
    rng = np.random.default_rng(3)
    KNOWN.clear()
    covered = reported = 0
    for number in range(EXPERIMENTS):
        _, drawn = sample_until_enough((0.7, 0.3), 0.4, rng)
        costs = np.where(drawn == 0, 0.01, 0.03) * rng.lognormal(0, 0.4, len(drawn))
        interval = estimate_mean(costs.tolist(), number).interval
        truth = (0.7 * 0.01 + 0.3 * 0.03) * np.exp(0.08)
        reported += 1
        covered += interval.low <= truth <= interval.high

    assert covered >= 0.93 * reported


def test_sequential_test_separates_groups_with_few_false_findings():
    rng = np.random.default_rng(8)
    false = 0
    for _ in range(400):
        one, other = ((rng.random(200) < 0.4).cumsum() for _ in range(2))
        false += any(
            inference.sequential_p_value((int(one[n]), n + 1), (int(other[n]), n + 1)) <= 0.05
            for n in range(4, 200, 2)
        )

    assert false <= 0.05 * 400
    assert inference.sequential_p_value((10, 100), (60, 100)) < 0.001
    assert inference.sequential_p_value((10, 100), (10, 100)) == 1.0
    assert inference.sequential_p_value((0, 0), (0, 0)) == 1.0


def test_stopping_needs_five_samples_and_more_for_even_shares():
    assert not inference.has_enough_samples([4], 1.0)
    assert inference.has_enough_samples([5], 1.0)
    assert not inference.has_enough_samples([], 1.0)
    first = {
        share: next(
            n
            for n in range(5, 2_000)
            if inference.has_enough_samples([n // share, n - n // share], 0.2)
        )
        for share in (2, 10)
    }
    assert first[10] < first[2] < 320
    assert inference.sequential_interval(0, 0) == (0.0, 1.0)
    assert inference.sequential_interval(0, 40)[0] == 0.0
    assert inference.sequential_interval(40, 40)[1] == 1.0
