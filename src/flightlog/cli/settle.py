"""`flightlog settle`."""

from typing import TYPE_CHECKING

import click

from flightlog.cli.output import Progress, format_examples, json_option, print_json
from flightlog.model.text import make_inert, pluralize

if TYPE_CHECKING:
    from flightlog.app.settle import SettleReport


@click.command(epilog=format_examples("flightlog settle", "flightlog settle 2123f2df"))
@click.argument("session_id", required=False)
@json_option("Print what was done as JSON.")
def settle(session_id: str | None, *, as_json: bool) -> int:
    """Keep sessions for good: copy what is new, bring the index up to date; without an id, all of them."""
    from flightlog.app import open_runtime
    from flightlog.app.settle import settle_all, settle_one
    from flightlog.model.address import parse_address

    runtime = open_runtime()
    if session_id:
        report = settle_one(runtime, parse_address(session_id).session)
    else:
        progress = Progress("keeping session")
        try:
            report = settle_all(runtime, progress)
        finally:
            progress.close()
    if as_json:
        print_json(report)
    else:
        sealed = f", {pluralize(report.sealed, 'file')} sealed" if report.sealed else ""
        click.echo(f"{pluralize(report.sessions, 'session')} kept, {report.bytes_adopted:,} new bytes{sealed}")
    _print_failures(report)
    return 1 if report.failed else 75 if report.busy else 0


def _print_failures(report: "SettleReport") -> None:
    for line in report.failed:
        click.echo(f"not kept: {make_inert(line)}", err=True)
    for line in report.busy:
        click.echo(f"not kept now: {make_inert(line)}", err=True)
    for fault in report.damage:
        repair = f"; {fault.repaired}" if fault.repaired else ": flightlog doctor --verify"
        text = f"{fault.session}/{fault.file}: {fault.what}, {fault.text}{repair}"
        click.echo(f"damaged: {make_inert(text)}", err=True)
