"""Compare groups of trials.

Two groups are compared once: by their verifiers, else by their actions, else by their cost. Of two
actions only one is tested, because the other one is its complement; tokens are not tested beside
the cost that they cause. All tests of an analysis are one family under Holm's rule, so an analysis
without any effect reports a finding at most one time in twenty. With fewer than five trials on
either side there is no test and no verdict. If a stopping rule decided the number of trials, only
tests that hold under it are made: the shares of actions seen five times or more, not amounts. Pure
for a given seed.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from flightlog.lab.statistics import inference
from flightlog.lab.statistics.groups import ComparisonQuestion, Trial, TrialGroup

SAMPLES_MIN = 5  # with fewer, no test can reach the level
FINDING = 0.05  # the usual level, after adjustment
DIFFERS, NONE, FEW = "differs", "no difference found", "too few samples"
SEQUENTIAL = "always-valid likelihood test"
AMOUNTS: Mapping[str, Callable[[Trial], float | None]] = {
    "output_tokens": lambda trial: trial.output_tokens,
    "input_tokens": lambda trial: trial.input_tokens,
    "cost_usd": lambda trial: trial.cost_usd,
}
_TESTED_AMOUNTS = ("cost_usd", "output_tokens")  # the first that is on record
_PAIR = 2


class ShareEstimate(Struct, frozen=True):
    """How often something was seen in a group, and in which trials."""

    name: str
    count: int
    n: int
    share: float
    interval: inference.ConfidenceInterval
    addresses: tuple[str, ...]
    label: str = ""


class GroupSummary(Struct, frozen=True):
    """One group: its actions, outcomes and amounts.

    `agreement` is the probability that two of its trials take the same action; `as_recorded` the
    share that took the recorded action. `failed` are trials without an answer; they are not
    counted.
    """

    name: str
    label: str
    model: str
    n: int
    is_stopped_early: bool
    actions: tuple[ShareEstimate, ...]
    agreement: float | None
    same_as_recorded: ShareEstimate | None
    outcomes: tuple[ShareEstimate, ...]
    means: dict[str, inference.MeanEstimate | None]
    addresses: tuple[str, ...]
    failures: tuple[str, ...]


class Comparison(Struct, frozen=True):
    """One test of a group against the first. `effect` is a difference of shares or of means."""

    group: str
    measure: str
    name: str
    effect: float
    interval: inference.ConfidenceInterval | None
    test: str
    p_value: float
    p_value_adjusted: float = 1.0
    addresses: tuple[str, ...] = ()

    @property
    def is_finding(self) -> bool:
        """Whether it is significant after Holm's rule."""
        return self.p_value_adjusted <= FINDING


class GroupComparison(Struct, frozen=True):
    """One group against the first: the tests, and their verdict."""

    group: str
    baseline: str
    verdict: str
    tests: tuple[Comparison, ...]


class QuestionResult(Struct, frozen=True):
    name: str
    groups: tuple[GroupSummary, ...]
    comparisons: tuple[GroupComparison, ...]
    recorded_action: str = ""


class ExperimentAnalysis(Struct, frozen=True):
    """The results of every question of an experiment, and the rules of the analysis."""

    questions: tuple[QuestionResult, ...]
    test_count: int
    correction: str = inference.HOLM
    significance_level: float = FINDING
    confidence_level: float = inference.CONFIDENCE
    min_samples: int = SAMPLES_MIN
    seed: int = 0


def compare_groups(base: TrialGroup, group: TrialGroup, seed: int) -> Iterator[Comparison]:
    """Yield the tests of `group` against `base`: one for each question that can be asked."""
    tests = list(_compare_outcomes(base, group)) or list(_compare_actions(base, group, seed))
    if not tests and not (base.is_stopped_early or group.is_stopped_early):
        tests = list(_compare_amounts(base, group, seed))
    yield from tests


def _compare_outcomes(base: TrialGroup, group: TrialGroup) -> Iterator[Comparison]:
    for verifier in list_verifiers([base, group]):
        one, other = (
            [trial.outcomes[verifier] for trial in side.trials if verifier in trial.outcomes]
            for side in (base, group)
        )
        if min(len(one), len(other)) >= SAMPLES_MIN:
            pairs = ((sum(one), len(one)), (sum(other), len(other)))
            yield _compare_shares("outcome", verifier, (base, group), pairs)


def list_verifiers(groups: Iterable[TrialGroup]) -> list[str]:
    return list(
        dict.fromkeys(name for group in groups for trial in group.trials for name in trial.outcomes)
    )


def trial_amounts(trials: Iterable[Trial], name: str) -> list[float]:
    return [value for trial in trials if (value := AMOUNTS[name](trial)) is not None]


def _compare_actions(base: TrialGroup, group: TrialGroup, seed: int) -> Iterator[Comparison]:
    one, other = (
        [trial.action.key for trial in side.trials if trial.action] for side in (base, group)
    )
    if min(len(one), len(other)) < SAMPLES_MIN:
        return
    kinds = sorted(Counter([*one, *other]).items())
    if len(kinds) > _PAIR and not (base.is_stopped_early or group.is_stopped_early):
        p, name = inference.compare_kinds(one, other, seed)
        a, b = Counter(one), Counter(other)
        # Total variation: half the sum of the differences of the shares; 0 equal, 1 disjoint.
        effect = sum(abs(a[key] / len(one) - b[key] / len(other)) for key, _ in kinds) / 2
        addresses = _trial_paths(base, group)
        yield Comparison(group.name, "actions", "all", effect, None, name, p, addresses=addresses)
        return
    for key, seen in kinds[:1] if len(kinds) == _PAIR else kinds:
        if seen >= SAMPLES_MIN or len(kinds) <= _PAIR:
            pairs = (one.count(key), len(one)), (other.count(key), len(other))
            yield _compare_shares("action", key, (base, group), pairs)


def _compare_amounts(base: TrialGroup, group: TrialGroup, seed: int) -> Iterator[Comparison]:
    for name in _TESTED_AMOUNTS:
        one, other = (trial_amounts(side.trials, name) for side in (base, group))
        if min(len(one), len(other)) >= SAMPLES_MIN:
            p, test = inference.compare_means(one, other, seed)
            mean = inference.estimate_difference(one, other, seed)
            places = _trial_paths(base, group)
            yield Comparison(
                group.name, "amount", name, mean.mean, mean.interval, test, p, addresses=places
            )
            return


def _compare_shares(
    what: str,
    of: str,
    groups: tuple[TrialGroup, TrialGroup],
    pairs: tuple[tuple[int, int], tuple[int, int]],
) -> Comparison:
    stopped = any(group.is_stopped_early for group in groups)
    one, other = (inference.HitCount(hits, n, stopped) for hits, n in pairs)
    p = inference.sequential_p_value(*pairs) if stopped else inference.fisher_p_value(*pairs)
    name = SEQUENTIAL if stopped else inference.FISHER
    interval = inference.difference_interval(one, other)
    effect = other.share - one.share
    return Comparison(
        groups[1].name, what, of, effect, interval, name, p, addresses=_trial_paths(*groups)
    )


def _trial_paths(*groups: TrialGroup) -> tuple[str, ...]:
    return tuple(trial.address for group in groups for trial in group.trials)


def analyze_questions(questions: Sequence[ComparisonQuestion], seed: int = 0) -> ExperimentAnalysis:
    """Answer every question; all tests are one family."""
    pairs = ((question.groups[0], question.groups[1:]) for question in questions)
    comparisons = [
        [(other, list(compare_groups(first, other, seed))) for other in others]
        for first, others in pairs
    ]
    tests = [
        test for compared in comparisons for _, group_tests in compared for test in group_tests
    ]
    adjusted = iter(inference.adjust_p_values([test.p_value for test in tests]))
    answers = []
    for question, compared in zip(questions, comparisons, strict=True):
        against = []
        for group, group_tests in compared:
            final = tuple(replace(test, p_value_adjusted=next(adjusted)) for test in group_tests)
            verdict = DIFFERS if any(test.is_finding for test in final) else NONE
            verdict = verdict if final else FEW
            against.append(GroupComparison(group.name, question.groups[0].name, verdict, final))
        groups = tuple(summarize_group(other, question, seed) for other in question.groups)
        recorded = question.recorded_action.label if question.recorded_action else ""
        answers.append(QuestionResult(question.name, groups, tuple(against), recorded))
    return ExperimentAnalysis(tuple(answers), len(tests), seed=seed)


def summarize_group(group: TrialGroup, question: ComparisonQuestion, seed: int) -> GroupSummary:
    actions = Counter(trial.action.key for trial in group.trials if trial.action)
    recorded, as_recorded = question.recorded_action, None
    if recorded and actions:
        as_recorded = _estimate_share(group, ("as recorded", ""), _action_predicate(recorded.key))
    outcomes = [
        _estimate_share(group, (name, ""), _outcome_predicate(name))
        for name in list_verifiers([group])
    ]
    amounts = {name: trial_amounts(group.trials, name) for name in AMOUNTS}
    return GroupSummary(
        *(group.name, group.label, group.model, len(group.trials), group.is_stopped_early),
        *(tuple(_action_shares(group, actions)), _agreement_rate(list(actions.values()))),
        as_recorded,
        tuple(outcomes),
        {name: inference.estimate_mean(values, seed) for name, values in amounts.items()},
        tuple(trial.address for trial in group.trials),
        group.failures,
    )


def _action_shares(group: TrialGroup, actions: Counter[str]) -> Iterator[ShareEstimate]:
    labels = {trial.action.key: trial.action.label for trial in group.trials if trial.action}
    for key, _ in sorted(actions.items(), key=lambda pair: (-pair[1], pair[0])):
        yield _estimate_share(group, (key, labels[key]), _action_predicate(key))


def _action_predicate(key: str) -> Callable[[Trial], bool | None]:
    return lambda trial: trial.action.key == key if trial.action else None


def _outcome_predicate(name: str) -> Callable[[Trial], bool | None]:
    return lambda trial: trial.outcomes.get(name)


def _estimate_share(
    group: TrialGroup, named: tuple[str, str], is_hit: Callable[[Trial], bool | None]
) -> ShareEstimate:
    """Estimate the share of hits among the trials for which `is_hit` is known."""
    known = [(trial.address, hit) for trial in group.trials if (hit := is_hit(trial)) is not None]
    hits = tuple(path for path, hit in known if hit)
    count = inference.HitCount(len(hits), len(known), group.is_stopped_early)
    interval = inference.share_interval(count)
    return ShareEstimate(named[0], count.count, count.n, count.share, interval, hits, named[1])


def _agreement_rate(counts: Sequence[int]) -> float | None:
    n = sum(counts)
    return sum(count * (count - 1) for count in counts) / (n * (n - 1)) if n > 1 else None
