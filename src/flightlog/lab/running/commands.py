"""Commands before and after the sessions: run by a shell, with a limit, their end on record."""

import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from flightlog.agents.claude_code.driver import clean_environment
from flightlog.lab.config import CommandConfig
from flightlog.lab.events import CommandRan
from flightlog.lab.running.stage import RunContext
from flightlog.model.errors import Unavailable

_OUTPUT_CHARS_MAX = 4000
TIMED_OUT = 124


def run_commands(stage: RunContext, phase: str, commands: tuple[CommandConfig, ...]) -> None:
    """Run the commands of a phase that did not run yet; one that fails and is checked ends the run."""
    done = {each.number for each in stage.book.state.commands if each.phase == phase and each.exit_code == 0}
    for number, command in enumerate(commands, 1):
        if number in done:
            continue
        ran = _run_command(stage, phase, number, command)
        stage.book.append(ran, durable=True)
        if ran.exit_code and command.check:
            what = f"the {phase}-run command {number} failed with {ran.exit_code}"
            raise Unavailable(f"{what}: {command.command[:200]}", hint="correct it, or give it `check: false`")


def _run_command(stage: RunContext, phase: str, number: int, command: CommandConfig) -> CommandRan:
    work_dir = stage.ground.work_dir
    names = {"HARNESS_RUN_DIR": str(stage.book.path), "HARNESS_WORK_DIR": str(work_dir)}
    cwd = work_dir / Path(command.cwd) if command.cwd else work_dir
    ended = run_with_timeout(
        ["sh", "-c", command.command], cwd, clean_environment(stage.setting.environ) | names, command.timeout_seconds
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
