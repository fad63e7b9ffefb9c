"""`flightlog doctor`."""

import click

from flightlog.app import open_runtime
from flightlog.cli.output import format_examples, json_option
from flightlog.model.runtime import Runtime


@click.command(epilog=format_examples("flightlog doctor --json", "flightlog doctor --verify"))
@click.option("--fix", is_flag=True, help="Put right what can be put right; never deletes anything.")
@click.option("--formats", "by_format", is_flag=True, help="Hold what the agent writes against the formats on file.")
@click.option("--verify", "by_manifest", is_flag=True, help="Read the archive back, restore what the agent still has.")
@json_option("Print the findings as JSON.")
def doctor(*, fix: bool, by_format: bool, by_manifest: bool, as_json: bool) -> int:
    """Check that everything is in order; exit code 3 means damaged data, 1 lost events or a full disk."""
    from flightlog.app.doctor import CheckLevel, check_formats, examine_installation, repair_installation
    from flightlog.cli.output import Progress, print_json
    from flightlog.model.text import make_inert

    runtime = open_runtime()
    if by_manifest:
        return _run_verify(runtime, accept=fix, as_json=as_json)
    progress = Progress("reading sessions")
    findings = (
        check_formats(runtime)
        if by_format
        else [*(repair_installation(runtime) if fix else []), *examine_installation(runtime, progress)]
    )
    progress.close()
    if as_json:
        print_json(findings)
    else:
        for finding in findings:
            click.echo(f"{finding.level.value:8}{finding.about:12}{make_inert(finding.text)}")
            if finding.next and finding.level is not CheckLevel.OK:
                click.secho(f"{'':20}{make_inert(finding.next)}", fg="cyan")
    levels = {finding.level for finding in findings}
    return 3 if CheckLevel.DAMAGE in levels else 1 if CheckLevel.FAILURE in levels else 0


def _run_verify(runtime: Runtime, *, accept: bool, as_json: bool) -> int:
    from flightlog.app.doctor import verify_archive
    from flightlog.cli.output import Progress, print_json
    from flightlog.model.text import make_inert, pluralize

    progress = Progress("reading the archive back")
    found = verify_archive(runtime, progress, accept=accept)
    progress.close()
    left = [fault for fault in found.faults if not fault.repaired]
    code = 3 if left else 75 if found.busy else 0
    if as_json:
        print_json(found)
        return code
    session = ""
    for fault in found.faults:
        if fault.session != session:
            session = fault.session
            click.echo(f"session {make_inert(session)}")
        done = f"; {fault.repaired}" if fault.repaired else ""
        click.echo(f"  {fault.what:11}{make_inert(f'{fault.file}: {fault.text}{done}')}")
    repaired = pluralize(len(found.faults) - len(left), "fault")
    click.echo(f"{pluralize(found.sessions, 'session')} read back, {repaired} repaired, {len(left):,} left")
    for message in found.busy:
        click.echo(f"not read back: {make_inert(message)}", err=True)
    return code
