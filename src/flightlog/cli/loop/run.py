"""The commands of `flightlog loop` that run or change a session, or write files."""

import io
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from flightlog.app.runtime import open_runtime
from flightlog.cli.options import SESSION
from flightlog.cli.output import format_examples, json_option, print_json, print_outcome, spell_hint
from flightlog.model.errors import Conflict, Invalid, NotFound
from flightlog.model.text import make_inert, one_line, pluralize

if TYPE_CHECKING:
    from flightlog.loop.events import QuestionAsked
    from flightlog.loop.service import Terminal
    from flightlog.loop.state import LoopState


_json = json_option()
_request_json = json_option("Print the request as JSON.")
_INTERVENTIONS = ("ask_first", "never", "always", "on_error", "on_low_confidence")


class _Reach(NamedTuple):
    """How the person is reached while a session runs."""

    live: bool
    detach: bool
    notify: str

    def terminal(self) -> "Terminal":
        from flightlog.loop.service import Terminal

        live = _print_live if self.live else None
        return Terminal(_terminal_prompt(), _print_progress, live, self.notify)


def _reach(command: Any) -> Any:
    """Add the options about how the person is reached."""
    for option in (
        click.option(
            "--notify", default="", metavar="COMMAND",
            help="Run this when a person is needed, or it ends.",
        ),
        click.option("--detach", is_flag=True, help="Run in the background; survives the terminal."),
        click.option("--live", is_flag=True, help="Show the agent's output as it comes."),
    ):  # fmt: skip
        command = option(command)
    return command


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
@click.option("--phase", type=int, help="Run only this phase, as a session of its own.")
@_reach
@click.option("--dry-run", is_flag=True, help="Check the plan and print its tasks in order.")
@_json
def run(
    plan: Path, where: str, *, autonomous: bool, phase: int | None, as_json: bool, **options: Any
) -> int:
    """Run a plan. Exit 0 if it completed, 1 if it paused or failed, 130 if it was interrupted."""
    from flightlog.loop import service
    from flightlog.loop.runner import session

    runtime, reach = open_runtime(), _Reach(*(options.pop(name) for name in _Reach._fields))
    is_dry = options.pop("dry_run")
    config = {name: value for name, value in options.items() if value is not None}
    if is_dry:
        if where or autonomous or config or any(reach):
            hint = "leave out --dry-run, or the other options"
            raise Invalid("--dry-run runs nothing, so the other options have no effect", hint=hint)
        return _print_task_order(plan, phase, as_json=as_json)
    directory, resumed = service.start_session(
        runtime, plan, where, autonomous=autonomous, config=config, phase=phase
    )
    if reach.detach:
        return _detach(directory, (), as_json=as_json)
    _print_progress(f"{'resuming' if resumed else 'started'} {directory.name}")
    mode = session.RunMode.RESUME if resumed else session.RunMode.START
    state = service.conduct_session(runtime, directory, reach.terminal(), mode=mode)
    return _print_result(state, directory, as_json=as_json)


@click.command(epilog="Example: flightlog loop resume --session session-001")
@SESSION
@click.option(
    "--steal", is_flag=True, help="Take over from a runner that hangs; it can no longer write."
)
@click.option("--max-iterations", type=click.IntRange(1), help="New limit of attempts in total.")
@click.option("--max-wall", "wall_time_seconds", type=float, help="New limit in seconds; 0: none.")
@click.option("--budget", "--max-usd", "usd", type=float, help="New limit in USD; 0: none.")
@click.option("--max-calls", "calls", type=int, help="New limit of model calls; 0: none.")
@click.option("--max-tokens", "tokens", type=float, help="New limit of tokens; 0: none.")
@click.option("--allow", multiple=True, help="Tool that agents may use from now on; repeatable.")
@_reach
@_json
def resume(
    written: str, *, steal: bool, allow: tuple[str, ...], as_json: bool, **options: Any
) -> int:
    """Resume a paused, failed or killed session. It keeps its own options and plan."""
    from flightlog.loop import service
    from flightlog.loop.runner import session

    runtime, reach = open_runtime(), _Reach(*(options.pop(name) for name in _Reach._fields))
    directory = service.find_session(runtime, written)
    changes = service.merge_limits(directory, options, allow)
    if reach.detach:
        return _detach(directory, ("steal", "allow", *options), as_json=as_json)
    mode = session.RunMode.STEAL if steal else session.RunMode.RESUME
    state = service.conduct_session(
        runtime, directory, reach.terminal(), mode=mode, changes=changes
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


@click.command(
    epilog=format_examples(
        "flightlog loop answer --session session-001 continue",
        'flightlog loop answer --session session-001 "Use SQLite, one file."',
    )
)
@SESSION
@click.argument("answer", required=False)
@_json
def answer(written: str, answer: str | None, *, as_json: bool) -> None:
    """Answer the open question of a session.

    Without an answer, show the question. An agent's own question takes any text, which the agent
    gets word for word.
    """
    from flightlog.loop import service
    from flightlog.loop.decide.gates import check_answer
    from flightlog.loop.runner.driver import ControlRequest

    runtime = open_runtime()
    question = service.open_question(runtime, written)
    options = f"one of: {', '.join(question.options)}" if question.options else "any text"
    if answer is None:
        names = ("question_id", "text", "options", "default_answer")
        fields = {name: getattr(question, name) for name in names}
        answers = f"{options} (without an answer: {question.default_answer})"
        print_json(fields) if as_json else click.echo(f"{make_inert(question.text)}\n  {answers}")
        return
    check_answer(question, answer)
    request = ControlRequest("answer", question.question_id, answer)
    is_running = service.send_request(runtime, written, request)
    outcome = {"session": written, "question_id": question.question_id, "answer": answer}
    next_step = "" if is_running else f"; to go on: flightlog loop resume --session {written}"
    print_outcome(outcome, f"answered {question.question_id}: {answer}{next_step}", as_json=as_json)


@click.command(epilog="Example: flightlog loop simulate --seed 7 --count 1000")
@click.option(
    "--seed", type=int, default=1, show_default=True,
    help="First seed; a seed always gives the same session.",
)  # fmt: skip
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
        figures = {"first_seed": seed, "sessions": count, "failed_count": failed}
        print_json({"mode": mode, **figures, "simulations": shown})
    elif count > 1:
        click.echo(f"{pluralize(count, 'session')}, {failed} with a violated invariant")
    return int(failed > 0)


def _print_result(state: "LoopState", directory: Path, *, as_json: bool) -> int:
    name, completed = directory.name, state.completed_count
    outcome = {"session": name, "status": state.status, "reason": state.reason}
    line = f"{name}: {state.status}, {pluralize(completed, 'task')} completed"
    plain = f"{line}; {one_line(state.reason, 300)}"
    print_json({**outcome, "tasks_completed": completed}) if as_json else click.echo(plain)
    if state.stop_signal:
        return 130
    return 0 if state.status == "completed" else 1


def _detach(directory: Path, names: Iterable[str], *, as_json: bool) -> int:
    """Continue in the background with the options of these names, as the person typed them."""
    from flightlog.loop import service

    options = _typed_options({"live", "notify", *names})
    pid = service.detach_session(open_runtime(), directory, options)
    name = directory.name
    outcome = {"session": name, "pid": pid, "log": str(directory / service.RUNNER_LOG)}
    line = f"{name} runs in the background as process {pid}"
    hints = "\n".join(f"  flightlog loop {verb} --session {name}" for verb in ("monitor", "stop"))
    print_outcome(outcome, f"{line}\n{hints}", as_json=as_json)
    return 0


def _typed_options(names: set[str]) -> list[str]:
    context, words = click.get_current_context(), []
    for parameter in context.command.params:
        option, value = parameter.opts[0], context.params.get(parameter.name or "")
        if parameter.name in names and value not in (None, ""):
            values = value if isinstance(value, tuple) else (value,)
            given = [item for item in values if item is not False]
            words += [option if item is True else f"{option}={item}" for item in given]
    return words


def _print_task_order(path: Path, phase: int | None, *, as_json: bool) -> int:
    from flightlog.loop.plan.load import load_plan
    from flightlog.loop.plan.schema import order_tasks, select_phase
    from flightlog.loop.runner.agent_task import check_agents

    plan, _ = load_plan(path)
    try:
        check_agents(plan, open_runtime())
    except NotFound as error:  # the plan itself is sound
        click.echo(f"{error.message}\n  {error.hint}", err=True)
    rows = [
        {"task_id": task.task_id, "name": task.name, "phase": task.phase}
        for task in order_tasks(select_phase(plan, phase))
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
        hint = f"flightlog loop status --session {session}"
        raise Conflict(f"{session} is not running", hint=hint)
    outcome = {"session": session, "request": request}
    print_outcome(outcome, f"asked {session} to {request}", as_json=as_json)


def _print_progress(line: str) -> None:
    """Print a progress line on stderr; go on without output if stderr is closed."""
    try:
        click.echo(spell_hint(line), err=True)
    except OSError:
        sys.stderr = io.StringIO()


def _print_live(text: str) -> None:
    """Print the agent's output on stderr, apart from the progress lines."""
    for line in text.splitlines():
        _print_progress(f"  | {line}")


def _terminal_prompt() -> "Any":
    """Return a function that asks at the terminal, or None without a terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    import select

    shown: set[str] = set()

    def ask(question: "QuestionAsked", wait_s: float) -> str | None:
        if question.question_id not in shown:
            shown.add(question.question_id)
            options = " / ".join(question.options) or "any text"
            text = f"{make_inert(question.text)}\n  {options}  [{question.default_answer}]: "
            click.echo(text, err=True, nl=False)
        ready, _, _ = select.select([sys.stdin], [], [], wait_s)
        if not ready:
            return None
        text = sys.stdin.readline().strip() or question.default_answer
        if question.options and text not in question.options:
            click.echo(f"  one of: {', '.join(question.options)}: ", err=True, nl=False)
            return None
        return text

    return ask


COMMANDS: dict[str, click.Command] = {
    "run": run, "resume": resume, "pause": pause, "stop": stop, "answer": answer,
    "simulate": simulate,
}  # fmt: skip
