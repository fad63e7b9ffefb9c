"""Report an experiment: the same facts as JSON, Markdown, one HTML file, or a page.

The HTML file contains everything it shows and no script; text of tasks and sessions is escaped.
"""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from msgspec import Struct
from msgspec.structs import replace

from flightlog.lab.experiment.config import MEASURES, Cell, ExperimentConfig, arm_differences
from flightlog.lab.experiment.scores import (
    FINDING,
    ArmComparison,
    ArmEstimate,
    compare_arms,
    deciding_step,
    detectable_difference,
    estimate_arm,
    scored_tasks,
)
from flightlog.lab.experiment.store import AttemptScored, ExperimentStore
from flightlog.lab.statistics.divergence import ActionPath, build_path_tree, iter_path_lines
from flightlog.lab.statistics.groups import Action
from flightlog.model.text import make_inert, one_line, pluralize

TEMPLATE = Path(__file__).with_name("report.html")
MEASURE_NAMES = dict(
    zip(MEASURES, ("cost", "tokens", "latency", "steps", "tool errors"), strict=True)
)
_STEPS_SHOWN = 60  # around the deciding step, so that a page of many attempts stays readable
_DIVERGENCE_LINES = 40
_WHOLE_FROM = 1_000  # larger amounts are shown without decimals and exponents


class ReportCell(Struct, frozen=True):
    """One attempt of the grid; without a session it has not run yet."""

    task: str
    arm: str
    attempt: int
    scores: dict[str, float | None]
    session: str
    run: str = ""
    has_passed: bool | None = None
    passed: dict[str, bool] = {}
    stop_reason: str = "pending"
    deciding_turn: int = 0
    branch_command: str = ""
    error: str = ""
    arm_commands: dict[str, str] = {}

    @property
    def result_mark(self) -> str:
        return {None: "?", True: "✓", False: "✗"}[self.has_passed] if self.session else "·"


class ExperimentReport(Struct, frozen=True):
    """Everything that a report shows."""

    name: str
    hypothesis: str
    primary: str
    attempts: int
    done: int
    planned: int
    cost_usd: float
    max_budget_usd: float | None
    detectable_difference: float | None
    arm_differences: dict[str, list[Any]]
    arms: list[ArmEstimate]
    comparisons: list[ArmComparison]
    cells: list[ReportCell]
    divergence: dict[str, list[str]]
    tasks: list[str]
    damage: int = 0
    unscored_tasks: list[str] = []


def report_experiment(store: ExperimentStore) -> ExperimentReport:
    """Return the report of what is on record."""
    config = replace(store.config, name=store.name)
    return build_report(config, store.results, store.spent_usd, len(store.damage))


def build_report(
    config: ExperimentConfig,
    results: Mapping[Cell, AttemptScored],
    spent_usd: float = 0.0,
    damage: int = 0,
) -> ExperimentReport:
    """Return a report; attempts without a result are cells without scores."""
    scored = list(results.values())
    cells = [_report_cell(config, cell, results) for cell in config.cells()]
    return ExperimentReport(
        config.name,
        config.hypothesis,
        config.primary_outcome,
        config.attempts,
        len(scored),
        len(cells),
        round(spent_usd, 9),
        config.max_budget_usd,
        detectable_difference(config),
        arm_differences(config.arms),
        [estimate_arm(config, scored, arm.name) for arm in config.arms],
        compare_arms(config, scored),
        cells,
        {task.id: list(_divergence_lines(task.id, scored)) for task in config.tasks},
        [task.id for task in config.tasks],
        damage,
        sorted({task.id for task in config.tasks} - set(scored_tasks(config))),
    )


def _report_cell(
    config: ExperimentConfig, cell: Cell, results: Mapping[Cell, AttemptScored]
) -> ReportCell:
    result = results.get(cell)
    if result is None:
        return ReportCell(*cell, {}, "")
    turn = deciding_step(result, list(results.values()), config.pass_outcome)
    command = f"flightlog lab replay {shlex.quote(result.run)} --turn {turn}"
    others = (arm.name for arm in config.arms if arm.name != cell.arm)
    passed = (result.passed.get(config.pass_outcome), result.passed)
    commands = {name: f"{command} --arm {name}" for name in others}
    return ReportCell(
        *(*cell, result.scores, result.session, result.run, *passed, result.stop_reason),
        *(turn, f"{command} --prompt TEXT", result.error, commands),
    )


def _divergence_lines(task: str, results: Sequence[AttemptScored]) -> Iterator[str]:
    """Yield the tree of what the attempts at a task did; nothing if all did the same."""
    paths = []
    for result in (result for result in results if result.task == task):
        actions = tuple(Action("", key, label) for key, label in result.actions)
        paths.append(ActionPath(result.arm, str(result.attempt), actions))
    lines = list(iter_path_lines(build_path_tree(paths), 80))
    yield from lines[:_DIVERGENCE_LINES] if len(lines) > 1 else ()


def arm_table(report: ExperimentReport) -> tuple[list[str], list[list[str]]]:
    """Return the heads and rows of the table of arms."""
    ks = sorted({k for arm in report.arms for k in arm.pass_at_k}, key=int)[1:][-1:]
    heads = ["arm", "attempts", "pass@1", "95 % interval", *(f"pass@{k}" for k in ks)]
    rows = []
    for arm in report.arms:
        interval = "-"
        if arm.interval is not None and arm.pass_at_1 is not None:
            interval = f"{100 * arm.interval.low:.0f} to {100 * arm.interval.high:.0f} %"
        shares = [_format_percent(arm.pass_at_k.get(k)) for k in ks]
        means = [
            format_amount(name, mean.mean if (mean := arm.outcomes.get(name)) else None)
            for name in MEASURES
        ]
        first = [arm.name, str(arm.attempts), _format_percent(arm.pass_at_1)]
        rows.append([*first, interval, *shares, *means])
    return [*heads, *MEASURE_NAMES.values()], rows


def grid_table(report: ExperimentReport) -> tuple[list[str], list[list[str]]]:
    """Return the heads and rows of the grid: each mark is an attempt."""
    marks: dict[tuple[str, str], str] = {}
    for cell in report.cells:
        marks[cell.task, cell.arm] = marks.get((cell.task, cell.arm), "") + cell.result_mark
    names = [arm.name for arm in report.arms]
    return ["task", *names], [[task, *(marks[task, arm] for arm in names)] for task in report.tasks]


def format_amount(outcome: str, value: float | None) -> str:
    """Return a value with its unit; `?` for an unknown one."""
    if value is None:
        return "?"
    if outcome == "cost_usd":
        return f"{'-' if value < 0 else ''}${abs(value):.4f}"
    digits = ",.0f" if abs(value) >= _WHOLE_FROM else ".4g"
    return f"{value:{digits}}{' s' if outcome == 'latency_s' else ''}"


def _format_percent(share: float | None) -> str:
    return "?" if share is None else f"{100 * share:.0f} %"


def describe_comparison(comparison: ArmComparison) -> str:
    """Return one comparison in a sentence, with its interval and its test."""

    def format_value(value: float) -> str:
        points = f"{100 * value:.0f} points"
        return points if comparison.is_share else format_amount(comparison.outcome, value)

    sign = "+" if comparison.difference > 0 else ""
    text = f"{comparison.arm} against {comparison.baseline}, {comparison.outcome}: "
    text += sign + format_value(comparison.difference)
    if comparison.interval is not None:
        text += f" (95 % {format_value(comparison.interval.low)} to {format_value(comparison.interval.high)})"
    if comparison.p_value is None or comparison.p_value_adjusted is None:
        return f"{text}; estimated, not tested"
    verdict = "a finding" if comparison.is_finding else "no difference found"
    p_values = f"p = {comparison.p_value:.3g}, {comparison.p_value_adjusted:.3g} after Holm"
    return f"{text}; {comparison.test}, {p_values}: {verdict}"


def summarize_design(report: ExperimentReport) -> str:
    """Return what the experiment can show, before it is paid for."""
    counts = (len(report.tasks), "task"), (len(report.arms), "arm"), (report.attempts, "attempt")
    listed = ", ".join(pluralize(*count) for count in counts)
    text = f"{listed} each; the primary outcome is {report.primary}. "
    if report.unscored_tasks:
        text += f"Tasks without it are not in pass@1: {', '.join(report.unscored_tasks)}. "
    smallest = report.detectable_difference
    if len(report.arms) == 1:
        return text + "One arm is compared with none."
    if smallest is None:
        return text + "With so few attempts no difference between two arms can be found."
    unit = "standard deviations" if report.primary in MEASURES else "percentage points"
    size = f"{smallest:.1f}" if report.primary in MEASURES else f"{100 * smallest:.0f}"
    return (
        f"{text}A difference of about {size} {unit} between two arms is found in 80 of 100 "
        "such experiments."
    )


def render_markdown(report: ExperimentReport) -> str:
    """Return the report as Markdown."""
    hypothesis = _escape_markdown(one_line(report.hypothesis, 400))
    lines = [f"# {one_line(report.name, 100)}", "", hypothesis, ""]
    progress = f"{report.done} of {report.planned} attempts have a result, ${report.cost_usd:.4f}."
    design = _escape_markdown(f"{summarize_design(report)} {progress}")
    lines += [design, "", *_table_lines(*arm_table(report)), ""]
    for key, values in report.arm_differences.items():
        rows = [[arm.name, str(value)] for arm, value in zip(report.arms, values, strict=True)]
        lines += [*_table_lines(["arm", key], rows), ""]
    lines += [f"- {_escape_markdown(describe_comparison(found))}." for found in report.comparisons]
    lines += ["", "Each mark is an attempt: ✓ passed, ✗ failed, ? unknown, · not run yet.", ""]
    lines += _table_lines(*grid_table(report))
    for task, tree in report.divergence.items():
        if tree:
            lines += ["", f"Where attempts at {task} diverge:", "", *(f"    {row}" for row in tree)]
    return "\n".join([*lines, ""])


def _escape_markdown(text: str) -> str:
    """Return text that Markdown shows as it is: no HTML, no link, no picture, no control character."""
    return re.sub(r"([\\`\[\]<>&!])", r"\\\1", one_line(text, 2_000))


def _table_lines(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [
        f"| {' | '.join(_escape_markdown(one_line(cell, 120)).replace('|', '¦') for cell in row)} |"
        for row in (heads, ["---"] * len(heads), *rows)
    ]


def render_html(
    report: ExperimentReport,
    results: Mapping[Cell, AttemptScored],
    link: Callable[[ReportCell], str] | None = None,
) -> str:
    """Return the report as HTML: a whole file, or with `link` the inner part of a page.

    In a file a cell opens the steps of its attempt further down; on a page `link` names the
    page of its deciding step.
    """
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        finalize=lambda value: make_inert(value) if type(value) is str else value,
    )
    return environment.from_string(TEMPLATE.read_text("utf-8")).render(
        report=report,
        is_file=link is None,
        link=link or (lambda cell: f"#{_cell_anchor(cell)}"),
        anchor=_cell_anchor,
        steps=lambda cell: _steps_shown(results[Cell(cell.task, cell.arm, cell.attempt)], cell),
        arm_table=arm_table(report),
        amount=format_amount,
        describe=describe_comparison,
        design=summarize_design(report),
        finding=FINDING,
        points=_scatter_points(report, _largest_cost(report)),
        widest=_largest_cost(report),
        line=one_line,
    )


def _cell_anchor(cell: ReportCell) -> str:
    return f"cell-{cell.task}-{cell.arm}-{cell.attempt}"


def _steps_shown(result: AttemptScored, cell: ReportCell) -> list[tuple[int, str, bool]]:
    first = max(0, cell.deciding_turn - _STEPS_SHOWN // 2)
    shown = list(enumerate(result.actions, 1))[first : first + _STEPS_SHOWN]
    return [(number, label, number == cell.deciding_turn) for number, (_, label) in shown]


def _largest_cost(report: ExperimentReport) -> float:
    """Return the largest mean cost of an arm, where the axis of costs ends."""
    costs = (arm.outcomes.get("cost_usd") for arm in report.arms)
    return max((cost.mean for cost in costs if cost), default=0.0)


def _scatter_points(report: ExperimentReport, widest: float) -> list[tuple[str, float, float]]:
    """Return each arm's mean cost and score as fractions of the drawing's width and height."""
    return [
        (arm.name, cost.mean / (widest or 1.0), arm.pass_at_1)
        for arm in report.arms
        if (cost := arm.outcomes.get("cost_usd")) and arm.pass_at_1 is not None
    ]
