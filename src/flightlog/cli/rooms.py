"""The rooms' groups; each room adds its verbs."""

import click


@click.group()
def live() -> None:
    """Who is running now, what it costs, what is wrong."""


@click.group()
def loop() -> None:
    """Carry out a plan unattended."""


@click.group()
def lab() -> None:
    """Experiments: runs, replicates, trajectories, replay, resample."""


@click.group()
def retro() -> None:
    """Look back: patterns, pictures, feedback."""


@click.group()
def issue() -> None:
    """Issues that are safe to publish."""


@click.group()
def dataset() -> None:
    """Training rows in git."""
