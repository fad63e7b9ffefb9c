"""`harness run`: carry an experiment out, or take one up again."""

from pathlib import Path
from typing import Any

import click

from flightlog.app import open_runtime
from flightlog.cli.lab_options import AS_JSON, RUNS_DIR
from flightlog.cli.places import ON
from flightlog.model.text import make_inert, one_line, pluralize


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
    from flightlog.app import lab as app
    from flightlog.cli.lab_progress import RunProgress
    from flightlog.cli.output import print_json
    from flightlog.lab.layout import run_meta
    from flightlog.lab.replaying.branch import continue_any_run
    from flightlog.lab.running.run import start_run

    runtime = open_runtime(on=given["on"])
    if (config is None) == (resume is None):
        raise click.UsageError("give either CONFIG or --resume RUN")
    told = RunProgress()
    if resume is not None:
        book = app.open_run(runtime, runs_dir, resume)
        with app.attach_executor(app.prepare_run(runtime, told)) as setting:
            continue_any_run(book, setting, again=given["again"])
    else:
        assert config is not None
        frozen = app.read_config(config, _config_overrides(given, config))
        path = (runs_dir / app.run_name(runtime, frozen)).absolute()
        if given["dry_run"]:
            _print_plan(path, frozen, as_json=as_json)
            return 0
        with app.attach_executor(app.prepare_run(runtime, told)) as setting:
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
    from flightlog.lab.plan import plan_sessions

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
    from flightlog.cli.lab_show import print_run

    print_run(meta)
    click.echo(f"\n{make_inert(str(path))}", err=True)
