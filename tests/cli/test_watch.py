"""The dashboard in a real terminal (tmux), as a person uses it."""

import json
import os
import random
import shlex
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from support.cli_runs import FLIGHTLOG, environment
from support.live_files import MINUTE_MS, Desk, session_id
from support.waiting import until

SOCKET = f"flightlog-watch-{os.getpid()}"
KEYS = (
    *("Up", "Down", "Left", "Right", "Enter", "Escape", "Tab", "BSpace", "Space", "PageDown"),
    *("Home", "End", "F1", "F5", "Delete", "/", "?", "t", "r", "x", "Z", "5", "C-a", "C-l", "M-x"),
)
HOSTILE = "\x1b]0;owned\x07\x1b[2J &#27;]0;owned&#7; **bold**"


def tmux(*words):
    return subprocess.run(
        ["tmux", "-L", SOCKET, "-f", "/dev/null", *words],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def screen():
    return tmux("capture-pane", "-p").stdout


@pytest.fixture
def desk(tmp_path):
    now = int(time.time() * 1000)
    made = Desk(tmp_path, now)
    made.home = made.config / "home"
    for number in (1, 2, 3):
        made.responses(session_id(number), (now - number * MINUTE_MS, 1000, 10))
        made.hook(session_id(number), "Stop", now - number * MINUTE_MS)
    return made


@pytest.fixture
def watching(desk):
    """Run `watch` in a shell of an 80x24 terminal without 256 colors, and save what it writes."""
    assert shutil.which("tmux"), "tmux is not installed: tools/install_terminal.sh (make test does)"
    words = [f"{name}={value}" for name, value in environment(desk.config, TERM="xterm").items()]
    command = shlex.join(["env", "-i", *words]) + ' "TMUX=$TMUX" '
    tmux("new-session", "-d", "-x", "80", "-y", "24", "sh")
    tmux("pipe-pane", f"cat > {shlex.quote(str(desk.config / 'written'))}")
    tmux("send-keys", f"{command}{FLIGHTLOG} watch --every 0.3", "Enter")
    try:
        until(lambda: "3 running" in screen(), 20)
        yield desk
        # It ends by its own key and in time: `make coverage` loses what a killed process ran.
        until(has_quit)
    finally:
        tmux("kill-server")
        until(lambda: "no server" in tmux("list-sessions").stderr)


def children_of_shell():
    shell = tmux("display-message", "-p", "#{pane_pid}").stdout.strip()
    return Path(f"/proc/{shell}/task/{shell}/children").read_text().split()


def has_quit():
    """Leave what is open, then `watch`; return whether it has ended."""
    for key in ("Escape", "q"):
        tmux("send-keys", key)
        time.sleep(0.2)  # a key that follows Escape at once is one with it
    return not children_of_shell()


def process_of_watch():
    (child,) = children_of_shell()
    return Path("/proc", child)


def press_at_random(seconds, pause_s):
    chosen, process = random.Random(26), process_of_watch()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        tmux("send-keys", chosen.choice(KEYS))
        time.sleep(pause_s)
        assert process.exists(), screen()
    tmux("send-keys", "Escape")
    tmux("send-keys", "Escape")
    tmux("send-keys", "Escape")
    return process


def test_watch_follows_events_and_q_restores_the_terminal(watching):
    assert max(map(len, screen().splitlines())) <= 80
    bells = (watching.config / "written").read_bytes().count(b"\x07")
    watching.responses(session_id(4), (watching.now_ms, 1000, 10))
    watching.hook(session_id(4), "PermissionRequest", watching.now_ms, tool_name="Bash")
    first = until(lambda: (text := screen()) and "4 running, 1 needs you" in text and text, 20)
    rows = first.splitlines()
    (head,) = (number for number, row in enumerate(rows) if row.startswith("SESSION"))

    tmux("send-keys", "q")

    assert rows[head + 1].startswith("00000004")
    assert "needs permission: Bash" in rows[head + 1]
    assert "idle" in rows[head + 2]
    until(lambda: "running" not in screen())
    # The typed command is back; its lines may break at any character, a space among them.
    assert "watch--every" in "".join(screen().split())
    assert (watching.config / "written").read_bytes().count(b"\x07") == bells + 1


def test_random_keys_neither_end_nor_break_watch(watching):
    process = press_at_random(3, 0.12)

    until(lambda: "3 running" in screen())
    assert "Traceback" not in screen()
    assert int((process / "statm").read_text().split()[1]) * 4 / 1024 <= 80, "megabytes"


@pytest.mark.soak
def test_a_minute_of_keys_neither_ends_nor_breaks_watch(watching):
    press_at_random(60, 0.05)

    until(lambda: "3 running" in screen())
    assert "Traceback" not in screen()


@pytest.mark.soak
def test_idle_watch_takes_less_than_a_percent_of_a_processor(watching):
    tmux("send-keys", "q")
    until(lambda: "running" not in screen())
    words = [f"{name}={value}" for name, value in environment(watching.config).items()]
    tmux("send-keys", shlex.join(["env", "-i", *words, str(FLIGHTLOG), "watch"]), "Enter")
    until(lambda: "3 running" in screen())
    time.sleep(3)
    before, process = _cpu_s(process_of_watch()), process_of_watch()
    time.sleep(60)

    assert _cpu_s(process) - before < 0.6


def _cpu_s(process):
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_enter_shows_steps_context_and_cost_and_foreign_text_is_inert(watching):
    watching.responses(session_id(5), (watching.now_ms, 1000, 10))
    transcript = next(watching.config.glob(f"projects/*/{session_id(5)}.jsonl"))
    transcript.write_text(transcript.read_text().replace('"ok"', json.dumps(HOSTILE)))
    watching.hook(session_id(5), "Stop", watching.now_ms)
    until(lambda: "00000005" in screen(), 20)
    rows = screen().splitlines()
    (head,) = (number for number, row in enumerate(rows) if row.startswith("SESSION"))
    at = next(number for number, row in enumerate(rows) if row.startswith("00000005")) - head - 1

    tmux("send-keys", "Home")
    for _ in range(at):
        tmux("send-keys", "Down")
    tmux("send-keys", "Enter")
    shown = until(lambda: (text := screen()) and "bold" in text and text)

    assert "context  █" in shown
    assert "recorded" in shown
    assert "**bold**" not in shown, "Markdown is rendered"
    assert b"\x1b]0;owned" not in (watching.config / "written").read_bytes()


def test_the_filter_shows_matching_sessions_and_escape_shows_all(watching):
    for key in ("/", "0", "0", "0", "0", "2"):
        tmux("send-keys", key)
    until(lambda: "00000001" not in screen())
    assert "00000002" in screen()

    tmux("send-keys", "Escape")

    until(lambda: "00000001" in screen())


def test_t_goes_to_the_tmux_pane_of_the_session(watching):
    here = tmux("display-message", "-p", "#{socket_path} #{window_index}").stdout.split()
    tmux("new-window", "-d", "sh")
    pane = tmux("display-message", "-p", "-t", ":+1", "#{pane_id}").stdout.strip()
    now = int(time.time() * 1000)
    launch = {"tmux_pane": pane, "tmux": f"{here[0]},1,0"}
    watching.tell(session_id(1), now, launch=launch)
    watching.hook(session_id(1), "PermissionRequest", now)
    until(lambda: "needs permission" in screen(), 20)

    tmux("send-keys", "Home")
    tmux("send-keys", "t")

    until(lambda: tmux("display-message", "-p", "#{pane_id}").stdout.strip() == pane)
    tmux("select-window", "-t", f":{here[1]}")
    tmux("send-keys", "Down")
    tmux("send-keys", "t")
    until(lambda: "is in no tmux pane" in screen())


def test_question_mark_lists_the_keys(watching):
    tmux("send-keys", "?")

    until(lambda: "go to its tmux pane" in screen())
    tmux("send-keys", "x")
    until(lambda: "go to its tmux pane" not in screen())
