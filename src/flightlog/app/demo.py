"""The demo: a scripted agent at real work, recorded and read back by the same code as any session."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from flightlog.agents.scripted import load_scenario, serve_scenario
from flightlog.agents.scripted.agent import ScriptedAgent, ScriptedEnvironment
from flightlog.archive import Archive
from flightlog.live.board import TerminalSize, dashboard_lines
from flightlog.live.gather import CollectDepth, LiveDirectory, collect_live_state
from flightlog.model.runtime import Runtime
from flightlog.sources.claude_code.kept import adopt_session_files
from flightlog.views.query import parse_query

PROMPTS = ("Write a module that rounds prices to cents, with a test.", "How many lines is that?")
SCENARIO = Path(__file__).parents[1] / "agents/scripted/scenarios/demo.yaml"


SEARCHED = "rounding decimal"


class DemoResult(Struct, frozen=True):
    """What the demo has to show."""

    archive: Archive
    session: str
    kept_bytes: int
    found: tuple[str, ...]
    same_without_the_agent: bool
    board: tuple[str, ...] = ()


@contextlib.contextmanager
def perform_demo(runtime: Runtime, scenario: Path = SCENARIO) -> Iterator[DemoResult]:
    """Let the agent work in a directory of its own, keep its session, and find it again from our copy alone."""
    with tempfile.TemporaryDirectory(prefix="flightlog-demo-") as folder:
        config, home = Path(folder) / "config", str(Path(folder) / "home")
        session = _run_scripted_agent(runtime, scenario, Path(folder) / "price-rounder", config)
        archive = Archive([str(config)], home)
        told = archive.read_session(session)
        kept = adopt_session_files(home, session, archive.recordings[session].files)
        again = Archive([str(config / "nowhere")], home)
        hits = again.search_records(parse_query(SEARCHED, lambda _: 0), 5)
        same = again.read_session(session).turns == told.turns
        size = sum(each.end - each.start for each in kept.adopted)
        found = tuple(address for _, address in hits)
        yield DemoResult(archive, session, size, found, same, _dashboard_lines(runtime, archive, config, home))


def _dashboard_lines(runtime: Runtime, archive: Archive, config: Path, home: str) -> tuple[str, ...]:
    """What `flightlog watch` would show of it now."""
    apart = replace(runtime, data_dir=home, read_config=lambda _: {})
    where = LiveDirectory(apart, config, runtime.clock.now_ms())
    live = collect_live_state(where, archive, CollectDepth(secrets=False, durable=False))
    return tuple(line.text for line in dashboard_lines([live], TerminalSize(100, 0, runtime.zone)))


def _run_scripted_agent(runtime: Runtime, scenario: Path, project: Path, config: Path) -> str:
    project.mkdir()
    session = runtime.new_id()
    with serve_scenario(load_scenario(scenario)) as model:
        agent = ScriptedAgent(
            ScriptedEnvironment(model.url, project, config, runtime.clock.now_ms, runtime.new_id), session
        )
        for prompt in PROMPTS:
            agent.run_prompt(prompt)
    return session
