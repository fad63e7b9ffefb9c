"""Run the commands around the sessions, and the verifiers.

Verifiers run after the last snapshot of a session, in the session's own files at the path that the
agent saw, without the agent's credentials. Exit code 0 passes. Their changes are not kept.
"""

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from flightlog.agents.claude_code.driver import clean_environment
from flightlog.agents.process import terminate
from flightlog.lab.config import CommandConfig, VerifierConfig
from flightlog.lab.events import CommandRan, SessionVerified
from flightlog.lab.runner.context import RunContext
from flightlog.model.errors import Unavailable
from flightlog.store.git.snapshots import WorkTreeSnapshots

_OUTPUT_CHARS_MAX = 4000  # the output goes into the journal, so only its end is recorded
TIMED_OUT = 124  # as timeout(1) reports it


def run_commands(context: RunContext, phase: str, commands: tuple[CommandConfig, ...]) -> None:
    """Run the remaining commands of a phase; raise Unavailable if a checked one fails."""
    ended = [ran for ran in context.run.state.commands if ran.phase == phase]
    done = {ran.number for ran in ended if ran.exit_code == 0}
    for number, command in enumerate(commands, 1):
        if number in done:
            continue
        ran = _run_command(context, phase, number, command)
        context.run.append(ran, durable=True)
        if ran.exit_code and command.check:
            what = f"the {phase}-run command {number} failed with {ran.exit_code}"
            hint = "correct it, or set `check: false`"
            raise Unavailable(f"{what}: {command.command[:200]}", hint=hint)


def _run_command(
    context: RunContext, phase: str, number: int, command: CommandConfig
) -> CommandRan:
    work_dir, tree = context.work_tree.work_dir, context.work_tree.tree
    variables = {"HARNESS_RUN_DIR": str(context.run.path), "HARNESS_WORK_DIR": str(work_dir)}
    cwd = work_dir / Path(command.cwd) if command.cwd else work_dir
    environ = clean_environment(context.environment.environ) | variables
    arguments = [*context.command_prefix(tree, cwd), "sh", "-c", command.command]
    outside = cwd if tree == work_dir else work_dir
    result = run_with_timeout(arguments, outside, environ, command.timeout_seconds)
    return CommandRan(phase, number, *result)


class CommandResult(NamedTuple):
    """Result of a command: exit code, duration, the end of its output."""

    exit_code: int
    duration_s: float
    output: str


def run_with_timeout(
    arguments: Sequence[str], cwd: Path, environment: Mapping[str, str], timeout_s: float
) -> CommandResult:
    """Run a command until it ends or times out (exit code 124); then what it started ends, too."""
    started = time.monotonic()
    try:
        with subprocess.Popen(
            arguments,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as process:
            try:
                output, code = process.communicate(timeout=timeout_s)[0], process.returncode
            except BaseException:  # Ctrl-C, too: what the command started ends with it
                terminate(process, 0)
                raise
    except subprocess.TimeoutExpired as error:
        code, output = TIMED_OUT, error.output or b""
    except OSError as error:
        code, output = 127, str(error).encode()
    text = output.decode("utf-8", "replace")[-_OUTPUT_CHARS_MAX:]
    return CommandResult(code, round(time.monotonic() - started, 3), text)


def run_verifiers(
    context: RunContext, session: str, attempt: int, trees: WorkTreeSnapshots | None
) -> None:
    for number, verifier in enumerate(context.run.config.verifiers, 1):
        context.run.append(_run_verifier(context, session, attempt, verifier, (number, trees)))


def _run_verifier(
    context: RunContext,
    session: str,
    attempt: int,
    verifier: VerifierConfig,
    which: tuple[int, WorkTreeSnapshots | None],
) -> SessionVerified:
    number, trees = which
    work_dir = context.work_tree.work_dir
    arguments = [sys.executable, "-I", "-c", verifier.python]
    if verifier.command:
        arguments = ["sh", "-c", verifier.command]
    tree = trees.work_tree if trees is not None else context.work_tree.tree
    if tree != work_dir:
        arguments = [*context.command_prefix(tree), *arguments]
    variables = {"HARNESS_SESSION": session, "HARNESS_WORK_DIR": str(work_dir)}
    environment = clean_environment(context.environment.environ) | variables
    result = run_with_timeout(arguments, work_dir, environment, verifier.timeout_seconds)
    name = verifier.name or f"verifier {number}"
    return SessionVerified(session, attempt, name, result.exit_code == 0, *result)
