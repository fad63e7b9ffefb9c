"""The commands of `flightlog loop` that only read sessions."""

from typing import TYPE_CHECKING, Any

import click

from flightlog.app.runtime import IdleTimer, open_runtime
from flightlog.cli.options import SESSION
from flightlog.cli.output import format_value, json_option, print_json, print_table, spell_hint
from flightlog.model.text import make_inert, one_line

if TYPE_CHECKING:
    from flightlog.loop.directories import LoopSession


_json = json_option()


@click.command(epilog="Example: flightlog loop status --session session-001")
@click.option("--session", "written", default="", help="Loop session (default: all).")
@_json
def status(written: str, *, as_json: bool) -> None:
    """Show the status of one or all sessions."""
    from flightlog.loop import service
    from flightlog.loop.directories import open_loop_session
    from flightlog.loop.status import build_status, status_lines

    runtime = open_runtime()
    now = runtime.clock.now_s()
    if written:
        loop_session = open_loop_session(service.find_session(runtime, written))
        if as_json:
            print_json(build_status(loop_session, now))
        else:
            click.echo(spell_hint("\n".join(status_lines(loop_session, now))))
        return
    paths = service.all_sessions(runtime)
    statuses = [build_status(open_loop_session(path), now) for path in paths]
    if as_json:
        print_json(statuses)
        return
    rows = []
    for entry in statuses:
        tasks = f"{entry.tasks_completed}/{entry.tasks_total}"
        rows.append(
            (entry.session, entry.status, tasks, entry.runner or "-", one_line(entry.reason, 60))
        )
    print_table(("session", "status", "tasks", "runner", "reason"), rows, right=(2,))


@click.command(epilog="Example: flightlog loop monitor --session session-001")
@SESSION
@click.option("--once", is_flag=True, help="Print once and exit.")
@click.option(
    "--idle", "idle_s", type=float, default=0.0,
    help="Stop after this many seconds without change; 0 never stops.",
)  # fmt: skip
@json_option("Print each change as a line of JSON.")
def monitor(written: str, *, once: bool, idle_s: float, as_json: bool) -> None:
    """Show a running session until it ends.

    Shows progress, the current tool and how long it runs, the time until a limit is reset, gates,
    circuit breaker and cost.
    """
    import sys

    from flightlog.loop import service
    from flightlog.loop.directories import open_loop_session
    from flightlog.loop.status import build_status, monitor_lines
    from flightlog.views.json_output import as_json_line

    runtime = open_runtime()
    directory = service.find_session(runtime, written)
    # A file or a pipe gets changes only: seconds that pass are none.
    now, ticks = runtime.clock.now_s(), sys.stdout.isatty() and not as_json
    timer = IdleTimer(idle_s, look_s=0.5)
    drawn: list[str] = []
    while True:
        loop_session = open_loop_session(directory)
        now = runtime.clock.now_s() if ticks else now
        lines = (
            [as_json_line(build_status(loop_session, now))]
            if as_json
            else monitor_lines(loop_session, now)
        )
        if lines != drawn:
            timer.reset_idle()
            _redraw_lines([] if as_json else drawn, lines)
            drawn = lines
        if once or _is_over(loop_session) or not timer.pause():
            return


@click.command(epilog="Example: flightlog loop logs --session session-001 --tail 20")
@SESSION
@click.option("--tail", type=click.IntRange(1), help="Only the last N events.")
@click.option("--event", help="Only this event, for example e12.")
@click.option("--task", help="Only events of this task.")
@click.option("--follow", is_flag=True, help="Print new events as they come.")
@_json
def logs(written: str, *, follow: bool, as_json: bool, **filters: Any) -> None:
    """Show the events of a session."""
    from flightlog.loop import service
    from flightlog.views.json_output import as_json_line

    runtime = open_runtime()
    directory = service.find_session(runtime, written)
    chosen = service.LogFilter(**filters)
    for entry in service.log_entries(runtime, directory, chosen, follow=follow):
        if as_json:
            click.echo(as_json_line(entry))
            continue
        about = " ".join(
            str(entry[name]) for name in ("task_id", "task_name", "result") if entry.get(name)
        )
        details = {name: value for name, value in entry["details"].items() if name != "event"}
        text = " ".join(
            [about, *(f"{name}={format_value(value)}" for name, value in details.items())]
        )
        line = one_line(text, 200)
        event_id, kind = entry["details"]["event"], entry["event_type"]
        click.echo(make_inert(f"{event_id:>6}  {entry['timestamp']}  {kind:<18} {line}"))


@click.command(
    "generate-report", epilog="Example: flightlog loop generate-report --session session-001"
)
@SESSION
@_json
def generate_report(written: str, *, as_json: bool) -> None:
    """Write and print final-report.md."""
    from flightlog.loop import service
    from flightlog.loop.report import write_report
    from flightlog.privacy.service import make_redactor

    runtime = open_runtime()
    directory = service.find_session(runtime, written)
    text = write_report(directory, make_redactor(runtime))
    fields = {"session": directory.name, "report": text}
    print_json(fields) if as_json else click.echo(make_inert(text), nl=False)


@click.command(epilog="Example: flightlog loop analyze --session session-001")
@SESSION
@_json
def analyze(written: str, *, as_json: bool) -> None:
    """Analyze time, attempts, errors, decisions."""
    from flightlog.loop import service
    from flightlog.loop.analysis import analyze_session, render_text
    from flightlog.loop.directories import iter_events

    analysis = analyze_session(iter_events(service.find_session(open_runtime(), written)))
    print_json(analysis) if as_json else click.echo(make_inert(render_text(analysis)))


@click.command(epilog="Example: flightlog loop insights --session session-001")
@SESSION
@_json
def insights(written: str, *, as_json: bool) -> None:
    """Show lessons of a session with evidence."""
    from flightlog.loop import service
    from flightlog.loop.analysis import build_account
    from flightlog.loop.directories import iter_events
    from flightlog.loop.report import find_insights

    whole = build_account(iter_events(service.find_session(open_runtime(), written)))
    sentences = find_insights(whole)
    if as_json:
        print_json(sentences)
        return
    for insight in sentences:
        click.echo(make_inert(f"- {one_line(insight.text, 400)} [{', '.join(insight.event_ids)}]"))
    if not sentences:
        click.echo("no insights yet: too few events")


@click.command(epilog="Example: flightlog loop compare --sessions session-001,session-002")
@click.option("--sessions", "written", required=True, help="Loop sessions, separated by commas.")
@_json
def compare(written: str, *, as_json: bool) -> None:
    """Compare sessions side by side."""
    from flightlog.loop import service
    from flightlog.loop.directories import iter_events
    from flightlog.loop.status import compare_sessions, comparison_rows

    runtime = open_runtime()
    names = [name.strip() for name in written.split(",") if name.strip()]
    directories = [service.find_session(runtime, name) for name in names]
    columns = compare_sessions([(path.name, iter_events(path)) for path in directories])
    if as_json:
        print_json(columns)
        return
    rows = [(label, *values) for label, values in comparison_rows(columns)]
    heads = ("", *(column.session for column in columns))
    print_table(heads, rows, right=tuple(range(1, len(columns) + 1)))


def _is_over(loop_session: "LoopSession") -> bool:
    return loop_session.state.status != "in_progress" and not loop_session.runner


def _redraw_lines(old: list[str], new: list[str]) -> None:
    import sys

    if sys.stdout.isatty() and old:
        click.echo(f"\x1b[{len(old)}A\x1b[J", nl=False)
    for line in new:
        click.echo(spell_hint(line))


COMMANDS: dict[str, click.Command] = {
    "status": status, "monitor": monitor, "logs": logs, "generate-report": generate_report, "analyze": analyze,
    "insights": insights, "compare": compare,
}  # fmt: skip
