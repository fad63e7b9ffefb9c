"""The demo: a scripted agent at real work, recorded and read back by the same code as any session."""

import contextlib
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

from flightlog.agents.scripted import load, serve
from flightlog.agents.scripted.agent import Desk, ScriptedAgent
from flightlog.app import now_ms
from flightlog.archive import Archive

PROMPTS = ("Write a module that rounds prices to cents, with a test.", "How many lines is that?")
SCENARIO = Path(__file__).parents[1] / "agents/scripted/scenarios/demo.yaml"


@contextlib.contextmanager
def performed(scenario: Path = SCENARIO) -> Iterator[tuple[Archive, str]]:
    """Let the agent work in a directory of its own; give the archive that holds its session, and the session's id."""
    with tempfile.TemporaryDirectory(prefix="flightlog-demo-") as folder, serve(load(scenario)) as model:
        project = Path(folder) / "price-rounder"
        project.mkdir()
        session = str(uuid.uuid4())
        desk = Desk(model.url, project, Path(folder) / "config", now_ms, lambda: str(uuid.uuid4()))
        agent = ScriptedAgent(desk, session)
        for prompt in PROMPTS:
            agent.ask(prompt)
        yield Archive([str(desk.config_dir)]), session
