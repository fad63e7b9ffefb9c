"""Compare, lint."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flightlog.app.runtime import open_runtime
from flightlog.cli.options import AS_JSON, RUNS_DIR
from flightlog.cli.output import format_examples, json_option
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


@click.command(epilog=format_examples("flightlog lab compare run-a run-b", "flightlog lab compare my-run --write"))
@click.argument("runs", nargs=-1, required=True, metavar="RUN [RUN…]")
@click.option("--by", type=click.Choice(["arguments", "tool"]), default="arguments", show_default=True,
              help="When two actions are the same.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="For bootstrap and permutations.")
@click.option("--write", is_flag=True, help="Write analysis.md into the run: every sentence with its samples.")
@RUNS_DIR
@AS_JSON
def compare(runs: tuple[str, ...], runs_dir: Path, *, write: bool, as_json: bool, **how: Any) -> None:
    """Compare runs session by session, or what was sampled, replicated and branched off one run.

    Outcome, steps, cost and files side by side; then shares of actions and verdicts of verifiers with
    intervals, and each variant against the request as recorded, with an exact test under Holm's rule.
    Exit 75 when --write would replace an analysis.md that a person wrote.
    """
    from flightlog.cli.lab.inspect import print_comparison
    from flightlog.cli.output import print_json
    from flightlog.lab.inspect import compare_runs
    from flightlog.lab.service import open_run
    from flightlog.lab.statistics import service
    from flightlog.lab.statistics.analysis import as_wire

    runtime = open_runtime()
    if write and len(runs) > 1:
        raise click.UsageError("--write takes one run: each has an analysis.md of its own")
    books = [open_run(runtime, runs_dir, each) for each in runs]
    try:
        analysis = service.analyze_runs(runtime, books, how["by"], how["seed"])
    except Unavailable as error:
        if write:
            raise
        click.echo(f"{error.message}: {error.hint}", err=True)
        analysis = None
    told = compare_runs(books, runtime.program_path)
    root = service.build_divergence_tree(
        runtime, books if len(books) > 1 else service.list_run_family(runtime, books[0]), how["by"]
    )
    if as_json:
        print_json(told | {"statistics": as_wire(analysis) if analysis else None, "ways": _divergence_fields(root)})
    else:
        print_comparison(told)
        print_analysis(analysis) if analysis else None
        _print_divergence(root)
    if write and analysis:
        click.echo(f"written: {make_inert(str(service.write_analysis(runtime, books[0], analysis)))}", err=True)


def print_analysis(analysis: "ExperimentAnalysis") -> None:
    """Print what samples mean."""
    for answer in analysis.answers:
        click.echo(
            make_inert(f"\n{answer.name}" + (f"  (then: {one_line(answer.recorded, 90)})" if answer.recorded else ""))
        )
        _print_groups(answer)
        for against in answer.against:
            _print_against(against, answer)
    if analysis.tests:
        click.echo(
            f"\n{pluralize(analysis.tests, 'comparison')}; a finding is what {analysis.rule}'s rule leaves at or below "
            f"{analysis.level:g}. Intervals hold with {analysis.confidence:.0%}.",
            err=True,
        )


def _print_divergence(root: "PathNode") -> None:
    from flightlog.lab.statistics.divergence import iter_path_lines

    if len(root.places) > 1:
        click.echo("\nwhere ways part")
        for line in iter_path_lines(root, 90):
            click.echo(make_inert(f"  {line}"))


def _divergence_fields(root: "PathNode") -> list[dict[str, Any]]:
    from flightlog.lab.statistics.divergence import list_segments

    return [
        {
            "first": each.first.depth,
            "last": each.last.depth,
            "level": each.level,
            "action": each.first.action.label,
            "sessions": each.first.places,
            "ends": each.last.ends,
        }
        for each in list_segments(root)
    ]


def _print_groups(answer: "QuestionResult") -> None:
    from flightlog.cli.output import print_table

    rows = [row for group in answer.groups for row in _group_rows(group)]
    print_table(["group", "what", "seen", "share", "", "interval"], rows, right=(2, 3))
    for group in answer.groups:
        agree = "" if group.agreement is None else f"  two agree: {group.agreement:.0%}"
        again = f"  as recorded: {_format_share(group.as_recorded)}" if group.as_recorded else ""
        lost = f"  no answer: {len(group.failed)}" if group.failed else ""
        amounts = "".join(f"  {_format_mean(name, each)}" for name, each in group.amounts.items() if each)
        stopped = "  (stopped by --until-width)" if group.stopped else ""
        click.echo(make_inert(f"  {group.name}: n = {group.n}{stopped}{agree}{again}{amounts}{lost}"))


def _group_rows(group: "GroupSummary") -> list[list[str]]:
    from flightlog.lab.statistics.divergence import draw_share_bar

    shares = [*group.actions[:10], *group.outcomes]
    rows = [
        [
            "" if place else group.name,
            one_line(each.label or each.name, 60),
            f"{each.hits}/{each.n}",
            f"{each.share:.0%}",
            draw_share_bar(each),
            f"{100 * each.interval.low:.0f} to {100 * each.interval.high:.0f} %",
        ]
        for place, each in enumerate(shares)
    ]
    return rows + (
        [["", f"… {pluralize(len(group.actions) - 10, 'other action')}", "", "", "", ""]]
        if len(group.actions) > 10
        else []
    )


def _print_against(against: "GroupComparison", answer: "QuestionResult") -> None:
    from flightlog.lab.statistics.report import describe_effect

    click.echo(make_inert(f"  {against.group} against {against.base}: {against.verdict}"))
    labels = {share.name: share.label for group in answer.groups for share in group.actions}
    for test in against.tests:
        mark = "*" if test.is_finding else " "
        said = f"{describe_effect(test, labels)}; {test.test}, p = {test.p:.3g}, {test.p_adjusted:.3g} after Holm"
        click.echo(make_inert(f"   {mark} {one_line(said, 240)}"))


def _format_share(share: "ShareEstimate") -> str:
    return f"{share.share:.0%} ({100 * share.interval.low:.0f} to {100 * share.interval.high:.0f} %)"


def _format_mean(name: str, amount: "MeanEstimate") -> str:
    span = f" ({amount.interval.low:.4g} to {amount.interval.high:.4g})" if amount.interval else ""
    return f"{name} {amount.mean:.4g}{span}"


@click.command(
    "lint",
    epilog=format_examples("flightlog lab lint runs/greet", "flightlog lab lint trajectory.json --strict"),
)
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--source", default="", help="The recorded session to compare with; else the transcript beside, or by its id."
)
@click.option("--strict", is_flag=True, help="Count warnings as errors.")
@json_option("Print findings and fidelity as JSON.")
def lint(path: Path, *, source: str, strict: bool, as_json: bool) -> None:
    """Find what is wrong with the ATIF trajectory at PATH, or with all below it, beyond what validators mind.

    Beside it stands a fidelity report: what the recording had that the trajectory has not.
    Exit 1 when there is an error, or with --strict a warning.
    """
    from flightlog.archive.trajectories import lint_path
    from flightlog.cli.output import print_json
    from flightlog.views.atif.lint import is_sound

    linted = lint_path(open_runtime(), path, source)
    if as_json:
        print_json([_lint_fields(each) for each in linted])
    else:
        for each in linted:
            _print_lint(each, path)
        errors, warnings = (
            sum(map(len, kinds)) for kinds in zip(*(_split_by_severity(each.findings) for each in linted), strict=True)
        )
        click.echo(
            f"{pluralize(len(linted), 'document')}, {pluralize(errors, 'error')}, {pluralize(warnings, 'warning')}",
            err=True,
        )
    bad = any(each.findings if strict else not is_sound(each.findings) for each in linted)
    if bad:
        raise click.exceptions.Exit(1)


def _split_by_severity(findings: "list[LintFinding]") -> "tuple[list[LintFinding], list[LintFinding]]":
    from flightlog.views.atif.findings import Severity

    errors = [each for each in findings if each.severity is Severity.ERROR]
    return errors, [each for each in findings if each.severity is not Severity.ERROR]


def _lint_fields(linted: "LintReport") -> dict[str, object]:
    return {
        "path": linted.path,
        "findings": [
            {"severity": each.severity.value, "rule": each.rule, "where": each.where, "text": each.text}
            for each in linted.findings
        ],
        "fidelity": linted.fidelity,
    }


def _print_lint(linted: "LintReport", asked: Path) -> None:
    from flightlog.cli.output import print_table
    from flightlog.model.text import make_inert

    name = linted.path if asked.is_file() else str(Path(linted.path).relative_to(asked))
    click.echo(f"{make_inert(name)}: {'ok' if not linted.findings else pluralize(len(linted.findings), 'finding')}")
    for each in linted.findings:
        click.echo(f"  {each.severity.value:7}  {each.rule:20}  {make_inert(each.where)}: {make_inert(each.text)}")
    lost = [kept for kept in linted.fidelity or () if kept.missing_count]
    if lost:
        rows = [[kept.what, f"{kept.recorded:,}", f"{kept.kept:,}", kept.why] for kept in lost]
        print_table(
            ["  the recording had", "recorded", "kept", "why"],
            [[f"  {row[0]}", *row[1:]] for row in rows],
            right=(1, 2),
        )
    elif linted.fidelity is not None:
        click.echo("  nothing of the recording is missing")
