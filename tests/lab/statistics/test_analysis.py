"""A model with known habits: what is reported of it holds, and where nothing differs nothing is found."""

import numpy as np
import pytest

from flightlog.lab.statistics.analysis import DIFFERS, FEW, NONE, analyze_questions
from flightlog.lab.statistics.groups import Action, ComparisonQuestion, Trial, TrialGroup
from flightlog.lab.statistics.inference import HitCount, share_interval

EXPERIMENTS = 1_000
HABITS = {"Bash ls": 0.55, "Read a.py": 0.3, "(words only)": 0.12, "Bash rm": 0.03}


def draw_trials(rng, n, habits=HABITS, **costs):
    """`n` answers of a model with these habits."""
    keys = rng.choice(list(habits), size=n, p=list(habits.values()))
    money = rng.lognormal(-4, 0.4, n) * costs.get("dearer", 1.0) if costs else [None] * n
    return tuple(
        Trial(
            f"sample_{at:02d}.json",
            Action(key.split()[0], str(key), str(key)),
            cost_usd=usd and float(usd),
        )
        for at, (key, usd) in enumerate(zip(keys, money, strict=True), 1)
    )


@pytest.mark.parametrize("n", [10, 40])
def test_intervals_of_a_distribution_cover_in_over_93_of_100_experiments(n):
    rng = np.random.default_rng(1)
    covered = dict.fromkeys(HABITS, 0)

    for _ in range(EXPERIMENTS):
        (group,) = (
            analyze_questions(
                [ComparisonQuestion("q", (TrialGroup("as recorded", draw_trials(rng, n)),))]
            )
            .questions[0]
            .groups
        )
        intervals = {action.name: action.interval for action in group.actions}
        for key, share in HABITS.items():
            interval = intervals[key] if key in intervals else share_interval(HitCount(0, n))
            covered[key] += interval.low <= share <= interval.high

    assert all(count >= 930 for count in covered.values()), covered


def test_a_sweep_without_any_effect_finds_something_in_at_most_5_of_100():
    rng = np.random.default_rng(2)
    false = tests = 0

    for number in range(EXPERIMENTS):
        groups = tuple(TrialGroup(f"v{at:02d}", draw_trials(rng, 6, dearer=1.0)) for at in range(5))
        analysis = analyze_questions([ComparisonQuestion("q", groups)], seed=number)
        tests += analysis.test_count
        false += any(
            comparison.verdict == DIFFERS for comparison in analysis.questions[0].comparisons
        )

    assert tests == 4 * EXPERIMENTS, "each variant asks one question"
    assert false <= 0.05 * EXPERIMENTS, false


def test_difference_is_found_with_its_size():
    rng = np.random.default_rng(3)
    other = {"Bash ls": 0.05, "Read a.py": 0.85, "(words only)": 0.07, "Bash rm": 0.03}
    groups = (
        TrialGroup("request_005", draw_trials(rng, 40, dearer=1.0)),
        TrialGroup("request_005_v01", draw_trials(rng, 40, other, dearer=2.0)),
    )

    analysis = analyze_questions([ComparisonQuestion("q", groups)], seed=1)

    (against,) = analysis.questions[0].comparisons
    (test,) = against.tests
    assert against.verdict == DIFFERS
    assert (test.measure, test.name) == ("actions", "all")
    assert 0.4 <= test.effect <= 0.7
    assert test.p_value == test.p_value_adjusted
    shares = [
        next(share for share in group.actions if share.name == "Read a.py")
        for group in analysis.questions[0].groups
    ]
    assert shares[0].interval.high < 0.85 <= shares[1].interval.high


def test_three_of_ten_against_eight_of_ten_is_found_in_80_of_100():
    rng = np.random.default_rng(6)
    detected = false = 0

    for number in range(500):
        base, same, better = (
            TrialGroup(name, draw_trials(rng, 20, {"Bash": share, "Read": 1 - share}, dearer=1.0))
            for name, share in (("base", 0.3), ("same", 0.3), ("better", 0.8))
        )
        for group in (same, better):
            analysis = analyze_questions([ComparisonQuestion("q", (base, group))], seed=number)
            differs = analysis.questions[0].comparisons[0].verdict == DIFFERS
            detected += differs and group is better
            false += differs and group is same

    assert detected >= 400, detected
    assert false <= 25, false


def test_below_five_there_is_no_verdict_and_at_five_there_may_be():
    def groups(n):
        return tuple(
            TrialGroup(name, tuple(Trial(f"{name}/{at}", Action(key, key, key)) for at in range(n)))
            for name, key in (("a", "Bash"), ("b", "Read"))
        )

    few, enough = (
        analyze_questions([ComparisonQuestion("q", groups(n))]).questions[0].comparisons[0]
        for n in (4, 5)
    )

    assert (few.verdict, few.tests) == (FEW, ())
    assert enough.verdict == DIFFERS
    assert (
        analyze_questions([ComparisonQuestion("q", (*groups(5)[:1], *groups(5)[:1]))])
        .questions[0]
        .comparisons[0]
        .verdict
        == NONE
    )


def test_outcomes_are_per_verifier_and_agreement_is_a_pair_probability():
    def trials(name, passed, n, action):
        done = [{"tests": at < passed} for at in range(n)]
        keys = ["Bash", *[action] * (n - 1)]
        return TrialGroup(
            name,
            tuple(
                Trial(f"{name}{at}", Action(key, key, key), outcome)
                for at, (outcome, key) in enumerate(zip(done, keys, strict=True))
            ),
        )

    answer = analyze_questions(
        [ComparisonQuestion("q", (trials("a", 1, 10, "Read"), trials("b", 10, 10, "Bash")))]
    ).questions[0]

    assert [(group.outcomes[0].count, group.outcomes[0].n) for group in answer.groups] == [
        (1, 10),
        (10, 10),
    ]
    assert answer.groups[0].agreement == pytest.approx(9 * 8 / 90)
    assert answer.groups[1].agreement == 1.0
    outcome = next(test for test in answer.comparisons[0].tests if test.measure == "outcome")
    assert (outcome.name, outcome.effect, outcome.is_finding) == ("tests", pytest.approx(0.9), True)


def test_groups_stopped_early_get_sequential_tests_and_no_amounts():
    rng = np.random.default_rng(4)
    groups = tuple(
        TrialGroup(name, draw_trials(rng, 60, dearer=1.0), is_stopped_early=True) for name in "ab"
    )

    answer = analyze_questions([ComparisonQuestion("q", groups)]).questions[0]

    assert {test.test for test in answer.comparisons[0].tests} == {"always-valid likelihood test"}
    assert {action.interval.method for action in answer.groups[0].actions} == {
        "confidence sequence, valid under the stopping rule"
    }


def test_a_request_without_samples_as_recorded_has_no_comparison():
    rng = np.random.default_rng(5)

    answer = analyze_questions(
        [
            ComparisonQuestion(
                "q",
                (TrialGroup("request_005", ()), TrialGroup("request_005_v01", draw_trials(rng, 9))),
            )
        ]
    ).questions[0]

    assert answer.comparisons[0].verdict == FEW
    assert answer.groups[0].actions == ()
