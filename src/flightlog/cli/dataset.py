"""The dataset group."""

import click


@click.group(epilog="Example: flightlog dataset --help")
def dataset() -> None:
    """Training rows in git."""
