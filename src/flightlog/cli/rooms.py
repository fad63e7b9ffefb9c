"""The rooms' groups; each room adds its verbs."""

import click


@click.group(epilog="Example: flightlog live --help")
def live() -> None:
    """Who is running now, what it costs, what is wrong."""


@click.group(epilog="Example: flightlog loop --help")
def loop() -> None:
    """Carry out a plan unattended."""


@click.group(epilog="Example: flightlog lab --help")
def lab() -> None:
    """Experiments: runs, replicates, trajectories, replay, resample."""


@click.group(epilog="Example: flightlog retro --help")
def retro() -> None:
    """Look back: patterns, pictures, feedback."""


@click.group(epilog="Example: flightlog issue --help")
def issue() -> None:
    """Issues that are safe to publish."""


@click.group(epilog="Example: flightlog dataset --help")
def dataset() -> None:
    """Training rows in git."""
