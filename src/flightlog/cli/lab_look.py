"""`harness list | inspect`: what came of runs."""

from pathlib import Path
from typing import Any

import click

from flightlog.app import open_runtime
from flightlog.cli.lab_options import AS_JSON, RUNS_DIR


@click.command("list", epilog="Example: flightlog lab list --json")
@RUNS_DIR
@AS_JSON
def list_runs(runs_dir: Path, *, as_json: bool) -> None:
    """List the runs there are."""
    from flightlog.app import lab as app
    from flightlog.cli.output import print_json, print_table
    from flightlog.lab.kin import iter_run_tree
    from flightlog.lab.layout import run_meta

    runtime = open_runtime()
    metas = [run_meta(book.name, book.config, book.state) for book in app.open_runs(runtime, runs_dir)]
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
    from flightlog.app import lab as app
    from flightlog.cli.lab_show import print_inspection
    from flightlog.cli.output import print_json
    from flightlog.lab.inspect import inspect_address, parse_run_address

    runtime = open_runtime()
    place = parse_run_address(what)
    told = inspect_address(app.open_run(runtime, runs_dir, place.run), place, runtime.program_path)
    print_json(told) if as_json else print_inspection(told)


def _format_branch(meta: dict[str, Any]) -> str:
    return f"turn {meta['replay_turn']}, {meta['replay_verdict'] or 'not decided'}" if "replay_turn" in meta else "-"


def format_usd(amount: float | None) -> str:
    """Return an amount to four decimals; `?` for an unknown one."""
    return "?" if amount is None else f"${amount:.4f}"
