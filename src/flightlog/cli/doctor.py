"""`flightlog doctor`."""

import click

from flightlog.cli.output import json_option


@click.command(epilog="Example: flightlog doctor --json")
@click.option("--fix", is_flag=True, help="Put right what can be put right; never deletes anything.")
@click.option("--formats", "by_format", is_flag=True, help="Hold what the agent writes against the formats on file.")
@json_option("Print the findings as JSON.")
def doctor(*, fix: bool, by_format: bool, as_json: bool) -> int:
    """Check that everything is in order, and say what is not; exit code 3 means damaged data."""
    from flightlog.app.doctor import Level, examine, formats, mend
    from flightlog.cli.output import Progress, print_json
    from flightlog.model.text import inert

    progress = Progress("reading sessions")
    findings = formats() if by_format else [*(mend() if fix else []), *examine(progress)]
    progress.close()
    if as_json:
        print_json(findings)
    else:
        for finding in findings:
            click.echo(f"{finding.level.value:8}{finding.about:12}{inert(finding.text)}")
            if finding.next and finding.level is not Level.OK:
                click.secho(f"{'':20}{inert(finding.next)}", fg="cyan")
    return 3 if any(finding.level is Level.DAMAGE for finding in findings) else 0
