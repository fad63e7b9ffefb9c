"""`flightlog config`."""

import click

from flightlog.app import open_runtime
from flightlog.cli.output import json_option


@click.group(epilog="Example: flightlog config show --origin")
def config() -> None:
    """Show the settings in force."""


@config.command(epilog="Example: flightlog config show --origin")
@click.option("--origin", is_flag=True, help="Say where each value comes from.")
@json_option()
def show(*, origin: bool, as_json: bool) -> None:
    """Show every setting and its value."""
    from flightlog.app.config import SETTINGS
    from flightlog.cli.output import print_json, print_table

    values = open_runtime().config
    if as_json:
        print_json(list(values.values()))
        return
    heads = ["setting", "value", *(["from"] if origin else []), "meaning"]
    rows = [
        [each.name, str(values[each.name].value), *([values[each.name].origin] if origin else []), each.help]
        for each in SETTINGS
    ]
    print_table(heads, rows)
