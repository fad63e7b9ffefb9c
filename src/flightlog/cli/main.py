"""The command line's root: one file per noun, loaded when it is called.

`--help` reads the table below and imports none of the commands, so it stays quick. Errors
become one line on stderr with the next step, and an exit code; a traceback needs --debug.
"""

import os
from collections.abc import Sequence
from importlib import import_module

import click

from flightlog import __version__
from flightlog.model.errors import Conflict, FlightlogError, Invalid, Misconfigured, Unavailable, Unreadable
from flightlog.model.text import make_inert

# name: (module, attribute, one line of help)
COMMANDS = {
    "up": ("flightlog.cli.overview", "up", "Say true things about your own sessions, each with its next command."),
    "init": ("flightlog.cli.setup", "init", "Register the hook with Claude Code, so that every session is recorded."),
    "demo": ("flightlog.cli.overview", "demo", "Run a scripted agent for real and show what was recorded."),
    "doctor": ("flightlog.cli.setup", "doctor", "Check that everything is in order, and say what is not."),
    "status": ("flightlog.cli.overview", "status", "Say who runs, who pays, and how the recording stands."),
    "watch": ("flightlog.cli.live", "watch", "Watch who is running, what it costs and what is wrong."),
    "settle": ("flightlog.cli.setup", "settle", "Keep sessions for good: copy what is new, update the index."),
    "config": ("flightlog.cli.setup", "config", "Show the settings in force, and where each comes from."),
    "privacy": ("flightlog.cli.privacy", "privacy", "Find, take out, preview and guard what is private."),
    "trust": ("flightlog.cli.setup", "trust", "Allow what a repository, a run or a plan may do."),
    "completion": (
        "flightlog.cli.completion",
        "completion",
        "Print what a shell needs to complete commands and ids.",
    ),
    "session": ("flightlog.cli.session", "session", "List, show, search, count and export sessions."),
    "trace": ("flightlog.cli.trace", "trace", "Follow a session, step, commit, row, task or issue to all the others."),
    "blame": ("flightlog.cli.trace", "blame", "Say which prompt wrote a line, committed or not."),
    "serve": ("flightlog.web.commands", "serve", "Look at sessions in a browser, on this machine only."),
    "share": ("flightlog.web.commands", "share", "Write a session as one redacted page to pass on."),
    "live": ("flightlog.cli.live", "live", "Who is running now, what it costs, what is wrong."),
    "loop": ("flightlog.cli.loop", "loop", "Carry out a plan unattended (also installed as ralph-runtime)."),
    "lab": ("flightlog.cli.lab", "lab", "Experiments on recorded sessions (also installed as harness)."),
    "retro": ("flightlog.cli.retro.analyze", "retro", "Look back over sessions (also installed as chat-retro)."),
    "issue": (
        "flightlog.cli.retro.issues",
        "issue",
        "Issues that are safe to publish (also installed as issue-workflow).",
    ),
    "dataset": ("flightlog.cli.dataset", "dataset", "Training rows in git (also installed as ml-data-collector)."),
}

EXIT_CODES: tuple[tuple[type[FlightlogError], int], ...] = (
    (Misconfigured, 4),
    (Invalid, 2),
    (Unreadable, 3),
    (Conflict, 75),
    (Unavailable, 69),
    (FlightlogError, 1),
)


class _LazyGroup(click.Group):
    """A group that imports a command when it runs, not when it is listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        if any(name.endswith("_COMPLETE") for name in os.environ):
            return _with_completion(command, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in COMMANDS.items()])


def _with_completion(command: click.Command, name: str) -> click.Command:
    """While a shell asks what to offer, parameters offer ids."""
    from flightlog.cli.completion import is_completing, offer_ids

    return offer_ids(command, name) if is_completing() else command


@click.command(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: flightlog up",
)
@click.version_option(__version__, prog_name="flightlog")
@click.option("--debug", is_flag=True, help="Show a traceback when something fails.")
@click.option("--samples", is_flag=True, help="Read the recordings that ship with flightlog instead of your own.")
def cli(*, debug: bool, samples: bool) -> None:
    """The flight recorder and test lab for coding agents."""
    del debug  # read from the arguments by `run`, before click knows them
    if samples:
        from flightlog.app.directories import choose_samples

        choose_samples()


def run_command(command: click.Command, name: str, args: Sequence[str]) -> int:
    """Run `command` and return its exit code; every error is told in the same form."""
    try:
        result = command.main(args=list(args), prog_name=name, standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        _print_error(name, *_format_click_error(error))
        return error.exit_code
    except (FlightlogError, ModuleNotFoundError) as error:
        said = _to_flightlog_error(error)
        if "--debug" in args or said is None:
            raise
        return _report_error(name, said) or run_command(command, name, args)
    except (click.Abort, KeyboardInterrupt):
        _print_error(name, "interrupted", "")
        return 130
    except SystemExit:
        # How click and rich answer when the reader of our output left, as `head` does; nothing is wrong.
        return 0
    return result if isinstance(result, int) else 0


def _report_error(name: str, error: FlightlogError) -> int:
    """Report an error and return its exit code; 0 if a person has given the consent that was missing."""
    from flightlog.model.errors import ConsentNeeded

    if isinstance(error, ConsentNeeded):
        from flightlog.cli.setup import ask_consent

        if ask_consent(error):
            return 0
    _print_error(name, error.message, error.hint)
    return next(code for kind, code in EXIT_CODES if isinstance(error, kind))


def run_alias(noun: str, name: str, args: Sequence[str]) -> int:
    """Run one group under the name its source document gave it."""
    command = cli.get_command(click.Context(cli), noun)
    assert command is not None
    return run_command(command, name, args)


def _to_flightlog_error(error: FlightlogError | ModuleNotFoundError) -> FlightlogError | None:
    if isinstance(error, FlightlogError):
        return error
    from flightlog.model.errors import missing_extra_error

    return missing_extra_error(error)


def _format_click_error(error: click.ClickException) -> tuple[str, str]:
    """What click has to say, in the form every error has here: what is wrong, then the next command."""
    said = error.format_message().strip().replace(". (Did", " (did")
    context = error.ctx if isinstance(error, click.UsageError) else None
    first, rest = said[:1], said[1:]
    if rest[:1].islower():
        first = first.lower()
    return (first + rest).rstrip("."), f"{context.command_path} --help" if context else ""


def _print_error(name: str, message: str, hint: str) -> None:
    click.echo(f"{name}: {make_inert(message)}", err=True)
    if hint:
        click.echo(f"  {make_inert(hint)}", err=True)
