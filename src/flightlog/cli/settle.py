"""`flightlog settle`."""

import click


@click.command(epilog="Examples: flightlog settle    flightlog settle 2123f2df")
@click.argument("session_id", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
def settle(session_id: str | None, *, as_json: bool) -> int:
    """Keep sessions for good: copy what is new, bring the index up to date; without an id, all of them."""
    from flightlog.app.settle import settle_all, settle_one
    from flightlog.cli.output import Progress, print_json
    from flightlog.model.address import parse
    from flightlog.model.text import inert
    from flightlog.views.story import counted

    progress = Progress("keeping session")
    report = settle_one(parse(session_id).session) if session_id else settle_all(progress)
    progress.close()
    if as_json:
        print_json(report)
    else:
        sealed = f", {counted(report.sealed, 'file')} sealed" if report.sealed else ""
        click.echo(f"{counted(report.sessions, 'session')} kept, {report.bytes_adopted:,} new bytes{sealed}")
    for line in report.failed:
        click.echo(f"not kept: {inert(line)}", err=True)
    for session in report.busy:
        click.echo(f"held by another settle: {session}", err=True)
    return 1 if report.failed else 75 if report.busy else 0
