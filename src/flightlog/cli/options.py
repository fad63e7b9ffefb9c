"""Options that several commands share."""

from collections.abc import Callable
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Any

import click

from flightlog.agents import agent_names
from flightlog.app.runtime import open_runtime
from flightlog.cli.output import json_option
from flightlog.model.errors import Invalid
from flightlog.model.text import make_inert, one_line, parse_range

ON = click.option(
    "--on", default="local", show_default=True, metavar="EXECUTOR",
    help="Where jobs run: local, or a Dask scheduler (tcp://host:8786).",
)  # fmt: skip


def _check_agent(_context: click.Context, _parameter: click.Parameter, name: str) -> str:
    if name and name not in agent_names():
        hint = f"one of: {', '.join(agent_names())}"
        raise Invalid(f"no such agent: {one_line(name, 40)!r}", hint=hint)
    return name


def check_agent_or_all(context: click.Context, parameter: click.Parameter, name: str) -> str:
    """Return the name of an agent, or "all"; a callback of an option."""
    return name if name == "all" else _check_agent(context, parameter, name)


AGENT = click.option(
    "--agent", default="", metavar="NAME", callback=_check_agent,
    help="Only sessions of this agent: claude-code, codex …",
)  # fmt: skip
_TIMES = "2026-11-01, 2026-11-01T13:00, 7d or 12h ago"
_SINCE = click.option("--since", default="", metavar="TIME", help=f"From this time on: {_TIMES}.")
_UNTIL = click.option(
    "--until", default="", metavar="TIME", help="Up to this time, written alike; a day is included."
)


def range_options(command: Any) -> Any:
    """Add the options of a time range, which have one grammar in all commands."""
    return _add_options(command, (_SINCE, _UNTIL))


def read_range(since: str, until: str, zone: tzinfo | None = None) -> tuple[int, int]:
    """Return start and end of the range in milliseconds; the end is open."""
    runtime = open_runtime()
    return parse_range(since, until, runtime.clock.now_ms(), zone or runtime.zone)


SESSION = click.option(
    "--session", "written", required=True, help="Loop session: a number, full name or directory."
)


def _sweep_runs_dir(_context: click.Context, _parameter: click.Parameter, runs_dir: Path) -> Path:
    """Restore the files that a killed run left changed; usually there are none."""
    from flightlog.store.files import contained_in_project

    runtime = open_runtime()
    contained_in_project(runtime, runs_dir)
    if any(runs_dir.glob(".work-*/tree")) or any(runs_dir.glob("*/.in_place")):
        from flightlog.lab.replay.restore import restore_killed_runs
        from flightlog.lab.service import prepare_run

        for message in restore_killed_runs(runs_dir, prepare_run(runtime, lambda *_: None)):
            click.echo(make_inert(message), err=True)
    return runs_dir


RUNS_DIR = click.option(
    "--runs-dir", type=click.Path(path_type=Path, file_okay=False), default=Path("runs"), show_default=True,
    help="Directory that holds the runs.", callback=_sweep_runs_dir,
)  # fmt: skip
AS_JSON = json_option()


def session_options(command: Any) -> Any:
    """Add the options that choose a session of a run."""
    return _add_options(command, _SESSION_OPTIONS)


def sending_options(command: Any) -> Any:
    """Add the options for sending samples: limits, executor, API address."""
    return _add_options(command, _SENDING_OPTIONS)


def _add_options(command: Any, options: tuple[Callable[[Any], Any], ...]) -> Any:
    for option in reversed(options):
        command = option(command)
    return command


_REPLICATE = "Number of the replicate, if the session has several."
SESSION_NUMBER = click.option(
    "--session", type=click.IntRange(1), default=1, show_default=True, help="Number of the session."
)
_SESSION_OPTIONS = (
    SESSION_NUMBER,
    click.option("--replicate", type=click.IntRange(1), help=_REPLICATE),
)
_SENDING_OPTIONS = (
    click.option("--max-budget-usd", type=click.FloatRange(0, min_open=True), help="Most to spend, in USD."),
    click.option("--parallel", type=click.IntRange(1, 1000), help="Requests in flight at once (default 8)."),
    click.option("--per-minute", type=click.FloatRange(0, min_open=True),
                 help="Requests per minute, over all machines."),
    click.option("--retries", type=click.IntRange(0, 20), default=4, show_default=True,
                 help="Retries after a failed request."),
    click.option("--timeout", type=click.FloatRange(1), default=600, show_default=True,
                 help="Seconds to wait for a response."),
    click.option("--until-width", type=click.FloatRange(0, 1, min_open=True),
                 help="Stop early once every interval is this narrow, such as 0.3."),
    click.option("--base-url", default="", help="Base URL of the API, instead of the provider's."),
    ON,
)  # fmt: skip


def parse_zone(name: str) -> tzinfo:
    """Return the time zone of that name."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return UTC if name == "UTC" else ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        hint = "write UTC or a name like Europe/Berlin"
        raise Invalid(f'no such time zone: "{one_line(name, 40)}"', hint=hint) from None
