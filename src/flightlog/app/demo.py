"""The demo: a scripted agent at real work, recorded and read back by the same code as any session."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from flightlog.agents.scripted import load, serve
from flightlog.agents.scripted.agent import Desk, ScriptedAgent
from flightlog.archive import Archive
from flightlog.live.board import Screen, board
from flightlog.live.gather import Effort, LiveDirectory, gather
from flightlog.model.runtime import Runtime
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
def performed(runtime: Runtime, scenario: Path = SCENARIO) -> Iterator[Performance]:
    """Let the agent work in a directory of its own, keep its session, and find it again from our copy alone."""
    with tempfile.TemporaryDirectory(prefix="flightlog-demo-") as folder:
        config, home = Path(folder) / "config", str(Path(folder) / "home")
        session = _worked(runtime, scenario, Path(folder) / "price-rounder", config)
        archive = Archive([str(config)], home)
        told = archive.session(session)
        kept = keep(home, session, archive.recordings[session].files)
        again = Archive([str(config / "nowhere")], home)
        hits = again.search(parse(SEARCHED, lambda _: 0), 5)
        same = again.session(session).turns == told.turns
        size = sum(each.end - each.start for each in kept.adopted)
        found = tuple(address for _, address in hits)
        yield Performance(archive, session, size, found, same, _board(runtime, archive, config, home))


def _board(runtime: Runtime, archive: Archive, config: Path, home: str) -> tuple[str, ...]:
    """What `flightlog watch` would show of it now."""
    apart = replace(runtime, data_dir=home, read_config=lambda _: {})
    where = LiveDirectory(apart, config, runtime.clock.now_ms())
    live = gather(where, archive, Effort(secrets=False, durable=False))
    return tuple(line.text for line in board([live], Screen(100, 0, runtime.zone)))


def _worked(runtime: Runtime, scenario: Path, project: Path, config: Path) -> str:
    project.mkdir()
    session = runtime.new_id()
    with serve(load(scenario)) as model:
        agent = ScriptedAgent(Desk(model.url, project, config, runtime.clock.now_ms, runtime.new_id), session)
        for prompt in PROMPTS:
            agent.ask(prompt)
    return session
