"""Run, collect, track, progress."""

import sys
import threading
import time
from pathlib import Path
from typing import Any

import click

from flightlog.app.runtime import open_runtime
from flightlog.cli.options import AS_JSON, ON, RUNS_DIR
from flightlog.cli.output import format_examples
from flightlog.model.text import make_inert, one_line, pluralize


@click.command(epilog="Example: flightlog lab collect --list")
@click.argument("session", required=False)
@click.option("--all", "every", is_flag=True, help="Every session found.")
@click.option("--list", "only_list", is_flag=True, help="Only say which sessions there are.")
@click.option("--projects-dir", type=click.Path(path_type=Path, exists=True, file_okay=False),
              help="A Claude Code configuration directory, or its `projects`, to look in.")  # fmt: skip
@click.option("--exclude-current", is_flag=True, help="Leave out sessions of this directory.")
@click.option("--limit", type=click.IntRange(1), help="At most so many, newest first.")
@click.option("--dry-run", is_flag=True, help="Show what would become a run and write nothing.")
@RUNS_DIR
@AS_JSON
def collect(session: str | None, runs_dir: Path, *, as_json: bool, **given: Any) -> None:
    """Make runs of sessions that are already recorded; their changes are rebuilt from tool calls, and labelled so."""
    from flightlog.cli.output import print_json, print_table
    from flightlog.lab.collect import CollectOptions, collect_sessions

    if not (session or given["every"] or given["only_list"]):
        raise click.UsageError("name a SESSION, or use --all or --list")
    names = ("projects_dir", "exclude_current", "limit")
    choice = CollectOptions(not (given["only_list"] or given["dry_run"]), *(given[name] for name in names))
    rows = collect_sessions(open_runtime(), session or "", runs_dir, choice)
    if as_json:
        print_json(rows)
    else:
        print_table(["session", "run", "state"], [[row.session, row.run, row.state] for row in rows])


class RunProgress:
    """Tells what happens; on a terminal also each answer, on a line that is written over."""

    def __init__(self) -> None:
        """Begin the clock."""
        self._began = time.monotonic()
        self._answers: dict[str, int] = {}
        self._lock = threading.Lock()
        self._live = sys.stderr.isatty()

    def __call__(self, session: str, words: str, spent_usd: float) -> None:
        """Tell one thing; without words, that a session got an answer."""
        with self._lock:
            if not words:
                self._answers[session] = self._answers.get(session, 0) + 1
            steps = self._answers.get(session, 0)
            seconds = time.monotonic() - self._began
            line = make_inert(
                f"{seconds:7.1f} s  {session:<15} {words or 'at work':<18} {steps:>3} answers  ${spent_usd:.4f}"
            )
            if words:
                click.echo(("\r\x1b[K" if self._live else "") + line, err=True)
            elif self._live:
                click.echo("\r\x1b[K" + line, err=True, nl=False)


class SamplingProgress:
    """Tells how far a batch of samples is, on a line that is written over; silent when nobody watches."""

    def __init__(self) -> None:
        """Begin the clock."""
        self._began = time.monotonic()
        self._live = sys.stderr.isatty()

    def __call__(self, done: int, whole: int, spent_usd: float) -> None:
        """Show how far it is."""
        if self._live:
            seconds = time.monotonic() - self._began
            end = "\n" if done == whole else ""
            click.echo(
                f"\r\x1b[K{seconds:7.1f} s  {done} of {whole} samples  ${spent_usd:.4f}{end}", err=True, nl=False
            )


@click.command(epilog="Example: flightlog lab run experiment.yaml --tag try-2")
@click.argument("config", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.option("--model", help="Another model than the configuration's.")
@click.option("--tag", "tags", multiple=True, help="One more tag; may be repeated.")
@click.option("--session-mode", type=click.Choice(["isolated", "chained", "forked"]), help="Another mode.")
@click.option("--run-name", help="The run's directory; without it, the time and the model.")
@click.option("--no-capture", is_flag=True, help="Do not capture API requests.")
@click.option("--resume", metavar="RUN", help="Take up a run that ended early; finished sessions are kept.")
@click.option("--again", is_flag=True, help="With --resume: run sessions that were interrupted or failed once more.")
@click.option("--dry-run", is_flag=True, help="Check the configuration, show what would be run and run nothing.")
@ON
@RUNS_DIR
@AS_JSON
def run(config: Path | None, runs_dir: Path, *, resume: str | None, as_json: bool, **given: Any) -> int:
    """Run the experiment CONFIG describes; exit 1 when a session did not complete."""
    from flightlog.cli.output import print_json
    from flightlog.lab import service
    from flightlog.lab.layout import run_meta
    from flightlog.lab.runner.run import continue_run, start_run

    runtime = open_runtime(on=given["on"])
    if (config is None) == (resume is None):
        raise click.UsageError("give either CONFIG or --resume RUN")
    told = RunProgress()
    if resume is not None:
        book = service.open_run(runtime, runs_dir, resume)
        with service.attach_executor(service.prepare_run(runtime, told)) as setting:
            continue_run(book, setting, again=given["again"])
    else:
        assert config is not None
        frozen = service.read_config(config, _config_overrides(given, config))
        path = (runs_dir / service.run_name(runtime, frozen)).absolute()
        if given["dry_run"]:
            _print_plan(path, frozen, as_json=as_json)
            return 0
        with service.attach_executor(service.prepare_run(runtime, told)) as setting:
            book = start_run(path, frozen, setting)
    meta = run_meta(book.name, book.config, book.state)
    print_json(meta) if as_json else _print_run(meta, book.path)
    return int(any(each["stop_reason"] != "completed" for each in meta["sessions"]))


def _config_overrides(given: dict[str, Any], config: Path) -> dict[str, object]:
    said = {name: given[name] for name in ("model", "session_mode", "run_name") if given[name]}
    if given["no_capture"]:
        said["capture_api_requests"] = False
    if given["tags"]:
        from flightlog.lab.config import tags_of

        own = tags_of(config.read_text("utf-8")) if config.is_file() else []
        said["tags"] = [*own, *given["tags"]]
    return said


def _print_plan(path: Path, config: object, *, as_json: bool) -> None:
    from flightlog.cli.output import print_json, print_table
    from flightlog.lab.config import RunConfig
    from flightlog.lab.store import plan_sessions

    assert isinstance(config, RunConfig)
    planned = plan_sessions(config)
    if as_json:
        print_json({"run": path.name, "config": config, "sessions": planned})
        return
    rows = [
        [
            each.name,
            each.parent or "-",
            each.tree_of or "baseline",
            one_line(config.sessions[each.index - 1].prompt, 60),
        ]
        for each in planned
    ]
    click.echo(f"would run {path.name}, {pluralize(len(planned), 'session')}", err=True)
    print_table(["session", "goes on from", "tree of", "prompt"], rows)


def _print_run(meta: dict[str, object], path: Path) -> None:
    from flightlog.cli.lab.inspect import print_run

    print_run(meta)
    click.echo(f"\n{make_inert(str(path))}", err=True)


@click.command(epilog=format_examples("flightlog lab track ~/shop", "flightlog lab track ~/shop --off"))
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option("--off", is_flag=True, help="Save no more; what was saved stays.")
@AS_JSON
def track(folder: Path | None, *, off: bool, as_json: bool) -> None:
    """Save the files below FOLDER after each tool call of every session there; without FOLDER, list what is saved.

    The hook of `flightlog init` does it, and the agent waits for it: a fifth of a second or so each time.
    """
    from flightlog.archive import tracked_dirs
    from flightlog.cli.output import print_json

    runtime = open_runtime()
    if off and folder is None:
        raise click.UsageError("name the FOLDER that is to be tracked no more")
    listed = (
        tracked_dirs.list_tracked(runtime) if folder is None else tracked_dirs.track_directory(runtime, folder, off=off)
    )
    if as_json:
        print_json(listed)
    else:
        click.echo("\n".join(map(make_inert, listed)) or "no directory is tracked")
