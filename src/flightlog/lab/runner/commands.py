"""Pre/post commands and verifiers.

Run after the last tree is saved, in the session's own files at the path the agent saw, without the
agent's credentials. Exit code 0 is a pass. What a verifier changes is not kept.
"""

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from flightlog.agents.claude_code.driver import clean_environment
from flightlog.agents.sandbox import BindMount, IsolationMode, isolation_prefix
from flightlog.lab.config import CommandConfig, VerifierConfig
from flightlog.lab.events import CommandRan, SessionVerified
from flightlog.lab.runner.context import RunContext
from flightlog.model.errors import Unavailable
from flightlog.store.git.snapshots import WorkTreeSnapshots

_OUTPUT_CHARS_MAX = 4000
TIMED_OUT = 124


def run_commands(context: RunContext, phase: str, commands: tuple[CommandConfig, ...]) -> None:
    """Run the commands of a phase that did not run yet; one that fails and is checked ends the run."""
    done = {each.number for each in context.run.state.commands if each.phase == phase and each.exit_code == 0}
    for number, command in enumerate(commands, 1):
        if number in done:
            continue
        ran = _run_command(context, phase, number, command)
        context.run.append(ran, durable=True)
        if ran.exit_code and command.check:
            what = f"the {phase}-run command {number} failed with {ran.exit_code}"
            raise Unavailable(f"{what}: {command.command[:200]}", hint="correct it, or give it `check: false`")


def _run_command(context: RunContext, phase: str, number: int, command: CommandConfig) -> CommandRan:
    work_dir = context.work_tree.work_dir
    names = {"HARNESS_RUN_DIR": str(context.run.path), "HARNESS_WORK_DIR": str(work_dir)}
    cwd = work_dir / Path(command.cwd) if command.cwd else work_dir
    ended = run_with_timeout(
        ["sh", "-c", command.command],
        cwd,
        clean_environment(context.environment.environ) | names,
        command.timeout_seconds,
    )
    return CommandRan(phase, number, *ended)


class CommandResult(NamedTuple):
    """How a command ended: its exit code, its time, the last it said."""

    code: int
    seconds: float
    said: str


def run_with_timeout(
    words: Sequence[str], cwd: Path, environment: Mapping[str, str], timeout_s: float
) -> CommandResult:
    """Run a command to its end, or to its limit."""
    began = time.monotonic()
    try:
        done = subprocess.run(
            words,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
            check=False,
        )
        code, said = done.returncode, done.stdout
    except subprocess.TimeoutExpired as error:
        code, said = TIMED_OUT, error.stdout or b""
    except OSError as error:
        code, said = 127, str(error).encode()
    text = said.decode("utf-8", "replace")[-_OUTPUT_CHARS_MAX:]
    return CommandResult(code, round(time.monotonic() - began, 3), text)


def run_verifiers(context: RunContext, session: str, attempt: int, trees: WorkTreeSnapshots | None) -> None:
    """Ask every verifier of the run, and put on record what it says."""
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
    words = ["sh", "-c", verifier.command] if verifier.command else [sys.executable, "-I", "-c", verifier.python]
    cwd = work_dir
    if trees is not None and trees.work_tree != work_dir:
        if context.environment.means is IsolationMode.NONE:
            cwd = trees.work_tree
        else:
            words = [
                *isolation_prefix(context.environment.means, [BindMount(trees.work_tree, work_dir)], work_dir),
                *words,
            ]
    names = {"HARNESS_SESSION": session, "HARNESS_WORK_DIR": str(work_dir)}
    ended = run_with_timeout(
        words, cwd, clean_environment(context.environment.environ) | names, verifier.timeout_seconds
    )
    return SessionVerified(session, attempt, verifier.name or f"verifier {number}", ended.code == 0, *ended)
