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
    from flightlog.views.story import counted, moment, money

    flightlog = "flightlog --samples" if told.sample else "flightlog"
    if told.sample:
        _say("No sessions on this machine yet. These were recorded with Claude Code and ship with flightlog.\n")
    span = f"{moment(told.first_ms, zone, '%Y-%m-%d')} to {moment(told.last_ms, zone, '%Y-%m-%d')}"
    _say(
        f"{told.sessions:,} sessions in {told.projects:,} projects, {told.turns:,} turns, {span}",
        "flightlog session list",
    )
    tokens = f"{told.usage.total:,} tokens"
    _say(f"they cost {money(told.cost)} for {tokens}, each response counted once", f"{flightlog} session usage")
    if abs(told.unrecorded_usd) > 0.00005:
        _say(
            f"the clients counted ${told.unrecorded_usd:,.4f} more without a message on record; each has its reason",
            f"{flightlog} session usage --by session",
        )
    if told.dearest is not None:
        _say(
            f"dearest prompt: {told.dearest.prompt!r}, {counted(told.dearest.steps, 'step')}, {money(told.dearest.cost)}",
            f"{flightlog} session show '{_short(told.dearest.address)}'",
        )
    for share in told.busiest:
        _say(
            f"{share.project}: {counted(share.sessions, 'session')}, {counted(share.turns, 'turn')}, ${share.cost_usd:,.2f}",
            f"{flightlog} session list --project {share.project}",
        )
    _print_doomed(told, zone)
    if told.unknown_records or told.damaged:
        _say(f"{told.unknown_records:,} records of unknown type, {told.damaged:,} damaged spans", "flightlog doctor")


def _print_doomed(told: "Overview", zone: "tzinfo") -> None:
    from flightlog.views.story import counted, moment

    if told.sample:
        _say("see it work on a session made now", "flightlog demo")
        return
    if not told.doomed:
        _say(f"nothing is deleted within a week by Claude Code's {told.keep_days}-day clean-up", "flightlog doctor")
        return
    first = told.doomed[0]
    _say(
        f"deleted within a week by Claude Code's {told.keep_days}-day clean-up: {counted(len(told.doomed), 'session')}, "
        f"the first on {moment(first.deleted_ms, zone, '%Y-%m-%d')}: {first.title!r}",
        f"flightlog session export {first.session[:8]} --format html --output {first.session[:8]}.html",
    )


def _say(fact: str, command: str = "") -> None:
    from flightlog.model.text import inert

    click.echo(inert(fact))
    if command:
        click.secho(f"    {inert(command)}", fg="cyan")


def _short(address: str) -> str:
    session, mark, place = address.partition("#")
    return f"{session[:8]}{mark}{place}"
