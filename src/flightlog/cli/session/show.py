"""`flightlog session show` and `session follow`."""

from functools import partial

import click

from flightlog.app.runtime import IdleTimer, open_runtime
from flightlog.cli.output import format_examples, json_option, name_program, print_json
from flightlog.model.errors import Damage
from flightlog.model.text import pluralize


@click.command(
    epilog=format_examples(
        "flightlog session show 2123f2df", "flightlog session show '2123f2df#1.2' --full"
    )
)
@click.argument("address")
@click.option("--full", is_flag=True, help="Show everything, without shortening.")
@click.option("--brief", is_flag=True, help="Show prompts, last answers and failures only.")
@json_option("Print the session, turn or step as JSON.")
def show(address: str, *, full: bool, brief: bool, as_json: bool) -> None:
    """Show the transcript of a session.

    ADDRESS is SESSION, SESSION#turn or SESSION#turn.step. Any unique prefix of a session id works.
    A terminal gets it through a pager ($PAGER; PAGER=cat for none).
    """
    if full and brief:
        raise click.UsageError("--full and --brief exclude each other")
    from msgspec.structs import asdict, replace

    from flightlog.analysis.findings import describe_finding
    from flightlog.analysis.findings.rank import find_findings
    from flightlog.archive.archive import open_archive
    from flightlog.archive.session_reader import read_own_usage
    from flightlog.cli.session.story import print_story
    from flightlog.model.addresses import parse_address
    from flightlog.views.session.timeline import find_part
    from flightlog.views.transcript import (
        RenderOptions,
        render_passage,
        render_session,
        select_brief,
    )

    runtime = open_runtime()
    parsed = parse_address(address)
    archive = open_archive(runtime)
    recorded = archive.read_session(parsed.session)
    is_part = bool(parsed.turn or parsed.subagent)
    findings = () if is_part else find_findings(recorded)
    if as_json:
        part = find_part(replace(recorded, title=recorded.heading), parsed)
        print_json(part if is_part else asdict(part) | {"findings": findings})
        return
    outputs = partial(archive.read_spilled_output, recorded.id)
    usage, notes = read_own_usage(archive, recorded.id), tuple(map(describe_finding, findings))
    options = RenderOptions(runtime.zone, full, outputs, name_program(), usage, notes)
    whole = render_session(recorded, options)
    lines = render_passage(recorded, parsed, options) if is_part else whole
    print_story(select_brief(lines) if brief else lines, paged=True)


@click.command(epilog="Example: flightlog session follow 2123f2df")
@click.argument("session_id", required=False)
@click.option(
    "--idle", default=0.0, help="Stop after this many seconds without records; 0 never stops."
)
@json_option("Print one JSON object per record.")
def follow(session_id: str | None, *, idle: float, as_json: bool) -> None:
    """Print a session as it grows. Without an id, follow the one with the newest record."""
    from flightlog.archive.archive import open_archive
    from flightlog.archive.session_reader import follow_entries
    from flightlog.cli.session.story import print_story
    from flightlog.model.addresses import parse_address
    from flightlog.views.json_output import as_json_line
    from flightlog.views.transcript_formats import FollowFormatter

    archive, timer = open_archive(open_runtime()), IdleTimer(idle)
    if not session_id and not archive.recordings:
        click.echo("no session yet; waiting for the first one", err=True)
    while not session_id and not archive.recordings and timer.pause():
        archive = open_archive(open_runtime())
    name = parse_address(session_id).session if session_id else archive.latest_session()
    formatter = FollowFormatter(archive.find_recording(name).agent)
    for item in follow_entries(archive, name, timer.pause):
        timer.reset_idle()
        if as_json:
            click.echo(as_json_line(item))
        elif isinstance(item, Damage):
            size = pluralize(item.length, "byte")
            click.echo(f"damaged: {size} at {item.offset:,}: {item.reason}", err=True)
        else:
            print_story(formatter.render_lines(item))
