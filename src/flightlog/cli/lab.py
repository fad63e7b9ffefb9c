"""`flightlog lab`, also installed as `harness`: run experiments and look at what came of them."""

from pathlib import Path

import click

from flightlog.model.text import inert, one_line

RUNS_DIR = click.option(
    "--runs-dir", type=click.Path(path_type=Path, file_okay=False), default=Path("runs"), show_default=True,
    help="Where runs are kept.",
)  # fmt: skip
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(epilog="Example: flightlog lab run experiment.yaml")
def lab() -> None:
    """Experiments: runs, replicates, trajectories, replay, resample."""


@lab.command(epilog="Example: harness run experiment.yaml --tag try-2   ·   harness run --resume RUN --again")
@click.argument("config", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.option("--model", help="Another model than the configuration's.")
@click.option("--tag", "tags", multiple=True, help="One more tag; may be repeated.")
@click.option("--session-mode", type=click.Choice(["isolated", "chained", "forked"]), help="Another mode.")
@click.option("--run-name", help="The run's directory; without it, the time and the model.")
@click.option("--no-capture", is_flag=True, help="Do not capture API requests.")
@click.option("--resume", metavar="RUN", help="Take up a run that ended early; finished sessions are kept.")
@click.option("--again", is_flag=True, help="With --resume: run sessions that were interrupted or failed once more.")
@click.option("--dry-run", is_flag=True, help="Check the configuration and say what would be run.")
@RUNS_DIR
@AS_JSON
def run(
    config: Path | None,
    runs_dir: Path,
    *,
    resume: str | None,
    again: bool,
    dry_run: bool,
    as_json: bool,
    **given: object,
) -> int:
    """Run the experiment CONFIG describes; exit 1 when a session did not complete."""
    from flightlog.app import lab as app
    from flightlog.cli.lab_progress import Told
    from flightlog.cli.output import print_json
    from flightlog.lab.layout import run_meta
    from flightlog.lab.running.run import begin, carry_on

    if (config is None) == (resume is None):
        raise click.UsageError("give either CONFIG or --resume RUN")
    told = Told()
    if resume is not None:
        book = app.open_book(runs_dir, resume)
        told.of(book)
        carry_on(book, app.setting(told), again=again)
    else:
        assert config is not None
        frozen = app.read_config(config, _overrides(given, config))
        path = (runs_dir / app.run_name(frozen)).absolute()
        if dry_run:
            _print_plan(path, frozen, as_json=as_json)
            return 0
        told.of(None)
        book = begin(path, frozen, app.setting(told))
    meta = run_meta(book.name, book.config, book.state)
    print_json(meta) if as_json else _print_run(meta, book.path)
    return int(any(each["stop_reason"] != "completed" for each in meta["sessions"]))


@lab.command("list", epilog="Example: harness list --json")
@RUNS_DIR
@AS_JSON
def list_runs(runs_dir: Path, *, as_json: bool) -> None:
    """List the runs there are."""
    from flightlog.app import lab as app
    from flightlog.cli.output import print_json, print_table
    from flightlog.lab.layout import run_meta

    metas = [run_meta(book.name, book.config, book.state) for book in app.open_books(runs_dir)]
    if as_json:
        print_json(metas)
        return
    rows = [
        [
            meta["run_name"],
            meta["model"],
            meta["session_mode"],
            f"{sum(each['stop_reason'] == 'completed' for each in meta['sessions'])}/{meta['session_count']}",
            str(meta["total_steps"]),
            _usd(meta["total_cost_usd"]),
            meta["stop_reason"],
            " ".join(meta["tags"]),
        ]
        for meta in metas
    ]
    print_table(["run", "model", "mode", "done", "steps", "cost", "ended", "tags"], rows, right=(3, 4, 5))


@lab.command(epilog="Example: harness inspect my-run   ·   harness inspect my-run#2.14   (session 2, turn 14)")
@click.argument("what", metavar="RUN[#SESSION[rREPLICATE][@SUBAGENT][.TURN]]")
@RUNS_DIR
@AS_JSON
def inspect(what: str, runs_dir: Path, *, as_json: bool) -> None:
    """Show a run, one of its sessions, or one step with its request, tools, changes and cost."""
    from flightlog.app import lab as app
    from flightlog.cli.lab_show import print_inspected
    from flightlog.cli.output import print_json
    from flightlog.lab.inspect import inspected, parse

    place = parse(what)
    told = inspected(app.open_book(runs_dir, place.run), place)
    print_json(told) if as_json else print_inspected(told)


@lab.command(epilog="Example: harness compare run-a run-b")
@click.argument("runs", nargs=-1, required=True, metavar="RUN [RUN…]")
@RUNS_DIR
@AS_JSON
def compare(runs: tuple[str, ...], runs_dir: Path, *, as_json: bool) -> None:
    """Compare runs session by session, or the replicates of one run: outcome, steps, cost, time, files."""
    from flightlog.app import lab as app
    from flightlog.cli.lab_show import print_compared
    from flightlog.cli.output import print_json
    from flightlog.lab.compare import compared

    told = compared([app.open_book(runs_dir, each) for each in runs])
    print_json(told) if as_json else print_compared(told)


@lab.command(epilog="Example: harness collect --list   ·   harness collect 3f2a… --runs-dir runs")
@click.argument("session", required=False)
@click.option("--all", "every", is_flag=True, help="Every session found.")
@click.option("--list", "only_list", is_flag=True, help="Only say which sessions there are.")
@click.option("--projects-dir", type=click.Path(path_type=Path, exists=True, file_okay=False),
              help="A Claude Code configuration directory, or its `projects`, to look in.")  # fmt: skip
@click.option("--exclude-current", is_flag=True, help="Leave out sessions of this directory.")
@click.option("--limit", type=click.IntRange(1), help="At most so many, newest first.")
@click.option("--dry-run", is_flag=True, help="Say what would become a run, and write nothing.")
@RUNS_DIR
@AS_JSON
def collect(
    session: str | None, runs_dir: Path, *, every: bool, only_list: bool, dry_run: bool, as_json: bool, **given: object
) -> None:
    """Make runs of sessions that are already recorded; their changes are rebuilt from tool calls, and labelled so."""
    from flightlog.app import lab_collect as app
    from flightlog.cli.output import print_json, print_table

    if not (session or every or only_list):
        raise click.UsageError("name a SESSION, or use --all or --list")
    rows = app.collected(session or "", runs_dir, app.Choice(write=not (only_list or dry_run), **given))  # type: ignore[arg-type]
    if as_json:
        print_json(rows)
        return
    print_table(["session", "run", "state"], [[row.session, row.run, row.state] for row in rows])


def _overrides(given: dict[str, object], config: Path) -> dict[str, object]:
    said = {name: given[name] for name in ("model", "session_mode", "run_name") if given[name]}
    if given["no_capture"]:
        said["capture_api_requests"] = False
    tags = given["tags"]
    assert isinstance(tags, tuple)
    if tags:
        from ruamel.yaml import YAML

        own = YAML(typ="safe").load(config.read_text("utf-8")) if config.is_file() else {}
        said["tags"] = [*((own or {}).get("tags") or []), *tags]
    return said


def _print_plan(path: Path, config: object, *, as_json: bool) -> None:
    from flightlog.cli.output import print_json, print_table
    from flightlog.lab.config import RunConfig
    from flightlog.lab.plan import plan

    assert isinstance(config, RunConfig)
    planned = plan(config)
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
    click.echo(f"would run {path.name}, {len(planned)} sessions", err=True)
    print_table(["session", "goes on from", "tree of", "prompt"], rows)


def _print_run(meta: dict[str, object], path: Path) -> None:
    from flightlog.cli.lab_show import print_run

    print_run(meta)
    click.echo(f"\n{inert(str(path))}", err=True)


def _usd(amount: float | None) -> str:
    return "?" if amount is None else f"${amount:.4f}"
