"""Where jobs are carried out: one option for every command that has some."""

import click

ON = click.option(
    "--on", default="local", show_default=True, metavar="PLACE",
    help="Where jobs run: local, or a Dask scheduler (tcp://host:8786).",
)  # fmt: skip
