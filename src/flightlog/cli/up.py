"""`flightlog up`: the first screen."""

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from datetime import tzinfo

    from flightlog.views.overview import Overview


@click.command(epilog="Example: flightlog up")
@click.option("--json", "as_json", is_flag=True, help="Print every figure as JSON.")
def up(*, as_json: bool) -> None:
    """Say true things about your own sessions, each with its next command."""
    from flightlog.app import local_zone
    from flightlog.app.overview import overview
    from flightlog.cli.output import Progress, print_json

    progress = Progress("reading sessions")
    told = overview(progress)
    progress.close()
    if as_json:
        print_json(told)
    else:
        _print(told, local_zone())


def _print(told: "Overview", zone: "tzinfo") -> None:
    from flightlog.model.text import inert
    from flightlog.views.overview import facts

    if told.sample:
        click.echo("No sessions on this machine yet. These were recorded with Claude Code and ship with flightlog.\n")
    for fact in facts(told, zone):
        click.echo(inert(fact.text))
        click.secho(f"    {inert(fact.next)}", fg="cyan")
