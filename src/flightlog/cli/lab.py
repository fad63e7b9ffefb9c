"""The lab group."""

import click

from flightlog.cli.lab_lint import lint


@click.group(epilog="Example: flightlog lab --help")
def lab() -> None:
    """Experiments: runs, replicates, trajectories, replay, resample."""


lab.add_command(lint)
