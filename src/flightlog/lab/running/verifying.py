"""Verifiers: whether the files a session left are right, asked of a command or a few lines of Python.

Run after the last tree is saved, in the session's own files at the path the agent saw, without the
agent's credentials. Exit code 0 is a pass. What a verifier changes is not kept.
"""

import subprocess
import sys
import time

from flightlog.agents.claude_code import scrubbed
from flightlog.agents.namespace import Means, Mount, room
from flightlog.lab.config import VerifierConfig
from flightlog.lab.events import Verified
from flightlog.lab.running.commands import TIMED_OUT
from flightlog.lab.running.stage import Stage
from flightlog.store.trees import Trees

_OUTPUT_CHARS_MAX = 4000


def verify(stage: Stage, session: str, attempt: int, trees: Trees | None) -> None:
    """Ask every verifier of the run, and put on record what it says."""
    for number, verifier in enumerate(stage.book.config.verifiers, 1):
        stage.book.note(_asked(stage, session, attempt, verifier, (number, trees)))


def _asked(
    stage: Stage, session: str, attempt: int, verifier: VerifierConfig, which: tuple[int, Trees | None]
) -> Verified:
    number, trees = which
    work_dir = stage.ground.work_dir
    words = ["sh", "-c", verifier.command] if verifier.command else [sys.executable, "-I", "-c", verifier.python]
    cwd = work_dir
    if trees is not None and trees.work_tree != work_dir:
        if stage.setting.means is Means.NONE:
            cwd = trees.work_tree
        else:
            words = [*room(stage.setting.means, [Mount(trees.work_tree, work_dir)], work_dir), *words]
    began = time.monotonic()
    try:
        done = subprocess.run(
            words,
            cwd=cwd,
            env=scrubbed(stage.setting.environ) | {"HARNESS_SESSION": session, "HARNESS_WORK_DIR": str(work_dir)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=verifier.timeout_seconds,
            check=False,
        )
        code, said = done.returncode, done.stdout
    except subprocess.TimeoutExpired as error:
        code, said = TIMED_OUT, error.stdout or b""
    except OSError as error:
        code, said = 127, str(error).encode()
    seconds = round(time.monotonic() - began, 3)
    text = said.decode("utf-8", "replace")[-_OUTPUT_CHARS_MAX:]
    return Verified(session, attempt, verifier.name or f"verifier {number}", code == 0, code, seconds, text)
