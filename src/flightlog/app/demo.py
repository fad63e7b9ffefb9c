"""The demo: a scripted agent at real work, recorded and read back by the same code as any session."""

import contextlib
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from flightlog.agents.scripted import load, serve
from flightlog.agents.scripted.agent import Desk, ScriptedAgent
from flightlog.app import local_zone, now_ms
from flightlog.archive import Archive
from flightlog.live.board import Screen, board
from flightlog.live.gather import Effort, Where, gather
from flightlog.sources.claude_code.kept import keep
from flightlog.views.query import parse

PROMPTS = ("Write a module that rounds prices to cents, with a test.", "How many lines is that?")
SCENARIO = Path(__file__).parents[1] / "agents/scripted/scenarios/demo.yaml"


SEARCHED = "rounding decimal"


class Performance(Struct, frozen=True):
    """What the demo has to show."""

    archive: Archive
    session: str
    kept_bytes: int
    found: tuple[str, ...]
    same_without_the_agent: bool
    board: tuple[str, ...] = ()


@contextlib.contextmanager
def performed(scenario: Path = SCENARIO) -> Iterator[Performance]:
    """Let the agent work in a directory of its own, keep its session, and find it again from our copy alone."""
    with tempfile.TemporaryDirectory(prefix="flightlog-demo-") as folder:
        config, home = Path(folder) / "config", str(Path(folder) / "home")
        session = _worked(scenario, Path(folder) / "price-rounder", config)
        archive = Archive([str(config)], home)
        told = archive.session(session)
        kept = keep(home, session, archive.recordings[session].files)
        again = Archive([str(config / "nowhere")], home)
        hits = again.search(parse(SEARCHED, lambda _: 0), 5)
        same = again.session(session).turns == told.turns
        size = sum(each.end - each.start for each in kept.adopted)
        found = tuple(address for _, address in hits)
        yield Performance(archive, session, size, found, same, _board(archive, config, home))


def _board(archive: Archive, config: Path, home: str) -> tuple[str, ...]:
    """What `flightlog watch` would show of it now."""
    where = Where(config, Path(home), now_ms(), local_zone(), lambda: str(uuid.uuid4()))
    live = gather(where, archive, Effort(secrets=False, durable=False))
    return tuple(line.text for line in board([live], Screen(100, 0, local_zone())))


def _worked(scenario: Path, project: Path, config: Path) -> str:
    project.mkdir()
    session = str(uuid.uuid4())
    with serve(load(scenario)) as model:
        agent = ScriptedAgent(Desk(model.url, project, config, now_ms, lambda: str(uuid.uuid4())), session)
        for prompt in PROMPTS:
            agent.ask(prompt)
    return session
