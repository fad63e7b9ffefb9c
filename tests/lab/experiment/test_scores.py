"""Experiments with a known truth: intervals cover it, and only what differs is found."""

from itertools import product
from math import comb

import numpy as np
import pytest
from msgspec.structs import replace

from flightlog.lab.experiment.config import (
    Cell,
    ExperimentArm,
    ExperimentConfig,
    ExperimentTask,
    ExperimentVerifier,
)
from flightlog.lab.experiment.report import (
    arm_table,
    build_report,
    comparison_table,
    describe_progress,
    draw_interval,
    format_amount,
    render_markdown,
    summarize_design,
)
from flightlog.lab.experiment.scores import (
    compare_arms,
    deciding_step,
    detectable_difference,
    estimate_arm,
    pass_at_k,
)
from flightlog.lab.experiment.store import AttemptScored
from flightlog.lab.statistics.inference import ConfidenceInterval, weighted_interval

EXPERIMENTS = 500
COVERAGE_EXPERIMENTS = 200


def experiment(tasks, attempts, arms=("base", "other"), **more):
    check = ExperimentVerifier("tests", "true")
    listed = [
        ExperimentTask(f"t{number}", "Do it.", directory="/", verifiers=(check,))
        for number in range(tasks)
    ]
    named = tuple(ExperimentArm(name, "m") for name in arms)
    return ExperimentConfig(tuple(listed), named, attempts=attempts, **more)


def attempts_of(rng, config, chances):
    """Attempts that pass with these chances, by arm; a task's chance is one for all its attempts."""
    scored = []
    for arm in config.arms:
        for task, chance in zip(config.tasks, chances[arm.name], strict=True):
            for attempt, passed in enumerate(rng.random(config.attempts) < chance, 1):
                score = {"tests": float(passed)}
                scored.append(
                    AttemptScored(
                        task.id,
                        arm.name,
                        attempt,
                        "r",
                        "s",
                        "completed",
                        {"tests": bool(passed)},
                        score,
                    )
                )
    return scored


def task_chances(rng, kind, mean, tasks):
    """Chances of tasks that are all alike, of all kinds, or solved always or never."""
    if kind == "alike":
        return np.full(tasks, mean)
    if kind == "mixed":
        return rng.beta(2 * mean, 2 * (1 - mean), tasks)
    return (rng.random(tasks) < mean).astype(float)


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("alike", (1, 20)),
        *product(("alike", "mixed", "all or nothing"), ((8, 3), (20, 2))),
    ],
)
def test_intervals_cover_the_truth_in_over_93_of_100(kind, size):
    rng = np.random.default_rng(1)
    tasks, attempts = size
    config = experiment(tasks, attempts)
    means = {"base": 0.5, "other": 0.85}
    covered = dict.fromkeys((*means, "difference"), 0)

    for _ in range(COVERAGE_EXPERIMENTS):
        chances = {name: task_chances(rng, kind, mean, tasks) for name, mean in means.items()}
        scored = attempts_of(rng, config, chances)
        for name, mean in means.items():
            interval = estimate_arm(config, scored, name).interval
            covered[name] += interval.low <= mean <= interval.high
        interval = compare_arms(config, scored)[0].interval
        covered["difference"] += interval.low <= 0.35 <= interval.high

    assert min(covered.values()) >= 0.93 * COVERAGE_EXPERIMENTS, covered


def test_intervals_cover_where_a_kind_of_task_may_be_missing():
    rng = np.random.default_rng(12)
    config = experiment(10, 10)
    covered = 0

    for _ in range(COVERAGE_EXPERIMENTS):
        chances = np.where(rng.random(10) < 0.87, 0.95, 0.05)
        scored = attempts_of(rng, config, {"base": chances, "other": chances})
        interval = estimate_arm(config, scored, "base").interval
        covered += interval.low <= 0.87 * 0.95 + 0.13 * 0.05 <= interval.high

    assert covered >= 0.93 * COVERAGE_EXPERIMENTS, covered


@pytest.mark.parametrize("size", [(1, 20), (4, 5), (20, 3)])
def test_equal_arms_give_a_false_finding_in_at_most_5_of_100(size):
    rng = np.random.default_rng(2)
    config = experiment(*size, arms=("base", "other", "third"))
    false = 0

    for _ in range(EXPERIMENTS):
        chances = task_chances(rng, "mixed", 0.5, size[0])
        scored = attempts_of(rng, config, dict.fromkeys(("base", "other", "third"), chances))
        false += any(comparison.is_finding for comparison in compare_arms(config, scored))

    assert false <= 0.05 * EXPERIMENTS, false


@pytest.mark.parametrize("size", [(1, 20), (20, 1), (4, 5), (10, 2)])
def test_three_of_ten_against_eight_of_ten_is_found_at_twenty(size):
    rng = np.random.default_rng(3)
    config = experiment(*size)
    chances = {"base": np.full(size[0], 0.3), "other": np.full(size[0], 0.8)}

    detected = sum(
        compare_arms(config, attempts_of(rng, config, chances))[0].is_finding
        for _ in range(EXPERIMENTS)
    )

    assert detected >= 0.8 * EXPERIMENTS, detected
    assert detectable_difference(config) == pytest.approx(0.48, abs=0.03)


def test_the_difference_that_can_be_found_at_eight_tasks_is_found():
    rng = np.random.default_rng(9)
    config = experiment(8, 3)
    size = detectable_difference(config)
    chances = {"base": np.full(8, 0.5 - size / 2), "other": np.full(8, 0.5 + size / 2)}

    detected = sum(
        compare_arms(config, attempts_of(rng, config, chances))[0].is_finding
        for _ in range(COVERAGE_EXPERIMENTS)
    )

    assert detected >= 0.75 * COVERAGE_EXPERIMENTS, detected


@pytest.mark.parametrize("size", [(3, 3), (4, 5)])
def test_intervals_of_costs_at_few_tasks_cover_the_truth(size):
    rng = np.random.default_rng(6)
    config = experiment(*size)
    covered = 0

    for _ in range(COVERAGE_EXPERIMENTS):
        scored = [
            replace(attempt, scores={"cost_usd": float(rng.lognormal(0, 0.5))})
            for attempt in attempts_of(rng, config, dict.fromkeys(("base", "other"), [1] * size[0]))
        ]
        interval = estimate_arm(config, scored, "base").outcomes["cost_usd"].interval
        covered += interval.low <= np.exp(0.125) <= interval.high

    assert covered >= 0.93 * COVERAGE_EXPERIMENTS, covered


@pytest.mark.parametrize("tasks", [8, 20])
def test_intervals_of_costs_at_many_tasks_cover_the_truth(tasks):
    rng = np.random.default_rng(11)
    config = experiment(tasks, 1)
    covered = [0, 0]

    for _ in range(EXPERIMENTS):
        chances = dict.fromkeys(("base", "other"), [1] * tasks)
        scored = [
            replace(attempt, scores={"cost_usd": float(rng.lognormal(-0.18, 0.6))})
            for attempt in attempts_of(rng, config, chances)
        ]
        mean = estimate_arm(config, scored, "base").outcomes["cost_usd"].interval
        (compared,) = compare_arms(config, scored)
        covered[0] += mean.low <= 1 <= mean.high
        covered[1] += compared.interval.low <= 0 <= compared.interval.high

    assert min(covered) >= 0.93 * EXPERIMENTS, covered


def test_an_arm_that_is_always_better_at_five_of_eight_tasks_is_no_finding():
    config = experiment(8, 5)
    chances = {"base": [0] * 5 + [1, 0, 0], "other": [1] * 5 + [0, 0, 0]}

    compared = compare_arms(config, attempts_of(np.random.default_rng(7), config, chances))

    assert not compared[0].is_finding


@pytest.mark.parametrize("size", [(1, 3), (2, 2), (5, 1)])
def test_no_difference_is_detectable_with_too_few_attempts(size):
    assert detectable_difference(experiment(*size)) is None
    assert detectable_difference(experiment(*size, arms=("base",))) is None


def test_the_design_names_unscored_tasks_and_the_unit_of_the_difference():
    config = experiment(2, 10)
    tasks = (config.tasks[0], replace(config.tasks[1], verifiers=()))

    assert "not in pass@1: t1." in summarize_design(build_report(replace(config, tasks=tasks), {}))
    cost = summarize_design(build_report(replace(config, primary="cost_usd"), {}))
    assert "0.9 standard deviations" in cost


def test_pass_at_k_is_the_share_of_draws_with_a_pass():
    passes = (True, True, False, False, False)

    draws = [passes[a] or passes[b] for a in range(5) for b in range(a)]

    assert pass_at_k(5, 2, 2) == pytest.approx(sum(draws) / comb(5, 2))
    assert pass_at_k(5, 2, 1) == pytest.approx(0.4)
    assert pass_at_k(5, 2, 5) == 1


def test_only_the_primary_outcome_is_tested_and_holm_covers_every_pair():
    rng = np.random.default_rng(4)
    config = experiment(1, 20, arms=("base", "other", "third"), compare="all", primary="tests")
    chances = {"base": [0.1], "other": [0.9], "third": [0.5]}
    scored = [
        replace(attempt, scores=attempt.scores | {"cost_usd": 0.1 * attempt.attempt})
        for attempt in attempts_of(rng, config, chances)
    ]

    compared = compare_arms(config, scored)

    tested = [
        (comparison.baseline, comparison.arm)
        for comparison in compared
        if comparison.p_value is not None
    ]
    assert tested == [("base", "other"), ("base", "third"), ("other", "third")]
    assert {comparison.outcome for comparison in compared if comparison.p_value is None} == {
        "cost_usd"
    }
    smallest = min(comparison.p_value for comparison in compared if comparison.p_value is not None)
    assert min(comparison.p_value_adjusted or 1 for comparison in compared) == pytest.approx(
        3 * smallest
    )


def test_the_deciding_step_is_the_first_that_no_other_result_took():
    def attempt(passed, *actions):
        steps = tuple((action, action) for action in actions)
        return AttemptScored(
            "t", "a", 1, "r", "s", "completed", {"tests": passed}, {}, actions=steps
        )

    good, bad = attempt(True, "look", "test", "edit"), attempt(False, "look", "edit")

    assert deciding_step(bad, [good, bad], "tests") == 2
    assert deciding_step(good, [good, bad], "tests") == 2
    assert deciding_step(good, [good], "tests") == 3


def test_large_amounts_are_shown_without_an_exponent():
    assert format_amount("tokens", -40_548.4) == "-40,548"
    assert format_amount("steps", 2.5) == "2.5"


@pytest.mark.parametrize(
    ("limits", "middle", "axis", "drawn"),
    [
        ((0.25, 0.75), 0.5, (0, 1), "······├─────●─────┤······"),
        ((-0.25, 0.5), 0.25, (-1, 1), "·········├──┼──●──┤······"),
        ((0.25, 0.5), 0.4, (-1, 1), "············│··├─●┤······"),
        ((-9, 9), 0, (-1, 1), "├───────────●───────────┤"),
    ],
)
def test_an_interval_is_drawn_as_text(limits, middle, axis, drawn):
    assert draw_interval(ConfidenceInterval(*limits, ""), middle, *axis) == drawn


def scored_report(count, change, **more):
    """A report of 20 attempts with each arm, after `change` to each of the first `count`."""
    config = experiment(1, 20, **more)
    chances = {"base": [0.1], "other": [0.9]}
    scored = attempts_of(np.random.default_rng(8), config, chances)
    scored = [change(attempt) for attempt in scored[:count]] + scored[count:]
    results = {Cell(item.task, item.arm, item.attempt): item for item in scored}
    return build_report(config, results, 0.5)


def test_markdown_draws_the_interval_of_each_arm_and_comparison():
    report = scored_report(0, None)

    lines = [line for line in render_markdown(report).splitlines() if "●" in line]

    assert [line.split(" | ")[0] for line in lines] == ["| base", "| other", "| other against base"]
    assert all(line.count("`") == 2 for line in lines)


def test_attempts_that_did_not_complete_and_unknown_costs_are_reported():
    def fail(attempt):
        return replace(attempt, stop_reason="timeout", scores={"tests": 0.0, "cost_usd": None})

    def price(attempt):
        return (
            fail(attempt)
            if attempt.attempt < 3
            else replace(attempt, scores=attempt.scores | {"cost_usd": 0.1})
        )

    some = scored_report(40, price)
    none = replace(scored_report(2, fail), cost_usd=None)

    assert "at least $0.5000" in describe_progress(some)
    assert "Not completed: 2 timeout with base, 2 timeout with other" in describe_progress(some)
    assert "unknown cost" in describe_progress(none)
    assert "Not completed: 2 timeout with base" in render_markdown(some)


def test_a_numeric_verifier_has_its_mean_and_interval_in_the_table():
    def measure(attempt):
        return replace(attempt, scores={"tests": attempt.attempt / 10})

    heads, rows = arm_table(scored_report(40, measure))

    low, high = (float(text) for text in rows[0][heads.index("tests")][6:-1].split(" to "))
    assert rows[0][heads.index("tests")].startswith("1.05 (")
    assert low < 1.05 < high


def test_findings_at_few_tasks_speak_about_these_tasks_alone():
    report = scored_report(0, None)
    (row,) = comparison_table(report)[1]

    assert row[:2] == ["other against base", "tests"]
    assert row[-1].endswith("after Holm: a finding")
    assert "results speak about these alone" in summarize_design(report)
    assert "these alone" not in summarize_design(build_report(experiment(8, 1), {}))


def test_values_that_are_equal_up_to_rounding_have_no_interval():
    assert weighted_interval([[0.1] * 3, [0.3] * 3], (-1, 1), 0) is None
