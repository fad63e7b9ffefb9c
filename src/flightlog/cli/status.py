"""`flightlog status`."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from flightlog.app import open_runtime
from flightlog.cli.output import json_option
from flightlog.model.text import pluralize

if TYPE_CHECKING:
    from flightlog.live.gather import LiveState
    from flightlog.model.runtime import Runtime


@click.command(epilog="Example: flightlog status --json")
@json_option("Print the figures as JSON.")
def status(*, as_json: bool) -> None:
    """Say who is running, who pays and what is wrong, then how the recording stands: found, kept, sealed, lost."""
    import msgspec

    from flightlog.app.live import watch_here
    from flightlog.app.status import age_ms
    from flightlog.app.status import read_status as look
    from flightlog.cli.output import print_json
    from flightlog.views.story import format_timestamp

    runtime = open_runtime()
    lives = watch_here(runtime)
    told = look(runtime)
    if as_json:
        print_json({**msgspec.to_builtins(told), "live": [live_json(runtime, each) for each in lives]})
        return
    show_dashboard(runtime, lives)
    click.echo()
    click.echo(f"{pluralize(told.sessions_live, 'session')} in the agent's own files, {told.bytes_live:,} bytes")
    gone = f", {told.only_kept:,} of them deleted by the agent since" if told.only_kept else ""
    sealed = f"{told.bytes_kept:,} bytes, {told.bytes_sealed:,} of them sealed"
    click.echo(f"{pluralize(told.sessions_kept, 'session')} kept by us{gone}, {sealed}")
    if told.not_kept:
        click.echo(f"{pluralize(told.not_kept, 'session')} not kept yet")
        click.secho("    flightlog settle", fg="cyan")
    if told.last_record_ms is not None:
        click.echo(f"last record {(age_ms(runtime, told) or 0) // 1000:,} s ago")
        when = format_timestamp(told.first_deletion_ms, runtime.zone, "%Y-%m-%d")
        click.echo(f"the agent deletes the first of them on {when}")
    if told.dataset is not None:
        from flightlog.cli.dataset_talk import safety_line

        click.echo(f"training rows here: {safety_line(told.dataset, runtime.clock.now_ms())}")
    if told.damaged_sessions:
        click.echo(f"{pluralize(told.damaged_sessions, 'archived session')} damaged")
        click.secho("    flightlog doctor --verify", fg="cyan")
    if told.lost_events:
        click.echo(f"{pluralize(told.lost_events, 'hook event')} could not be written down")
        click.secho("    flightlog doctor", fg="cyan")
    click.echo(f"index {told.index_bytes:,} bytes, all of it below {told.home}")


def print_dashboard(runtime: "Runtime", *, as_json: bool) -> None:
    """Look once and show the board."""
    from flightlog.app.live import watch_here
    from flightlog.cli.output import print_json

    lives = watch_here(runtime)
    if as_json:
        print_json([live_json(runtime, each) for each in lives])
        return
    show_dashboard(runtime, lives)


def show_dashboard(runtime: "Runtime", lives: "Sequence[LiveState]") -> None:
    """Print the board, as wide as the terminal."""
    import os
    import shutil

    from flightlog.cli.watch import paint_lines
    from flightlog.live.board import TerminalSize, dashboard_lines

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 140
    color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    for line in paint_lines(dashboard_lines(lives, TerminalSize(width, 0, runtime.zone)), color=color):
        click.echo(line)


def live_json(runtime: "Runtime", live: "LiveState") -> dict[str, Any]:
    """What was gathered, in the names of the file, fit to be passed on: a path or a branch may hold a secret."""
    from flightlog.app.live import redact_for_output
    from flightlog.live.state import to_wire

    told = {"configDir": live.config_dir, "broken": live.broken, "state": to_wire(live.state)}
    return redact_for_output(runtime, told)
