"""`flightlog lab track`: save the files of every session in a directory, so that it can be gone back into."""

from pathlib import Path

import click

from flightlog.app import open_runtime
from flightlog.cli.lab_options import AS_JSON
from flightlog.cli.output import format_examples
from flightlog.model.text import make_inert


@click.command(epilog=format_examples("flightlog lab track ~/shop", "flightlog lab track ~/shop --off"))
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option("--off", is_flag=True, help="Save no more; what was saved stays.")
@AS_JSON
def track(folder: Path | None, *, off: bool, as_json: bool) -> None:
    """Save the files below FOLDER after each tool call of every session there; without FOLDER, list what is saved.

    The hook of `flightlog init` does it, and the agent waits for it: a fifth of a second or so each time.
    """
    from flightlog.app import tracking as app
    from flightlog.cli.output import print_json

    runtime = open_runtime()
    if off and folder is None:
        raise click.UsageError("name the FOLDER that is to be tracked no more")
    listed = app.list_tracked(runtime) if folder is None else app.track_directory(runtime, folder, off=off)
    if as_json:
        print_json(listed)
    else:
        click.echo("\n".join(map(make_inert, listed)) or "no directory is tracked")
