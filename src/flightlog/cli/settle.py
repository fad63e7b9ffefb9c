"""`flightlog settle`."""

import click

from flightlog.cli.output import examples, json_option


@click.command(epilog=examples("flightlog settle", "flightlog settle 2123f2df"))
@click.argument("session_id", required=False)
@json_option("Print what was done as JSON.")
def settle(session_id: str | None, *, as_json: bool) -> int:
    """Keep sessions for good: copy what is new, bring the index up to date; without an id, all of them."""
    from flightlog.cli.output import Progress
    from flightlog.cli.settled import tell

    progress = Progress("keeping session")
    try:
        return tell(session_id or "", progress, as_json=as_json)
    finally:
        progress.close()
