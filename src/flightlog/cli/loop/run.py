"""The commands of `flightlog loop` that make something happen: run, resume, pause, stop, answer, simulate."""

import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flightlog.app.runtime import open_runtime
from flightlog.cli.options import SESSION
from flightlog.cli.output import format_examples, json_option, print_json, print_outcome
from flightlog.model.errors import Conflict, Invalid
from flightlog.model.text import make_inert, one_line, pluralize

if TYPE_CHECKING:
    from flightlog.loop.events import QuestionAsked
    from flightlog.loop.state import LoopState


_json = json_option()
_asked = json_option("Print what was asked of which session as JSON.")
_INTERVENTIONS = ("ask_first", "never", "always", "on_error", "on_low_confidence")


@click.command(epilog="Example: flightlog loop run --plan plan.yaml --autonomous")
@click.option("--plan", required=True, type=click.Path(path_type=Path), help="The plan, a YAML file.")
@click.option("--session", "where", default="", help="Name a new session, or one made by hand from the templates.")
@click.option("--autonomous", is_flag=True, help="Begin without asking first.")
@click.option("--max-iterations", type=int, help="Attempts in all, at most; the plan's own is the default.")
@click.option("--confidence-threshold", type=float, help="Below this confidence a person is asked.")
@click.option("--human-intervention", type=click.Choice(_INTERVENTIONS), help="When a person is asked.")
@click.option("--dry-run", is_flag=True, help="Check the plan and show the order of its tasks; change nothing.")
@_json
def run(plan: Path, where: str, *, autonomous: bool, dry_run: bool, as_json: bool, **settings: Any) -> int:
    """Carry out a plan; exit 0 when it was completed, 1 when it rests or failed, 130 when interrupted."""
    from flightlog.loop import service

    runtime = open_runtime()
    if dry_run:
        return _print_task_order(plan, as_json=as_json)
    config = {name: value for name, value in settings.items() if value is not None}
    directory, began = service.start_session(runtime, plan, where, autonomous=autonomous, config=config)
    _print_progress(f"{'going on with' if began else 'began'} {directory.name}")
    return _print_result(
        service.conduct_session(
            runtime,
            directory,
            service.Terminal(_terminal_prompt(), _print_progress),
            mode=service.RunMode.RESUME if began else service.RunMode.START,
        ),
        directory,
        as_json=as_json,
    )


@click.command(epilog="Example: flightlog loop resume --session session-001")
@SESSION
@click.option("--steal", is_flag=True, help="Take it over from a runner that hangs; that one can write nothing more.")
@click.option("--max-usd", type=float, help="A new limit in USD.")
@click.option("--max-calls", type=int, help="A new limit of model calls.")
@click.option("--max-tokens", type=float, help="A new limit of tokens.")
@_json
def resume(written: str, *, steal: bool, as_json: bool, **limits: Any) -> int:
    """Go on with a session that rests, failed or was cut short, with its own flags and plan."""
    from flightlog.loop import service
    from flightlog.loop.service import find_session

    runtime = open_runtime()
    directory = find_session(runtime, written)
    budgets = service.merge_budgets(directory, {name.removeprefix("max_"): value for name, value in limits.items()})
    state = service.conduct_session(
        runtime,
        directory,
        service.Terminal(_terminal_prompt(), _print_progress),
        mode=service.RunMode.STEAL if steal else service.RunMode.RESUME,
        budgets=budgets,
    )
    return _print_result(state, directory, as_json=as_json)


@click.command(epilog="Example: flightlog loop pause --session session-001")
@SESSION
@click.option("--now", is_flag=True, help="At once, in the middle of the task.")
@_asked
def pause(written: str, *, now: bool, as_json: bool) -> None:
    """Let a session rest after the task it is at."""
    _send_request(written, "stop" if now else "pause", "a person paused it", as_json=as_json)


@click.command(epilog="Example: flightlog loop stop --session session-001")
@SESSION
@click.option("--after-task", is_flag=True, help="Let the task it is at come to its end.")
@_asked
def stop(written: str, *, after_task: bool, as_json: bool) -> None:
    """Stop a session at once, with everything its task started; it can be resumed."""
    _send_request(written, "pause" if after_task else "stop", "a person stopped it", as_json=as_json)


@click.command(epilog="Example: flightlog loop answer --session session-001 continue")
@SESSION
@click.argument("answer", required=False)
@_json
def answer(written: str, answer: str | None, *, as_json: bool) -> None:
    """Answer the question a session waits for; without an answer, show it."""
    from flightlog.loop import service
    from flightlog.loop.runner.driver import ControlRequest
    from flightlog.loop.service import open_question

    runtime = open_runtime()
    asked = open_question(runtime, written)
    if answer is None:
        shown = {"question": asked.question, "text": asked.text, "options": asked.options, "safe": asked.safe}
        plain = f"{make_inert(asked.text)}\n  one of: {', '.join(asked.options)} (without an answer: {asked.safe})"
        print_json(shown) if as_json else click.echo(plain)
        return
    if answer not in asked.options:
        raise Invalid(f"not an answer: {answer!r}", hint=f"one of: {', '.join(asked.options)}")
    service.send_request(runtime, written, ControlRequest("answer", asked.question, answer))
    done = {"session": written, "question": asked.question, "answer": answer}
    print_outcome(done, f"answered {asked.question}: {answer}", as_json=as_json)


@click.command(epilog="Example: flightlog loop simulate --seed 7 --count 1000")
@click.option("--seed", type=int, default=1, show_default=True, help="The first seed; the same seed, the same session.")
@click.option("--count", type=click.IntRange(1), default=1, show_default=True, help="How many seeds.")
@click.option("--mode", type=click.Choice(("safety", "liveness")), default="safety", show_default=True,
              help="Whether nothing wrong is done, or everything is done in the end.")  # fmt: skip
@_json
def simulate(seed: int, count: int, mode: str, *, as_json: bool) -> int:
    """Run made-up sessions through the very same core, and look for broken promises; exit 1 if there is one."""
    from flightlog.loop.simulator.simulation import run_simulation

    shown = []
    for each in range(seed, seed + count):
        game = run_simulation(each, safety=mode == "safety")
        if game.violations or count == 1:
            shown.append(game)
            line = f"seed {game.seed}\t{game.status}\t{game.events} events\t{game.deaths} deaths\t{game.digest}"
            click.echo("\n  ".join([line, *game.violations]), err=as_json)
    broken = sum(bool(game.violations) for game in shown)
    if as_json:
        print_json({"mode": mode, "first": seed, "sessions": count, "broken": broken, "shown": shown})
    elif count > 1:
        click.echo(f"{pluralize(count, 'session')}, {broken} with a broken promise")
    return int(broken > 0)


@click.command(
    epilog=format_examples("flightlog loop example", "flightlog loop run --plan RALPH-LOOP-PLAN.yaml --autonomous")
)
@click.argument("folder", default=".", type=click.Path(path_type=Path, file_okay=False))
@json_option("Print the paths as JSON.")
def example(folder: Path, *, as_json: bool) -> None:
    """Write a plan of seven phases that runs offline, with what it needs."""
    from flightlog.loop import service

    made = [str(path) for path in service.write_example(folder)]
    print_json(made) if as_json else click.echo("\n".join(made))


@click.command(epilog="Example: flightlog loop schema > plan.schema.json")
@json_option("It is JSON with and without.")
def schema(*, as_json: bool) -> None:
    """Print the JSON Schema of a plan."""
    del as_json
    from flightlog.loop.plan.schema import json_schema

    print_json(json_schema())


@click.command(epilog="Example: flightlog loop retain --dry-run")
@click.option("--dry-run", is_flag=True, help="Show what would be done and do nothing.")
@click.option("--yes", is_flag=True, help="Delete raw logs older than a year; their summaries stay.")
@_json
def retain(*, dry_run: bool, yes: bool, as_json: bool) -> int:
    """Archive sessions after 6 months, sum them up by quarter, delete raw logs after a year."""
    from flightlog.loop.retention import apply_retention, plan_loop_retention

    told = (plan_loop_retention if dry_run else apply_retention)(open_runtime(), delete=yes)
    if as_json:
        print_json(told)
    else:
        for line in told.render_lines():
            click.echo(make_inert(line))
    return 0


def _print_result(state: "LoopState", directory: Path, *, as_json: bool) -> int:
    done = {
        "session": directory.name,
        "status": state.status,
        "reason": state.why,
        "tasks_completed": state.completed_count,
    }
    completed = pluralize(state.completed_count, "task")
    plain = f"{directory.name}: {state.status}, {completed} completed; {one_line(state.why, 300)}"
    print_json(done) if as_json else click.echo(plain)
    if state.stop_signal:
        return 130
    return 0 if state.status == "completed" else 1


def _print_task_order(path: Path, *, as_json: bool) -> int:
    from flightlog.loop.plan.load import load_plan
    from flightlog.loop.plan.schema import order_tasks

    plan, _ = load_plan(path)
    rows = [{"task_id": task.task_id, "name": task.name, "phase": task.phase} for task in order_tasks(plan)]
    if as_json:
        print_json({"plan": plan.plan, "tasks": rows})
        return 0
    for row in rows:
        click.echo(make_inert(f"{row['task_id']}\tphase {row['phase']}\t{row['name']}"))
    return 0


def _send_request(written: str, what: str, why: str, *, as_json: bool) -> None:
    from flightlog.loop import service
    from flightlog.loop.runner.driver import ControlRequest

    if not service.send_request(open_runtime(), written, ControlRequest(what, why=why)):
        raise Conflict(f"nobody is at work on {written}", hint=f"flightlog loop status --session {written}")
    print_outcome({"session": written, "asked": what}, f"asked {written} to {what}", as_json=as_json)


def _print_progress(line: str) -> None:
    """Say what happens on the error output; that nobody listens any more does not stop the work."""
    try:
        click.echo(make_inert(line), err=True)
    except OSError:
        sys.stderr = io.StringIO()


def _terminal_prompt() -> "Any":
    """A way to ask the person at the terminal, if there is one."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    import select

    shown: set[str] = set()

    def ask(asked: "QuestionAsked", wait_s: float) -> str | None:
        if asked.question not in shown:
            shown.add(asked.question)
            click.echo(f"{make_inert(asked.text)}\n  {' / '.join(asked.options)}  [{asked.safe}]: ", err=True, nl=False)
        ready, _, _ = select.select([sys.stdin], [], [], wait_s)
        if not ready:
            return None
        said = sys.stdin.readline().strip() or asked.safe
        if said not in asked.options:
            click.echo(f"  one of: {', '.join(asked.options)}: ", err=True, nl=False)
            return None
        return said

    return ask


COMMANDS: dict[str, click.Command] = {
    "run": run, "resume": resume, "pause": pause, "stop": stop, "answer": answer, "retain": retain,
    "simulate": simulate, "example": example, "schema": schema,
}  # fmt: skip
