"""`flightlog lab lint`: what is wrong with trajectories, and what they lost."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from flightlog.app import open_runtime
from flightlog.cli.output import format_examples, json_option
from flightlog.model.text import pluralize

if TYPE_CHECKING:
    from flightlog.app.trajectories import LintReport
    from flightlog.views.atif.findings import LintFinding


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
    from flightlog.app.trajectories import lint_path
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
