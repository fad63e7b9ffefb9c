"""The root command. Each subcommand is imported only when it runs.

`--help` prints the tables below without importing any command, so it stays fast. An error
becomes one line on stderr with the next step, and an exit code; --debug shows the traceback.
"""

import os
import re
import shlex
from collections.abc import Sequence
from importlib import import_module

import click

from flightlog import __version__
from flightlog.model import errors
from flightlog.model.text import make_inert, spell_commands

# Sections of `--help`; in each, name: (module below flightlog, attribute, help line of at most 45 characters)
SECTIONS = {
    "Start": {
        "up": ("cli.overview", "up", "Summarize your sessions and suggest commands."),
        "demo": ("cli.overview", "demo", "Record a scripted agent and show the result."),
        "init": ("cli.setup", "init", "Register the recording hook with an agent."),
        "uninstall": ("cli.overview", "undo_init", "Undo what init did, and list what stays."),
        "help": ("cli.overview", "help_", "Explain a command, or all symbols."),
    },
    "Look at sessions": {
        "session": ("cli.session", "session", "List, show, search, count, export sessions."),
        "search": ("cli.session", "search", "Find words in sessions."),
        "serve": ("web.commands", "serve", "Browse sessions in a local web page."),
        "status": ("cli.overview", "status", "Show running sessions and recording status."),
        "watch": ("cli.live", "watch", "Watch running sessions, costs and problems."),
        "cache": ("cli.session.analysis", "cache", "Show cache misses, their causes and cost."),
        "context": (
            "cli.session.analysis",
            "context",
            "Show what filled the context and its cost.",
        ),
        "trace": ("cli.trace", "trace", "Follow links between sessions, commits, rows."),
        "blame": ("cli.trace", "blame", "Show which prompt wrote a line."),
        "share": ("web.commands", "share", "Write a session as one redacted HTML page."),
        "mcp": ("mcp.server", "mcp", "Answer a coding agent's questions (MCP)."),
    },
    "Work with them": {
        "live": ("cli.live", "live", "Show running sessions, profiles and costs."),
        "loop": ("cli.loop", "loop", "Run a plan unattended (also ralph-runtime)."),
        "lab": ("cli.lab", "lab", "Experiment on sessions (also harness)."),
        "retro": ("cli.retro.analyze", "retro", "Analyze past sessions (also chat-retro)."),
        "issue": ("cli.retro.issues", "issue", "Publish safe issues (also issue-workflow)."),
        "dataset": ("cli.dataset", "dataset", "Track training rows (also ml-data-collector)."),
    },
    "Maintain": {
        "doctor": ("cli.setup", "doctor", "Check the installation and report problems."),
        "settle": ("cli.overview", "settle", "Archive new session data, update the index."),
        "privacy": ("cli.privacy", "privacy", "Find, redact and guard private data."),
        "trust": ("cli.trust", "trust", "Allow what a repository, run or plan may do."),
        "config": ("cli.setup", "config", "Show the settings and where each comes from."),
        "completion": ("cli.completion", "completion", "Print the shell completion script."),
    },
}
COMMANDS = {name: command for section in SECTIONS.values() for name, command in section.items()}

EXIT_CODES: tuple[tuple[type[errors.FlightlogError], int], ...] = (
    (errors.Misconfigured, 4),
    (errors.Invalid, 2),
    (errors.Unreadable, 3),
    (errors.Conflict, 75),
    (errors.Unavailable, 69),
    (errors.FlightlogError, 1),
)


class _LazyGroup(click.Group):
    """A group that imports a command when it runs, not when it is listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        command = getattr(import_module(f"flightlog.{module}"), attribute)
        assert isinstance(command, click.Command)
        if any(name.endswith("_COMPLETE") for name in os.environ):
            from flightlog.cli.completion import is_completing, offer_ids

            return offer_ids(command, cmd_name) if is_completing() else command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        widest = max(map(len, COMMANDS))
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                rows = [(name.ljust(widest), line) for name, (_, _, line) in commands.items()]
                formatter.write_dl(rows)


@click.command(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: flightlog up",
)
@click.version_option(__version__, prog_name="flightlog")
@click.option("--debug", is_flag=True, help="Show a traceback when something fails.")
@click.option("--samples", is_flag=True, help="Read the recordings that ship with flightlog.")
def cli(*, debug: bool, samples: bool) -> None:
    """The flight recorder and test lab for coding agents."""
    del debug  # `run_command` reads it from the arguments, before click has parsed them
    if samples:
        from flightlog.app.runtime import choose_samples

        choose_samples()


def run_command(command: click.Command, name: str, args: Sequence[str]) -> int:
    """Run `command` and return its exit code; print every error in the same form."""
    try:
        _restore_killed_runs(args)
        result = command.main(args=list(args), prog_name=name, standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        _print_error(name, *_format_click_error(error))
        return error.exit_code
    except (errors.FlightlogError, ModuleNotFoundError, PermissionError) as error:
        flightlog_error = _to_flightlog_error(error)
        if "--debug" in args or flightlog_error is None:
            raise
        noun, is_sample = command.name or "", "--samples" in args
        flightlog_error.hint = spell_commands(flightlog_error.hint, name, noun, is_sample=is_sample)
        return _report_error(name, flightlog_error) or run_command(command, name, args)
    except (click.Abort, KeyboardInterrupt):
        _print_error(name, "interrupted", "")
        return 130
    except SystemExit:
        # click and rich exit so when the reader of our output has gone, as with `head`.
        return 0
    return result if isinstance(result, int) else 0


def _restore_killed_runs(args: Sequence[str]) -> None:
    """Restore the directories of runs that were killed while they worked in place.

    `doctor` only reports such runs. Usually there is none, which costs one look.
    """
    if {"doctor", "--help", "-h"} & set(args[:3]):
        return
    from flightlog.hooks.writer import find_data_dir

    if not os.path.isdir(os.path.join(find_data_dir(os.environ), "in-place")):  # noqa: PTH112, PTH118 - help does not load pathlib
        return
    from flightlog.app.runtime import open_runtime
    from flightlog.lab.replay.restore import list_unrestored, restore_killed_runs
    from flightlog.lab.service import prepare_run

    runtime = open_runtime()
    for runs_dir in sorted({path.parent for path in list_unrestored(runtime)}):
        for message in restore_killed_runs(runs_dir, prepare_run(runtime, lambda *_: None)):
            click.echo(make_inert(message), err=True)


def _report_error(name: str, error: errors.FlightlogError) -> int:
    """Print an error and return its exit code, or 0 if the user gave the missing consent."""
    if isinstance(error, errors.ConsentNeeded):
        from flightlog.cli.trust import ask_consent

        if ask_consent(error):
            return 0
    _print_error(name, error.message, error.hint)
    return next(code for kind, code in EXIT_CODES if isinstance(error, kind))


def run_alias(noun: str, name: str, args: Sequence[str]) -> int:
    """Run one command group under the name its source document gives it."""
    command = cli.get_command(click.Context(cli), noun)
    assert command is not None
    return run_command(command, name, args)


def _to_flightlog_error(
    error: errors.FlightlogError | ModuleNotFoundError | PermissionError,
) -> errors.FlightlogError | None:
    if isinstance(error, errors.FlightlogError):
        return error
    if isinstance(error, PermissionError):
        path = str(error.filename)
        return errors.Unavailable(f"permission denied: {path}", hint=f"ls -ld {shlex.quote(path)}")
    return errors.missing_extra_error(error)


def _format_click_error(error: click.ClickException) -> tuple[str, str]:
    """Return click's error in our form: the message, then the next command."""
    text = error.format_message().strip().replace(". (Did", " (did")
    context = error.ctx if isinstance(error, click.UsageError) else None
    group = context.command if context else None
    unknown = re.fullmatch(r"No such command '(.*)'\.", text)
    if context and isinstance(group, click.Group) and unknown:
        from difflib import get_close_matches

        # click before 8.4 suggests nothing, and it does not know the commands of a lazy group.
        close = [name for name, command in COMMANDS.items() if f"(also {unknown[1]})" in command[2]]
        sessions = cli.get_command(context, "session") if group is cli else None
        if isinstance(sessions, click.Group) and unknown[1] in sessions.list_commands(context):
            close = [f"session {unknown[1]}"]
        close = close or get_close_matches(unknown[1], group.list_commands(context), n=1)
        text += "".join(f" Did you mean {name!r}?" for name in close)
    first, rest = text[:1], text[1:]
    if rest[:1].islower():
        first = first.lower()
    return (first + rest).rstrip("."), f"{context.command_path} --help" if context else ""


def _print_error(name: str, message: str, hint: str) -> None:
    click.echo(f"{name}: {make_inert(message)}", err=True)
    if hint:
        click.echo(f"  {make_inert(hint)}", err=True)
