"""Demonstrations of recording and of rewinding, in temporary directories."""

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from flightlog.agents.adoption import adopt_session_files
from flightlog.agents.claude_code.driver import clean_environment, find
from flightlog.agents.scripted.agent import ScriptedAgent, ScriptedEnvironment
from flightlog.agents.scripted.scenario import load_scenario
from flightlog.agents.scripted.server import serve_scenario
from flightlog.archive.archive import Archive
from flightlog.archive.search import locate_results, parse_query
from flightlog.lab import inspect, layout, service
from flightlog.lab.config import Engine, RunConfig, SessionConfig, VerifierConfig
from flightlog.lab.replay import branch, certificate
from flightlog.lab.replay.source import ReplaySource
from flightlog.lab.runner.context import Tell
from flightlog.lab.runner.run import continue_run, start_run
from flightlog.lab.store import RunStore
from flightlog.live.collector import CollectDepth, LiveDirectory, collect_live_state
from flightlog.live.dashboard import build_dashboard
from flightlog.live.dashboard_text import TextStyle, dashboard_lines
from flightlog.model.errors import NotFound
from flightlog.model.runtime import Runtime
from flightlog.model.session import DEFAULT_AGENT
from flightlog.store.files import ensure_dir, replace_file
from flightlog.store.git.command import PersonGit

PROMPTS = (
    "The renewal job crashes for contracts of January 31. Find out why and fix it.",
    "Good, but after February it stays on the 28th. It has to return to the 31st.",
)
DEMO_SCENARIO = Path(__file__).parents[1] / "agents/scripted/scenarios/demo.yaml"
SEARCHED = "monthrange"
REWIND_SCENARIO = Path(__file__).parents[1] / "agents/scripted/scenarios/rewind.yaml"
# The repository of the demo. Its settings keep the person's hooks and signing key out of it.
_RENEWALS = '''from datetime import date


def renewals(start: date, count: int) -> list[date]:
    """Return the next `count` monthly renewals."""
    days, day = [], start
    for _ in range(count):
        year, month = (day.year + 1, 1) if day.month == 12 else (day.year, day.month + 1)
        day = day.replace(year=year, month=month)
        days.append(day)
    return days
'''
_RENEWALS_TEST = """import unittest
from datetime import date

from renewals import renewals


class RenewalsTest(unittest.TestCase):
    def test_renews_on_the_same_day_of_the_next_month(self):
        self.assertEqual(renewals(date(2026, 3, 15), 2), [date(2026, 4, 15), date(2026, 5, 15)])

    def test_december_is_followed_by_january(self):
        self.assertEqual(renewals(date(2026, 12, 5), 1), [date(2027, 1, 5)])
"""
_GIT_CONFIG = """[core]
	repositoryformatversion = 0
	hooksPath = /dev/null
[commit]
	gpgsign = false
[user]
	name = Demo
	email = demo@example.invalid
"""
_REPOSITORY = {
    "renewals.py": _RENEWALS,
    "test_renewals.py": _RENEWALS_TEST,
    ".gitignore": "__pycache__/\n",
    ".git/config": _GIT_CONFIG,
}
TURN = 7
ASKED = "Write whatever makes test_shop.py pass."
SAID = "Leave the test alone: it is right."
_SHOP = "def total(prices, tax):\n    return sum(prices) + tax\n"
_TEST = "from shop import total\n\nassert total([999, 502], 0.19) == 1786, total([999, 502], 0.19)\nprint('right')\n"
_RIGHT = "import sys; sys.path.insert(0, '.'); from shop import total; sys.exit(total([999, 502], 0.19) != 1786)"


class DemoResult(Struct, frozen=True):
    """What the demo shows."""

    archive: Archive
    session: str
    archived_bytes: int
    search_hits: tuple[str, ...]
    is_same_from_archive: bool
    dashboard_lines: tuple[str, ...] = ()


@contextlib.contextmanager
def perform_demo(runtime: Runtime, scenario: Path = DEMO_SCENARIO) -> Iterator[DemoResult]:
    """Run the scripted agent, archive its session, and find it again in the archive alone."""
    with tempfile.TemporaryDirectory(prefix="flightlog-demo-") as folder:
        config, home = Path(folder) / "config", str(Path(folder) / "home")
        session = run_demo_agent(runtime, scenario, Path(folder) / "subscriptions", config)
        archive = Archive({DEFAULT_AGENT: (str(config),)}, home)
        adoption = adopt_session_files(home, session, archive.recordings[session].files)
        archived = Archive({}, home)
        search = archived.search_index.search_records(parse_query(SEARCHED, lambda _: 0), 5)
        same = archived.read_session(session).turns == archive.read_session(session).turns
        size = sum(span.end - span.start for span in adoption.adopted)
        located = locate_results(archived, search.results, {})
        found = tuple(dict.fromkeys(hit.address for hit in located))
        yield DemoResult(
            archive, session, size, found, same, _dashboard_lines(runtime, archive, config, home)
        )


def _dashboard_lines(
    runtime: Runtime, archive: Archive, config: Path, home: str
) -> tuple[str, ...]:
    """Return what `flightlog watch` would show now."""
    demo_runtime = replace(runtime, data_dir=home, read_config=lambda _: {})
    directory = LiveDirectory(demo_runtime, config, runtime.clock.now_ms())
    live = collect_live_state(directory, archive, CollectDepth(secrets=False, durable=False))
    board = build_dashboard([live], (), runtime.clock.now_ms())
    return tuple(line.text for line in dashboard_lines(board, TextStyle(100, runtime.zone)))


def run_demo_agent(runtime: Runtime, scenario: Path, project: Path, config: Path) -> str:
    """Let the scripted agent work in a new repository at `project`; return its session's id."""
    make_repository(project)
    session = runtime.new_id()
    with serve_scenario(load_scenario(scenario)) as model:
        environment = ScriptedEnvironment(
            model.url, project, config, runtime.clock.now_ms, runtime.new_id
        )
        agent = ScriptedAgent(environment, session)
        for prompt in PROMPTS:
            agent.run_prompt(prompt)
    return session


def make_repository(project: Path) -> None:
    """Create the repository with the bug at `project`, with one commit."""
    ensure_dir(project)
    git = PersonGit(project, is_trusted=True)
    git.run_git("init", "--quiet", "--initial-branch=main").require_success()
    for name, text in _REPOSITORY.items():
        replace_file(project / name, text.encode(), durable=False, mode=0o644)
    git.run_git("add", "--all").require_success()
    git.run_git("commit", "--quiet", "--message=Compute monthly renewals").require_success()


class RewindResult(Struct, frozen=True):
    """The original and the branch, and how they compare."""

    agent: str
    source: dict[str, Any]
    branch: dict[str, Any]
    replay: dict[str, Any]
    comparison: dict[str, Any]


@contextlib.contextmanager
def perform_rewind(runtime: Runtime, tell: Tell) -> Iterator[RewindResult]:
    """Let the agent fail, rewind to before turn 7, and continue with another prompt."""
    # The demo needs no key and no login, so it gets neither.
    environ = clean_environment(runtime.environ)
    if "FLIGHTLOG_CLAUDE" in runtime.environ:
        environ |= {"FLIGHTLOG_CLAUDE": runtime.environ["FLIGHTLOG_CLAUDE"]}
    with tempfile.TemporaryDirectory(prefix="flightlog-demo-") as folder:
        root = Path(folder)
        prepared = service.prepare_run(replace(runtime, environ=environ), tell, lambda *_: None)
        # The runs are deleted at the end, so they are not added to the list of known runs.
        context = replace(prepared, remember=lambda _: None)
        path = context.runtime.program_path
        engine = _choose_engine(environ)
        run = start_run(root / "runs" / "shop", _make_config(root / "shop", engine), context)
        store = RunStore(run.path, now=runtime.clock.timestamp, new_id=runtime.new_id)
        source = ReplaySource(store, 1, 0, path)
        target = (root / "runs" / f"replay_shop_s01_t{TURN:02d}_r01", 1)
        options = branch.ReplayOptions(prompt=SAID)
        point = source.build_branch_point(TURN)
        prepared_replay = branch.prepare_branch(store, point, options, target, context)
        replay = continue_run(prepared_replay, context, again=False)
        source_meta, branch_meta = (
            layout.run_meta(side.name, side.config, side.state) for side in (run, replay)
        )
        comparison = inspect.compare_runs([store, replay], path)
        replay_facts = certificate.replay_meta(replay.state)
        yield RewindResult(engine, source_meta, branch_meta, replay_facts, comparison)


def _choose_engine(environ: Mapping[str, str]) -> Engine:
    """Return the real client if it is installed."""
    try:
        find(environ.get("FLIGHTLOG_CLAUDE", ""), environ.get("PATH", ""))
    except NotFound:
        return "scripted"
    return "claude_code"


def _make_config(project: Path, engine: Engine) -> RunConfig:
    ensure_dir(project)
    replace_file(project / "shop.py", _SHOP.encode(), durable=False)
    replace_file(project / "test_shop.py", _TEST.encode(), durable=False)
    return RunConfig(
        model="claude-opus-5-5",
        work_dir=str(project.resolve()),
        sessions=(SessionConfig(1, ASKED),),
        engine=engine,
        scenario=load_scenario(REWIND_SCENARIO),
        memory_file=None,
        verifiers=(VerifierConfig(python=_RIGHT, name="the total is right"),),
    )
