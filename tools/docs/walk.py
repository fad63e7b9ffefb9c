"""Every command there is, as the command line itself knows it."""

import inspect
import textwrap
from collections.abc import Iterator

import click

from flightlog.cli.completion import NAMES
from flightlog.cli.root import cli

ALIASES = {noun: name for name, noun in NAMES.items() if noun}


def commands() -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every command with the words that call it, groups before what is in them."""
    yield from _below(("flightlog",), cli)


def _below(path: tuple[str, ...], command: click.Command) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path[-1])
        for name in command.list_commands(context):
            each = command.get_command(context, name)
            if each is not None and not each.hidden:
                yield from _below((*path, name), each)


def usage(path: tuple[str, ...], command: click.Command) -> str:
    """The line that says how to write it."""
    context = click.Context(command, info_name=" ".join(path))
    return " ".join([" ".join(path), *command.collect_usage_pieces(context)])


def options(path: tuple[str, ...], command: click.Command) -> list[tuple[str, str]]:
    """Its options, each with its meaning."""
    context = click.Context(command, info_name=" ".join(path))
    told = [each.get_help_record(context) for each in command.get_params(context) if isinstance(each, click.Option)]
    return [each for each in told if each is not None]


def text(command: click.Command) -> str:
    """What it says about itself; lines that stay as they are (click's mark) stand further in."""
    parts = inspect.cleandoc(command.help or "").split("\n\n")
    return "\n\n".join(textwrap.indent(part[2:], "    ") if part.startswith("\b\n") else part for part in parts)


def examples(command: click.Command) -> list[str]:
    """The commands it shows, each to be copied as it is."""
    _, _, said = (command.epilog or "").partition(":")
    return [line.strip() for line in said.splitlines() if line.strip()]
