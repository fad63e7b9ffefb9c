"""`flightlog up`: the first screen."""

import sys
from typing import TYPE_CHECKING

import click

from flightlog.app import open_runtime
from flightlog.cli.output import json_option

if TYPE_CHECKING:
    from datetime import tzinfo

    from flightlog.views.overview import Overview


@click.command(epilog="Example: flightlog up")
@click.option("--serve/--no-serve", default=None, help="Open the pages afterwards; on a terminal that is the default.")
@json_option("Print every figure as JSON.")
@click.pass_context
def up(context: click.Context, *, serve: bool | None, as_json: bool) -> None:
    """Say true things about your own sessions, each with its next command."""
    from flightlog.app.overview import build_overview
    from flightlog.cli.output import Progress, print_json

    runtime = open_runtime()
    progress = Progress("reading sessions")
    told = build_overview(runtime, progress)
    progress.close()
    if as_json:
        print_json(told)
    else:
        _print_overview(told, runtime.zone)
    watched = sys.stdout.isatty() and sys.stdin.isatty() and not as_json
    if serve or (serve is None and watched):
        _open_pages(context, asked_for=bool(serve))


def _open_pages(context: click.Context, *, asked_for: bool) -> None:
    """Open the pages; where they are not installed, say so only to somebody who asked."""
    from flightlog.model.errors import Unavailable

    assert context.parent is not None
    group = context.parent.command
    assert isinstance(group, click.Group)
    pages = group.get_command(context.parent, "serve")
    assert pages is not None
    try:
        context.invoke(pages, port=0, no_open=False, read_only=False)
    except Unavailable:
        if asked_for:
            raise


def _print_overview(told: "Overview", zone: "tzinfo") -> None:
    from flightlog.model.text import make_inert
    from flightlog.views.overview import iter_facts

    if told.sample:
        click.echo("No sessions on this machine yet. These were recorded with Claude Code and ship with flightlog.\n")
    for fact in iter_facts(told, zone):
        click.echo(make_inert(fact.text))
        click.secho(f"    {make_inert(fact.next)}", fg="cyan")
