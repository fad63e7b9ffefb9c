"""List, inspect."""

from pathlib import Path
from typing import Any

import click

from flightlog.app.runtime import open_runtime
from flightlog.cli.options import AS_JSON, RUNS_DIR
from flightlog.cli.output import print_table
from flightlog.model.text import make_inert, one_line, pluralize

_OUTPUT_LINES_MAX = 12
_DIFF_LINES_MAX = 60


@click.command("list", epilog="Example: flightlog lab list --json")
@RUNS_DIR
@AS_JSON
def list_runs(runs_dir: Path, *, as_json: bool) -> None:
    """List the runs there are."""
    from flightlog.cli.output import print_json, print_table
    from flightlog.lab import service
    from flightlog.lab.inspect import iter_run_tree
    from flightlog.lab.layout import run_meta

    runtime = open_runtime()
    metas = [run_meta(book.name, book.config, book.state) for book in service.open_runs(runtime, runs_dir)]
    if as_json:
        print_json(metas)
        return
    rows = [
        [
            "  " * depth + meta["run_name"],
            _format_branch(meta),
            meta["model"],
            meta["session_mode"],
            f"{sum(each['stop_reason'] == 'completed' for each in meta['sessions'])}/{meta['session_count']}",
            str(meta["total_steps"]),
            format_usd(meta["total_cost_usd"]),
            meta["stop_reason"],
            " ".join(meta["tags"]),
        ]
        for depth, meta in iter_run_tree(metas)
    ]
    print_table(["run", "branch", "model", "mode", "done", "steps", "cost", "ended", "tags"], rows, right=(4, 5, 6))


@click.command(epilog="Example: flightlog lab inspect my-run#2.14   (session 2, turn 14)")
@click.argument("what", metavar="RUN[#SESSION[rREPLICATE][@SUBAGENT][.TURN]]")
@RUNS_DIR
@AS_JSON
def inspect(what: str, runs_dir: Path, *, as_json: bool) -> None:
    """Show a run, one of its sessions, or one step with its request, tools, changes and cost."""
    from flightlog.cli.output import print_json
    from flightlog.lab import service
    from flightlog.lab.inspect import inspect_address, parse_run_address

    runtime = open_runtime()
    place = parse_run_address(what)
    told = inspect_address(service.open_run(runtime, runs_dir, place.run), place, runtime.program_path)
    print_json(told) if as_json else print_inspection(told)


def _format_branch(meta: dict[str, Any]) -> str:
    return f"turn {meta['replay_turn']}, {meta['replay_verdict'] or 'not decided'}" if "replay_turn" in meta else "-"


def format_usd(amount: float | None) -> str:
    """Return an amount to four decimals; `?` for an unknown one."""
    return "?" if amount is None else f"${amount:.4f}"


def print_inspection(told: dict[str, Any]) -> None:
    """Print what `inspect` told."""
    {"run": print_run, "session": _print_session, "step": _print_step}[told["what"]](told)


def print_run(meta: dict[str, Any]) -> None:
    """Print a run and its sessions."""
    click.echo(make_inert(f"{meta['run_name']}  {meta['model']}  {meta['session_mode']}  {meta['stop_reason']}"))
    if meta["hypothesis"]:
        click.echo(make_inert(f"  {one_line(meta['hypothesis'], 200)}"))
    for note in (meta["permission_note"], meta["isolation_note"]):
        if note:
            click.echo(make_inert(f"  note: {note}"))
    rows = [
        [
            each["session_dir"],
            each["stop_reason"],
            str(each["num_turns"]),
            str(each["tool_call_count"]),
            str(each["file_writes"]),
            format_usd(each["total_cost_usd"]),
            one_line(each["error"] or "", 60),
        ]
        for each in meta["sessions"]
    ]
    print_table(["session", "ended", "turns", "tools", "writes", "cost", "error"], rows, right=(2, 3, 4, 5))
    click.echo(
        f"total {format_usd(meta['total_cost_usd'])}, {pluralize(meta['total_steps'], 'step')}, "
        f"{pluralize(meta['total_file_writes'], 'write')}"
    )
    if meta["total_resamples"] or meta["total_resample_errors"]:
        errors = f", {pluralize(meta['total_resample_errors'], 'error')}" if meta["total_resample_errors"] else ""
        click.echo(f"samples {meta['total_resamples']}{errors}, {format_usd(meta['total_resample_cost_usd'])} besides")
    for each in meta.get("file_changes", ())[:40]:
        click.echo(
            make_inert(
                f"  {each['kind']:<9} {one_line(each['path'], 100)}  +{each['added'] or 0} -{each['removed'] or 0}"
            )
        )


def print_comparison(told: dict[str, Any]) -> None:
    """Print runs side by side."""
    for name, values in told["config"].items():
        click.echo(make_inert(f"{name}: {one_line(' | '.join(map(str, values)), 160)}"))
    for session in told["sessions"]:
        click.echo(f"session {session['session_index']}")
        rows = [
            [
                each["run"],
                str(each["count"]),
                ", ".join(f"{count} {reason}" for reason, count in each["stop_reasons"].items()),
                ", ".join(f"{one['passed']}/{one['of']}" for one in each["verifiers"].values()) or "-",
                *(
                    _format_spread(each[name])
                    for name in ("num_turns", "tool_call_count", "file_writes", "total_cost_usd")
                ),
            ]
            for each in session["groups"]
        ]
        print_table(["run", "n", "ended", "verified", "turns", "tools", "writes", "cost"], rows, right=(1, 4, 5, 6, 7))
        click.echo(f"  files: {len(session['files_equal'])} equal, {len(session['files_different'])} different")
        for path in session["files_different"][:20]:
            click.echo(make_inert(f"    {one_line(path, 120)}"))
    if told["side_by_side"] is not None:
        print_side_by_side(told["side_by_side"], [each["run_name"] for each in told["runs"]])


def print_side_by_side(told: dict[str, Any], names: list[str]) -> None:
    """Print two sessions step by step."""
    rows = [
        [
            str(each["turn"]),
            "=" if each["same"] and each["same_results"] else "~" if each["same"] else "≠",
            one_line(each["left"], 42) or "-",
            one_line(each["right"], 42) or "-",
        ]
        for each in told["steps"]
    ]
    print_table(["turn", "", *(one_line(name, 42) for name in names)], rows, right=(0,))
    parted = told["first_divergence"]
    click.echo("they do the same to the end" if parted is None else f"they part in turn {parted}")


def _print_session(told: dict[str, Any]) -> None:
    head = f"{told['session_dir']}  {told['stop_reason']}  {format_usd(told['total_cost_usd'])}"
    click.echo(make_inert(f"{head}  session {told['session_id']}"))
    click.echo(make_inert(f"prompt: {one_line(told['prompt'], 160)}"))
    rows = [
        [
            str(each["turn"]),
            one_line(", ".join(each["tools"]) or "-", 40),
            str(each["files_changed"]),
            format_usd(each["cost_usd"]),
            one_line(each["text"], 70),
        ]
        for each in told["turns"]
    ]
    print_table(["turn", "tools", "files", "cost", "text"], rows, right=(0, 2, 3))
    for lane, count in told["subagents"].items():
        click.echo(make_inert(f"subagent @{lane}: {pluralize(count, 'turn')}"))


def _print_step(told: dict[str, Any]) -> None:
    lane = f"@{told['lane']}" if told["lane"] else ""
    turn = f"{told['session_dir']}{lane} turn {told['turn']}"
    head = f"{told['run']} {turn}  {told['model']}  {format_usd(told['cost_usd'])}"
    click.echo(make_inert(head))
    request = told["request"]
    if request:
        what = f"{pluralize(request['messages'], 'message')}, {pluralize(request['bytes'], 'byte')}"
        click.echo(make_inert(f"request {request['index']}: {what}, status {request['status']}, {request['file']}"))
    else:
        click.echo("request: not captured")
    for thought in told["thinking"]:
        click.echo(make_inert(_shorten_text(f"thinks: {thought}", _OUTPUT_LINES_MAX)))
    for text in told["text"]:
        click.echo(make_inert(_shorten_text(f"says: {text}", _OUTPUT_LINES_MAX)))
    for tool in told["tools"]:
        state = " (denied)" if tool["denied"] else " (failed)" if tool["is_error"] else ""
        click.echo(make_inert(f"calls {tool['name']}{state} {one_line(str(tool['input']), 160)}"))
        click.echo(make_inert(_indent_text(_shorten_text(tool["output"], _OUTPUT_LINES_MAX))))
    for change in told["changes"]:
        stats = change["diff_stats"]
        click.echo(make_inert(f"{change['kind']} {change['file_path']} +{stats['added']} -{stats['removed']} "
                         f"({change['attribution']})"))  # fmt: skip
        shown = "" if change["binary"] or "diff_encoding" in change else change["diff"]
        click.echo(make_inert(_indent_text(_shorten_text(shown, _DIFF_LINES_MAX))))
    if told["lineage"]:
        click.echo(
            make_inert(f"after it: {told['lineage']['shadow_git_tag']}  message {told['lineage']['message_id']}")
        )


def _shorten_text(text: str, most: int) -> str:
    lines = text.splitlines()
    return "\n".join(lines if len(lines) <= most else [*lines[:most], f"… {pluralize(len(lines) - most, 'more line')}"])


def _indent_text(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


def _format_spread(told: dict[str, Any] | None) -> str:
    return "-" if told is None else f"{told['mean']:.4g} ± {told['sd']:.2g}"
