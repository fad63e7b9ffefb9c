"""`harness collect`: sessions that are already recorded become runs."""

from pathlib import Path
from typing import Any

import click

from flightlog.app import open_runtime
from flightlog.cli.lab_options import AS_JSON, RUNS_DIR


@click.command(epilog="Example: flightlog lab collect --list")
@click.argument("session", required=False)
@click.option("--all", "every", is_flag=True, help="Every session found.")
@click.option("--list", "only_list", is_flag=True, help="Only say which sessions there are.")
@click.option("--projects-dir", type=click.Path(path_type=Path, exists=True, file_okay=False),
              help="A Claude Code configuration directory, or its `projects`, to look in.")  # fmt: skip
@click.option("--exclude-current", is_flag=True, help="Leave out sessions of this directory.")
@click.option("--limit", type=click.IntRange(1), help="At most so many, newest first.")
@click.option("--dry-run", is_flag=True, help="Show what would become a run and write nothing.")
@RUNS_DIR
@AS_JSON
def collect(session: str | None, runs_dir: Path, *, as_json: bool, **given: Any) -> None:
    """Make runs of sessions that are already recorded; their changes are rebuilt from tool calls, and labelled so."""
    from flightlog.app import lab_collect as app
    from flightlog.cli.output import print_json, print_table

    if not (session or given["every"] or given["only_list"]):
        raise click.UsageError("name a SESSION, or use --all or --list")
    names = ("projects_dir", "exclude_current", "limit")
    choice = app.CollectOptions(not (given["only_list"] or given["dry_run"]), *(given[name] for name in names))
    rows = app.collect_sessions(open_runtime(), session or "", runs_dir, choice)
    if as_json:
        print_json(rows)
    else:
        print_table(["session", "run", "state"], [[row.session, row.run, row.state] for row in rows])
