"""`flightlog lab experiment`: run, status, resume, report, add-attempts."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flightlog.app.runtime import open_runtime
from flightlog.cli.options import AS_JSON, ON, RUNS_DIR
from flightlog.cli.output import format_examples, print_json, print_table
from flightlog.model.text import make_inert, one_line

if TYPE_CHECKING:
    from flightlog.lab.experiment.report import ExperimentReport
    from flightlog.lab.experiment.store import AttemptScored, ExperimentStore

_BUDGET = click.option(
    "--max-budget-usd",
    type=click.FloatRange(0, min_open=True),
    help="Most to spend on the experiment, in USD.",
)


@click.group(epilog="Example: flightlog lab experiment run experiment.yaml")
def experiment() -> None:
    """Run tasks with several arms; compare them."""


@experiment.command("run", epilog="Example: flightlog lab experiment run experiment.yaml --dry-run")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--name", default="", help="Name, instead of the file's.")
@click.option("--dry-run", is_flag=True, help="Check the file and show what it can find.")
@ON
@RUNS_DIR
@AS_JSON
def run_file(file: Path, runs_dir: Path, *, on: str, as_json: bool, **arguments: Any) -> int:
    """Run every task of FILE with every arm.

    Prints the differences between arms and the smallest difference that can be found before
    anything is spent. Exit 1 if an attempt did not complete.
    """
    from flightlog.lab.experiment import report, service
    from flightlog.lab.experiment.store import create_experiment

    runtime = open_runtime(on=on)
    config, text = service.read_experiment(runtime, file, arguments["name"])
    plan = report.build_report(config, {})
    for key, *values in report.difference_table(plan)[1]:
        shown = " | ".join(one_line(value, 60) for value in values)
        click.echo(make_inert(f"arms differ in {key}: {shown}"), err=True)
    if len(plan.arms) > 1 and not plan.arm_differences:
        click.echo("the arms do not differ in any setting", err=True)
    click.echo(make_inert(report.summarize_design(plan)), err=True)
    click.echo(make_inert(report.describe_budget(config)), err=True)
    if arguments["dry_run"]:
        if as_json:
            print_json(plan)
        return 0
    store = create_experiment(runtime, (runs_dir / config.name).absolute(), config, text)
    store = service.resume_experiment(runtime, store, _ExperimentProgress())
    return _print_results(store, as_json=as_json)


@experiment.command("resume", epilog="Example: flightlog lab experiment resume rounding")
@click.argument("name")
@_BUDGET
@ON
@RUNS_DIR
@AS_JSON
def resume_named(
    name: str, runs_dir: Path, *, on: str, as_json: bool, max_budget_usd: float | None
) -> int:
    """Continue an experiment after any end.

    Attempts with a result are kept; those in flight when the process died start again. Exit 1 if an
    attempt did not complete.
    """
    return _continue_experiment(name, runs_dir, (0, max_budget_usd), on=on, as_json=as_json)


@experiment.command(
    "add-attempts", epilog="Example: flightlog lab experiment add-attempts rounding 5"
)
@click.argument("name")
@click.argument("count", type=click.IntRange(1, 1000))
@_BUDGET
@ON
@RUNS_DIR
@AS_JSON
def add_attempts(
    name: str, count: int, runs_dir: Path, *, max_budget_usd: float | None, **where: Any
) -> int:
    """Try every task COUNT more times.

    Decide the number before you look at results: adding attempts until a difference appears finds
    one where there is none. Exit 1 if an attempt did not complete.
    """
    return _continue_experiment(name, runs_dir, (count, max_budget_usd), **where)


@experiment.command("status", epilog="Example: flightlog lab experiment status")
@click.argument("name", required=False)
@RUNS_DIR
@AS_JSON
def show_status(name: str | None, runs_dir: Path, *, as_json: bool) -> None:
    """Show how far experiments are."""
    from flightlog.lab.experiment.service import list_experiments, open_experiment
    from flightlog.lab.experiment.store import ExperimentStore, describe_cost

    runtime = open_runtime()
    paths = [open_experiment(runtime, runs_dir, name).path] if name else list_experiments(runs_dir)
    rows = [ExperimentStore(path, runtime).status for path in paths]
    if as_json:
        print_json(rows)
        return
    table = []
    for row in rows:
        ended = "done" if row.done == row.planned else "stopped"
        state = "running" if row.is_running else ended
        cost = describe_cost(row.cost_usd, row.unpriced)
        table.append([row.name, f"{row.done}/{row.planned}", cost, state])
    print_table(["experiment", "attempts", "cost", "state"], table, right=(1, 2))


@experiment.command(
    "report",
    epilog=format_examples(
        "flightlog lab experiment report rounding",
        "flightlog lab experiment report rounding --html rounding.html --markdown rounding.md",
    ),
)
@click.argument("name")
@click.option(
    "--html", type=click.Path(path_type=Path, dir_okay=False), help="Write one HTML file."
)
@click.option(
    "--markdown", type=click.Path(path_type=Path, dir_okay=False), help="Write one Markdown file."
)
@RUNS_DIR
@AS_JSON
def show_report(
    name: str, runs_dir: Path, *, html: Path | None, markdown: Path | None, as_json: bool
) -> None:
    """Report an experiment, finished or not."""
    from flightlog.lab.experiment.report import render_html, render_markdown, report_experiment
    from flightlog.lab.experiment.service import open_experiment
    from flightlog.store.files import replace_file

    store = open_experiment(open_runtime(), runs_dir, name)
    built = report_experiment(store)
    files = {html: render_html(built, store.results)} if html else {}
    files |= {markdown: render_markdown(built)} if markdown else {}
    for path, text in files.items():
        replace_file(path.absolute(), text.encode(), mode=0o644)
        click.echo(f"written: {make_inert(str(path))}", err=True)
    print_json(built) if as_json else print_report(built)


def _continue_experiment(
    name: str, runs_dir: Path, more: tuple[int, float | None], *, on: str, as_json: bool
) -> int:
    from flightlog.lab.experiment import service
    from flightlog.lab.experiment.store import AttemptsAdded

    runtime = open_runtime(on=on)
    store = service.open_experiment(runtime, runs_dir, name)
    added = AttemptsAdded(*more) if any(more) else None
    store = service.resume_experiment(runtime, store, _ExperimentProgress(), added)
    return _print_results(store, as_json=as_json)


def _print_results(store: "ExperimentStore", *, as_json: bool) -> int:
    from flightlog.lab.experiment.report import report_experiment

    built = report_experiment(store)
    print_json(built) if as_json else print_report(built)
    return int(any(cell.stop_reason != "completed" for cell in built.cells))


class _ExperimentProgress:
    """Print a line for each scored attempt; on a terminal also how many run."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()

    def __call__(
        self, store: "ExperimentStore", scored: "AttemptScored | None", running: int
    ) -> None:
        from flightlog.lab.experiment.store import describe_cost

        status = store.status
        count = f"{status.done}/{status.planned}"
        erase = "\r\x1b[K" if self._live else ""
        if scored is not None:
            words = [f"{name} {'passed' if ok else 'failed'}" for name, ok in scored.passed.items()]
            if scored.stop_reason != "completed" or not words:
                words.insert(0, scored.stop_reason)
            text = f"{count:>9}  {scored.task} {scored.arm} {scored.attempt}: {', '.join(words)}"
            cost = describe_cost(status.cost_usd, status.unpriced)
            click.echo(erase + make_inert(f"{one_line(text, 120)}  {cost}"), err=True)
        if self._live:
            click.echo(f"{erase}{count:>9}  {running} running", err=True, nl=False)


def print_report(built: "ExperimentReport") -> None:
    """Print the table of arms, the comparisons and the grid."""
    from flightlog.lab.experiment import report

    click.echo(make_inert(f"{built.name}: {report.describe_progress(built)}"))
    heads, rows = report.arm_table(built)
    print_table(heads, rows, right=tuple(n for n in range(1, len(heads)) if n != 3))
    if built.comparisons:
        print_table(*report.comparison_table(built), right=(2,))
    print_table(*report.grid_table(built))
