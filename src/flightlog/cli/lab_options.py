"""Options that several verbs of the lab share."""

from pathlib import Path

import click

from flightlog.model.text import inert


def _swept(_context: click.Context, _parameter: click.Parameter, runs_dir: Path) -> Path:
    """Whoever looks at runs puts right what a killed replay left there; most of the time there is nothing."""
    if any(runs_dir.glob(".work-*/tree")) or any(runs_dir.glob("*/.in_place")):
        from flightlog.app.lab import setting
        from flightlog.lab.replaying.sweeping import swept

        for said in swept(runs_dir, setting(lambda *_: None)):
            click.echo(inert(said), err=True)
    return runs_dir


RUNS_DIR = click.option(
    "--runs-dir", type=click.Path(path_type=Path, file_okay=False), default=Path("runs"), show_default=True,
    help="Where runs are kept.", callback=_swept,
)  # fmt: skip
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
