"""Replay, branch-points."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flightlog.app.runtime import open_runtime
from flightlog.cli.options import AS_JSON, ON, RUNS_DIR
from flightlog.cli.output import format_examples
from flightlog.model.text import make_inert, one_line

if TYPE_CHECKING:
    from flightlog.lab.replay.source import ReplayTurn

_EFFECTS_MAX = 8


@click.command("branch-points", epilog="Example: flightlog lab branch-points my-run --session 2")
@click.argument("run")
@click.option("--session", type=click.IntRange(1), default=1, show_default=True, help="The session to look at.")
@click.option("--replicate", type=click.IntRange(1), help="Of a session with replicates: which one.")
@RUNS_DIR
@AS_JSON
def branch_points(run: str, runs_dir: Path, *, session: int, replicate: int | None, as_json: bool) -> None:
    """Propose turns of a session of RUN to replay from: errors, work that was taken back, circles; each with why."""
    from flightlog.cli.output import print_json, print_table
    from flightlog.lab.replay import service
    from flightlog.model.text import make_inert

    found = service.open_replay_source(open_runtime(), runs_dir, run, session, replicate or 0)
    points = found.suggest_branches()
    if as_json:
        print_json(points)
        return
    print_table(
        ["turn", "kind", "why"], [[str(each.turn), each.kind, make_inert(each.why)] for each in points], right=(0,)
    )
    if points:
        click.echo(f"flightlog lab replay {make_inert(run)} --session {session} --turn {points[0].turn}", err=True)
    else:
        click.echo("nothing failed, was taken back or went in circles", err=True)


@click.command(
    epilog=format_examples(
        "flightlog lab replay my-run --list-turns",
        "flightlog lab replay my-run --turn 7 --prompt 'Run the tests first.' --count 3",
    )
)
@click.argument("run")
@click.option("--session", type=click.IntRange(1), default=1, show_default=True, help="The session to go back into.")
@click.option("--turn", type=click.IntRange(1), help="Go back to before this model response.")
@click.option("--replicate", type=click.IntRange(1), help="Of a session with replicates: which one.")
@click.option("--count", type=click.IntRange(1, 1000), default=1, show_default=True, help="So many branches.")
@click.option("--prompt", default="", help="Say this first; without it the model is asked what it was asked then.")
@click.option("--list-turns", is_flag=True, help="Only list the turns one can go back to.")
@click.option("--allow-drift", is_flag=True, help="Go on also where the context is not the recorded one; labelled so.")
@click.option(
    "--cursor", is_flag=True, help="Begin anew: serve the recorded answers up to the turn, run the tools again."
)
@click.option("--continue-sessions", is_flag=True, help="Afterwards run the sessions that followed, too.")
@click.option("--verify", multiple=True, metavar="COMMAND", help="Ask this of the files in the end; 0 is a pass.")
@ON
@RUNS_DIR
@AS_JSON
def replay(run: str, runs_dir: Path, *, turn: int | None, as_json: bool, **given: Any) -> int:
    """Go back to before turn TURN of a session of RUN: the same files, the same context; then live.

    Exit 1 when a branch did not complete or was refused.
    """
    from flightlog.cli.lab.run import RunProgress
    from flightlog.cli.output import print_json
    from flightlog.lab.layout import run_meta
    from flightlog.lab.replay import service
    from flightlog.lab.replay.branch import ReplayOptions
    from flightlog.lab.replay.certificate import replay_meta

    runtime = open_runtime(on=given["on"])
    found = service.open_replay_source(runtime, runs_dir, run, given["session"], given["replicate"] or 0)
    if given["list_turns"]:
        turns = found.list_turns()
        print_json(turns) if as_json else _print_turns(turns)
        return 0
    if turn is None:
        raise click.UsageError("name a --turn, or use --list-turns")
    asked = ReplayOptions(
        given["prompt"],
        given["count"],
        given["allow_drift"],
        given["continue_sessions"],
        given["verify"],
        given["cursor"],
    )
    books = service.replay_session(runtime, found, turn, asked, RunProgress())
    told = [run_meta(each.name, each.config, each.state) | {"replay": replay_meta(each.state)} for each in books]
    print_json(told) if as_json else _print_branches(told, books[0].path.parent)
    return int(any(each["stop_reason"] != "completed" for meta in told for each in meta["sessions"]))


def _print_turns(turns: "list[ReplayTurn]") -> None:
    from flightlog.cli.output import print_table

    rows = [
        [
            str(each.turn),
            one_line(", ".join(each.tools) or "-", 40) + (" (failed)" if each.failed else ""),
            each.why_not or "yes",
            one_line(each.text, 70),
        ]
        for each in turns
    ]
    print_table(["turn", "tools", "exactly", "text"], rows, right=(0,))


def _count_passed(verifiers: list[dict[str, Any]]) -> str:
    return f"{sum(each['passed'] for each in verifiers)}/{len(verifiers)}" if verifiers else "-"


def _print_branches(told: list[dict[str, Any]], folder: Path) -> None:
    from flightlog.cli.output import print_table

    rows = []
    for meta in told:
        certificate = meta["replay"]["certificate"] or {}
        first = meta["sessions"][0]
        rows.append(
            [
                meta["run_name"],
                certificate.get("verdict", "not decided"),
                str(len(certificate.get("replaced", ()))),
                first["stop_reason"],
                _count_passed(first["verifiers"]),
                str(first["num_turns"]),
                "?" if first["total_cost_usd"] is None else f"${first['total_cost_usd']:.4f}",
            ]
        )
    print_table(["branch", "certificate", "replaced", "ended", "verified", "turns", "cost"], rows, right=(2, 5, 6))
    replay = told[0]["replay"]
    effects = replay["side_effects_not_restored"]
    for effect in effects[:_EFFECTS_MAX]:
        where = f"turn {effect['turn']}: " if effect["turn"] else ""
        click.echo(make_inert(f"not restored: {where}{effect['kind']}: {one_line(effect['what'], 100)}"), err=True)
    if len(effects) > _EFFECTS_MAX:
        click.echo(f"not restored: {len(effects) - _EFFECTS_MAX} more, in replay_meta.json", err=True)
    for meta in told:
        certificate = meta["replay"]["certificate"] or {}
        if certificate.get("first_difference"):
            done = "refused before anything was sent (--allow-drift goes on)" if certificate["refused"] else "went on"
            click.echo(
                make_inert(f"{meta['run_name']}: differs at {certificate['first_difference']}: {done}"), err=True
            )
    click.echo(f"\n{make_inert(str(folder))}", err=True)
