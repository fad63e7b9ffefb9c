"""Driving the scripted agent, as any other agent is driven."""

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from flightlog.agents.claude_code import Session
from flightlog.agents.driver import Ask, Outcome
from flightlog.agents.process import JsonProcess
from flightlog.agents.scripted.agent import VERSION

AGENT = "scripted"


class Scripted(Struct, frozen=True):
    """The scripted agent with one scenario; `config_dir` is where its transcripts go."""

    python: str
    scenario: Path
    config_dir: Path

    @property
    def agent(self) -> str:
        """The agent's name."""
        return AGENT

    def version(self, environment: Mapping[str, str]) -> str:
        """The version its transcripts claim."""
        del environment
        return VERSION

    def start(self, ask: Ask) -> Session:
        """Start a session and return at once."""
        module = [self.python, "-m", "flightlog.agents.scripted.play"]
        words = [*module, str(self.scenario), str(self.config_dir), ask.session, ask.prompt]
        return Session(JsonProcess(words, cwd=ask.cwd, environment=ask.environment))

    def run(self, ask: Ask, timeout_s: float) -> Outcome:
        """Run a session to its end."""
        return self.start(ask).wait(timeout_s)
