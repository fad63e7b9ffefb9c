"""The commands of `flightlog loop` that look: status, monitor, logs, reports, analysis, comparison."""

from typing import TYPE_CHECKING

import click

from flightlog.app.runtime import open_runtime
from flightlog.cli.options import SESSION
from flightlog.cli.output import json_option, print_json, print_table
from flightlog.model.text import make_inert, one_line

if TYPE_CHECKING:
    from flightlog.loop.directories import LoopSession


_json = json_option()


@click.command(epilog="Example: flightlog loop status --session session-001")
@click.option("--session", "written", default="", help="One session; all of them when none is named.")
@_json
def status(written: str, *, as_json: bool) -> None:
    """Say how a session stands, or all of them."""
    from flightlog.loop import service
    from flightlog.loop.directories import open_loop_session
    from flightlog.loop.status import build_status, status_lines

    runtime = open_runtime()
    if written:
        seen = open_loop_session(service.find_session(runtime, written))
        print_json(build_status(seen)) if as_json else click.echo(make_inert("\n".join(status_lines(seen))))
        return
    all_of_them = [build_status(open_loop_session(path)) for path in service.all_sessions(runtime)]
    if as_json:
        print_json(all_of_them)
        return
    rows = [
        (
            one.session,
            one.status,
            f"{one.tasks_completed}/{one.tasks_total}",
            one.runner or "-",
            one_line(one.reason, 60),
        )
        for one in all_of_them
    ]
    print_table(("session", "status", "tasks", "runner", "reason"), rows, right=(2,))


@click.command(epilog="Example: flightlog loop monitor --session session-001")
@SESSION
@click.option("--once", is_flag=True, help="Show it once and end.")
@click.option(
    "--idle", "idle_s", type=float, default=0.0, help="End after so many seconds without news; 0 means never."
)
@json_option("Print each change as a line of JSON.")
def monitor(written: str, *, once: bool, idle_s: float, as_json: bool) -> None:
    """Show a session live: progress, gates, breaker, cost, the current step; ends with the session."""
    from flightlog.app.runtime import IdleTimer
    from flightlog.loop import service
    from flightlog.loop.directories import open_loop_session
    from flightlog.loop.status import build_status, monitor_lines
    from flightlog.views.json_output import as_json_line

    directory = service.find_session(open_runtime(), written)
    watch = IdleTimer(idle_s, look_s=0.5)
    before: list[str] = []
    while True:
        seen = open_loop_session(directory)
        shown = [as_json_line(build_status(seen))] if as_json else monitor_lines(seen)
        if shown != before:
            watch.reset_idle()
            _redraw_lines([] if as_json else before, shown)
            before = shown
        if once or _is_over(seen) or not watch.pause():
            return


@click.command(epilog="Example: flightlog loop logs --session session-001 --tail 20")
@SESSION
@click.option("--tail", type=click.IntRange(1), help="Only the last so many.")
@click.option("--event", help="Only this one, as e12.")
@click.option("--task", help="Only those of one task.")
@click.option("--follow", is_flag=True, help="Go on as the session does.")
@_json
def logs(written: str, tail: int | None, event: str | None, task: str | None, *, follow: bool, as_json: bool) -> None:  # noqa: PLR0913
    """Show the events of a session, each with its id."""
    from flightlog.loop import service
    from flightlog.views.json_output import as_json_line

    runtime = open_runtime()
    directory = service.find_session(runtime, written)
    for entry in service.log_entries(runtime, directory, service.LogFilter(tail, event, task), follow=follow):
        if as_json:
            click.echo(as_json_line(entry))
            continue
        about = " ".join(str(entry[name]) for name in ("task_id", "task_name", "result") if entry.get(name))
        rest = {name: value for name, value in entry["details"].items() if name != "event"}
        words = one_line(f"{about} {rest or ''}", 200)
        click.echo(
            make_inert(f"{entry['details']['event']:>6}  {entry['timestamp']}  {entry['event_type']:<18} {words}")
        )


@click.command("generate-report", epilog="Example: flightlog loop generate-report --session session-001")
@SESSION
@_json
def generate_report(written: str, *, as_json: bool) -> None:
    """Write the session's final-report.md and print it."""
    from flightlog.loop import service
    from flightlog.loop.report import write_report
    from flightlog.privacy.service import make_redactor

    runtime = open_runtime()
    directory = service.find_session(runtime, written)
    text = write_report(directory, make_redactor(runtime))
    print_json({"session": directory.name, "report": text}) if as_json else click.echo(make_inert(text), nl=False)


@click.command(epilog="Example: flightlog loop analyze --session session-001")
@SESSION
@_json
def analyze(written: str, *, as_json: bool) -> None:
    """Take a session apart: time, attempts, errors, decisions, calibration."""
    from flightlog.loop import service
    from flightlog.loop.analysis import analyze_session, render_text

    told = analyze_session(service.read_events(service.find_session(open_runtime(), written)))
    print_json(told) if as_json else click.echo(make_inert(render_text(told)))


@click.command(epilog="Example: flightlog loop insights --session session-001")
@SESSION
@_json
def insights(written: str, *, as_json: bool) -> None:
    """Say what a session teaches, each sentence with the events that say so."""
    from flightlog.loop import service
    from flightlog.loop.analysis import build_account
    from flightlog.loop.report import find_insights as found_in

    found = found_in(build_account(service.read_events(service.find_session(open_runtime(), written))))
    if as_json:
        print_json(found)
        return
    for each in found:
        click.echo(make_inert(f"- {one_line(each.sentence, 400)} [{', '.join(each.events)}]"))
    if not found:
        click.echo("nothing yet: too little happened for a sentence that its events support")


@click.command(epilog="Example: flightlog loop compare --sessions session-001,session-002")
@click.option("--sessions", "written", required=True, help="Which sessions, separated by commas.")
@_json
def compare(written: str, *, as_json: bool) -> None:
    """Put sessions side by side, any number of them."""
    from flightlog.loop import service
    from flightlog.loop.status import compare_sessions, comparison_rows

    runtime = open_runtime()
    names = [each.strip() for each in written.split(",") if each.strip()]
    found = [service.find_session(runtime, name) for name in names]
    columns = compare_sessions([(path.name, service.read_events(path)) for path in found])
    if as_json:
        print_json(columns)
        return
    rows = [(label, *values) for label, values in comparison_rows(columns)]
    print_table(("", *(column.session for column in columns)), rows, right=tuple(range(1, len(columns) + 1)))


def _is_over(seen: "LoopSession") -> bool:
    return seen.state.status != "in_progress" and not seen.runner


def _redraw_lines(before: list[str], shown: list[str]) -> None:
    import sys

    if sys.stdout.isatty() and before:
        click.echo(f"\x1b[{len(before)}A\x1b[J", nl=False)
    for line in shown:
        click.echo(make_inert(line))


COMMANDS: dict[str, click.Command] = {
    "status": status, "monitor": monitor, "logs": logs, "generate-report": generate_report, "analyze": analyze,
    "insights": insights, "compare": compare,
}  # fmt: skip
