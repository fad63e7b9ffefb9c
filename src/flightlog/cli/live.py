"""`flightlog live` and `flightlog watch`."""

import sys

import click

from flightlog.app.runtime import open_runtime
from flightlog.cli.output import format_examples, json_option, print_json, print_table
from flightlog.model.errors import Invalid
from flightlog.model.text import make_inert, pluralize


@click.group(
    epilog=format_examples("flightlog live profiles", "flightlog live label work 'Work account'")
)
def live() -> None:
    """Show running sessions, profiles and costs."""


@live.command(epilog="Example: flightlog live statusline --width 60 < payload.json")
@click.option(
    "--width", type=click.IntRange(20, 400), default=100, show_default=True,
    help="Width in columns.",
)  # fmt: skip
@click.option(
    "--template", default="", help="Template to try: {profile} | {model} | {context} | {cost} …"
)
@json_option("Print the line and its template as JSON.")
def statusline(width: int, template: str, *, as_json: bool) -> None:
    """Preview the status line.

    Reads the agent's payload from stdin; at a terminal it uses the session seen last.
    """
    from flightlog.live.layout import check_template
    from flightlog.live.service import preview_status_line

    check_template(template, "--template")
    payload = None if sys.stdin.isatty() else sys.stdin.buffer.read(1 << 20)
    preview = preview_status_line(
        open_runtime(), payload, width, template, color=sys.stdout.isatty()
    )
    print_json(preview) if as_json else click.echo(preview["line"])


@live.command(epilog="Example: flightlog live state --json")
@json_option("Print the state as JSON, with the file's keys.")
def state(*, as_json: bool) -> int:
    """Summarize runtime-state.yaml.

    Counts profiles and sessions. Freshness is computed from the processes, not read from the file.
    Exit 3 if a file cannot be read.
    """
    from flightlog.live.service import load_runtime_states, redact_for_output
    from flightlog.live.state import to_wire

    runtime = open_runtime()
    states = load_runtime_states(runtime)
    if as_json:
        fields = [
            {"path": str(path), "error": loaded.error, "state": to_wire(loaded.state)}
            for path, loaded in states
        ]
        print_json([redact_for_output(runtime, state_fields) for state_fields in fields])
    for path, loaded in states:
        name = make_inert(str(path))
        if not as_json:
            click.echo(
                f"{name}: {pluralize(len(loaded.state.auth_profiles), 'profile')}, "
                f"{pluralize(len(loaded.state.sessions), 'session')}"
            )
        if loaded.error:
            click.echo(f"unreadable, left unchanged: {name}: {make_inert(loaded.error)}", err=True)
    return 3 if any(loaded.error for _, loaded in states) else 0


@live.command(epilog="Example: flightlog live profiles --json")
@json_option("Print the profiles as JSON.")
def profiles(*, as_json: bool) -> None:
    """List billing profiles, least used first."""
    from flightlog.live.billing import merge_accounts, rank_profiles
    from flightlog.live.service import collect_here, redact_for_output
    from flightlog.live.state import to_wire

    runtime = open_runtime()
    states = collect_here(runtime, secrets=False)
    ranked = rank_profiles(merge_accounts(live_state.state for live_state in states))
    if as_json:
        fields = [{**to_wire(profile), "urgency": round(urgency, 1)} for profile, urgency in ranked]
        print_json([redact_for_output(runtime, profile_fields) for profile_fields in fields])
        return
    rows = []
    for profile, urgency in ranked:
        costs = (
            profile.billing.cost_today,
            profile.billing.week_cost_usd or 0,
            profile.billing.burn_rate_per_hour,
        )
        amounts = [f"${cost:,.2f}" for cost in costs]
        fingerprint = profile.billing_fingerprint or "-"
        rows.append((profile.profile_id, profile.label, *amounts, f"{urgency:.0f}", fingerprint))
    heads = ("profile", "label", "today", "week", "per hour", "urgency", "fingerprint")
    print_table(heads, rows, right=(2, 3, 4, 5))


@live.command(epilog="Example: flightlog live label default 'Work account'")
@click.argument("profile")
@click.argument("text")
@click.option("--dry-run", is_flag=True, help="Show the change without writing it.")
@json_option("Print the profile as JSON.")
def label(profile: str, text: str, *, dry_run: bool, as_json: bool) -> None:
    """Set the label of a billing profile. Editing runtime-state.yaml has the same effect."""
    from flightlog.live.service import label_profile
    from flightlog.live.state import to_wire

    before, after = label_profile(open_runtime(), profile, text, dry_run=dry_run)
    if as_json:
        print_json(to_wire(after))
        return
    click.echo(
        f"{make_inert(profile)}: {make_inert(before)} -> {make_inert(after.label)}"
        + (" (not written)" if dry_run else "")
    )


@live.command(
    epilog=format_examples("flightlog live swap", "flightlog live swap 2123f2df work --at 14:30")
)
@click.argument("session_id", required=False)
@click.argument("profile", required=False)
@click.option("--at", "at", default="", help="Start: HH:MM today or an ISO time (default now).")
@click.option("--dry-run", is_flag=True, help="Show the change without writing it.")
@json_option("Print the advice or the switch as JSON.")
def swap(
    session_id: str | None, profile: str | None, at: str, *, dry_run: bool, as_json: bool
) -> None:
    """Advise on or record a profile switch.

    Without arguments, say which profile has capacity left. Otherwise record that PROFILE pays for
    SESSION_ID from a given time on. Switches are detected automatically where the account is
    visible; this command is for the others.
    """
    from flightlog.live.service import advise_profile, record_profile_switch

    runtime = open_runtime()
    if session_id is None:
        advice = advise_profile(runtime)
        if as_json:
            print_json(advice)
            return
        for profile_row in advice["profiles"]:
            line = f"{make_inert(str(profile_row['label']))}: {profile_row['urgency']:.0f} % used"
            click.echo(line)
        click.echo(advice["advice"] or "no switch needed")
        return
    if profile is None:
        hint = f"flightlog live swap {session_id} PROFILE"
        raise Invalid("no profile named for the session", hint=hint)
    switch = record_profile_switch(runtime, session_id, profile, at, dry_run=dry_run)
    if as_json:
        print_json(switch)
        return
    click.echo(
        f"{switch['session']} is paid by {make_inert(profile)} from {switch['since']} on"
        + (" (not written)" if dry_run else "")
    )


@live.command(epilog="Example: flightlog live cleanup --days 3 --dry-run")
@click.option(
    "--days", type=click.IntRange(0), default=7, show_default=True,
    help="Archive sessions unused for this many days.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Show the change without writing it.")
@json_option("Print the sessions as JSON.")
def cleanup(days: int, *, dry_run: bool, as_json: bool) -> None:
    """Archive old sessions of runtime-state.yaml. This also happens automatically once a day."""
    from flightlog.live.service import archive_old_sessions

    archived = archive_old_sessions(open_runtime(), days, dry_run=dry_run)
    lines = "\n".join(archived) or "nothing to clean up"
    print_json(archived) if as_json else click.echo(lines)


@click.command(epilog=format_examples("flightlog watch", "flightlog watch --once --json"))
@click.option(
    "--every", type=click.FloatRange(0.2, 3600), default=2.0, show_default=True,
    help="Seconds between updates.",
)  # fmt: skip
@click.option("--once", is_flag=True, help="Print once and exit.")
@json_option("With --once: print the state as JSON.")
def watch(every: float, *, once: bool, as_json: bool) -> None:
    """Watch running sessions, costs and problems.

    Sessions that need you come first. Press ? for the keys, q to quit. Without a terminal, the
    dashboard is printed once.
    """
    if as_json and not once:
        raise Invalid("--json needs --once", hint="flightlog watch --once --json")
    runtime = open_runtime()
    if once or not sys.stdout.isatty():
        from flightlog.cli.overview import print_dashboard

        print_dashboard(runtime, as_json=as_json)
        return
    from flightlog.cli.watch import WatchApp

    WatchApp(runtime, every).run()
