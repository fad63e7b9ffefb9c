"""What the groups of some questions mean: shares and amounts of each, and how each differs from the first.

Every test that is made counts in one family under Holm's rule, so that a sweep without any effect
finds something in at most one of twenty. With fewer than five trials on either side there is no test
and no verdict. Pure given a seed.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from flightlog.lab.statistics.against import AMOUNTS, compare_groups, list_verifiers, trial_amounts
from flightlog.lab.statistics.amounts import estimate_mean
from flightlog.lab.statistics.exact import adjust_p_values
from flightlog.lab.statistics.groups import ComparisonQuestion, Trial, TrialGroup
from flightlog.lab.statistics.shape import (
    DIFFERS,
    FEW,
    NONE,
    Comparison,
    ExperimentAnalysis,
    GroupComparison,
    GroupSummary,
    QuestionResult,
    ShareEstimate,
)
from flightlog.lab.statistics.shares import HitCount, share_interval


def analyze_questions(questions: Sequence[ComparisonQuestion], seed: int = 0) -> ExperimentAnalysis:
    """Answer every question; all tests are one family."""
    made = [
        [(each, list(compare_groups(question.groups[0], each, seed))) for each in question.groups[1:]]
        for question in questions
    ]
    flat = [test for pairs in made for _, some in pairs for test in some]
    adjusted = iter(adjust_p_values([test.p for test in flat]))
    answers = []
    for question, pairs in zip(questions, made, strict=True):
        against = []
        for group, some in pairs:
            judged = tuple(replace(test, p_adjusted=next(adjusted)) for test in some)
            against.append(GroupComparison(group.name, question.groups[0].name, _judge_comparisons(judged), judged))
        groups = tuple(summarize_group(each, question, seed) for each in question.groups)
        recorded = question.recorded.label if question.recorded else ""
        answers.append(QuestionResult(question.name, groups, tuple(against), recorded))
    return ExperimentAnalysis(tuple(answers), len(flat), seed=seed)


def summarize_group(group: TrialGroup, question: ComparisonQuestion, seed: int) -> GroupSummary:
    """Count one group."""
    actions = Counter(each.action.key for each in group.trials if each.action)
    recorded = question.recorded
    return GroupSummary(
        group.name,
        group.label,
        group.model,
        len(group.trials),
        group.stopped,
        tuple(_action_shares(group, actions)),
        _agreement_rate(list(actions.values())),
        _estimate_share(group, ("as recorded", ""), _action_predicate(recorded.key)) if recorded and actions else None,
        tuple(_outcome_shares(group)),
        {name: estimate_mean(trial_amounts(group.trials, name), seed) for name in AMOUNTS},
        tuple(each.place for each in group.trials),
        group.failed,
    )


def _action_shares(group: TrialGroup, actions: Counter[str]) -> Iterator[ShareEstimate]:
    labels = {each.action.key: each.action.label for each in group.trials if each.action}
    for key, _ in sorted(actions.items(), key=lambda pair: (-pair[1], pair[0])):
        yield _estimate_share(group, (key, labels[key]), _action_predicate(key))


def _action_predicate(key: str) -> Callable[[Trial], bool | None]:
    return lambda each: each.action.key == key if each.action else None


def _outcome_shares(group: TrialGroup) -> Iterator[ShareEstimate]:
    for name in list_verifiers([group]):
        yield _estimate_share(group, (name, ""), _outcome_predicate(name))


def _outcome_predicate(name: str) -> Callable[[Trial], bool | None]:
    return lambda each: each.outcomes.get(name)


def _estimate_share(group: TrialGroup, named: tuple[str, str], is_hit: Callable[[Trial], bool | None]) -> ShareEstimate:
    """Count the hits among the trials of which it can be said."""
    said = [(each.place, hit) for each in group.trials if (hit := is_hit(each)) is not None]
    hits = tuple(place for place, hit in said if hit)
    count = HitCount(len(hits), len(said), group.stopped)
    return ShareEstimate(named[0], count.hits, count.n, count.share, share_interval(count), hits, named[1])


def _agreement_rate(counts: Sequence[int]) -> float | None:
    n = sum(counts)
    return sum(each * (each - 1) for each in counts) / (n * (n - 1)) if n > 1 else None


def _judge_comparisons(judged: Sequence[Comparison]) -> str:
    if not judged:
        return FEW
    return DIFFERS if any(each.is_finding for each in judged) else NONE
