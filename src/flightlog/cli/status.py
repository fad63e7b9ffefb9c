"""`flightlog status`."""

import click


@click.command(epilog="Example: flightlog status --json")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def status(*, as_json: bool) -> None:
    """Say how the recording stands: found, kept, sealed, lost."""
    from flightlog.app import local_zone, now_ms
    from flightlog.app.status import age_ms
    from flightlog.app.status import status as look
    from flightlog.cli.output import print_json
    from flightlog.views.story import counted, moment

    told = look()
    if as_json:
        print_json(told)
        return
    click.echo(f"{counted(told.sessions_live, 'session')} in the agent's own files, {told.bytes_live:,} bytes")
    gone = f", {told.only_kept:,} of them deleted by the agent since" if told.only_kept else ""
    sealed = f"{told.bytes_kept:,} bytes, {told.bytes_sealed:,} of them sealed"
    click.echo(f"{counted(told.sessions_kept, 'session')} kept by us{gone}, {sealed}")
    if told.not_kept:
        click.echo(f"{counted(told.not_kept, 'session')} not kept yet")
        click.secho("    flightlog settle", fg="cyan")
    if told.last_record_ms is not None:
        click.echo(f"last record {(age_ms(told) or 0) // 1000:,} s ago")
        when = moment(told.first_deletion_ms, local_zone(), "%Y-%m-%d")
        click.echo(f"the agent deletes the first of them on {when}")
    if told.dataset is not None:
        from flightlog.cli.dataset_talk import safety_line

        click.echo(f"training rows here: {safety_line(told.dataset, now_ms())}")
    if told.lost_events:
        click.echo(f"{counted(told.lost_events, 'hook event')} could not be written down")
        click.secho("    flightlog doctor", fg="cyan")
    click.echo(f"index {told.index_bytes:,} bytes, all of it below {told.home}")
