"""The loop group."""

import click


@click.group(epilog="Example: flightlog loop --help")
def loop() -> None:
    """Carry out a plan unattended."""
