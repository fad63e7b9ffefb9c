"""The lab group."""

import click


@click.group(epilog="Example: flightlog lab --help")
def lab() -> None:
    """Experiments: runs, replicates, trajectories, replay, resample."""
