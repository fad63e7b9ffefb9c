"""The status line in the real Claude Code, in a real terminal: shown, refreshed, never blank."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flightlog.agents.claude_code.hooks import read_new_status
from flightlog.agents.scripted.scenario import parse_scenario
from flightlog.agents.scripted.server import serve_scenario
from flightlog.setup.install import InstallOptions, apply_change, plan_install
from support.terminal_client import answer_first_questions
from support.waiting import until

COLUMNS = 120


@pytest.fixture
def tmux(tmp_path):
    """A tmux server of our own."""
    assert shutil.which("tmux"), "tmux is not installed: apt-get install tmux"
    socket = f"flightlog-{os.getpid()}"

    def run(*words):
        return subprocess.run(
            ["tmux", "-L", socket, *words], capture_output=True, text=True, timeout=30, check=False
        )

    yield run
    run("kill-server")


def prepare_client(bench):
    """A client that has been through its first questions, with our hook and status line."""
    answer_first_questions(bench.home, bench.project)
    subprocess.run(["git", "init", "-q", "-b", "topic"], cwd=bench.project, check=True)
    settings = bench.config / "settings.json"
    apply_change(
        plan_install(
            settings, [bench.version], Path(sys.executable), InstallOptions(statusline=True)
        )
    )


SEEN = []


def screen(tmux):
    SEEN.append(tmux("capture-pane", "-p").stdout)
    return SEEN[-1]


def type_line(tmux, text):
    tmux("send-keys", "-l", text)
    until(lambda: text in screen(tmux))
    tmux("send-keys", "Enter")


def test_the_status_line_is_shown_refreshed_and_gathered_in_the_real_agent(bench, tmux):
    prepare_client(bench)
    usage = {"input_tokens": 4200, "cache_read_input_tokens": 120_000}
    script = {
        "rules": [
            {"replies": [{"text": "First answer.", "usage": usage}, {"text": "Second answer."}]}
        ]
    }
    with serve_scenario(parse_scenario(script)) as model:
        environment = bench.environment(model.url) | {
            "TERM": "xterm-256color",
            "CLAUDE_ALIAS": "claude2",
        }
        given = [f"{name}={value}" for name, value in environment.items()]
        command = ["env", "-i", *given, str(bench.client.program)]
        made = tmux(
            "new-session", "-d", "-x", str(COLUMNS), "-y", "40", "-c", str(bench.project), *command
        )
        assert made.returncode == 0, made.stderr

        shown = until(lambda: [line for line in screen(tmux).splitlines() if "ctx 0%" in line], 40)
        assert "topic" in shown[0]
        name = f"API key …{environment['ANTHROPIC_API_KEY'][-4:]}"
        state = bench.config / "session-health/runtime-state.yaml"
        until(lambda: state.exists() and "sessionId:" in state.read_text(), 40)
        until(lambda: name in screen(tmux), 40)  # before the first prompt
        SEEN.clear()
        type_line(tmux, "Say the first thing.")
        until(lambda: "First answer." in screen(tmux), 40)
        first = until(
            lambda: [
                line for line in screen(tmux).splitlines() if "| $" in line and "$0.00" not in line
            ],
            40,
        )
        assert "ctx 0%" not in first[0]
        type_line(tmux, "And another.")
        until(lambda: "Second answer." in screen(tmux), 40)
        page = until(lambda: next(bench.config.glob("session-health/????????-*.json"), None), 40)
        path = bench.recordings / "sessions/claude-code" / page.stem / "status.jsonl"
        until(
            lambda: read_new_status(str(path.parent), 0)[0][-1].payload.cost.total_cost_usd > 0, 40
        )

    assert len(SEEN) > 10
    assert [line for line in SEEN if "| ctx " not in line] == []
    session = page.stem
    noted, _ = read_new_status(str(path.parent), 0)
    assert all(noted)
    assert {note.launch.alias for note in noted} == {"claude2"}
    assert noted[-1].launch.account.startswith("key-")
    assert f"sessionId: {session}" in state.read_text()
    assert environment["ANTHROPIC_API_KEY"] not in state.read_text()
    everything = b"".join(path.read_bytes() for path in bench.recordings.rglob("status.jsonl"))
    assert environment["ANTHROPIC_API_KEY"].encode() not in everything
