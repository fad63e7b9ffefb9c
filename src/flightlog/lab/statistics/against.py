"""One group against another: every comparison there is something to say about, each with its exact test.

An action that was seen fewer than five times in both groups together is not tested; the sum of both
decides on that, so it favours nobody. Where a stopping rule decided how many trials there are, only tests
that hold then are made: shares, not amounts. Pure given a seed.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from flightlog.lab.statistics import stopping
from flightlog.lab.statistics.amounts import estimate_difference
from flightlog.lab.statistics.exact import FISHER, compare_kinds, compare_means, fisher_p_value
from flightlog.lab.statistics.groups import Trial, TrialGroup
from flightlog.lab.statistics.shape import SAMPLES_MIN, Comparison
from flightlog.lab.statistics.shares import HitCount, difference_interval

SEQUENTIAL = "always-valid likelihood test"
AMOUNTS: Mapping[str, Callable[[Trial], float | None]] = {
    "output_tokens": lambda trial: trial.output_tokens,
    "input_tokens": lambda trial: trial.input_tokens,
    "cost_usd": lambda trial: trial.cost_usd,
}
_TESTED_AMOUNTS = ("output_tokens", "cost_usd")


def compare_groups(base: TrialGroup, group: TrialGroup, seed: int) -> Iterator[Comparison]:
    """Compare `group` with `base` in every way that is open."""
    yield from _compare_actions(base, group, seed)
    for verifier in list_verifiers([base, group]):
        one, other = (
            [each.outcomes[verifier] for each in side.trials if verifier in each.outcomes] for side in (base, group)
        )
        if min(len(one), len(other)) >= SAMPLES_MIN:
            yield _compare_shares("outcome", verifier, (base, group), ((sum(one), len(one)), (sum(other), len(other))))
    if not (base.stopped or group.stopped):
        yield from _compare_amounts(base, group, seed)


def list_verifiers(groups: Iterable[TrialGroup]) -> list[str]:
    """The verifiers that were asked of any of the trials."""
    return list(dict.fromkeys(name for group in groups for each in group.trials for name in each.outcomes))


def trial_amounts(trials: Iterable[Trial], name: str) -> list[float]:
    """One amount of each trial that has it."""
    return [value for each in trials if (value := AMOUNTS[name](each)) is not None]


def _compare_actions(base: TrialGroup, group: TrialGroup, seed: int) -> Iterator[Comparison]:
    one, other = ([each.action.key for each in side.trials if each.action] for side in (base, group))
    if min(len(one), len(other)) < SAMPLES_MIN:
        return
    if not (base.stopped or group.stopped):
        p, name = compare_kinds(one, other, seed)
        yield Comparison(
            group.name, "actions", "all", _total_variation(one, other), None, name, p, places=_trial_paths(base, group)
        )
    for key, seen in sorted(Counter([*one, *other]).items()):
        if seen >= SAMPLES_MIN:
            pairs = (one.count(key), len(one)), (other.count(key), len(other))
            yield _compare_shares("action", key, (base, group), pairs)


def _compare_amounts(base: TrialGroup, group: TrialGroup, seed: int) -> Iterator[Comparison]:
    for name in _TESTED_AMOUNTS:
        one, other = (trial_amounts(side.trials, name) for side in (base, group))
        if min(len(one), len(other)) >= SAMPLES_MIN:
            p, test = compare_means(one, other, seed)
            shown = estimate_difference(one, other, seed)
            yield Comparison(
                group.name, "amount", name, shown.mean, shown.interval, test, p, places=_trial_paths(base, group)
            )


def _compare_shares(
    what: str, of: str, groups: tuple[TrialGroup, TrialGroup], pairs: tuple[tuple[int, int], tuple[int, int]]
) -> Comparison:
    stopped = any(each.stopped for each in groups)
    one, other = (HitCount(hits, n, stopped) for hits, n in pairs)
    p = stopping.sequential_p_value(*pairs) if stopped else fisher_p_value(*pairs)
    name = SEQUENTIAL if stopped else FISHER
    interval = difference_interval(one, other)
    return Comparison(
        groups[1].name, what, of, other.share - one.share, interval, name, p, places=_trial_paths(*groups)
    )


def _total_variation(one: Sequence[str], other: Sequence[str]) -> float:
    """Half the sum of how far the shares are apart: 0 the same, 1 nothing in common."""
    a, b = Counter(one), Counter(other)
    return sum(abs(a[key] / len(one) - b[key] / len(other)) for key in {*a, *b}) / 2


def _trial_paths(*groups: TrialGroup) -> tuple[str, ...]:
    return tuple(each.place for group in groups for each in group.trials)
