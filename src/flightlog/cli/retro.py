"""The retro group."""

import click


@click.group(epilog="Example: flightlog retro --help")
def retro() -> None:
    """Look back: patterns, pictures, feedback."""
