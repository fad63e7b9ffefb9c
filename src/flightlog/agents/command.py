"""Driving any program: words with `{prompt}`, `{session_id}`, `{resume}` and `{model}` in them.

What it prints as JSON lines is kept; if it names a session as Claude Code's stream does, that is its
session. Where no word holds `{prompt}`, the prompt is the last word. The scripted agent is driven so.
"""

import re
import sys
from collections.abc import Mapping

from msgspec import Struct

from flightlog.agents.claude_code.stream import read_session_id
from flightlog.agents.driver import AgentPrompt, without_proxy
from flightlog.agents.process import AgentProcess

_PLACE = re.compile(r"\{(prompt|session_id|resume|model)\}")


class CommandDriver(Struct, frozen=True):
    """A program that takes a prompt and works on it."""

    words: tuple[str, ...]
    agent: str = "command"
    model: str = ""
    said_version: str = ""

    def version(self, environment: Mapping[str, str]) -> str:  # noqa: ARG002 - the protocol's signature
        """What was said when the driver was made: there is no way to ask any program."""
        return self.said_version

    def start(self, ask: AgentPrompt) -> AgentProcess:
        """Start the program and return at once."""
        environment = without_proxy(ask.environment)
        command = [*ask.before, *self._fill_template(ask)]
        return AgentProcess(command, cwd=ask.cwd, environment=environment, session_of=read_session_id)

    def _fill_template(self, ask: AgentPrompt) -> list[str]:
        known = {"prompt": ask.prompt, "session_id": ask.session, "resume": ask.resume, "model": self.model}
        # In one pass, so that a prompt which speaks of `{model}` is passed on as it is.
        words = [_PLACE.sub(lambda found: known[found[1]], word) for word in self.words]
        asked = any("{prompt}" in word for word in self.words)
        return [*words, *ask.arguments] if asked else [*words, *ask.arguments, ask.prompt]


def scripted_driver(model: str, version: str) -> CommandDriver:
    """The scripted agent as a process of its own."""
    named = ("--session-id={session_id}", "--resume={resume}", "--model={model}", "--prompt={prompt}")
    return CommandDriver((sys.executable, "-m", "flightlog.agents.scripted.play", *named), "scripted", model, version)
