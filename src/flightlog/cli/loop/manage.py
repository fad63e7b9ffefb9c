"""The commands of `flightlog loop` for sessions that do not run, and for plans."""

from pathlib import Path
from typing import Any

import click

from flightlog.app.runtime import open_runtime
from flightlog.cli.options import SESSION
from flightlog.cli.output import format_examples, json_option, print_json, print_outcome
from flightlog.model.errors import Invalid
from flightlog.model.text import make_inert, pluralize

_json = json_option()


@click.command(epilog="Example: flightlog loop redo --session session-001 003")
@SESSION
@click.argument("task")
@_json
def redo(written: str, task: str, *, as_json: bool) -> None:
    """Have an ended task done again.

    It runs when the session is resumed, whatever its confidence, and its effects get a new key.
    """
    from flightlog.loop.amend import redo_task

    redo_task(open_runtime(), written, task)
    _print_change(written, f"task {task} is to be done again", {"task": task}, as_json=as_json)


@click.command(epilog='Example: flightlog loop accept --session session-001 "Coverage"')
@SESSION
@click.argument("gate")
@_json
def accept(written: str, gate: str, *, as_json: bool) -> None:
    """Accept a quality gate that did not pass."""
    from flightlog.loop.amend import accept_gate

    accept_gate(open_runtime(), written, gate)
    _print_change(written, f"accepted the gate «{gate}»", {"gate": gate}, as_json=as_json)


@click.command(
    "reset-breaker", epilog="Example: flightlog loop reset-breaker --session session-001"
)
@SESSION
@_json
def reset_breaker(written: str, *, as_json: bool) -> None:
    """Close the breaker and forget its trips."""
    from flightlog.loop.amend import reset_breaker as reset

    reset(open_runtime(), written)
    _print_change(written, "the breaker is closed", {"breaker_state": "closed"}, as_json=as_json)


@click.command(epilog="Example: flightlog loop rollback --session session-001 003 --yes")
@SESSION
@click.argument("task")
@click.option("--yes", is_flag=True, help="Restore the files; without it, show what would happen.")
@_json
def rollback(written: str, task: str, *, yes: bool, as_json: bool) -> int:
    """Restore the files as they were before a task.

    That task and the tasks after it are done again when the session is resumed. The files as they are
    now are saved in the session's shadow repository first.
    """
    from flightlog.loop.amend import roll_back

    done = roll_back(open_runtime(), written, task, restore=yes)
    if as_json:
        print_json(done)
        return int(not yes)
    again = ", ".join(done.reopened_tasks) or "none"
    for path, added, removed in done.changed_files:
        click.echo(make_inert(f"{path}  +{added or 0} -{removed or 0}"))
    files = pluralize(len(done.changed_files), "file")
    line, hint = f"nothing is done yet: {files} to restore", "add --yes to restore the files"
    if yes:
        line, hint = f"restored {files}", f"flightlog loop resume --session {written}"
    print_outcome({}, f"{line}; tasks to be done again: {again}\n  {hint}", as_json=False)
    return int(not yes)


@click.command(
    "import",
    epilog=format_examples(
        'flightlog loop import TODO.md --verify "make test" --out plan.json',
        'flightlog loop import prd.json --verify "npm test" --allow Write --allow Edit',
    ),
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--verify", multiple=True, help="Command that checks each task; repeatable.")
@click.option(
    "--agent", default="claude-code", show_default=True, help="Agent that does the tasks."
)
@click.option("--allow", multiple=True, help="Tool that the agent may use; repeatable.")
@click.option("--out", type=click.Path(path_type=Path), help="File to write (default: print).")
@_json
def import_command(file: Path, *, out: Path | None, as_json: bool, **options: Any) -> None:
    """Make a plan of a checklist or issues.

    Reads a Markdown checklist, a prd.json with `userStories`, or a JSON list of issues. What is
    done already is left out.
    """
    from flightlog.agents.claude_code import allow_tools
    from flightlog.loop.plan.importer import import_plan
    from flightlog.loop.plan.load import parse_plan
    from flightlog.store.files import create_file

    if not any(command.strip() for command in options["verify"]):
        hint = 'name a command that fails unless a task is done: --verify "make test"'
        raise Invalid("nothing would check the agent's work", hint=hint)
    text = import_plan(file, options["verify"], options["agent"], allow_tools(options["allow"]))
    plan = parse_plan(text.encode(), str(file))
    if out is None:
        click.echo(make_inert(text), nl=False)
        return
    if not create_file(out, text.encode()):
        raise Invalid(f"exists already: {out}", hint="name another file, or remove it")
    outcome = {"plan": str(out), "tasks": len(plan.tasks)}
    next_step = f"flightlog loop run --plan {out} --dry-run"
    line = f"{out}: {pluralize(len(plan.tasks), 'task')}\n  {next_step}"
    print_outcome(outcome, line, as_json=as_json)


@click.command(
    epilog=format_examples(
        "flightlog loop example", "flightlog loop run --plan RALPH-LOOP-PLAN.yaml --autonomous"
    )
)
@click.argument("folder", default=".", type=click.Path(path_type=Path, file_okay=False))
@json_option("Print the paths as JSON.")
def example(folder: Path, *, as_json: bool) -> None:
    """Write an example plan that runs offline."""
    from flightlog.loop.plan.importer import write_example

    paths = [str(path) for path in write_example(folder)]
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


def _print_change(session: str, line: str, fields: dict[str, str], *, as_json: bool) -> None:
    next_step = f"flightlog loop resume --session {session}"
    outcome = {"session": session, **fields, "next": next_step}
    print_outcome(outcome, f"{line}\n  {next_step}", as_json=as_json)


COMMANDS: dict[str, click.Command] = {
    "redo": redo, "accept": accept, "reset-breaker": reset_breaker, "rollback": rollback,
    "import": import_command, "example": example, "schema": schema, "retain": retain,
}  # fmt: skip
