"""The machine of a soak: directories of its own, a scripted model, and words for starting things in it."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from flightlog.agents.claude_code.driver import ClaudeCode
from flightlog.agents.scripted.scenario import Scenario, parse_scenario
from flightlog.setup.install import apply_change, plan_install

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support.client_sandbox import (  # type: ignore[import-not-found]
    ClientSandbox,
    isolated_environment,
)

BIN = Path(sys.executable).parent
MARK = "FLIGHTLOG_SOAK"
PINNED = "2.1.325"
AGENT = Path(__file__).parents[2] / ".tools" / "agents" / PINNED / "claude"
_REPLIES = [
    {"blocks": [{"tool": "Bash", "input": {"command": "echo one >> notes.txt; sleep 0.2"}}]},
    {"blocks": [{"tool": "Bash", "input": {"command": "wc -l notes.txt"}}]},
    {"text": "Noted."},
]


class Ground:
    """Where everything happens; `counts` says how often what was done and what went wrong."""

    def __init__(self, root: Path, seed: int, ends: float) -> None:
        """Make the directories, and register the hook as `flightlog init` does."""
        self.root, self.ends = root, ends
        self.home, self.recordings = root / "home", root / "flightlog"
        self.chance = random.Random(seed)
        self.counts: dict[str, int] = {}
        self.wrong: list[str] = []
        self.url = ""
        self._lock = threading.Lock()
        for folder in (self.home, root / "tmp", root / "work"):
            folder.mkdir(parents=True)
        apply_change(plan_install(self.config / "settings.json", [PINNED], Path(sys.executable)))

    @property
    def config(self) -> Path:
        """The agent's own directory, which all agents share, as on a person's machine."""
        return self.home / ".claude"

    @property
    def client(self) -> ClaudeCode:
        """The real agent."""
        return ClaudeCode(AGENT)

    @property
    def is_over(self) -> bool:
        """Whether nothing new is to be begun."""
        return time.monotonic() > self.ends

    def environment(self) -> dict[str, str]:
        """A clean environment with a mark, by which whatever is left behind is found."""
        world = ClientSandbox(self.home, self.root / "tmp", self.url, "sk-" + "fake-" + "0" * 12)
        own = {
            "FLIGHTLOG_HOME": str(self.recordings),
            MARK: self.root.name,
            "FLIGHTLOG_CLAUDE": str(AGENT),
        }
        isolated: dict[str, str] = isolated_environment(world, os.environ["PATH"])
        return isolated | own

    def note(self, what: str, times: int = 1) -> None:
        """Count something."""
        with self._lock:
            self.counts[what] = self.counts.get(what, 0) + times

    def fail(self, what: str) -> None:
        """Something is not as promised."""
        with self._lock:
            self.wrong.append(what)

    def draw(self, low: float, high: float) -> float:
        """A number by chance."""
        with self._lock:
            return self.chance.uniform(low, high)

    def run(self, folder: Path, *words: str, kill_after: float = 0.0) -> tuple[int, str]:
        """Run one of our programs in `folder`; with `kill_after`, kill it with `kill -9` after so many seconds."""
        command: Sequence[str] = [str(BIN / words[0]), *words[1:]]
        child = subprocess.Popen(command, cwd=folder, env=self.environment(), stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # fmt: skip
        try:
            output, _ = child.communicate(timeout=kill_after or 120)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGKILL)
            output, _ = child.communicate()
            if not kill_after:
                self.fail(f"hung: {' '.join(words)}")
            return -9, output or ""
        return child.returncode, output or ""


def scenario() -> Scenario:
    """What the model answers to anybody."""
    return parse_scenario({"rules": [{"replies": _REPLIES}]})


def plan_of(tasks: int) -> str:
    """A plan in which each task does one effect whose receiver knows it by its key."""
    work = (
        'mkdir -p "effects/$FLIGHTLOG_SESSION-$FLIGHTLOG_TASK-$FLIGHTLOG_KEY"; '
        'echo "$FLIGHTLOG_TASK" > "out-$FLIGHTLOG_TASK"; sleep 0.1'
    )
    entries = [
        {
            "task_id": f"{number:03}",
            "name": f"task {number}",
            "run": {"command": work},
            "verify": [f"test -f out-{number:03}"],
        }
        for number in range(1, tasks + 1)
    ]
    return json.dumps({"plan": "soak", "tasks": entries, "config": {"human_intervention": "never"}})


def find_leftover_processes(mark: str) -> list[str]:
    """Processes that still carry the mark of a soak."""
    processes = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            body = path.read_bytes()
            words = (path.parent / "cmdline").read_bytes().replace(b"\0", b" ")[:120]
        except OSError:
            continue
        if f"{MARK}={mark}".encode() in body.split(b"\0") and int(path.parent.name) != os.getpid():
            processes.append(f"{path.parent.name} {words.decode('utf-8', 'replace')}")
    return processes
