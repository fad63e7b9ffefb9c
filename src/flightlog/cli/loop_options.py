"""The option that every verb of a loop shares."""

import click

SESSION = click.option(
    "--session", "written", required=True, help="Which session: session-001, its whole name, or its directory."
)
