"""The issue group."""

import click


@click.group(epilog="Example: flightlog issue --help")
def issue() -> None:
    """Issues that are safe to publish."""
