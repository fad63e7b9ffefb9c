"""`flightlog loop`, also installed as `ralph-runtime`: run a plan unattended."""

from importlib import import_module
from typing import cast

import click

_COMMANDS = {
    "run": ("run", "resume", "pause", "stop", "answer", "simulate"),
    "manage": tuple("redo accept reset-breaker rollback import example schema retain".split()),
    "inspect": ("status", "monitor", "logs", "generate-report", "analyze", "insights", "compare"),
}  # by module


class _LazyLoopGroup(click.Group):
    """A group that imports a module only when one of its commands runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return [name for names in _COMMANDS.values() for name in names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        for module, names in _COMMANDS.items():
            if cmd_name in names:
                commands = import_module(f"flightlog.cli.loop.{module}").COMMANDS
                return cast("click.Command", commands[cmd_name])
        return None


@click.group(
    cls=_LazyLoopGroup,
    epilog="Example: flightlog loop example && "
    "flightlog loop run --plan RALPH-LOOP-PLAN.yaml --autonomous",
)
@click.option("--debug", is_flag=True, hidden=True, help="Show a traceback when something fails.")
def loop(*, debug: bool) -> None:
    """Run a plan unattended.

    Every decision is recorded, and a session can be resumed after a crash.
    """
    del debug  # `run_command` reads it from the arguments, before click has parsed them
