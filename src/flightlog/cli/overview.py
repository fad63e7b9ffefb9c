"""Up, status, demo."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from flightlog.app.runtime import open_runtime
from flightlog.cli.output import format_examples, json_option
from flightlog.model.text import pluralize

if TYPE_CHECKING:
    from datetime import tzinfo

    from flightlog.live.collector import LiveState
    from flightlog.model.runtime import Runtime
    from flightlog.views.overview import Overview


@click.group(invoke_without_command=True, epilog=format_examples("flightlog demo", "flightlog demo rewind"))
@json_option("Print the recorded session and its usage as JSON.")
@click.pass_context
def demo(context: click.Context, *, as_json: bool) -> None:
    """Let a scripted agent do a small piece of real work, and show what was recorded."""
    runtime = open_runtime()
    if context.invoked_subcommand is not None:
        return
    from datetime import UTC

    from flightlog.cli.output import print_json, print_story
    from flightlog.cli.usage import print_usage
    from flightlog.model.usage import Breakdown
    from flightlog.setup.demo import SEARCHED, perform_demo
    from flightlog.usage.report_json import report_json
    from flightlog.views.transcript import RenderOptions, render_session
    from flightlog.views.transcript_formats import short_address

    click.echo("a scripted agent works in a directory of its own; nothing of yours is touched", err=True)
    with perform_demo(runtime) as shown:
        told = shown.archive.read_session(shown.session)
        report = shown.archive.usage_report(Breakdown.SESSION, UTC)
    if as_json:
        print_json(
            {"session": told, "usage": report_json(report, "UTC"), "kept_bytes": shown.kept_bytes, "found": shown.found}
        )
        return
    print_story(render_session(told, RenderOptions(runtime.zone)))
    click.echo()
    print_usage(report)
    same = "the same" if shown.same_without_the_agent else "NOT the same"
    click.echo(f"\nkept for good: {shown.kept_bytes:,} bytes; told from our copy alone it is {same}")
    click.echo(
        f"search for {SEARCHED!r}: {', '.join(short_address(address) for address in shown.found) or 'nothing found'}"
    )
    click.echo("\nwhile it ran, `flightlog watch` showed:\n")
    for line in shown.board:
        click.echo(f"  {line}".rstrip())
    click.echo("\nyour own sessions: flightlog up", err=True)


@demo.command(epilog="Example: flightlog demo rewind")
@json_option("Print both ends as JSON.")
def rewind(*, as_json: bool) -> int:
    """An agent gives in at turn 7; go back there, say one sentence, and see both ends side by side.

    Exit 1 when the branch is not exact or its work is not right.
    """
    import msgspec

    from flightlog.cli.lab.inspect import print_side_by_side
    from flightlog.cli.lab.run import RunProgress
    from flightlog.cli.output import print_json, print_table
    from flightlog.setup.demo import ASKED, SAID, TURN, perform_rewind

    click.echo("an agent works in a directory of its own, offline; nothing of yours is touched", err=True)
    with perform_rewind(open_runtime(), RunProgress()) as shown:
        told = msgspec.to_builtins(shown)
    certificate = told["replay"]["certificate"] or {}
    ends = [each["sessions"][0] for each in (told["source"], told["branch"])]
    passed = [all(one["passed"] for one in each["verifiers"]) for each in ends]
    if as_json:
        print_json(told)
        return int(certificate.get("verdict") != "exact+prompt" or passed != [False, True])
    click.echo(f"asked: {ASKED}\nback to turn {TURN}, where it was said: {SAID}\n")
    print_side_by_side(told["compared"]["side_by_side"], ["as it went", "from there again"])
    rows = [
        [name, "right" if good else "WRONG", str(end["num_turns"]), f"${end['total_cost_usd'] or 0:.4f}"]
        for name, good, end in zip(("as it went", "from there again"), passed, ends, strict=True)
    ]
    click.echo()
    print_table(["", "total(…)", "turns", "cost"], rows, right=(2, 3))
    replaced = certificate.get("replaced", [])
    client = "Claude Code" if told["agent"] == "claude_code" else "the scripted agent"
    click.echo(f"\ncertificate: {certificate.get('verdict', 'none')}, decided before the first request was sent")
    click.echo(f"  {client}, {certificate.get('method', '')}")
    click.echo(f"  places where the client's own context was another, replaced: {len(replaced)}")
    click.echo("\nyour own runs: flightlog lab replay RUN --list-turns", err=True)
    return int(certificate.get("verdict") != "exact+prompt" or passed != [False, True])


@click.command(epilog="Example: flightlog status --json")
@json_option("Print the figures as JSON.")
def status(*, as_json: bool) -> None:
    """Say who is running, who pays and what is wrong, then how the recording stands: found, kept, sealed, lost."""
    import msgspec

    from flightlog.cli.output import print_json
    from flightlog.live.service import watch_here
    from flightlog.recorder.overview import age_ms
    from flightlog.recorder.overview import read_status as look
    from flightlog.views.transcript import format_timestamp

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
        from flightlog.cli.dataset_output import safety_line

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
    from flightlog.cli.output import print_json
    from flightlog.live.service import watch_here

    lives = watch_here(runtime)
    if as_json:
        print_json([live_json(runtime, each) for each in lives])
        return
    show_dashboard(runtime, lives)


def show_dashboard(runtime: "Runtime", lives: "Sequence[LiveState]") -> None:
    """Print the board, as wide as the terminal."""
    import os
    import shutil

    from flightlog.cli.live import paint_lines
    from flightlog.live.dashboard import TerminalSize, dashboard_lines

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 140
    color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    for line in paint_lines(dashboard_lines(lives, TerminalSize(width, 0, runtime.zone)), color=color):
        click.echo(line)


def live_json(runtime: "Runtime", live: "LiveState") -> dict[str, Any]:
    """What was gathered, in the names of the file, fit to be passed on: a path or a branch may hold a secret."""
    from flightlog.live.service import redact_for_output
    from flightlog.live.state import to_wire

    told = {"configDir": live.config_dir, "broken": live.broken, "state": to_wire(live.state)}
    return redact_for_output(runtime, told)


@click.command(epilog="Example: flightlog up")
@click.option("--serve/--no-serve", default=None, help="Open the pages afterwards; on a terminal that is the default.")
@json_option("Print every figure as JSON.")
@click.pass_context
def up(context: click.Context, *, serve: bool | None, as_json: bool) -> None:
    """Say true things about your own sessions, each with its next command."""
    from flightlog.cli.output import Progress, print_json
    from flightlog.recorder.overview import build_overview

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
