"""Verifiers: whether the files a session left are right, asked of a command or a few lines of Python.

Run after the last tree is saved, in the session's own files at the path the agent saw, without the
agent's credentials. Exit code 0 is a pass. What a verifier changes is not kept.
"""

import sys

from flightlog.agents.claude_code.driver import clean_environment
from flightlog.agents.namespace import BindMount, IsolationMode, isolation_prefix
from flightlog.lab.config import VerifierConfig
from flightlog.lab.events import SessionVerified
from flightlog.lab.running.commands import run_with_timeout
from flightlog.lab.running.stage import RunContext
from flightlog.store.trees import WorkTreeSnapshots


def run_verifiers(stage: RunContext, session: str, attempt: int, trees: WorkTreeSnapshots | None) -> None:
    """Ask every verifier of the run, and put on record what it says."""
    for number, verifier in enumerate(stage.book.config.verifiers, 1):
        stage.book.append(_run_verifier(stage, session, attempt, verifier, (number, trees)))


def _run_verifier(
    stage: RunContext, session: str, attempt: int, verifier: VerifierConfig, which: tuple[int, WorkTreeSnapshots | None]
) -> SessionVerified:
    number, trees = which
    work_dir = stage.ground.work_dir
    words = ["sh", "-c", verifier.command] if verifier.command else [sys.executable, "-I", "-c", verifier.python]
    cwd = work_dir
    if trees is not None and trees.work_tree != work_dir:
        if stage.setting.means is IsolationMode.NONE:
            cwd = trees.work_tree
        else:
            words = [*isolation_prefix(stage.setting.means, [BindMount(trees.work_tree, work_dir)], work_dir), *words]
    names = {"HARNESS_SESSION": session, "HARNESS_WORK_DIR": str(work_dir)}
    ended = run_with_timeout(words, cwd, clean_environment(stage.setting.environ) | names, verifier.timeout_seconds)
    return SessionVerified(session, attempt, verifier.name or f"verifier {number}", ended.code == 0, *ended)
