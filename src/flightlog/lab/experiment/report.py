"""Report an experiment: the same facts as JSON, Markdown, one HTML file, or a page.

The HTML file contains everything it shows and no script; text of tasks and sessions is escaped.
"""

import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from msgspec import Struct
from msgspec.structs import replace

from flightlog.lab.experiment import scores
from flightlog.lab.experiment.config import MEASURES, Cell, ExperimentConfig, arm_differences
from flightlog.lab.experiment.store import AttemptScored, ExperimentStore, describe_cost
from flightlog.lab.statistics.divergence import ActionPath, build_path_tree, iter_path_lines
from flightlog.lab.statistics.groups import Action
from flightlog.lab.statistics.inference import ConfidenceInterval
from flightlog.lab.statistics.report import escape_markdown, inline_code
from flightlog.model.text import make_inert, one_line, pluralize
from flightlog.usage.prices import is_priced

MEASURE_NAMES = dict(
    zip(MEASURES, ("cost", "tokens", "latency", "steps", "tool errors"), strict=True)
)
_STEPS_SHOWN = 60  # around the deciding step, so that a page of many attempts stays readable
_DIVERGENCE_LINES = 40
_WHOLE_FROM = 100  # larger amounts are shown without decimals and exponents
_CELLS = 25  # characters of an interval drawn as text; odd, so that zero has one
_SHARED_CHARS = 24  # of what two settings have in common, as much is shown before they differ


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
    cost_usd: float | None
    max_budget_usd: float | None
    detectable_difference: float | None
    arm_differences: dict[str, list[Any]]
    arms: list[scores.ArmEstimate]
    comparisons: list[scores.ArmComparison]
    cells: list[ReportCell]
    divergence: dict[str, list[str]]
    tasks: list[str]
    damage: int = 0
    unscored_tasks: list[str] = []
    unpriced: int = 0
    numeric_verifiers: list[str] = []


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
    unpriced = sum(result.scores.get("cost_usd") is None for result in scored)
    verifiers = (name for name in config.outcome_names if name not in MEASURES)
    return ExperimentReport(
        *(config.name, config.hypothesis, config.primary_outcome),
        *(config.attempts, len(scored), len(cells)),
        None if unpriced and not spent_usd else round(spent_usd, 9),
        config.max_budget_usd,
        scores.detectable_difference(config),
        arm_differences(config.arms),
        [scores.estimate_arm(config, scored, arm.name) for arm in config.arms],
        scores.compare_arms(config, scored),
        cells,
        {task.id: list(_divergence_lines(task.id, scored)) for task in config.tasks},
        [task.id for task in config.tasks],
        damage,
        sorted({task.id for task in config.tasks} - set(scores.scored_tasks(config))),
        unpriced,
        [name for name in verifiers if not scores.is_share(config, scored, name)],
    )


def _report_cell(
    config: ExperimentConfig, cell: Cell, results: Mapping[Cell, AttemptScored]
) -> ReportCell:
    result = results.get(cell)
    if result is None:
        return ReportCell(*cell, {}, "")
    turn = scores.deciding_step(result, list(results.values()), config.pass_outcome)
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
    """Return the heads and rows of the table of arms.

    Verifiers that give numbers have their means; the primary outcome also has its interval.
    """
    ks = sorted({k for arm in report.arms for k in arm.pass_at_k}, key=int)[1:][-1:]
    heads = ["arm", "attempts", "pass@1", "95 % interval", *(f"pass@{k}" for k in ks)]
    names = [*report.numeric_verifiers, *MEASURES]
    rows = []
    for arm in report.arms:
        interval = "-"
        if arm.interval is not None and arm.pass_at_1 is not None:
            interval = f"{100 * arm.interval.low:.0f} to {100 * arm.interval.high:.0f} %"
        shares = [_format_percent(arm.pass_at_k.get(k)) for k in ks]
        means = [_format_mean(name, arm, has_interval=name == report.primary) for name in names]
        first = [arm.name, str(arm.attempts), _format_percent(arm.pass_at_1)]
        rows.append([*first, interval, *shares, *means])
    return [*heads, *(MEASURE_NAMES.get(name, name) for name in names)], rows


def comparison_table(report: ExperimentReport) -> tuple[list[str], list[list[str]]]:
    """Return the heads and rows of the table of comparisons."""
    rows = []
    for item in report.comparisons:
        interval, test = "-", "not tested"
        if (span := item.interval) is not None:
            low, high = (_format_difference(item, limit) for limit in (span.low, span.high))
            interval = f"{low.removesuffix(' points').removesuffix(' s')} to {high}"
        if item.p_value is not None:
            verdict = "a finding" if item.is_finding else "no difference found"
            test = f"p = {item.p_value:.3g}, {item.p_value_adjusted:.3g} after Holm: {verdict}"
        pair, size = (
            f"{item.arm} against {item.baseline}",
            _format_difference(item, item.difference),
        )
        rows.append([pair, MEASURE_NAMES.get(item.outcome, item.outcome), size, interval, test])
    return ["arms", "outcome", "difference", "95 % interval", "test"], rows


def _format_difference(comparison: scores.ArmComparison, value: float) -> str:
    if comparison.is_share:
        return f"{round(100 * value):+d} points"
    return f"{'+' if value > 0 else ''}{format_amount(comparison.outcome, value)}"


def _format_mean(outcome: str, arm: scores.ArmEstimate, *, has_interval: bool) -> str:
    mean = arm.outcomes.get(outcome)
    values = [mean.mean if mean else None]
    if mean and mean.interval and has_interval:
        values += [mean.interval.low, mean.interval.high]
    text, *limits = (format_amount(outcome, value) for value in values)
    return f"{text} ({' to '.join(limits)})" if limits else text


def difference_limit(report: ExperimentReport, comparison: scores.ArmComparison) -> float:
    """Return where the axis of a drawn difference ends, to both sides of zero."""
    same = (item for item in report.comparisons if item.outcome == comparison.outcome)
    limits = [max(-span.low, span.high) for item in same if (span := item.interval)]
    return 1.0 if comparison.is_share else max(limits, default=1.0)


def draw_interval(interval: ConfidenceInterval, middle: float, start: float, end: float) -> str:
    """Return an interval drawn as text, with a mark at zero inside the axis."""
    low, high, dot, zero = (
        round((min(max(value, start), end) - start) / (end - start) * (_CELLS - 1))
        for value in (interval.low, interval.high, middle, 0.0)
    )
    cells = ["·"] * low + ["─"] * (high + 1 - low) + ["·"] * (_CELLS - 1 - high)
    cells[zero] = {"·": "│", "─": "┼"}[cells[zero]] if zero else cells[zero]
    cells[low], cells[high], cells[dot] = "├", "┤", "●"
    return "".join(cells)


def difference_table(report: ExperimentReport) -> tuple[list[str], list[list[str]]]:
    """Return the settings in which arms differ, each from shortly before the first difference on."""
    rows = []
    for key, values in report.arm_differences.items():
        known = ("" if value is None else value for value in values)
        texts = [value if isinstance(value, str) else json.dumps(value) for value in known]
        columns = enumerate(zip(*texts, strict=False))
        same = next((number for number, column in columns if len(set(column)) > 1), 0)
        start = max(same - _SHARED_CHARS, 0)
        cut = (f"…{text[start:]}" if start else text for text in texts)
        rows.append([key, *(one_line(text, 120) or "-" for text in cut)])
    return ["setting", *(arm.name for arm in report.arms)], rows


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


def summarize_design(report: ExperimentReport) -> str:
    """Return what the experiment can show, before it is paid for."""
    counts = (len(report.tasks), "task"), (len(report.arms), "arm"), (report.attempts, "attempt")
    listed = ", ".join(pluralize(*count) for count in counts)
    text = f"{listed} each; the primary outcome is {report.primary}. "
    if report.unscored_tasks:
        text += f"Tasks without it are not in pass@1: {', '.join(report.unscored_tasks)}. "
    if len(report.tasks) < scores.TASKS_MIN:
        text += f"Fewer than {scores.TASKS_MIN} tasks: results speak about these alone. "
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


def describe_budget(config: ExperimentConfig) -> str:
    """Return what limits the cost, before anything is paid."""
    unknown = dict.fromkeys(arm.model for arm in config.arms if not is_priced(arm.model))
    if unknown:
        return f"No price is known for {', '.join(unknown)}: nothing limits what that costs."
    if config.max_budget_usd is None:
        return "Nothing limits the cost: max_budget_usd is not set."
    return f"All attempts together cost at most about ${config.max_budget_usd:.2f}."


def describe_progress(report: ExperimentReport) -> str:
    """Return how many attempts have a result, how they ended, and what they cost."""
    text = f"{report.done} of {pluralize(report.planned, 'attempt')}"
    text += f", {describe_cost(report.cost_usd, report.unpriced)}"
    if report.max_budget_usd is not None:
        text += f" of at most ${report.max_budget_usd:.2f}"
    if report.cost_usd and 0 < report.done < report.planned:
        rest = report.cost_usd / report.done * (report.planned - report.done)
        text += f"; the others cost about ${rest:.4f} at this rate"
    ended = Counter((cell.stop_reason, cell.arm) for cell in report.cells if cell.session)
    listed = [f"{ended[key]} {' with '.join(key)}" for key in ended if key[0] != "completed"]
    text += f". Not completed: {', '.join(listed)}" if listed else ""
    return text + (f". {report.damage} damaged records were skipped" if report.damage else "")


def render_markdown(report: ExperimentReport) -> str:
    """Return the report as Markdown, with intervals drawn as text."""
    return _render("report.md.jinja", report=report)


def render_html(
    report: ExperimentReport,
    results: Mapping[Cell, AttemptScored],
    link: Callable[[ReportCell], str] | None = None,
) -> str:
    """Return the report as HTML: a whole file, or with `link` the inner part of a page.

    In a file a cell opens the steps of its attempt further down; on a page `link` names the
    page of its deciding step.
    """
    return _render(
        "report.html",
        report=report,
        is_file=link is None,
        link=link or (lambda cell: f"#cell-{cell.task}-{cell.arm}-{cell.attempt}"),
        steps=lambda cell: _steps_shown(results[Cell(cell.task, cell.arm, cell.attempt)], cell),
    )


def _render(template: str, **values: Any) -> str:
    """Return a template with these values; the Markdown one escapes them with its filters."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=select_autoescape(),
        undefined=StrictUndefined,
        trim_blocks=True,
        finalize=lambda value: make_inert(value) if type(value) is str else value,
    )
    functions: list[Callable[..., Any]] = [arm_table, comparison_table, difference_table]
    functions += [grid_table, describe_progress, difference_limit, draw_interval]
    functions += [format_amount, one_line]
    environment.globals |= {function.__name__: function for function in functions}
    environment.filters |= {"code": inline_code}
    environment.filters["md"] = lambda text: escape_markdown(text.replace("|", "¦"), 2_000)
    values |= {"finding": scores.FINDING, "design": summarize_design(values["report"])}
    return environment.get_template(template).render(values)


def _steps_shown(result: AttemptScored, cell: ReportCell) -> list[tuple[int, str, bool]]:
    first = max(0, cell.deciding_turn - _STEPS_SHOWN // 2)
    shown = list(enumerate(result.actions, 1))[first : first + _STEPS_SHOWN]
    return [(number, label, number == cell.deciding_turn) for number, (_, label) in shown]
