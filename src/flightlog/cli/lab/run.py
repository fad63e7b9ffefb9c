"""`flightlog lab run`, `lab collect` and `lab track`."""

import shlex
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flightlog.app.runtime import open_runtime
from flightlog.cli.options import AS_JSON, ON, RUNS_DIR
from flightlog.cli.output import format_examples, print_json, print_table
from flightlog.model.text import make_inert, one_line, pluralize

if TYPE_CHECKING:
    from flightlog.lab.config import RunConfig


@click.command(
    epilog=format_examples("flightlog lab collect --list", "flightlog lab collect jobs/my-trial")
)
@click.argument("session", required=False)
@click.option("--all", "every", is_flag=True, help="Collect all sessions.")
@click.option("--list", "only_list", is_flag=True, help="Only list the sessions.")
@click.option("--projects-dir", type=click.Path(path_type=Path, exists=True, file_okay=False),
              help="Claude Code configuration directory, or its `projects`.")  # fmt: skip
@click.option("--exclude-current", is_flag=True, help="Skip sessions of this directory.")
@click.option("--limit", type=click.IntRange(1), help="Most sessions to collect, newest first.")
@click.option("--dry-run", is_flag=True, help="Show the runs without writing them.")
@RUNS_DIR
@AS_JSON
def collect(session: str | None, runs_dir: Path, *, as_json: bool, **arguments: Any) -> int:
    """Make runs from recorded sessions.

    File changes are rebuilt from tool calls and labeled as such. SESSION may also be a path: ATIF
    trajectories of any producer at or below it, such as trials of Harbor, become runs. Exit 3 if one
    of them cannot be read.
    """
    from flightlog.lab.collect import CollectOptions, collect_sessions, collect_trajectories

    if not (session or arguments["every"] or arguments["only_list"]):
        raise click.UsageError("name a SESSION, or use --all or --list")
    names = ("projects_dir", "exclude_current", "limit")
    write = not (arguments["only_list"] or arguments["dry_run"])
    options = CollectOptions(write, *(arguments[name] for name in names))
    if session and Path(session).exists():
        rows = collect_trajectories(open_runtime(), Path(session), runs_dir, write=write)
    else:
        rows = collect_sessions(open_runtime(), session or "", runs_dir, options)
    if as_json:
        print_json(rows)
    else:
        heads = ["session", "run", "state"]
        print_table(heads, [[row.session, row.run_name, row.status] for row in rows])
    return 0 if all(row.run_name for row in rows) else 3


class RunProgress:
    """Print events of a run; on a terminal also each response, on a line that is overwritten."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._answers: dict[str, int] = {}
        self._lock = threading.Lock()
        self._live = sys.stderr.isatty()

    def __call__(self, session: str, words: str, spent_usd: float) -> None:
        """Print an event; without `words`, count a response of the session."""
        with self._lock:
            if not words:
                self._answers[session] = self._answers.get(session, 0) + 1
            steps = self._answers.get(session, 0)
            seconds = time.monotonic() - self._began
            text = f"{seconds:7.1f} s  {session:<15} {words or 'working':<18} {steps:>3} responses  ${spent_usd:.4f}"
            line = make_inert(text)
            if words:
                click.echo(("\r\x1b[K" if self._live else "") + line, err=True)
            elif self._live:
                click.echo("\r\x1b[K" + line, err=True, nl=False)


class SamplingProgress:
    """Show the progress of a batch on a line that is overwritten; silent without a terminal."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._live = sys.stderr.isatty()

    def __call__(self, done: int, whole: int, spent_usd: float) -> None:
        """Show the number of samples done."""
        if self._live:
            seconds = time.monotonic() - self._began
            end = "\n" if done == whole else ""
            line = f"\r\x1b[K{seconds:7.1f} s  {done} of {whole} samples  ${spent_usd:.4f}{end}"
            click.echo(line, err=True, nl=False)


@click.command(epilog="Example: flightlog lab run experiment.yaml --tag try-2")
@click.argument("config", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.option("--model", help="Model, instead of the configured one.")
@click.option("--tag", "tags", multiple=True, help="Additional tag; may be repeated.")
@click.option(
    "--session-mode",
    type=click.Choice(["isolated", "chained", "forked"]),
    help="Session mode, instead of the configured one.",
)
@click.option("--run-name", help="Name of the run (default: time and model).")
@click.option("--no-capture", is_flag=True, help="Do not capture API requests.")
@click.option("--resume", metavar="RUN", help="Resume a run; finished sessions are kept.")
@click.option(
    "--again", is_flag=True, help="With --resume: also rerun failed or interrupted sessions."
)
@click.option("--dry-run", is_flag=True, help="Check the configuration and show the sessions.")
@ON
@RUNS_DIR
@AS_JSON
def run(
    config: Path | None, runs_dir: Path, *, resume: str | None, as_json: bool, **arguments: Any
) -> int:
    """Run the experiment of a configuration. Exit 1 if a session did not complete."""
    from flightlog.lab import service
    from flightlog.lab.layout import run_meta
    from flightlog.lab.runner.run import continue_run, start_run

    runtime = open_runtime(on=arguments["on"])
    if (config is None) == (resume is None):
        raise click.UsageError("name either CONFIG or --resume RUN")
    progress = RunProgress()
    if resume is not None:
        store = service.open_run(runtime, runs_dir, resume)
        with service.attach_executor(service.prepare_run(runtime, progress)) as context:
            continue_run(store, context, again=arguments["again"])
    else:
        assert config is not None
        frozen = service.read_config(config, _config_overrides(arguments, config))
        path = (runs_dir / service.run_name(runtime, frozen)).absolute()
        if arguments["dry_run"]:
            _print_plan(path, frozen, as_json=as_json)
            return 0
        with service.attach_executor(service.prepare_run(runtime, progress)) as context:
            store = start_run(path, frozen, context, config.read_text("utf-8"))
    meta = run_meta(store.name, store.config, store.state)
    print_json(meta) if as_json else _print_run(meta, store.path, store.config)
    return int(any(session["stop_reason"] != "completed" for session in meta["sessions"]))


def _config_overrides(arguments: dict[str, Any], config: Path) -> dict[str, object]:
    overrides = {
        name: arguments[name] for name in ("model", "session_mode", "run_name") if arguments[name]
    }
    if arguments["no_capture"]:
        overrides["capture_api_requests"] = False
    if arguments["tags"]:
        from flightlog.lab.config import tags_of

        tags = tags_of(config.read_text("utf-8")) if config.is_file() else []
        overrides["tags"] = [*tags, *arguments["tags"]]
    return overrides


def _print_plan(path: Path, config: "RunConfig", *, as_json: bool) -> None:
    from flightlog.lab.store import plan_sessions

    planned = plan_sessions(config)
    if as_json:
        print_json({"run_name": path.name, "config": config, "sessions": planned})
        return
    rows = []
    for session in planned:
        prompt = one_line(config.sessions[session.session_index - 1].prompt, 60)
        start = (session.parent_session or "-", session.tree_session or "baseline")
        rows.append((session.session_dir, *start, prompt))
    click.echo(f"would run {path.name}, {pluralize(len(planned), 'session')}", err=True)
    print_table(["session", "continues", "files of", "prompt"], rows)


def _print_run(meta: dict[str, object], path: Path, config: "RunConfig") -> None:
    from flightlog.cli.lab.inspect import print_run

    print_run(meta)
    patch = path / "full_diff.patch"
    is_wanted = config.in_place != "keep" and patch.is_file() and patch.stat().st_size
    take_over = f"  (its changes: {_apply_command(config, patch)})" if is_wanted else ""
    click.echo(make_inert(f"\n{path}{take_over}"), err=True)


def _apply_command(config: "RunConfig", patch: Path) -> str:
    """Return the command that applies `patch` to the work directory.

    git takes paths in a patch as relative to the top of the repository, and skips other files.
    """
    work_dir = Path(config.work_dir).resolve()
    tops = (top for top in (work_dir, *work_dir.parents) if (top / ".git").exists())
    folder = work_dir.relative_to(next(tops, work_dir))
    below = [] if folder == Path() else [f"--directory={folder}"]
    return f"git -C {shlex.quote(str(work_dir))} apply {shlex.join([*below, str(patch)])}"


@click.command(
    epilog=format_examples("flightlog lab track ~/shop", "flightlog lab track ~/shop --off")
)
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option("--off", is_flag=True, help="Stop saving; saved snapshots stay.")
@AS_JSON
def track(folder: Path | None, *, off: bool, as_json: bool) -> None:
    """Snapshot a directory after each tool call.

    Applies to every session below FOLDER; without FOLDER, list the tracked directories. The hook of
    `flightlog init` takes the snapshot, and the agent waits about 0.2 s for it.
    """
    from flightlog.archive import tracked_dirs

    runtime = open_runtime()
    if off and folder is None:
        raise click.UsageError("name the FOLDER to stop tracking")
    listed = tracked_dirs.list_tracked(runtime)
    if folder is not None:
        listed = tracked_dirs.track_directory(runtime, folder, off=off)
    lines = "\n".join(map(make_inert, listed)) or "no directory is tracked"
    print_json(listed) if as_json else click.echo(lines)
