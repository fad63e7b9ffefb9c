"""The live group."""

import click


@click.group(epilog="Example: flightlog live --help")
def live() -> None:
    """Who is running now, what it costs, what is wrong."""
