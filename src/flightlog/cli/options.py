"""Options several commands share."""

from pathlib import Path
from typing import Any

import click

from flightlog.app.runtime import open_runtime
from flightlog.cli.output import json_option
from flightlog.model.text import make_inert

ON = click.option(
    "--on", default="local", show_default=True, metavar="PLACE",
    help="Where jobs run: local, or a Dask scheduler (tcp://host:8786).",
)  # fmt: skip
SESSION = click.option(
    "--session", "written", required=True, help="Which session: session-001, its whole name, or its directory."
)


def _sweep_runs_dir(_context: click.Context, _parameter: click.Parameter, runs_dir: Path) -> Path:
    """Whoever looks at runs puts right what a killed replay left there; most of the time there is nothing."""
    from flightlog.store.files import contained_in_project

    runtime = open_runtime()
    contained_in_project(runtime, runs_dir)
    if any(runs_dir.glob(".work-*/tree")) or any(runs_dir.glob("*/.in_place")):
        from flightlog.lab.replay.restore import restore_killed_replays
        from flightlog.lab.service import prepare_run

        for said in restore_killed_replays(runs_dir, prepare_run(runtime, lambda *_: None)):
            click.echo(make_inert(said), err=True)
    return runs_dir


RUNS_DIR = click.option(
    "--runs-dir", type=click.Path(path_type=Path, file_okay=False), default=Path("runs"), show_default=True,
    help="Where runs are kept.", callback=_sweep_runs_dir,
)  # fmt: skip
AS_JSON = json_option()


def session_options(verb: Any) -> Any:
    """Which session of a run."""
    verb = click.option("--replicate", type=click.IntRange(1), help="Of a session with replicates: which one.")(verb)
    return click.option("--session", type=click.IntRange(1), default=1, show_default=True, help="Which session.")(verb)


def sending_options(verb: Any) -> Any:
    """How samples are sent: limits, place, address."""
    for option in reversed(
        (
            click.option("--max-budget-usd", type=click.FloatRange(0, min_open=True), help="Spend no more than this."),
            click.option("--parallel", type=click.IntRange(1, 1000), help="So many at once; 8 if left out."),
            click.option(
                "--per-minute", type=click.FloatRange(0, min_open=True), help="So many a minute, all machines."
            ),
            click.option(
                "--retries", type=click.IntRange(0, 20), default=4, show_default=True, help="How many more tries."
            ),
            click.option(
                "--timeout",
                type=click.FloatRange(1),
                default=600,
                show_default=True,
                help="Seconds to wait for an answer.",
            ),
            click.option(
                "--until-width",
                type=click.FloatRange(0, 1, min_open=True),
                help="Stop before COUNT when every share of actions is known to this width; 0.3, say.",
            ),
            click.option("--base-url", default="", help="Another address of the API than the provider's own."),
            ON,
        )
    ):
        verb = option(verb)
    return verb
