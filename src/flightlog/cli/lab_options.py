"""Options that several verbs of the lab share."""

from pathlib import Path

import click

RUNS_DIR = click.option(
    "--runs-dir", type=click.Path(path_type=Path, file_okay=False), default=Path("runs"), show_default=True,
    help="Where runs are kept.",
)  # fmt: skip
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
