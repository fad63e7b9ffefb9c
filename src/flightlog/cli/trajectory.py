"""Writing a session as a trajectory, for `flightlog session export --atif`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from flightlog.model.errors import Conflict, Invalid

if TYPE_CHECKING:
    from flightlog.archive import Archive
    from flightlog.model.session import Session


def write_trajectory(archive: "Archive", told: "Session", version: str, output: Path | None, *, redact: bool) -> None:
    """Print the trajectory, or write it with its subagents and pictures below `output`."""
    from flightlog.app.trajectories import bundle_of, write_bundle

    bundle = bundle_of(told, archive.known(told.id), version, redact=redact)
    files = len(bundle.documents) + len(bundle.pictures)
    if output is not None:
        if output.exists() and not output.is_dir():
            raise Conflict(
                f"not a directory: {output}", hint="name one that is not there yet; a trajectory is several files"
            )
        write_bundle(output, bundle)
        click.echo(f"written: {files} files below {output}; look at it: flightlog lab lint {output}", err=True)
        return
    if files > 1:
        raise Invalid(
            f"the trajectory is {files} files: subagents and pictures stand beside it",
            hint=f"flightlog session export {told.id} --atif --output DIR",
        )
    click.echo(next(bundle.files())[1], nl=False)
