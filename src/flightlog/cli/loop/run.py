"""The commands of `flightlog loop` that run or change a session, or write files."""

import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flightlog.app.runtime import open_runtime
from flightlog.cli.options import SESSION
from flightlog.cli.output import (
    format_examples,
    json_option,
    print_json,
    print_outcome,
    spell_hint,
)
from flightlog.model.errors import Conflict, Invalid
from flightlog.model.text import make_inert, one_line, pluralize

if TYPE_CHECKING:
    from flightlog.loop.events import QuestionAsked
    from flightlog.loop.state import LoopState


_json = json_option()
_request_json = json_option("Print the request as JSON.")
_INTERVENTIONS = ("ask_first", "never", "always", "on_error", "on_low_confidence")


@click.command(epilog="Example: flightlog loop run --plan plan.yaml --autonomous")
@click.option(
    "--plan", required=True, type=click.Path(path_type=Path), help="Plan to run, a YAML file."
)
@click.option("--session", "where", default="", help="Name of a new or hand-made session.")
@click.option("--autonomous", is_flag=True, help="Start without asking.")
@click.option("--max-iterations", type=int, help="Most attempts in total (default: the plan's).")
@click.option("--confidence-threshold", type=float, help="Ask a person below this confidence.")
@click.option(
    "--human-intervention", type=click.Choice(_INTERVENTIONS), help="When to ask a person."
)
@click.option("--dry-run", is_flag=True, help="Check the plan and print its tasks in order.")
@_json
def run(
    plan: Path, where: str, *, autonomous: bool, dry_run: bool, as_json: bool, **settings: Any
) -> int:
    """Run a plan. Exit 0 if it completed, 1 if it paused or failed, 130 if it was interrupted."""
    from flightlog.loop import service
    from flightlog.loop.runner import session

    runtime = open_runtime()
    if dry_run:
        return _print_task_order(plan, as_json=as_json)
    config = {name: value for name, value in settings.items() if value is not None}
    directory, resumed = service.start_session(
        runtime, plan, where, autonomous=autonomous, config=config
    )
    _print_progress(f"{'resuming' if resumed else 'started'} {directory.name}")
    terminal = service.Terminal(_terminal_prompt(), _print_progress)
    mode = session.RunMode.RESUME if resumed else session.RunMode.START
    state = service.conduct_session(runtime, directory, terminal, mode=mode)
    return _print_result(state, directory, as_json=as_json)


@click.command(epilog="Example: flightlog loop resume --session session-001")
@SESSION
@click.option(
    "--steal", is_flag=True, help="Take over from a runner that hangs; it can no longer write."
)
@click.option("--max-usd", type=float, help="New limit in USD.")
@click.option("--max-calls", type=int, help="New limit of model calls.")
@click.option("--max-tokens", type=float, help="New limit of tokens.")
@_json
def resume(written: str, *, steal: bool, as_json: bool, **limits: Any) -> int:
    """Resume a paused, failed or killed session. It keeps its own options and plan."""
    from flightlog.loop import service
    from flightlog.loop.runner import session

    runtime = open_runtime()
    directory = service.find_session(runtime, written)
    budgets = service.merge_budgets(
        directory, {name.removeprefix("max_"): value for name, value in limits.items()}
    )
    state = service.conduct_session(
        runtime,
        directory,
        service.Terminal(_terminal_prompt(), _print_progress),
        mode=session.RunMode.STEAL if steal else session.RunMode.RESUME,
        budgets=budgets,
    )
    return _print_result(state, directory, as_json=as_json)


@click.command(epilog="Example: flightlog loop pause --session session-001")
@SESSION
@click.option("--now", is_flag=True, help="Pause at once, in the middle of the task.")
@_request_json
def pause(written: str, *, now: bool, as_json: bool) -> None:
    """Pause a session after its current task."""
    _send_request(written, "stop" if now else "pause", "a person paused it", as_json=as_json)


@click.command(epilog="Example: flightlog loop stop --session session-001")
@SESSION
@click.option("--after-task", is_flag=True, help="Finish the current task first.")
@_request_json
def stop(written: str, *, after_task: bool, as_json: bool) -> None:
    """Stop a session at once. All processes of its task are stopped. The session can be resumed."""
    _send_request(
        written, "pause" if after_task else "stop", "a person stopped it", as_json=as_json
    )


@click.command(epilog="Example: flightlog loop answer --session session-001 continue")
@SESSION
@click.argument("answer", required=False)
@_json
def answer(written: str, answer: str | None, *, as_json: bool) -> None:
    """Answer the open question of a session. Without an answer, show the question."""
    from flightlog.loop import service
    from flightlog.loop.runner.driver import ControlRequest

    runtime = open_runtime()
    question = service.open_question(runtime, written)
    if answer is None:
        fields = {
            "question_id": question.question_id,
            "text": question.text,
            "options": question.options,
            "default_answer": question.default_answer,
        }
        answers = f"{', '.join(question.options)} (without an answer: {question.default_answer})"
        plain = f"{make_inert(question.text)}\n  one of: {answers}"
        print_json(fields) if as_json else click.echo(plain)
        return
    if answer not in question.options:
        raise Invalid(
            f'not an answer: "{one_line(answer, 40)}"',
            hint=f"one of: {', '.join(question.options)}",
        )
    service.send_request(runtime, written, ControlRequest("answer", question.question_id, answer))
    outcome = {"session": written, "question_id": question.question_id, "answer": answer}
    print_outcome(outcome, f"answered {question.question_id}: {answer}", as_json=as_json)


@click.command(epilog="Example: flightlog loop simulate --seed 7 --count 1000")
@click.option(
    "--seed",
    type=int,
    default=1,
    show_default=True,
    help="First seed; a seed always gives the same session.",
)
@click.option(
    "--count", type=click.IntRange(1), default=1, show_default=True, help="Number of seeds."
)
@click.option("--mode", type=click.Choice(("safety", "liveness")), default="safety", show_default=True,
              help="Check safety (nothing wrong happens) or liveness (every plan ends).")  # fmt: skip
@_json
def simulate(seed: int, count: int, mode: str, *, as_json: bool) -> int:
    """Check invariants on simulated sessions.

    Random sessions with faults run through the real scheduler. Exit 1 if an invariant is violated.
    """
    from flightlog.loop.simulator.simulation import run_simulation

    shown = []
    for number in range(seed, seed + count):
        simulation = run_simulation(number, safety=mode == "safety")
        if simulation.violations or count == 1:
            shown.append(simulation)
            counts = f"{simulation.events} events\t{simulation.crashes} crashes"
            line = f"seed {simulation.seed}\t{simulation.status}\t{counts}\t{simulation.digest}"
            click.echo("\n  ".join([line, *simulation.violations]), err=as_json)
    failed = sum(bool(simulation.violations) for simulation in shown)
    if as_json:
        print_json(
            {
                "mode": mode,
                "first_seed": seed,
                "sessions": count,
                "failed_count": failed,
                "simulations": shown,
            }
        )
    elif count > 1:
        click.echo(f"{pluralize(count, 'session')}, {failed} with a violated invariant")
    return int(failed > 0)


@click.command(
    epilog=format_examples(
        "flightlog loop example", "flightlog loop run --plan RALPH-LOOP-PLAN.yaml --autonomous"
    )
)
@click.argument("folder", default=".", type=click.Path(path_type=Path, file_okay=False))
@json_option("Print the paths as JSON.")
def example(folder: Path, *, as_json: bool) -> None:
    """Write an example plan that runs offline."""
    from flightlog.loop import service

    paths = [str(path) for path in service.write_example(folder)]
    print_json(paths) if as_json else click.echo("\n".join(paths))


@click.command(epilog="Example: flightlog loop schema > plan.schema.json")
@json_option("No effect: the output is always JSON.")
def schema(*, as_json: bool) -> None:
    """Print the JSON Schema of plans."""
    del as_json
    from flightlog.loop.plan.schema import json_schema

    print_json(json_schema())


@click.command(epilog="Example: flightlog loop retain --dry-run")
@click.option("--dry-run", is_flag=True, help="Show the changes without making them.")
@click.option(
    "--yes", is_flag=True, help="Delete raw logs older than a year; their summaries stay."
)
@_json
def retain(*, dry_run: bool, yes: bool, as_json: bool) -> int:
    """Archive old sessions and their logs.

    Sessions are archived after 6 months and summarized by quarter; with --yes their raw logs are
    deleted after a year.
    """
    from flightlog.loop.retention import apply_retention, plan_loop_retention

    report = (plan_loop_retention if dry_run else apply_retention)(open_runtime(), delete=yes)
    if as_json:
        print_json(report)
    else:
        for line in report.render_lines():
            click.echo(make_inert(line))
    return 0


def _print_result(state: "LoopState", directory: Path, *, as_json: bool) -> int:
    outcome = {
        "session": directory.name,
        "status": state.status,
        "reason": state.reason,
        "tasks_completed": state.completed_count,
    }
    completed = pluralize(state.completed_count, "task")
    plain = (
        f"{directory.name}: {state.status}, {completed} completed; {one_line(state.reason, 300)}"
    )
    print_json(outcome) if as_json else click.echo(plain)
    if state.stop_signal:
        return 130
    return 0 if state.status == "completed" else 1


def _print_task_order(path: Path, *, as_json: bool) -> int:
    from flightlog.loop.plan.load import load_plan
    from flightlog.loop.plan.schema import order_tasks

    plan, _ = load_plan(path)
    rows = [
        {"task_id": task.task_id, "name": task.name, "phase": task.phase}
        for task in order_tasks(plan)
    ]
    if as_json:
        print_json({"plan": plan.plan, "tasks": rows})
        return 0
    for row in rows:
        click.echo(make_inert(f"{row['task_id']}\tphase {row['phase']}\t{row['name']}"))
    return 0


def _send_request(session: str, request: str, reason: str, *, as_json: bool) -> None:
    from flightlog.loop import service
    from flightlog.loop.runner.driver import ControlRequest

    if not service.send_request(open_runtime(), session, ControlRequest(request, reason=reason)):
        raise Conflict(
            f"{session} is not running", hint=f"flightlog loop status --session {session}"
        )
    print_outcome(
        {"session": session, "request": request}, f"asked {session} to {request}", as_json=as_json
    )


def _print_progress(line: str) -> None:
    """Print a progress line on stderr; go on without output if stderr is closed."""
    try:
        click.echo(spell_hint(line), err=True)
    except OSError:
        sys.stderr = io.StringIO()


def _terminal_prompt() -> "Any":
    """Return a function that asks at the terminal, or None without a terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    import select

    shown: set[str] = set()

    def ask(question: "QuestionAsked", wait_s: float) -> str | None:
        if question.question_id not in shown:
            shown.add(question.question_id)
            click.echo(
                f"{make_inert(question.text)}\n  {' / '.join(question.options)}  [{question.default_answer}]: ",
                err=True,
                nl=False,
            )
        ready, _, _ = select.select([sys.stdin], [], [], wait_s)
        if not ready:
            return None
        text = sys.stdin.readline().strip() or question.default_answer
        if text not in question.options:
            click.echo(f"  one of: {', '.join(question.options)}: ", err=True, nl=False)
            return None
        return text

    return ask


COMMANDS: dict[str, click.Command] = {
    "run": run, "resume": resume, "pause": pause, "stop": stop, "answer": answer, "retain": retain,
    "simulate": simulate, "example": example, "schema": schema,
}  # fmt: skip
