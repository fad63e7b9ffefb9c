"""Writing sessions as trajectories or as tables, for `flightlog session export`."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flightlog.cli.output import Progress, print_json, print_outcome
from flightlog.model.errors import Conflict, Invalid
from flightlog.model.text import describe_redaction, make_inert, one_line, pluralize

if TYPE_CHECKING:
    from flightlog.archive import Archive
    from flightlog.model.pages import Redacted
    from flightlog.model.runtime import Runtime
    from flightlog.model.session import Session


def write_trajectory(  # noqa: PLR0913 - what to write, and how
    runtime: "Runtime", archive: "Archive", told: "Session", version: str, *, output: Path | None, given: dict[str, Any]
) -> None:
    """Print the trajectory, or write it with its subagents and pictures below `output`."""
    from flightlog.app.trajectories import build_session_bundle, write_bundle

    bundle, redacted = build_session_bundle(runtime, archive, told, version, redact=given["redact"])
    removed = redaction_fields(redacted)
    files = len(bundle.documents) + len(bundle.pictures)
    if output is not None:
        if output.exists() and not output.is_dir():
            raise Conflict(f"not a directory: {output}", hint="name a new directory: a trajectory is several files")
        write_bundle(output, bundle)
        done = {"session": told.id, "format": f"atif-{version}", "output": str(output), "files": files}
        talk = f"written: {pluralize(files, 'file')} below {output}; look at it: flightlog lab lint {output}"
        print_outcome(done | removed, talk, as_json=given["as_json"])
        print_redaction(removed, told.id)
        return
    if files > 1:
        raise Invalid(
            f"the trajectory is {files} files: subagents and pictures stand beside it",
            hint=f"flightlog session export {told.id} --atif --output DIR",
        )
    click.echo(next(bundle.iter_files())[1], nl=False)
    print_redaction(removed, told.id)


def redaction_fields(redacted: "Redacted[Any] | None") -> dict[str, Any]:
    """Return what `--json` says of a redaction; `None` means that there was none."""
    if redacted is None:
        return {"redacted": False}
    return {"redacted": True, "secrets": redacted.secrets, "personal": redacted.personal}


def print_redaction(fields: Mapping[str, Any], session: str = "--all") -> None:
    """Say on stderr how much was removed, or that the output is not redacted."""
    if fields["redacted"]:
        said = describe_redaction(fields["secrets"], fields["personal"])
        click.echo(f"{said}; read it through before you pass it on", err=True)
    else:
        again = f"flightlog session export {session} --redact"
        click.echo(f"not redacted: it may hold secrets and personal details; to share it: {again}", err=True)


def write_all(runtime: "Runtime", atif: str | None, form: str, output: Path | None, given: dict[str, Any]) -> int:
    """Write every session below `output`; exit 1 when one could not be told."""
    from flightlog.app.whole_archive import ATIF, PARQUET, BulkExportOptions, export_archive

    if output is None or not (atif or form == "parquet"):
        raise click.UsageError("with --all give --output DIR, and --atif or --format parquet")
    how = BulkExportOptions(ATIF if atif else PARQUET, atif or "1.6", given["redact"])
    told = export_archive(runtime, how, output, Progress("writing"))
    if given["as_json"]:
        print_json(told)
    else:
        click.echo(
            f"written: {pluralize(told['sessions'], 'session')}, {pluralize(told['files'], 'file')} below {output}",
            err=True,
        )
        print_redaction(told)
        for session, why in told["failed"].items():
            click.echo(make_inert(f"not written: {session}: {one_line(why, 200)}"), err=True)
    return int(bool(told["failed"]))
