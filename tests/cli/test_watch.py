"""The board in a real terminal, at 80x24."""

import shutil
import subprocess
import time

from support.cli_runs import FLIGHTLOG, environment
from support.live_files import MINUTE_MS, Desk, session_id
from support.waiting import until

SOCKET = "flightlog-watch"


def tmux(*words):
    return subprocess.run(
        ["tmux", "-L", SOCKET, *words], capture_output=True, text=True, timeout=30, check=False
    )


def test_the_board_follows_what_happens_and_q_gives_the_terminal_back(tmp_path):
    assert shutil.which("tmux"), "tmux is not installed: tools/install_terminal.sh (make test does)"
    now = int(time.time() * 1000)
    desk = Desk(tmp_path, now)
    desk.home = desk.config / "home"
    desk.responses(session_id(1), (now - MINUTE_MS, 1000, 10))
    desk.hook(session_id(1), "Stop", now - MINUTE_MS)
    given = [f"{name}={value}" for name, value in environment(desk.config, TERM="screen").items()]
    tmux("new-session", "-d", "-x", "80", "-y", "24", "sh")
    try:
        tmux(
            "send-keys",
            " ".join(["env", "-i", *given, str(FLIGHTLOG), "watch", "--every", "0.3"]),
            "Enter",
        )
        first = until(
            lambda: (said := tmux("capture-pane", "-p").stdout) and "1 running" in said and said
        )
        assert "00000001" in first
        assert max(map(len, first.splitlines())) <= 80
        desk.responses(session_id(2), (now, 1000, 10))
        desk.hook(session_id(2), "Stop", now)
        until(lambda: "2 running" in tmux("capture-pane", "-p").stdout)
        for key in ("Down", "Up", "Escape", "PageDown", "x"):
            tmux("send-keys", key)
        time.sleep(1)
        assert "2 running" in tmux("capture-pane", "-p").stdout
        tmux("send-keys", "q")
        after = until(
            lambda: (said := tmux("capture-pane", "-p").stdout) and "running" not in said and said
        )
        assert "watch --every" in after
    finally:
        tmux("kill-server")
