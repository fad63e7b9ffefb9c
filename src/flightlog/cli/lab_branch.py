"""`harness branch-points`: turns of a session that are worth going back to."""

from pathlib import Path

import click

from flightlog.app import open_runtime
from flightlog.cli.lab_options import AS_JSON, RUNS_DIR


@click.command("branch-points", epilog="Example: flightlog lab branch-points my-run --session 2")
@click.argument("run")
@click.option("--session", type=click.IntRange(1), default=1, show_default=True, help="The session to look at.")
@click.option("--replicate", type=click.IntRange(1), help="Of a session with replicates: which one.")
@RUNS_DIR
@AS_JSON
def branch_points(run: str, runs_dir: Path, *, session: int, replicate: int | None, as_json: bool) -> None:
    """Propose turns of a session of RUN to replay from: errors, work that was taken back, circles; each with why."""
    from flightlog.app import lab_replay as app
    from flightlog.cli.output import print_json, print_table
    from flightlog.model.text import make_inert

    found = app.open_replay_source(open_runtime(), runs_dir, run, session, replicate or 0)
    points = found.suggest_branches()
    if as_json:
        print_json(points)
        return
    print_table(
        ["turn", "kind", "why"], [[str(each.turn), each.kind, make_inert(each.why)] for each in points], right=(0,)
    )
    if points:
        click.echo(f"flightlog lab replay {make_inert(run)} --session {session} --turn {points[0].turn}", err=True)
    else:
        click.echo("nothing failed, was taken back or went in circles", err=True)
