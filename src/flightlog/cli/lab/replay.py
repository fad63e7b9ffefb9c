"""`flightlog lab replay` and `lab branch-points`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flightlog.app.runtime import open_runtime
from flightlog.cli.lab.inspect import format_usd
from flightlog.cli.options import AS_JSON, ON, RUNS_DIR, session_options
from flightlog.cli.output import format_examples, print_json, print_table, spell_hint
from flightlog.model.text import make_inert, one_line

if TYPE_CHECKING:
    from flightlog.lab.replay.source import ReplayTurn


_EFFECTS_MAX = 8


@click.command("branch-points", epilog="Example: flightlog lab branch-points my-run --session 2")
@click.argument("run")
@session_options
@RUNS_DIR
@AS_JSON
def branch_points(
    run: str, runs_dir: Path, *, session: int, replicate: int | None, as_json: bool
) -> None:
    """Suggest turns to replay from.

    Suggests turns of RUN with errors, reverted work or repeated actions, each with the reason.
    """
    from flightlog.lab.replay import service

    source = service.open_replay_source(open_runtime(), runs_dir, run, session, replicate or 0)
    points = source.suggest_branches()
    if as_json:
        print_json(points)
        return
    rows = [[str(point.turn), point.kind, make_inert(point.reason)] for point in points]
    print_table(["turn", "kind", "why"], rows, right=(0,))
    if points:
        command = f"flightlog lab replay {run} --session {session} --turn {points[0].turn}"
        click.echo(spell_hint(command), err=True)
    else:
        click.echo("no errors, reverted work or repeated actions", err=True)


@click.command(
    epilog=format_examples(
        "flightlog lab replay my-run --list-turns",
        "flightlog lab replay my-run --turn 7 --prompt 'Run the tests first.' --count 3",
        "flightlog lab replay rounding.task-1.base.03 --turn 7 --arm careful",
    )
)
@click.argument("run")
@click.option(
    "--session", type=click.IntRange(1), default=1, show_default=True,
    help="Number of the session to replay.",
)  # fmt: skip
@click.option("--turn", type=click.IntRange(1), help="Branch before this model response.")
@click.option(
    "--replicate",
    type=click.IntRange(1),
    help="Number of the replicate, if the session has several.",
)
@click.option(
    "--count", type=click.IntRange(1, 1000), default=1, show_default=True,
    help="Number of branches to create.",
)  # fmt: skip
@click.option("--prompt", default="", help="New prompt (default: resend the recorded request).")
@click.option("--list-turns", is_flag=True, help="Only list the turns to replay from.")
@click.option(
    "--allow-drift",
    is_flag=True,
    help="Continue, labeled, if the context differs from the recording.",
)
@click.option(
    "--cursor", is_flag=True, help="Rerun from the start: recorded responses, real tools."
)
@click.option("--arm", default="", help="Continue an attempt with another arm's settings.")
@click.option("--continue-sessions", is_flag=True, help="Then run the following sessions too.")
@click.option(
    "--verify", multiple=True, metavar="COMMAND",
    help="Check the final files with this command; exit 0 passes.",
)  # fmt: skip
@ON
@RUNS_DIR
@AS_JSON
def replay(run: str, runs_dir: Path, *, turn: int | None, as_json: bool, **arguments: Any) -> int:
    """Rerun a session from a turn.

    Restores the files and the context before TURN of a session of RUN, then continues live.
    Exit 1 if a branch did not complete or was refused.
    """
    from flightlog.cli.lab.run import RunProgress
    from flightlog.lab.experiment.service import configure_arm
    from flightlog.lab.layout import run_meta
    from flightlog.lab.replay import service
    from flightlog.lab.replay.branch import ReplayOptions
    from flightlog.lab.replay.certificate import replay_meta

    runtime = open_runtime(on=arguments["on"])
    replicate = arguments["replicate"] or 0
    source = service.open_replay_source(runtime, runs_dir, run, arguments["session"], replicate)
    if arguments["list_turns"]:
        turns = source.list_turns()
        print_json(turns) if as_json else _print_turns(turns)
        return 0
    if turn is None:
        raise click.UsageError("name a --turn, or use --list-turns")
    if arguments["arm"] and arguments["cursor"]:
        raise click.UsageError("recorded answers are another arm's: leave --cursor or --arm out")
    arm = configure_arm(runtime, source.run, arguments["arm"]) if arguments["arm"] else ("", None)
    names = ("prompt", "count", "allow_drift", "continue_sessions", "verify", "cursor")
    options = ReplayOptions(*(arguments[name] for name in names), *arm)
    stores = service.replay_session(runtime, source, turn, options, RunProgress())
    metas = [
        run_meta(store.name, store.config, store.state) | {"replay": replay_meta(store.state)}
        for store in stores
    ]
    print_json(metas) if as_json else _print_branches(metas, stores[0].path.parent)
    return int(
        any(store["stop_reason"] != "completed" for meta in metas for store in meta["sessions"])
    )


def _print_turns(turns: "list[ReplayTurn]") -> None:
    rows = []
    for turn in turns:
        text = ", ".join(turn.tools) or "-"
        tools = one_line(text, 40) + (" (failed)" if turn.has_failed_call else "")
        rows.append([str(turn.turn), tools, turn.blocked_reason or "yes", one_line(turn.text, 70)])
    print_table(["turn", "tools", "exact", "text"], rows, right=(0,))


def _print_branches(metas: list[dict[str, Any]], folder: Path) -> None:
    rows = []
    for meta in metas:
        certificate = meta["replay"]["certificate"] or {}
        first = meta["sessions"][0]
        verdict = certificate.get("verdict", "not decided")
        replaced = str(len(certificate.get("replacements", ())))
        passed = [verifier["passed"] for verifier in first["verifiers"]]
        ended = (first["stop_reason"], f"{sum(passed)}/{len(passed)}" if passed else "-")
        counts = (str(first["num_turns"]), format_usd(first["total_cost_usd"]))
        rows.append([meta["run_name"], verdict, replaced, *ended, *counts])
    heads = ["branch", "certificate", "replaced", "ended", "verified", "turns", "cost"]
    print_table(heads, rows, right=(2, 5, 6))
    effects = metas[0]["replay"]["side_effects_not_restored"]
    for effect in effects[:_EFFECTS_MAX]:
        where = f"turn {effect['turn']}: " if effect["turn"] else ""
        text = f"not restored: {where}{effect['kind']}: {one_line(effect['description'], 100)}"
        click.echo(make_inert(text), err=True)
    if len(effects) > _EFFECTS_MAX:
        line = f"not restored: {len(effects) - _EFFECTS_MAX} more, in replay_meta.json"
        click.echo(line, err=True)
    for meta in metas:
        certificate = meta["replay"]["certificate"] or {}
        if certificate.get("first_difference"):
            what = "differs at" if certificate["verdict"] == "differs" else "cannot be compared:"
            where = f"{meta['run_name']}: {what} {certificate['first_difference']}"
            click.echo(make_inert(f"{where}: {_describe_drift(meta, certificate)}"), err=True)
        elif error := meta["sessions"][0]["error"]:
            click.echo(make_inert(f"{meta['run_name']}: {one_line(error, 200)}"), err=True)
        later = certificate.get("later_requests") or {}
        if later.get("first_difference"):
            what = f"{later['equal']} of {later['compared']} later requests equal the recorded ones"
            line = make_inert(f"{meta['run_name']}: {what}; {later['first_difference']}")
            click.echo(line, err=True)
    click.echo(f"\n{make_inert(str(folder))}", err=True)


def _describe_drift(meta: dict[str, Any], certificate: dict[str, Any]) -> str:
    if not certificate["is_refused"]:
        return "continued"
    spent, count = meta["total_spent_usd"], certificate["sent_requests"]
    sent = f"after requests of the client's own, {format_usd(spent or None)} for {count}"
    return f"refused {sent if count else 'before any request'} (--allow-drift continues)"
