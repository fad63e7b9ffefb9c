"""Reads every command, option and example from the command line itself."""

import inspect
import textwrap
from collections.abc import Iterator

import click

from flightlog.cli.completion import NAMES
from flightlog.cli.main import cli

ALIASES = {noun: name for name, noun in NAMES.items() if noun}


def commands() -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every command with its path of names, each group before its commands."""
    yield from _below(("flightlog",), cli)


def _below(
    path: tuple[str, ...], command: click.Command
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path[-1])
        for name in command.list_commands(context):
            subcommand = command.get_command(context, name)
            if subcommand is not None and not subcommand.hidden:
                yield from _below((*path, name), subcommand)


def usage(path: tuple[str, ...], command: click.Command) -> str:
    """Return the usage line of a command."""
    context = click.Context(command, info_name=" ".join(path))
    return " ".join([" ".join(path), *command.collect_usage_pieces(context)])


def options(path: tuple[str, ...], command: click.Command) -> list[tuple[str, str]]:
    """Return the options of a command, each with its meaning."""
    context = click.Context(command, info_name=" ".join(path))
    parameters = [param for param in command.get_params(context) if isinstance(param, click.Option)]
    records = [option.get_help_record(context) for option in parameters]
    return [record for record in records if record is not None]


def text(command: click.Command) -> str:
    """Return the help text of a command; paragraphs that click must not rewrap are indented."""
    parts = inspect.cleandoc(command.help or "").split("\n\n")
    return "\n\n".join(
        textwrap.indent(part[2:], "    ") if part.startswith("\b\n") else part for part in parts
    )


def examples(command: click.Command) -> list[str]:
    """Return the example commands of a command, each ready to be copied."""
    _, _, listed = (command.epilog or "").partition(":")
    return [line.strip() for line in listed.splitlines() if line.strip()]
