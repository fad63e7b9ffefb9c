"""`flightlog loop`, also installed as `ralph-runtime`: run a plan unattended."""

import click


class _LazyLoopGroup(click.Group):
    """A group that imports `run` or `inspect` only when one of its commands runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return [*_RUNNING, *_LOOKING]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name in _RUNNING:
            from flightlog.cli.loop import run

            return run.COMMANDS[cmd_name]
        if cmd_name in _LOOKING:
            from flightlog.cli.loop import inspect

            return inspect.COMMANDS[cmd_name]
        return None


_RUNNING = ("run", "resume", "pause", "stop", "answer", "retain", "simulate", "example", "schema")
_LOOKING = ("status", "monitor", "logs", "generate-report", "analyze", "insights", "compare")


@click.group(
    cls=_LazyLoopGroup,
    epilog="Example: flightlog loop example && flightlog loop run --plan plan.yaml --autonomous",
)
@click.option("--debug", is_flag=True, hidden=True, help="Show a traceback when something fails.")
def loop(*, debug: bool) -> None:
    """Run a plan unattended.

    Every decision is recorded, and a session can be resumed after a crash.
    """
    del debug  # `run_command` reads it from the arguments, before click has parsed them
