"""What the groups of some questions mean: shares and amounts of each, and how each differs from the first.

Every test that is made counts in one family under Holm's rule, so that a sweep without any effect
finds something in at most one of twenty. With fewer than five trials on either side there is no test
and no verdict. Pure given a seed.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from flightlog.lab.statistics.against import AMOUNTS, tests, values, verifiers
from flightlog.lab.statistics.amounts import amount
from flightlog.lab.statistics.exact import holm
from flightlog.lab.statistics.groups import Group, Question, Trial
from flightlog.lab.statistics.shape import DIFFERS, FEW, NONE, Against, Analysis, Answer, Comparison, Share, Told
from flightlog.lab.statistics.shares import Count, share_interval


def analyse(questions: Sequence[Question], seed: int = 0) -> Analysis:
    """Answer every question; all tests are one family."""
    made = [
        [(each, list(tests(question.groups[0], each, seed))) for each in question.groups[1:]] for question in questions
    ]
    flat = [test for pairs in made for _, some in pairs for test in some]
    adjusted = iter(holm([test.p for test in flat]))
    answers = []
    for question, pairs in zip(questions, made, strict=True):
        against = []
        for group, some in pairs:
            judged = tuple(replace(test, p_adjusted=next(adjusted)) for test in some)
            against.append(Against(group.name, question.groups[0].name, _verdict(judged), judged))
        groups = tuple(told(each, question, seed) for each in question.groups)
        recorded = question.recorded.label if question.recorded else ""
        answers.append(Answer(question.name, groups, tuple(against), recorded))
    return Analysis(tuple(answers), len(flat), seed=seed)


def told(group: Group, question: Question, seed: int) -> Told:
    """Count one group."""
    actions = Counter(each.action.key for each in group.trials if each.action)
    recorded = question.recorded
    return Told(
        group.name,
        group.label,
        group.model,
        len(group.trials),
        group.stopped,
        tuple(_acted(group, actions)),
        _agreement(list(actions.values())),
        _share(group, ("as recorded", ""), _doing(recorded.key)) if recorded and actions else None,
        tuple(_outcomes(group)),
        {name: amount(values(group.trials, name), seed) for name in AMOUNTS},
        tuple(each.place for each in group.trials),
        group.failed,
    )


def _acted(group: Group, actions: Counter[str]) -> Iterator[Share]:
    labels = {each.action.key: each.action.label for each in group.trials if each.action}
    for key, _ in sorted(actions.items(), key=lambda pair: (-pair[1], pair[0])):
        yield _share(group, (key, labels[key]), _doing(key))


def _doing(key: str) -> Callable[[Trial], bool | None]:
    return lambda each: each.action.key == key if each.action else None


def _outcomes(group: Group) -> Iterator[Share]:
    for name in verifiers([group]):
        yield _share(group, (name, ""), _passing(name))


def _passing(name: str) -> Callable[[Trial], bool | None]:
    return lambda each: each.outcomes.get(name)


def _share(group: Group, named: tuple[str, str], is_hit: Callable[[Trial], bool | None]) -> Share:
    """Count the hits among the trials of which it can be said."""
    said = [(each.place, hit) for each in group.trials if (hit := is_hit(each)) is not None]
    hits = tuple(place for place, hit in said if hit)
    count = Count(len(hits), len(said), group.stopped)
    return Share(named[0], count.hits, count.n, count.share, share_interval(count), hits, named[1])


def _agreement(counts: Sequence[int]) -> float | None:
    n = sum(counts)
    return sum(each * (each - 1) for each in counts) / (n * (n - 1)) if n > 1 else None


def _verdict(judged: Sequence[Comparison]) -> str:
    if not judged:
        return FEW
    return DIFFERS if any(each.is_finding for each in judged) else NONE
