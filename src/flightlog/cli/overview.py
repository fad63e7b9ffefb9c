"""`flightlog up`, `status`, `demo`, `settle` and `uninstall`."""

import sys
import textwrap
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from flightlog.app.runtime import open_runtime
from flightlog.cli.output import (
    Progress,
    format_examples,
    json_option,
    name_program,
    print_json,
    print_table,
    style_text,
    terminal_width,
    wrap_words,
)
from flightlog.model.text import fit_cells, format_age, make_inert, pluralize

if TYPE_CHECKING:
    from flightlog.live.collector import LiveState
    from flightlog.model.runtime import Runtime
    from flightlog.recorder.overview import RecordingStatus
    from flightlog.recorder.settle import SettleReport
    from flightlog.setup.init import UninstallPlan


_SAMPLES = """\
These are samples, recorded with Claude Code.
To see a session made now: flightlog demo
"""


@click.group(
    invoke_without_command=True, epilog=format_examples("flightlog demo", "flightlog demo rewind")
)
@json_option("Print the recorded session and its usage as JSON.")
@click.pass_context
def demo(context: click.Context, *, as_json: bool) -> None:
    """Record a scripted agent and show the result."""
    runtime = open_runtime()
    if context.invoked_subcommand is not None:
        return
    from datetime import UTC

    from flightlog.analysis.findings import describe_finding
    from flightlog.analysis.findings.rank import find_findings
    from flightlog.cli.session.story import print_story
    from flightlog.cli.session.usage import print_usage
    from flightlog.model.addresses import short_address
    from flightlog.model.usage import Breakdown
    from flightlog.setup.demo import SEARCHED, perform_demo
    from flightlog.usage.report_json import report_json
    from flightlog.views.transcript import RenderOptions, render_session

    text = "running a scripted agent in a temporary directory; your files are not touched"
    click.echo(text, err=True)
    with perform_demo(runtime) as performance:
        session = performance.archive.read_session(performance.session)
        report = performance.archive.usage_report(Breakdown.SESSION, UTC)
    if as_json:
        print_json(
            {
                "session": session,
                "usage": report_json(report, "UTC"),
                "archived_bytes": performance.archived_bytes,
                "search_hits": performance.search_hits,
            }
        )
        return
    findings = tuple(map(describe_finding, find_findings(session)))
    options = RenderOptions(runtime.zone, program="", findings=findings)
    print_story(render_session(session, options))
    click.echo()
    print_usage(report)
    comparison = "identical" if performance.is_same_from_archive else "NOT identical"
    click.echo(
        f"\narchived {performance.archived_bytes:,} bytes; the transcript from the archive alone is {comparison}"
    )
    hits = ", ".join(map(short_address, performance.search_hits)) or "nothing found"
    click.echo(f'search for "{SEARCHED}": {hits}')
    click.echo("\nwhile the agent ran, `flightlog watch` showed:\n")
    for line in performance.dashboard_lines:
        click.echo(f"  {line}".rstrip())
    click.echo("\nnext, your own sessions: flightlog up", err=True)


@demo.command(epilog="Example: flightlog demo rewind")
@json_option("Print both runs as JSON.")
def rewind(*, as_json: bool) -> int:
    """Replay a session from turn 7, then compare.

    The agent gives up at turn 7. The branch sends it one more sentence there; both runs are
    shown side by side. Exit 1 if the branch is not exact or its result is wrong.
    """
    import msgspec

    from flightlog.cli.lab.inspect import print_side_by_side
    from flightlog.cli.lab.run import RunProgress
    from flightlog.setup.demo import ASKED, SAID, TURN, perform_rewind

    line = "running an agent offline in a temporary directory; your files are not touched"
    click.echo(line, err=True)
    with perform_rewind(open_runtime(), RunProgress()) as shown:
        result = msgspec.to_builtins(shown)
    certificate = result["replay"]["certificate"] or {}
    sessions = [run["sessions"][0] for run in (result["source"], result["branch"])]
    passed = [all(verifier["passed"] for verifier in run["verifiers"]) for run in sessions]
    if as_json:
        print_json(result)
        return int(certificate.get("verdict") != "exact+prompt" or passed != [False, True])
    click.echo(f"prompt: {ASKED}\nbranch before turn {TURN}, with the prompt: {SAID}\n")
    print_side_by_side(result["comparison"]["side_by_side"], ["original", "rerun"])
    rows = []
    for name, passing, session in zip(("original", "rerun"), passed, sessions, strict=True):
        counts = (str(session["num_turns"]), f"${session['total_cost_usd'] or 0:.4f}")
        rows.append([name, "right" if passing else "WRONG", *counts])
    click.echo()
    print_table(["", "total(…)", "turns", "cost"], rows, right=(2, 3))
    replaced = certificate.get("replacements", [])
    client = "Claude Code" if result["agent"] == "claude_code" else "the scripted agent"
    click.echo(
        f"\ncertificate: {certificate.get('verdict', 'none')}, issued before the first request was sent"
    )
    click.echo(f"  {client}, {certificate.get('method', '')}")
    click.echo(f"  parts of the client's context replaced by recorded ones: {len(replaced)}")
    click.echo("\nnext, your own runs: flightlog lab replay RUN --list-turns", err=True)
    return int(certificate.get("verdict") != "exact+prompt" or passed != [False, True])


@click.command(epilog="Example: flightlog status --json")
@json_option("Print the figures as JSON.")
def status(*, as_json: bool) -> None:
    """Show running sessions and recording status.

    Lists running sessions, billing profiles and problems, then what is archived, sealed or lost.
    Whether an agent runs is known of Claude Code alone; other agents' recent sessions are listed.
    """
    import msgspec

    from flightlog.live.observe import list_recent
    from flightlog.live.service import list_running, redact_for_output, watch_here
    from flightlog.recorder.overview import read_status

    runtime = open_runtime()
    lives = watch_here(runtime)
    summary = read_status(runtime)
    if as_json:
        recent = msgspec.to_builtins(list_recent(runtime))
        running = redact_for_output(runtime, {"running": list_running(lives), "recent": recent})
        pages = [live_json(runtime, live) for live in lives]
        print_json({**running, **msgspec.to_builtins(summary), "live": pages})
        return
    show_dashboard(runtime, lives)
    click.echo()
    _print_recording_status(runtime, summary)


def _print_recording_status(runtime: "Runtime", summary: "RecordingStatus") -> None:
    from flightlog.recorder.overview import age_ms
    from flightlog.views.transcript import format_timestamp

    click.echo(
        f"{pluralize(summary.source_sessions, 'session')} in the agent's files, {summary.source_bytes:,} bytes"
    )
    gone = summary.archived_only_sessions
    deleted = f" ({gone:,} deleted by the agent)" if gone else ""
    sealed = f"{summary.archived_bytes:,} bytes ({summary.sealed_bytes:,} sealed)"
    click.echo(f"{pluralize(summary.archived_sessions, 'session')} archived{deleted}, {sealed}")
    if summary.unarchived_sessions:
        click.echo(f"{pluralize(summary.unarchived_sessions, 'session')} not archived yet")
        click.secho("    flightlog settle", fg="cyan")
        if summary.first_deletion_ms is not None:
            when = format_timestamp(summary.first_deletion_ms, runtime.zone, "%Y-%m-%d")
            line = f"the agent deletes the oldest transcript on {when}; to keep all from now on"
            click.echo(line)
            click.secho("    flightlog init", fg="cyan")
    if summary.last_record_ms is not None:
        click.echo(f"last record {format_age(age_ms(runtime, summary) or 0)} ago")
    if summary.dataset is not None:
        from flightlog.cli.dataset_output import safety_line

        click.echo(f"training rows here: {safety_line(summary.dataset, runtime.clock.now_ms())}")
    if summary.damaged_sessions:
        click.echo(f"{pluralize(summary.damaged_sessions, 'archived session')} damaged")
        click.secho("    flightlog doctor --verify", fg="cyan")
    if summary.lost_hook_events:
        click.echo(f"{pluralize(summary.lost_hook_events, 'hook event')} could not be recorded")
        click.secho("    flightlog doctor", fg="cyan")
    click.echo(f"index {summary.index_bytes:,} bytes; data directory {summary.data_dir}")


def print_dashboard(runtime: "Runtime", *, as_json: bool) -> None:
    """Collect the live state once and print it."""
    from flightlog.live.service import watch_here

    lives = watch_here(runtime)
    if as_json:
        print_json([live_json(runtime, live) for live in lives])
    else:
        show_dashboard(runtime, lives)


def show_dashboard(runtime: "Runtime", lives: "Sequence[LiveState]") -> None:
    """Print the dashboard, as wide as the terminal."""
    from flightlog.live.dashboard import build_dashboard
    from flightlog.live.dashboard_text import TextStyle, dashboard_lines
    from flightlog.live.observe import list_recent

    board = build_dashboard(lives, list_recent(runtime), runtime.clock.now_ms())
    for line in dashboard_lines(board, TextStyle(terminal_width(), runtime.zone)):
        click.echo(style_text(line.text, line.color))


def live_json(runtime: "Runtime", live: "LiveState") -> dict[str, Any]:
    """Return the redacted live state with the keys of runtime-state.yaml."""
    from flightlog.live.service import redact_for_output
    from flightlog.live.state import to_wire

    fields = {"config_dir": live.config_dir, "error": live.error, "state": to_wire(live.state)}
    return redact_for_output(runtime, fields)


@click.command(epilog="Example: flightlog up")
@json_option("Print all figures as JSON.")
def up(*, as_json: bool) -> None:
    """Summarize your sessions and suggest commands.

    Facts appear as they become known; the search for secrets comes last and takes 3 seconds at
    most. Without sessions, the samples are summarized.
    """
    from flightlog.recorder.overview import build_overview, iter_overview
    from flightlog.views.overview import iter_facts

    runtime = open_runtime()
    progress = Progress("reading sessions")
    if as_json:
        print_json(build_overview(runtime, progress))
        progress.close()
        return
    for number, (stage, overview) in enumerate(iter_overview(runtime, progress)):
        progress.close()
        if overview.is_sample and number == 0:
            is_asked = "--samples" in name_program()
            click.echo(("" if is_asked else "No sessions on this machine yet. ") + _SAMPLES)
        for fact in iter_facts(overview, runtime.zone, [stage]):
            _print_fact(fact.text, fact.next_command)
        sys.stdout.flush()
    _print_fact("all of it as pages in your browser", f"{name_program()} serve")


def _print_fact(text: str, next_command: str) -> None:
    click.echo(wrap_words(make_inert(text), indent=2))
    click.secho(f"    {make_inert(next_command)}", fg="cyan")


@click.command(
    "help", epilog=format_examples("flightlog help symbols", "flightlog help session list")
)
@click.argument("words", nargs=-1, metavar="[symbols | COMMAND]...")
@json_option("Print the symbols as JSON.")
@click.pass_context
def help_(context: click.Context, words: tuple[str, ...], *, as_json: bool) -> None:
    """Explain a command, or all symbols.

    `help symbols` lists every symbol that commands print. Otherwise the same as COMMAND --help.
    """
    from flightlog.views.symbols import SYMBOLS

    if as_json:
        print_json(SYMBOLS)
        return
    if words == ("symbols",):
        for place, symbols in SYMBOLS.items():
            click.echo(style_text(place, "bold"))
            for symbol, meaning in symbols.items():
                first, *rest = textwrap.wrap(meaning, max(terminal_width() - 24, 30))
                click.echo(f"  {fit_cells(symbol, 20)} {first}")
                click.echo("".join(f"{'':23}{line}\n" for line in rest), nl=False)
        return
    assert context.parent is not None
    command: click.Command = context.parent.command
    parent = context.parent
    for word in words:
        found = command.get_command(parent, word) if isinstance(command, click.Group) else None
        if found is None:
            raise click.UsageError(f"No such command '{word}'.", parent)
        command, parent = found, click.Context(found, info_name=word, parent=parent)
    click.echo(command.get_help(parent))


@click.command(
    "uninstall",
    epilog=format_examples("flightlog uninstall --dry-run", "flightlog uninstall --yes"),
)
@click.option("--yes", is_flag=True, help="Remove it without asking.")
@click.option("--dry-run", is_flag=True, help="Show it; remove nothing.")
@json_option("Print what is removed and what stays as JSON.")
def undo_init(*, yes: bool, dry_run: bool, as_json: bool) -> int:
    """Undo what init did, and list what stays.

    Removes the hooks, the status line, the guards on commits and the sections of CLAUDE.md, from
    the agent's settings and from every project that has sessions. Recorded data stays. Exit 1 if
    it was not confirmed.
    """
    from msgspec.structs import replace

    from flightlog.setup.init import apply_uninstall, plan_uninstall

    runtime = open_runtime()
    plan = plan_uninstall(runtime)
    kinds = {True: "hook and status line", False: "hook"}
    removals = [f"{kinds[change.has_line]}: {change.settings}" for change in plan.settings]
    removals += [f"guard on commits and pushes: {project.cwd}" for project in plan.guards]
    removals += [f"section on training rows: {path}" for path in plan.instructions]
    if not as_json:
        for line in removals:
            click.echo(make_inert(line))
    interactive = sys.stdin.isatty() and not as_json
    agreed = yes or dry_run or not plan.is_needed
    agreed = agreed or (interactive and click.confirm("Remove this?", default=True, err=True))
    written = agreed and not dry_run and plan.is_needed
    failed = apply_uninstall(runtime, plan) if written else []
    plan = replace(plan, leftovers=(*failed, *plan.leftovers))
    report = {"removals": removals, "is_written": written, "leftovers": plan.leftovers}
    print_json(report) if as_json else _print_leftovers(plan, written=written)
    return 0 if agreed and not failed else 1


def _print_leftovers(plan: "UninstallPlan", *, written: bool) -> None:
    added = "; add --yes to remove it" if plan.is_needed else ""
    click.echo("removed" if written else f"nothing was removed{added}", err=True)
    click.echo("what stays, and how to delete it:")
    for leftover in plan.leftovers:
        click.echo(make_inert(f"  {leftover.content}: {leftover.path}"))
        click.secho(f"    {make_inert(leftover.command)}", fg="cyan")


@click.command(epilog=format_examples("flightlog settle", "flightlog settle 2123f2df"))
@click.argument("session_id", required=False)
@click.option("--ended", is_flag=True, hidden=True, help="The session has ended (for the hook).")
@json_option("Print what was done as JSON.")
def settle(session_id: str | None, *, ended: bool, as_json: bool) -> int:
    """Archive new session data, update the index. Without an id, archive all sessions."""
    from flightlog.model.addresses import parse_address
    from flightlog.recorder.settle import settle_all, settle_one

    runtime = open_runtime()
    if session_id:
        report = settle_one(runtime, parse_address(session_id).session, is_ended=ended)
    else:
        with closing(Progress("archiving session")) as progress:
            report = settle_all(runtime, progress)
    if as_json:
        print_json(report)
    else:
        sealed = f", {pluralize(report.sealed_files, 'file')} sealed" if report.sealed_files else ""
        line = f"{pluralize(report.sessions, 'session')} archived, {report.adopted_bytes:,} new bytes{sealed}"
        click.echo(line)
    _print_failures(report)
    return 1 if report.failures else 75 if report.locked else 0


def _print_failures(report: "SettleReport") -> None:
    for line in report.failures:
        click.echo(f"not archived: {make_inert(line)}", err=True)
    for line in report.locked:
        click.echo(f"not archived, busy: {make_inert(line)}", err=True)
    for fault in report.faults:
        repair = f"; {fault.repair}" if fault.repair else ": flightlog doctor --verify"
        text = f"{fault.session}/{fault.file}: {fault.kind}, {fault.message}{repair}"
        click.echo(f"damaged: {make_inert(text)}", err=True)
