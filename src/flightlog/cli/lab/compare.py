"""`flightlog lab compare` and `lab lint`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flightlog.app.runtime import open_runtime
from flightlog.cli.options import AS_JSON, RUNS_DIR
from flightlog.cli.output import format_examples, json_option, print_json, print_table
from flightlog.model.errors import Unavailable
from flightlog.model.text import make_inert, one_line, pluralize

if TYPE_CHECKING:
    from flightlog.archive.trajectories import LintReport
    from flightlog.lab.statistics.analysis import (
        ExperimentAnalysis,
        GroupComparison,
        GroupSummary,
        QuestionResult,
        ShareEstimate,
    )
    from flightlog.lab.statistics.divergence import PathNode
    from flightlog.lab.statistics.inference import MeanEstimate
    from flightlog.views.atif.findings import LintFinding


@click.command(
    epilog=format_examples(
        "flightlog lab compare run-a run-b", "flightlog lab compare my-run --write"
    )
)
@click.argument("runs", nargs=-1, required=True, metavar="RUN [RUN…]")
@click.option("--by", type=click.Choice(["arguments", "tool"]), default="arguments", show_default=True,
              help="What makes two actions equal.")  # fmt: skip
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True,
    help="Seed for bootstrap and permutations.",
)  # fmt: skip
@click.option("--write", is_flag=True, help="Also write analysis.md to the run.")
@RUNS_DIR
@AS_JSON
def compare(
    runs: tuple[str, ...], runs_dir: Path, *, write: bool, as_json: bool, **how: Any
) -> None:
    """Compare runs, or the samples of one run.

    Shows outcome, steps, cost and files side by side; then shares of actions and verifier verdicts
    with intervals, and each variant against the recorded request, with an exact test and Holm's
    correction. Exit 75 if --write would replace a hand-written analysis.md.
    """
    from flightlog.cli.lab.inspect import print_comparison
    from flightlog.lab.inspect import compare_runs
    from flightlog.lab.service import open_run
    from flightlog.lab.statistics import service

    runtime = open_runtime()
    if write and len(runs) > 1:
        raise click.UsageError("--write takes one run, because each run has its own analysis.md")
    stores = [open_run(runtime, runs_dir, name) for name in runs]
    try:
        analysis = service.analyze_runs(runtime, stores, how["by"], how["seed"])
    except Unavailable as error:
        if write:
            raise
        click.echo(f"{error.message}: {error.hint}", err=True)
        analysis = None
    comparison = compare_runs(stores, runtime.program_path)
    root = service.build_divergence_tree(
        runtime,
        stores if len(stores) > 1 else service.list_run_family(runtime, stores[0]),
        how["by"],
    )
    if as_json:
        print_json(comparison | {"statistics": analysis, "divergence": _divergence_fields(root)})
    else:
        print_comparison(comparison)
        print_analysis(analysis) if analysis else None
        _print_divergence(root)
    if write and analysis:
        line = f"written: {make_inert(str(service.write_analysis(runtime, stores[0], analysis)))}"
        click.echo(line, err=True)


def print_analysis(analysis: "ExperimentAnalysis") -> None:
    """Print the statistics of the samples."""
    for answer in analysis.questions:
        recorded = one_line(answer.recorded_action, 90)
        line = make_inert(f"\n{answer.name}" + (f"  (recorded: {recorded})" if recorded else ""))
        click.echo(line)
        _print_groups(answer)
        for against in answer.comparisons:
            _print_against(against, answer)
    if analysis.test_count:
        click.echo(
            f"\n{pluralize(analysis.test_count, 'comparison')}; * marks p at or below "
            f"{analysis.significance_level:g} after {analysis.correction}'s correction. "
            f"Intervals have {analysis.confidence_level:.0%} confidence.",
            err=True,
        )


def _print_divergence(root: "PathNode") -> None:
    from flightlog.lab.statistics.divergence import iter_path_lines

    if len(root.addresses) > 1:
        click.echo("\ndivergence")
        for line in iter_path_lines(root, 90):
            click.echo(make_inert(f"  {line}"))


def _divergence_fields(root: "PathNode") -> list[dict[str, Any]]:
    from flightlog.lab.statistics.divergence import list_segments

    return [
        {
            "first_step": segment.first.depth,
            "last_step": segment.last.depth,
            "depth": segment.depth,
            "action": segment.first.action.label,
            "addresses": segment.first.addresses,
            "ended_addresses": segment.last.ended_addresses,
        }
        for segment in list_segments(root)
    ]


def _print_groups(answer: "QuestionResult") -> None:
    rows = [row for group in answer.groups for row in _group_rows(group)]
    print_table(["group", "what", "seen", "share", "", "interval"], rows, right=(2, 3))
    for group in answer.groups:
        agree = "" if group.agreement is None else f"  agreement: {group.agreement:.0%}"
        same = group.same_as_recorded
        recorded = f"  as recorded: {_format_share(same)}" if same else ""
        lost = f"  no response: {len(group.failures)}" if group.failures else ""
        amounts = "".join(
            f"  {_format_mean(name, amount)}" for name, amount in group.means.items() if amount
        )
        stopped = "  (stopped by --until-width)" if group.is_stopped_early else ""
        line = make_inert(f"  {group.name}: n = {group.n}{stopped}{agree}{recorded}{amounts}{lost}")
        click.echo(line)


def _group_rows(group: "GroupSummary") -> list[list[str]]:
    from flightlog.lab.statistics.divergence import draw_share_bar

    shares = [*group.actions[:10], *group.outcomes]
    rows = []
    for index, share in enumerate(shares):
        interval = f"{100 * share.interval.low:.0f} to {100 * share.interval.high:.0f} %"
        text = share.label or share.name
        name = (one_line(text, 60), f"{share.count}/{share.n}", f"{share.share:.0%}")
        rows.append(["" if index else group.name, *name, draw_share_bar(share), interval])
    if len(group.actions) > 10:
        rows.append(["", f"… {pluralize(len(group.actions) - 10, 'other action')}", "", "", "", ""])
    return rows


def _print_against(against: "GroupComparison", answer: "QuestionResult") -> None:
    from flightlog.lab.statistics.report import describe_test

    click.echo(make_inert(f"  {against.group} against {against.baseline}: {against.verdict}"))
    labels = {share.name: share.label for group in answer.groups for share in group.actions}
    for test in against.tests:
        mark = "*" if test.is_finding else " "
        click.echo(make_inert(f"   {mark} {one_line(describe_test(test, labels), 240)}"))


def _format_share(share: "ShareEstimate") -> str:
    return (
        f"{share.share:.0%} ({100 * share.interval.low:.0f} to {100 * share.interval.high:.0f} %)"
    )


def _format_mean(name: str, amount: "MeanEstimate") -> str:
    span = f" ({amount.interval.low:.4g} to {amount.interval.high:.4g})" if amount.interval else ""
    return f"{name} {amount.mean:.4g}{span}"


@click.command(
    "lint",
    epilog=format_examples(
        "flightlog lab lint runs/greet", "flightlog lab lint trajectory.json --strict"
    ),
)
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--source", default="", help="Recorded session to compare with (default: found by file or id)."
)
@click.option("--strict", is_flag=True, help="Count warnings as errors.")
@json_option("Print findings and fidelity as JSON.")
def lint(path: Path, *, source: str, strict: bool, as_json: bool) -> None:
    """Check ATIF trajectories at or below PATH.

    Checks more than schema validators do, and reports what the recording has and the trajectory
    lacks. Exit 1 on an error, with --strict also on a warning.
    """
    from flightlog.archive.trajectories import lint_path
    from flightlog.views.atif.lint import is_sound

    reports = lint_path(open_runtime(), path, source)
    if as_json:
        print_json([_lint_fields(report) for report in reports])
    else:
        for report in reports:
            _print_lint(report, path)
        found = [finding for report in reports for finding in report.findings]
        errors, warnings = map(len, _split_by_severity(found))
        line = f"{pluralize(len(reports), 'document')}, {pluralize(errors, 'error')}, {pluralize(warnings, 'warning')}"
        click.echo(line, err=True)
    if any(report.findings if strict else not is_sound(report.findings) for report in reports):
        raise click.exceptions.Exit(1)


def _split_by_severity(
    findings: "list[LintFinding]",
) -> "tuple[list[LintFinding], list[LintFinding]]":
    from flightlog.views.atif.findings import Severity

    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    return errors, [finding for finding in findings if finding.severity is not Severity.ERROR]


def _lint_fields(report: "LintReport") -> dict[str, object]:
    return {
        "path": report.path,
        "findings": [
            {
                "severity": finding.severity.value,
                "rule": finding.rule,
                "location": finding.location,
                "message": finding.message,
            }
            for finding in report.findings
        ],
        "fidelity": report.fidelity,
    }


def _print_lint(report: "LintReport", root: Path) -> None:
    name = report.path if root.is_file() else str(Path(report.path).relative_to(root))
    line = f"{make_inert(name)}: {'ok' if not report.findings else pluralize(len(report.findings), 'finding')}"
    click.echo(line)
    for finding in report.findings:
        text = make_inert(f"{finding.location}: {finding.message}")
        click.echo(f"  {finding.severity.value:7}  {finding.rule:20}  {text}")
    lost = [item for item in report.fidelity or () if item.missing_count]
    if lost:
        rows = [
            [item.element, f"{item.recorded_count:,}", f"{item.exported_count:,}", item.reason]
            for item in lost
        ]
        heads = ["  missing", "recorded", "kept", "reason"]
        print_table(heads, [[f"  {row[0]}", *row[1:]] for row in rows], right=(1, 2))
    elif report.fidelity is not None:
        click.echo("  complete: nothing of the recording is missing")
