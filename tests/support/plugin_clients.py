"""The plugin of this repository in the three real clients that take it, against the scripted model.

    machine = make_plugin_machine(tmp_path, "codex")
    machine.install()
    run = machine.run([{"tool": "search", "input": {"query": "lantern"}}], "What did we do?")
    assert "lantern" in run.results[0]

Every client has a home of its own and finds `flightlog` on its PATH, unless `without_program`.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from flightlog.agents.scripted.scenario import parse_scenario
from flightlog.agents.scripted.server import ServedRequest
from support.real_agent import PINNED, Bench, agent_program, make_bench
from support.real_clients import RECIPES, ClientMachine, make_machine
from support.scripted_apis import serve_scenario
from support.terminal_client import Terminal

ROOT = Path(__file__).parents[2]
NAME = "flightlog@flightlog"
CLIENTS = ("claude", "codex", "copilot")
LIMIT_S = 60
# The commands that install a plugin, list plugins and list MCP servers, and how a tool is named.
_INSTALL = {"claude": "install", "codex": "add", "copilot": "install"}
_PREFIX = {"claude": "mcp__plugin_flightlog_flightlog__", "codex": "", "copilot": "flightlog-"}
_TOOLS = ("search", "open", "sessions", "usage", "file_history")
_PROMPT = {
    "claude": (
        *("-p", "--output-format", "stream-json", "--verbose", "--allowedTools"),
        *(",".join(_PREFIX["claude"] + name for name in _TOOLS), "--"),
    ),
    "codex": (
        *("exec", "--json", "--skip-git-repo-check", "--disable", "apps"),
        "--dangerously-bypass-approvals-and-sandbox",
    ),
    "copilot": ("--allow-all-tools", "--output-format", "json", "-p"),
}


@dataclass(frozen=True)
class PluginRun:
    """One session: how it ended, and what the model was told."""

    exit_code: int
    output: str
    requests: list[ServedRequest]

    @property
    def last_request(self) -> str:
        """The text of the last request, with every tool result in it."""
        return json.dumps([request.body for request in self.requests][-1], ensure_ascii=False)


@dataclass(frozen=True)
class PluginMachine:
    """One client with a home of its own."""

    client: str
    root: Path
    path: str

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def project(self) -> Path:
        return self.root / "project"

    def environment(self, url: str) -> dict[str, str]:
        """Point the client at the model; what it has installed stays."""
        if self.client == "claude":
            given = Bench(self.root).environment(url)
            given.pop("FLIGHTLOG_HOME")  # Codex does not pass it on
            return given | {"PATH": self.path}
        config = self.home / ".codex" / "config.toml"
        before = config.read_text() if config.exists() else ""
        given = self._machine().environment(url) | {"PATH": self.path}
        _, installed, rest = before.partition("[marketplaces")
        if installed:
            config.write_text(f"{config.read_text()}\n{installed}{rest}")
        return given

    def install(self) -> None:
        """Add this repository as a marketplace and install the plugin from it."""
        environment = self.environment("http://127.0.0.1:9")
        for words in (["marketplace", "add", str(ROOT)], [_INSTALL[self.client], NAME]):
            done = self.call(["plugin", *words], environment)
            assert done.returncode == 0, done.stdout + done.stderr

    def call(
        self, words: list[str], environment: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run the client with `words`."""
        return subprocess.run(
            [str(self._program()), *words],
            cwd=self.project,
            env=environment or self.environment("http://127.0.0.1:9"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    def run(self, calls: list[tuple[str, dict]], prompt: str, *words: str) -> PluginRun:
        """Run one session whose model calls the tools of `calls`, one after another."""
        blocks = [{"tool": _PREFIX[self.client] + name, "input": given} for name, given in calls]
        replies = [{"blocks": [block]} for block in blocks] + [{"text": "Done."}]
        with serve_scenario(parse_scenario({"rules": [{"replies": replies}]})) as model:
            done = self.call([*words, *_PROMPT[self.client], prompt], self.environment(model.url))
        answered = [request for request in model.requests if request.usage]
        return PluginRun(done.returncode, done.stdout + done.stderr, answered)

    def trust_hooks(self, prompt: str) -> None:
        """Start Codex in a terminal, trust the plugin's hooks in its dialog and give it a prompt.

        After a first session without prompts the client does not ask about the directory.
        """
        replies = [{"text": "Hello from the model."}]
        with serve_scenario(parse_scenario({"rules": [{"replies": replies}]})) as model:
            environment = self.environment(model.url) | {"TERM": "xterm-256color"}
            # A server of its own in the background would outlive the terminal.
            command = [str(self._program()), "--no-daemon", "--disable", "apps"]
            with Terminal() as terminal:
                terminal.start(command, self.project, environment)
                terminal.wait_for(r"Hooks need review\s+10 hooks are new or changed")
                terminal.press("Down")
                terminal.wait_for(r"\S 2. Trust all and continue")
                terminal.press("Enter")
                terminal.wait_for("Ask Codex to do anything")
                terminal.type_text(prompt)
                terminal.wait_for("Hello from the model")
                terminal.type_text("/quit")
                terminal.wait_for_end()

    def _machine(self) -> ClientMachine:
        return ClientMachine(self.root, self.client, RECIPES[self.client].version)

    def _program(self) -> Path:
        return agent_program(PINNED) if self.client == "claude" else self._machine().program


def make_plugin_machine(root: Path, client: str, *, without_program: bool = False) -> PluginMachine:
    """Make the directories of a machine below `root`."""
    if client == "claude":
        make_bench(root)
        subprocess.run(["git", "init", "-q", "-b", "main"], cwd=root / "project", check=True)
    else:
        make_machine(root, client)
    own = str(Path(sys.executable).parent)
    path = os.environ["PATH"].replace(f"{own}:", "")
    return PluginMachine(client, root, path if without_program else f"{own}:{path}")
