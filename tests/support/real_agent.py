"""The bench: real Claude Code sessions against the scripted model, offline, in about a second.

A test asks for `bench` and gets a machine of its own: home, project, temporary directory, a
clean environment with a fake key, and nothing to talk to but loopback. The clients are put
in .tools by tools/install_agents.sh; when one is missing the test fails and says so.
"""

import json
import os
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from flightlog.agents.claude_code.driver import ClaudeCode
from flightlog.agents.process import AgentProcess
from flightlog.agents.protocol import AgentOutcome, AgentPrompt
from flightlog.agents.scripted.scenario import Scenario, parse_scenario
from flightlog.agents.scripted.server import MESSAGES, ServedApi, ServedRequest, serve_scenario
from flightlog.setup.install import InstallOptions, apply_change, plan_install
from support.client_sandbox import ClientSandbox, isolated_environment

PINNED = "2.1.325"
VERSIONS = ("1.0.128", "2.0.76", "2.1.100", PINNED)
TOOLS = Path(__file__).parents[2] / ".tools" / "agents"
ALLOWED = ("--allowedTools", "Bash", "Read", "Write", "Edit", "Agent", "Task")


@dataclass(frozen=True)
class AgentRun:
    """One run of the agent: how it ended, and what the model was asked."""

    outcome: AgentOutcome
    requests: list[ServedRequest]

    @property
    def result(self) -> dict:
        return next(
            record for record in reversed(self.outcome.records) if record.get("type") == "result"
        )


@dataclass(frozen=True)
class Bench:
    """A machine of its own for one test."""

    root: Path
    version: str = PINNED
    extra: dict[str, str] = field(default_factory=dict)
    apis: tuple[ServedApi, ...] = (MESSAGES,)

    @property
    def client(self) -> ClaudeCode:
        return ClaudeCode(agent_program(self.version))

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def project(self) -> Path:
        return self.root / "project"

    @property
    def config(self) -> Path:
        return self.home / ".claude"

    @property
    def recordings(self) -> Path:
        """Flightlog's own data on this machine."""
        return self.root / "flightlog"

    def environment(self, base_url: str) -> dict[str, str]:
        world = ClientSandbox(self.home, self.root / "tmp", base_url, "sk-" + "fake-" + "0" * 12)
        return (
            isolated_environment(world, os.environ["PATH"])
            | {"FLIGHTLOG_HOME": str(self.recordings)}
            | self.extra
        )

    def run(
        self, scenario: dict | Scenario, prompt: str, *arguments: str, **ask: object
    ) -> AgentRun:
        """Run one `-p` session to its end; keyword arguments are those of `Ask`."""
        with self.start(scenario, prompt, *arguments, **ask) as (session, requests):
            outcome = session.wait(60)
        assert not outcome.timed_out, f"the agent hung: {outcome.stderr}"
        return AgentRun(outcome, requests)

    @contextmanager
    def start(
        self, scenario: dict | Scenario, prompt: str, *arguments: str, **ask: object
    ) -> Iterator[tuple[AgentProcess, list[ServedRequest]]]:
        """Start a session; it is stopped when the block ends, whatever happened in it."""
        script = scenario if isinstance(scenario, Scenario) else parse_scenario(scenario)
        with serve_scenario(script, apis=self.apis) as model:
            given = {"cwd": self.project, "environment": self.environment(model.url)} | ask
            session = self.client.start(
                AgentPrompt(prompt, arguments=(*arguments, *ALLOWED), **given)
            )
            try:
                yield session, model.requests
            finally:
                session.stop()

    def install_hooks(self, *, inline: bool = False) -> None:
        """Register flightlog's hook as `flightlog init` does."""
        apply_change(
            plan_install(
                self.config / "settings.json",
                [self.version],
                Path(sys.executable),
                InstallOptions(inline=inline),
            )
        )

    def hooks(self, session: str) -> list[dict]:
        """The hook events on record for a session, in order of arrival."""
        files = sorted(
            (self.recordings / "sessions" / "claude-code" / session).glob("hooks.jsonl*")
        )
        return [json.loads(line) for file in files for line in file.read_bytes().splitlines()]

    def transcripts(self) -> dict[str, list[dict]]:
        """Every main transcript by session id, decoded."""
        files = sorted(self.config.glob("projects/*/*.jsonl"))
        return {
            file.stem: [json.loads(line) for line in file.read_bytes().splitlines()]
            for file in files
        }


def agent_program(version: str) -> Path:
    """The pinned client, or a failure that says how to get it."""
    program = TOOLS / version / "claude"
    assert program.exists(), (
        f"Claude Code {version} is not installed: run tools/install_agents.sh (make test does)"
    )
    return program


def make_bench(root: Path, version: str = PINNED, **extra: str) -> Bench:
    """Make the directories of a bench below `root`."""
    made = Bench(root, version, extra)
    for folder in (made.home, made.project, root / "tmp"):
        folder.mkdir(parents=True)
    return made


def new_session() -> str:
    """An id for a session."""
    return str(uuid.uuid4())


def types(records: list[dict]) -> Counter:
    """How many records of each type."""
    return Counter(record["type"] for record in records)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A real, isolated Claude Code of the pinned version."""
    return make_bench(tmp_path)
