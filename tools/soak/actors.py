"""Who acts in a soak, each in a thread of its own until the time is over."""

import http.client
import json
import re
import subprocess
import time
import uuid
from pathlib import Path

from tools.soak.ground import BIN, Ground, plan_of

from flightlog.agents.protocol import AgentPrompt
from flightlog.loop.directories import open_loop_session

ALLOWED = ("--allowedTools", "Bash", "Read", "Write", "Edit")
_PAGES = ("/", "/live", "/usage", "/loops", "/search?q=Noted", "/retro", "/dataset")


def agent(ground: Ground, number: int) -> None:
    """Session after session of the real agent, recorded by its hook; one in six is killed in the middle."""
    folder = ground.root / "work" / f"agent-{number}"
    folder.mkdir()
    while not ground.is_over:
        session = str(uuid.uuid4())
        ask = AgentPrompt(
            "Note something.", folder, ground.environment(), session=session, arguments=ALLOWED
        )
        running = ground.client.start(ask)
        if ground.draw(0, 1) < 1 / 6:
            time.sleep(ground.draw(0.2, 2.0))
            running.kill()
            ground.note("agents killed")
            continue
        outcome = running.wait(120)
        if outcome.exit_code or outcome.timed_out:
            ground.fail(f"agent {session}: exit code {outcome.exit_code}, {outcome.stderr[:200]}")
        ground.note("sessions")
        with (ground.root / f"ended-{number}.txt").open("a") as noted:
            noted.write(f"{session}\n")


def loop(ground: Ground, number: int) -> None:
    """Plan after plan; the runner is killed at random and taken up again until the plan is completed."""
    top = ground.root / "work" / f"loop-{number}"
    tasks = 8
    turn = 0
    while not ground.is_over:
        turn += 1
        folder = top / f"{turn:04}"
        folder.mkdir(parents=True)
        (folder / "plan.yaml").write_text(plan_of(tasks))
        words = ["ralph-runtime", "run", "--plan", "plan.yaml", "--autonomous"]
        for _ in range(60):
            kill = ground.draw(1.0, 9.0) if ground.draw(0, 1) < 0.5 else 0.0
            code, output = ground.run(folder, *words, kill_after=kill)
            if code != -9:
                break
            ground.note("runners killed")
            begun = list((folder / "ralph-loop-sessions").glob("session-001-*/journal.jsonl"))
            words = ["ralph-runtime", "resume", "--session", "session-001"] if begun else words
        _check_loop(ground, folder, tasks, output)


def _check_loop(ground: Ground, folder: Path, tasks: int, output: str) -> None:
    sessions = list((folder / "ralph-loop-sessions").glob("session-001-*"))
    status = open_loop_session(sessions[0]).state.status if sessions else "not begun"
    effects = len(list((folder / "effects").glob("*"))) if (folder / "effects").is_dir() else 0
    if status != "completed" or effects != tasks:
        ground.fail(f"loop {folder.name}: {status}, {effects} of {tasks} effects: {output[-300:]}")
    ground.note("plans completed")


def replays(ground: Ground) -> None:
    """Branches of one run, in batches; some are killed and the next batch must work all the same."""
    folder = ground.root / "work" / "lab"
    (folder / "shop").mkdir(parents=True)
    config = {
        "model": "claude-opus-5-5",
        "engine": "scripted",
        "work_dir": "shop",
        "scenario": "model.yaml",
        "sessions": [{"session_index": 1, "prompt": "Count."}],
    }
    (folder / "run.yaml").write_text(json.dumps(config))
    reply = {"blocks": [{"tool": "Bash", "input": {"command": "echo one >> counted.txt"}}]}
    (folder / "model.yaml").write_text(
        json.dumps({"rules": [{"replies": [reply, reply, {"text": "Two."}]}]})
    )
    code, output = ground.run(folder, "harness", "run", "run.yaml", "--run-name", "source")
    if code:
        ground.fail(f"harness run: {output[-300:]}")
        return
    while not ground.is_over:
        kill = ground.draw(0.3, 2.0) if ground.draw(0, 1) < 0.3 else 0.0
        words = [
            "harness",
            "replay",
            "source",
            "--turn",
            "2",
            "--prompt",
            "Again.",
            "--count",
            "2",
            "--json",
        ]
        code, output = ground.run(folder, *words, kill_after=kill)
        if code == -9:
            ground.note("replays killed")
        elif code:
            ground.fail(f"replay: exit code {code}: {output[-300:]}")
        else:
            ground.note("branches", 2)


class Pages:
    """The pages, open all the time, asked again and again; their memory is sampled."""

    def __init__(self, ground: Ground) -> None:
        """Start the server."""
        self._ground = ground
        self.rss_mb: list[float] = []
        self.slowest_s: dict[str, float] = {}
        self._said = ground.root / "pages.log"
        self._child = subprocess.Popen([BIN / "flightlog", "serve", "--no-open"], cwd=ground.root / "work",
                                       env=ground.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=self._said.open("w"), text=True)  # fmt: skip
        assert self._child.stdout is not None
        address = re.search(r":(\d+)/\?token=(\S+)", self._child.stdout.readline())
        assert address is not None, "the server says its address"
        self._port, self._token = int(address[1]), address[2]

    def watch(self) -> None:
        """Ask for one page after the other, as somebody who looks around."""
        turn = 0
        while not self._ground.is_over:
            turn += 1
            path = _PAGES[turn % len(_PAGES)]
            began = time.monotonic()
            status = self._fetch_status(path)
            took = time.monotonic() - began
            if status != 200:
                errors = " | ".join(self._said.read_text().splitlines()[-6:])
                self._ground.fail(f"{path}: status {status} after {took:.0f} s: {errors}")
            self.slowest_s[path] = max(took, self.slowest_s.get(path, 0.0))
            self._ground.note("pages")
            self.rss_mb.append(_rss_mb(self._child.pid))
            time.sleep(0.2)

    def close(self) -> int:
        """Stop the server, as Ctrl-C does."""
        self._child.terminate()
        return self._child.wait(20)

    def _fetch_status(self, path: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        cookie = {"Cookie": f"flightlog-{self._port}={self._token}"}
        try:
            connection.request("GET", path, headers=cookie)
            answer = connection.getresponse()
            answer.read()
        except OSError:
            return 0
        finally:
            connection.close()
        return answer.status


def _rss_mb(pid: int) -> float:
    try:
        match = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0.0
    return int(match[1]) / 1024 if match else 0.0
