"""Live group and watch."""

import contextlib
import os
import select
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click

from flightlog.app.runtime import open_runtime
from flightlog.cli.output import format_examples, json_option
from flightlog.model.errors import Invalid
from flightlog.model.runtime import Runtime
from flightlog.model.text import pluralize

CODES = {"red": "31", "yellow": "33", "green": "32", "dim": "2", "bold": "1"}
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"


@click.group(epilog=format_examples("flightlog live profiles", "flightlog live label work 'Work account'"))
def live() -> None:
    """Who is running now, what it costs, what is wrong."""


@live.command(epilog="Example: flightlog live statusline --width 60 < payload.json")
@click.option("--width", type=click.IntRange(20, 400), default=100, show_default=True, help="Columns there are.")
@click.option("--template", default="", help="Try another template: {profile} | {model} | {context} | {cost} …")
@json_option("Print the line and its template as JSON.")
def statusline(width: int, template: str, *, as_json: bool) -> None:
    """Show what the status line says of the payload on standard input, or of the session seen last."""
    from flightlog.cli.output import print_json
    from flightlog.live.service import preview_status_line

    given = None if sys.stdin.isatty() else sys.stdin.buffer.read(1 << 20)
    told = preview_status_line(open_runtime(), given, width, template, color=sys.stdout.isatty())
    if as_json:
        print_json(told)
        return
    click.echo(told["line"])


@live.command(epilog="Example: flightlog live state --json")
@json_option("Print the state as JSON, in the file's own names.")
def state(*, as_json: bool) -> int:
    """Read runtime-state.yaml: profiles and running sessions; freshness is worked out, not believed."""
    from flightlog.cli.output import print_json
    from flightlog.live.service import load_runtime_states, redact_for_output
    from flightlog.live.state import to_wire
    from flightlog.model.text import make_inert

    runtime = open_runtime()
    told = load_runtime_states(runtime)
    if as_json:
        print_json(
            [
                redact_for_output(runtime, {"file": str(path), "broken": each.broken, "state": to_wire(each.state)})
                for path, each in told
            ]
        )
    for path, each in told:
        if not as_json:
            click.echo(
                f"{make_inert(str(path))}: {pluralize(len(each.state.auth_profiles), 'profile')}, "
                f"{pluralize(len(each.state.sessions), 'session')}"
            )
        if each.broken:
            click.echo(f"not read, and never overwritten: {make_inert(each.broken)}", err=True)
    return 3 if any(each.broken for _, each in told) else 0


@live.command(epilog="Example: flightlog live profiles --json")
@json_option("Print the profiles as JSON.")
def profiles(*, as_json: bool) -> None:
    """List who is billed, with most room first."""
    from flightlog.cli.output import print_json, print_table
    from flightlog.live.profiles import rank_profiles
    from flightlog.live.service import collect_here, redact_for_output
    from flightlog.live.state import to_wire

    runtime = open_runtime()
    found = [each for told in collect_here(runtime, secrets=False) for each in told.state.auth_profiles]
    ranked = rank_profiles(found)
    if as_json:
        print_json(
            [redact_for_output(runtime, {**to_wire(each), "urgency": round(pressing, 1)}) for each, pressing in ranked]
        )
        return
    rows = [
        (
            each.profile_id,
            each.label,
            f"${each.billing.cost_today:,.2f}",
            f"${each.billing.week_cost or 0:,.2f}",
            f"${each.billing.burn_rate_per_hour:,.2f}",
            f"{pressing:.0f}",
            each.billing_fingerprint or "-",
        )
        for each, pressing in ranked
    ]
    print_table(("profile", "label", "today", "week", "per hour", "pressing", "fingerprint"), rows, right=(2, 3, 4, 5))


@live.command(epilog="Example: flightlog live label default 'Work account'")
@click.argument("profile")
@click.argument("text")
@click.option("--dry-run", is_flag=True, help="Show what would change and change nothing.")
@json_option("Print the profile as JSON.")
def label(profile: str, text: str, *, dry_run: bool, as_json: bool) -> None:
    """Give PROFILE a name of your own; you may as well edit runtime-state.yaml."""
    from flightlog.cli.output import print_json
    from flightlog.live.service import label_profile
    from flightlog.live.state import to_wire
    from flightlog.model.text import make_inert

    before, after = label_profile(open_runtime(), profile, text, dry_run=dry_run)
    if as_json:
        print_json(to_wire(after))
        return
    click.echo(
        f"{make_inert(profile)}: {make_inert(before)} -> {make_inert(after.label)}"
        + (" (not written)" if dry_run else "")
    )


@live.command(epilog=format_examples("flightlog live swap", "flightlog live swap 2123f2df work --at 14:30"))
@click.argument("session_id", required=False)
@click.argument("profile", required=False)
@click.option("--at", "at", default="", help="From when on, as HH:MM today or an ISO time; now if left out.")
@click.option("--dry-run", is_flag=True, help="Show what would be written and write nothing.")
@json_option("Print the advice or the swap as JSON.")
def swap(session_id: str | None, profile: str | None, at: str, *, dry_run: bool, as_json: bool) -> None:
    """Say which profile has room; or write down that PROFILE pays for SESSION_ID from a time on.

    Swaps are noticed by themselves where the account can be told; this is for those that cannot.
    """
    from flightlog.cli.output import print_json
    from flightlog.live.service import advise_profile, record_profile_switch
    from flightlog.model.errors import Invalid
    from flightlog.model.text import make_inert

    runtime = open_runtime()
    if session_id is None:
        said = advise_profile(runtime)
        if as_json:
            print_json(said)
            return
        for each in said["profiles"]:
            click.echo(f"{make_inert(str(each['label']))}: {each['urgency']:.0f} of 100 used up")
        click.echo(said["advice"] or "no need to go elsewhere")
        return
    if profile is None:
        raise Invalid("no profile was named for the session", hint=f"flightlog live swap {session_id} PROFILE")
    done = record_profile_switch(runtime, session_id, profile, at, dry_run=dry_run)
    if as_json:
        print_json(done)
        return
    click.echo(
        f"{done['session']} is paid by {make_inert(profile)} from {done['since']} on"
        + (" (not written)" if dry_run else "")
    )


@live.command(epilog="Example: flightlog live cleanup --days 3 --dry-run")
@click.option("--days", type=click.IntRange(0), default=7, show_default=True, help="Sessions unused for so long go.")
@click.option("--dry-run", is_flag=True, help="Show what would go and change nothing.")
@json_option("Print the sessions as JSON.")
def cleanup(days: int, *, dry_run: bool, as_json: bool) -> None:
    """Move old sessions from runtime-state.yaml to the archive; done once a day by itself."""
    from flightlog.cli.output import print_json
    from flightlog.live.service import archive_old_sessions

    gone = archive_old_sessions(open_runtime(), days, dry_run=dry_run)
    if as_json:
        print_json(gone)
        return
    click.echo("\n".join(gone) if gone else "nothing to clean up")


@click.command(epilog=format_examples("flightlog watch", "flightlog watch --once --json"))
@click.option(
    "--every", type=click.FloatRange(0.2, 3600), default=2.0, show_default=True, help="Seconds between looks."
)
@click.option("--once", is_flag=True, help="Look once, print, and end.")
@json_option("With --once: print what was gathered as JSON.")
def watch(every: float, *, once: bool, as_json: bool) -> None:
    """Watch who is running, what it costs and what is wrong; q ends it."""
    if as_json and not once:
        raise Invalid("--json needs --once", hint="flightlog watch --once --json")
    runtime = open_runtime()
    if once or not sys.stdout.isatty():
        from flightlog.cli.overview import print_dashboard

        print_dashboard(runtime, as_json=as_json)
        return
    with _full_screen():
        while True:
            size = os.get_terminal_size()
            _draw_screen(_dashboard_lines(runtime, size.columns, size.lines), size.lines)
            if _read_key(every) in {b"q", b"Q", b"\x03", b"\x1b"}:
                return


def paint_lines(lines: Sequence[Any], *, color: bool) -> list[str]:
    """Lines as a terminal shows them."""
    return [
        f"\x1b[{CODES[each.color]}m{each.text}\x1b[0m" if color and each.color and each.text else each.text
        for each in lines
    ]


def _dashboard_lines(runtime: Runtime, width: int, height: int) -> Sequence[Any]:
    from flightlog.live.dashboard import TerminalSize, dashboard_lines
    from flightlog.live.service import watch_here

    return dashboard_lines(watch_here(runtime), TerminalSize(width, height - 1, runtime.zone))


def _draw_screen(lines: Sequence[Any], height: int) -> None:
    """Draw over what is there, line by line: nothing flickers over a slow line."""
    shown = paint_lines(lines, color=not os.environ.get("NO_COLOR"))[: height - 1]
    foot = "\x1b[2mq ends\x1b[0m" if not os.environ.get("NO_COLOR") else "q ends"
    body = "".join(f"{line}\x1b[K\r\n" for line in shown)
    sys.stdout.write(f"\x1b[H{body}{foot}\x1b[K\x1b[J")
    sys.stdout.flush()


@contextlib.contextmanager
def _full_screen() -> Iterator[None]:
    """A screen of our own, keys as they are pressed; all of it given back, whatever happens."""
    import termios
    import tty

    keys = sys.stdin.fileno() if sys.stdin.isatty() else -1
    before = termios.tcgetattr(keys) if keys >= 0 else None
    try:
        if keys >= 0:
            tty.setcbreak(keys)
        sys.stdout.write(_ENTER)
        yield
    finally:
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
        if before is not None:
            termios.tcsetattr(keys, termios.TCSADRAIN, before)


def _read_key(seconds: float) -> bytes:
    if not sys.stdin.isatty():
        select.select([], [], [], seconds)
        return b""
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return os.read(sys.stdin.fileno(), 1) if ready else b""
