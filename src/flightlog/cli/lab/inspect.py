"""`flightlog lab list` and `lab inspect`."""

from pathlib import Path
from typing import Any

import click

from flightlog.app.runtime import open_runtime
from flightlog.cli.options import AS_JSON, RUNS_DIR
from flightlog.cli.output import format_value, print_json, print_table
from flightlog.model.text import make_inert, one_line, pluralize

_OUTPUT_LINES_MAX = 12
_DIFF_LINES_MAX = 60


@click.command("list", epilog="Example: flightlog lab list --json")
@RUNS_DIR
@AS_JSON
def list_runs(runs_dir: Path, *, as_json: bool) -> None:
    """List runs and experiments.

    An experiment is one row: `flightlog lab experiment report` shows its attempts.
    """
    from flightlog.lab import service
    from flightlog.lab.experiment.service import experiment_of
    from flightlog.lab.inspect import iter_run_tree
    from flightlog.lab.layout import run_meta
    from flightlog.lab.replay.restore import describe_unrestored, is_unrestored

    runtime = open_runtime()
    metas = []
    for store in service.open_runs(runtime, runs_dir):
        metas.append(run_meta(store.name, store.config, store.state))
        if is_unrestored(store.path):
            metas[-1]["is_work_dir_restored"] = False
            click.echo(make_inert(": ".join(describe_unrestored(store.path))), err=True)
    if as_json:
        print_json(metas)
        return
    rows: list[tuple[str, ...]] = []
    experiments: dict[str, list[dict[str, Any]]] = {}
    for depth, meta in iter_run_tree(metas):
        if (experiment := experiment_of(meta["tags"])) and "replay_turn" not in meta:
            experiments.setdefault(experiment, []).append(meta)
            continue
        done = sum(session["stop_reason"] == "completed" for session in meta["sessions"])
        counts = (
            f"{done}/{meta['session_count']}",
            _count_passes([meta]),
            str(meta["total_steps"]),
            format_usd(meta["total_cost_usd"]),
        )
        name = "  " * depth + meta["run_name"]
        kind = (_format_branch(meta), meta["model"], meta["session_mode"])
        rows.append((name, *kind, *counts, meta["stop_reason"], " ".join(meta["tags"])))
    rows += [_experiment_row(name, attempts) for name, attempts in experiments.items()]
    heads = ["run", "branch", "model", "mode", "done", "verified", "steps", "cost", "ended", "tags"]
    print_table(heads, rows, right=(4, 5, 6, 7))


def _experiment_row(name: str, metas: list[dict[str, Any]]) -> tuple[str, ...]:
    models = ", ".join(dict.fromkeys(meta["model"] for meta in metas))
    done = sum(meta["sessions"][0]["stop_reason"] == "completed" for meta in metas)
    cost = sum(meta["total_cost_usd"] or 0.0 for meta in metas)
    counts = (
        f"{done}/{len(metas)}",
        _count_passes(metas),
        str(sum(m["total_steps"] for m in metas)),
    )
    return (name, "-", one_line(models, 40), "experiment", *counts, format_usd(cost), "-", "")


def _count_passes(metas: list[dict[str, Any]]) -> str:
    """Return how many verifications passed, of how many; `-` without any."""
    results = [
        v["passed"] for meta in metas for session in meta["sessions"] for v in session["verifiers"]
    ]
    return f"{sum(results)}/{len(results)}" if results else "-"


@click.command(epilog="Example: flightlog lab inspect my-run#2.14   (session 2, turn 14)")
@click.argument("what", metavar="RUN[#SESSION[rREPLICATE][@SUBAGENT][.TURN]]")
@RUNS_DIR
@AS_JSON
def inspect(what: str, runs_dir: Path, *, as_json: bool) -> None:
    """Show a run, a session or a step.

    A step is shown with its request, tools, changes and cost.
    """
    from flightlog.lab import service
    from flightlog.lab.inspect import inspect_address, parse_run_address

    runtime = open_runtime()
    address = parse_run_address(what)
    run = service.open_run(runtime, runs_dir, address.run)
    inspection = inspect_address(run, address, runtime.program_path)
    print_json(inspection) if as_json else print_inspection(inspection)


def _format_branch(meta: dict[str, Any]) -> str:
    if "replay_turn" in meta:
        return f"turn {meta['replay_turn']}, {meta['replay_verdict'] or 'not decided'}"
    return "-"


def format_usd(amount: float | None) -> str:
    """Return an amount to four decimals; `?` for an unknown one."""
    return "?" if amount is None else f"${amount:.4f}"


def print_inspection(inspection: dict[str, Any]) -> None:
    """Print a run, a session or a step."""
    {"run": print_run, "session": _print_session, "step": _print_step}[inspection["kind"]](
        inspection
    )


def print_run(meta: dict[str, Any]) -> None:
    """Print a run and its sessions."""
    text = f"{meta['run_name']}  {meta['model']}  {meta['session_mode']}  {meta['stop_reason']}"
    click.echo(make_inert(text))
    if meta["hypothesis"]:
        click.echo(make_inert(f"  {one_line(meta['hypothesis'], 200)}"))
    problems = (entry["error"] for entry in meta["errors"] if entry["session"] is None)
    for note in (meta["permission_note"], meta["isolation_note"], *problems):
        if note:
            click.echo(make_inert(f"  note: {note}"))
    rows = []
    for entry in meta["sessions"]:
        counts = [str(entry[name]) for name in ("num_turns", "tool_call_count", "file_writes")]
        error = one_line(entry["error"] or "", 60)
        cost = format_usd(entry["total_cost_usd"])
        verified = ", ".join(
            f"{one_line(verifier['name'], 20)} {'passed' if verifier['passed'] else 'failed'}"
            for verifier in entry["verifiers"]
        )
        rows.append([entry["session_dir"], entry["stop_reason"], *counts, cost, verified, error])
    heads = ["session", "ended", "turns", "tools", "writes", "cost", "verified", "error"]
    if not any(row[6] for row in rows):
        heads, rows = heads[:6] + heads[7:], [row[:6] + row[7:] for row in rows]
    print_table(heads, rows, right=(2, 3, 4, 5))
    click.echo(
        f"total {format_usd(meta['total_cost_usd'])}, {pluralize(meta['total_steps'], 'step')}, "
        f"{pluralize(meta['total_file_writes'], 'write')}"
    )
    if meta["total_resamples"] or meta["total_resample_errors"]:
        failed = meta["total_resample_errors"]
        errors = f", {pluralize(failed, 'error')}" if failed else ""
        line = f"samples {meta['total_resamples']}{errors}, {format_usd(meta['total_resample_cost_usd'])} extra"
        click.echo(line)
    for entry in meta.get("file_changes", ())[:40]:
        sizes = f"+{entry['added'] or 0} -{entry['removed'] or 0}"
        click.echo(make_inert(f"  {entry['kind']:<9} {one_line(entry['path'], 100)}  {sizes}"))


def print_comparison(comparison: dict[str, Any]) -> None:
    """Print runs side by side."""
    for name, values in comparison["config_differences"].items():
        click.echo(make_inert(f"{name}: {one_line(' | '.join(map(format_value, values)), 160)}"))
    for session in comparison["sessions"]:
        click.echo(f"session {session['session_index']}")
        rows = []
        for group in session["groups"]:
            reasons = (f"{count} {reason}" for reason, count in group["stop_reasons"].items())
            shares = (f"{one['passed']}/{one['total']}" for one in group["verifiers"].values())
            ended, verified = ", ".join(reasons), ", ".join(shares) or "-"
            measured = ("num_turns", "tool_call_count", "file_writes", "total_cost_usd")
            spreads = (
                f"{spread['mean']:.4g} ± {spread['sd']:.2g}" if (spread := group[name]) else "-"
                for name in measured
            )
            rows.append([group["run_name"], str(group["count"]), ended, verified, *spreads])
        heads = ["run", "n", "ended", "verified", "turns", "tools", "writes", "cost"]
        print_table(heads, rows, right=(1, 4, 5, 6, 7))
        line = f"  files: {len(session['files_equal'])} equal, {len(session['files_different'])} different"
        click.echo(line)
        for path in session["files_different"][:20]:
            click.echo(make_inert(f"    {one_line(path, 120)}"))
    if comparison["side_by_side"] is not None:
        names = [group["run_name"] for group in comparison["runs"]]
        print_side_by_side(comparison["side_by_side"], names)


def print_side_by_side(comparison: dict[str, Any], names: list[str]) -> None:
    """Print two sessions step by step."""
    rows = []
    for step in comparison["steps"]:
        sign = "=" if step["has_same_results"] else "~" if step["is_same"] else "≠"
        sides = (one_line(step[side], 42) or "-" for side in ("left", "right"))
        rows.append([str(step["turn"]), sign, *sides])
    print_table(["turn", "", *(one_line(name, 42) for name in names)], rows, right=(0,))
    divergence = comparison["first_divergence"]
    click.echo("no divergence" if divergence is None else f"they diverge in turn {divergence}")


def _print_session(session: dict[str, Any]) -> None:
    head = f"{session['session_dir']}  {session['stop_reason']}  {format_usd(session['total_cost_usd'])}"
    click.echo(make_inert(f"{head}  session {session['session_id']}"))
    click.echo(make_inert(f"prompt: {one_line(session['prompt'], 160)}"))
    rows = []
    for turn in session["turns"]:
        tools, text = one_line(", ".join(turn["tools"]) or "-", 40), one_line(turn["text"], 70)
        counts = (str(turn["files_changed"]), format_usd(turn["cost_usd"]))
        rows.append([str(turn["turn"]), tools, *counts, text])
    print_table(["turn", "tools", "files", "cost", "text"], rows, right=(0, 2, 3))
    for subagent, count in session["subagents"].items():
        click.echo(make_inert(f"subagent @{subagent}: {pluralize(count, 'turn')}"))


def _print_step(step: dict[str, Any]) -> None:
    subagent = f"@{step['subagent']}" if step["subagent"] else ""
    turn = f"{step['session_dir']}{subagent} turn {step['turn']}"
    head = f"{step['run_name']} {turn}  {step['model']}  {format_usd(step['cost_usd'])}"
    click.echo(make_inert(head))
    request = step["request"]
    if request:
        what = f"{pluralize(request['message_count'], 'message')}, {pluralize(request['size_bytes'], 'byte')}"
        line = make_inert(
            f"request {request['index']}: {what}, status {request['status']}, {request['file']}"
        )
        click.echo(line)
    else:
        click.echo("request: not captured")
    for thought in step["thinking"]:
        click.echo(make_inert(_shorten_text(f"thinking: {thought}", _OUTPUT_LINES_MAX)))
    for text in step["text"]:
        click.echo(make_inert(_shorten_text(f"text: {text}", _OUTPUT_LINES_MAX)))
    for tool in step["tools"]:
        state = " (denied)" if tool["denial_reason"] else " (failed)" if tool["is_error"] else ""
        message = f"tool call {tool['name']}{state} {one_line(format_value(tool['input']), 160)}"
        click.echo(make_inert(message))
        click.echo(make_inert(_indent_text(_shorten_text(tool["output"], _OUTPUT_LINES_MAX))))
    for change in step["file_changes"]:
        stats = change["diff_stats"]
        click.echo(make_inert(f"{change['kind']} {change['file_path']} +{stats['added']} -{stats['removed']} "
                         f"({change['attribution']})"))  # fmt: skip
        shown = "" if change["binary"] or "diff_encoding" in change else change["diff"]
        click.echo(make_inert(_indent_text(_shorten_text(shown, _DIFF_LINES_MAX))))
    ids = step["uuid_map"]
    if ids:
        click.echo(make_inert(f"snapshot: {ids['shadow_git_tag']}  message {ids['message_id']}"))


def _shorten_text(text: str, limit: int) -> str:
    lines = text.splitlines()
    return "\n".join(
        lines
        if len(lines) <= limit
        else [*lines[:limit], f"… {pluralize(len(lines) - limit, 'more line')}"]
    )


def _indent_text(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
