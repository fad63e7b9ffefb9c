"""A project in which everything there is to trace has happened, with real parts: git, the real agent, an experiment,
a loop, rows, a report. One commit holds what two sessions wrote."""

import json
import os
import subprocess
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path

from flightlog.agents.scripted.scenario import parse_scenario
from flightlog.agents.scripted.server import serve_scenario
from flightlog.app.runtime import open_runtime
from flightlog.archive.archive import Archive
from flightlog.model.output_files import Redacted
from flightlog.retro.analysis import analyze
from flightlog.tracing.providers import TraceContext
from retro.rooms import make_room, report_issue
from support.cli_runs import FLIGHTLOG
from support.real_agent import Bench

ALLOWED = ["--allowedTools", "Bash", "Read", "Write", "Edit"]
SHOP = "def total(prices, tax):\n    net = sum(prices)\n    return round(net * (1 + tax), 2)\n"
RUN = """
model: claude-opus-5-5
engine: scripted
work_dir: work
in_place: keep
scenario: tax.yaml
sessions:
  - {session_index: 1, prompt: Write down the tax of each country.}
"""
TAX = """
rules:
  - replies:
      - blocks: [{tool: Bash, input: {command: "printf 'GERMANY = 0.19\\nFRANCE = 0.20\\n' > tax.py"}}]
      - text: done
"""


@dataclass(frozen=True)
class Project:
    """The project, and what it holds of each kind."""

    bench: Bench
    commit: str
    issue: str
    finding: str
    session: str
    run: str

    @property
    def top(self) -> Path:
        return self.bench.project

    @property
    def config(self) -> Path:
        return self.bench.config

    def ground(self) -> TraceContext:
        return TraceContext(
            open_runtime(),
            self.top,
            Archive({"claude-code": (str(self.config),)}, str(self.bench.recordings)),
        )

    def environment(self) -> dict[str, str]:
        return around(self.bench, "http://127.0.0.1:9")

    def flightlog(self, *words: str):
        return tool(self.bench, self.environment(), "flightlog", *words)


def around(bench, url):
    own = {"FLIGHTLOG_CLAUDE": str(bench.client.program), "CLAUDE_CODE_MAX_RETRIES": "1"}
    return {**bench.environment(url), "GIT_CONFIG_GLOBAL": "/dev/null", **own}


def tool(bench, env, name, *words):
    return subprocess.run([FLIGHTLOG.with_name(name), *words], cwd=bench.project, env=env, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=180, check=False)  # fmt: skip


def git(top, *words):
    env = {"PATH": os.environ["PATH"], "HOME": str(top), "GIT_CONFIG_GLOBAL": "/dev/null"}
    done = subprocess.run(
        ["git", *words], cwd=top, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout.strip()


def scenario(top):
    file = {"file_path": str(top / "shop.py"), "content": SHOP}
    commit = "git add shop.py work/tax.py && git commit -qm 'Totals with tax' && git log -1 --format='[main %h] %s'"
    replies = [
        {"blocks": [{"tool": "Write", "input": file}]},
        {"blocks": [{"tool": "Bash", "input": {"command": commit}}]},
        {"text": "Written and committed."},
    ]
    rules = [
        {"when": {"prompt": "totals with tax"}, "replies": replies},
        {"replies": [{"text": "Another answer."}]},
    ]
    return parse_scenario({"rules": rules})


def build(bench) -> Project:
    """Let it all happen, once."""
    top = bench.project
    git(top, "init", "-q", "-b", "main")
    for name, value in (("user.name", "t"), ("user.email", "t@example.com")):
        git(top, "config", name, value)
    (top / "README").write_text("A shop.\n")
    git(top, "add", "README")
    git(top, "commit", "-qm", "Begin")
    (top / "work").mkdir()
    (top / "run.yaml").write_text(RUN)
    (top / "tax.yaml").write_text(TAX)
    run = {
        "agent": "claude-code",
        "prompt": "Write totals with tax, and commit them.",
        "arguments": ALLOWED,
    }
    task = {"task_id": "001", "name": "totals", "run": run, "verify": ["test -f shop.py"]}
    plan = {"plan": "shop", "tasks": [task], "config": {"human_intervention": "never"}}
    (top / "plan.yaml").write_text(json.dumps(plan))
    with serve_scenario(scenario(top)) as model:
        env = around(bench, model.url)
        did(tool(bench, env, "harness", "run", "run.yaml", "--run-name", "tax"))
        did(
            tool(
                bench,
                env,
                "harness",
                "resample",
                "tax",
                "--request",
                "1",
                "--count",
                "2",
                "--base-url",
                model.url,
            )
        )
        did(tool(bench, env, "ralph-runtime", "run", "--plan", "plan.yaml", "--autonomous"))
    env = around(bench, "http://127.0.0.1:9")
    did(tool(bench, env, "flightlog", "dataset", "session", "sync-to-jsonl"))
    return _run_retro(bench, top)


def _run_retro(bench, top):
    archive = Archive({"claude-code": (str(bench.config),)}, str(bench.recordings))
    (session,) = archive.recordings
    room = make_room(top)
    evidence = f"{session}#1.1"
    issue = report_issue(
        room, "Totals are rounded too early", "They are.", context={"evidence": evidence}
    )
    meta = json.loads((top / "runs/tax/run_meta.json").read_text())
    analyze.read_archive(
        room, archive, lambda document: Redacted(document, 0, 0), lambda _project: frozenset()
    )
    finding = analyze.analyze(room, UTC).patterns[0].id
    commit = git(top, "rev-parse", "HEAD")
    return Project(bench, commit, issue, finding, session, meta["sessions"][0]["session_id"])


def did(done):
    assert done.returncode == 0, done.stdout + done.stderr
    return done
