"""Panes of a real tmux server."""

import subprocess

from support.live_files import MINUTE_MS, NOW_MS, Desk, session_id

ONE = session_id(1)


def test_a_pane_is_described_with_its_session_window_and_size(tmp_path):
    desk, socket = Desk(tmp_path), tmp_path / "s"
    desk.responses(ONE, (NOW_MS - 3 * MINUTE_MS, 1000, 10))
    subprocess.run(
        ["tmux", "-S", socket, "new-session", "-d", "-s", "work", "-x", "120", "-y", "30"],
        check=True,
    )
    try:
        listed = ["tmux", "-S", socket, "list-panes", "-a", "-F", "#{pane_id}"]
        pane = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.strip()
        desk.tell(ONE, NOW_MS - MINUTE_MS, launch={"tmux_pane": pane, "tmux": f"{socket},1,0"})
        tmux = desk.gather().state.sessions[0].tmux
    finally:
        subprocess.run(["tmux", "-S", socket, "kill-server"], check=True)

    assert (tmux.pane, tmux.session, tmux.width) == (pane, "work", 120)
    assert tmux.height in {29, 30}  # the status bar of tmux takes a row
    assert tmux.window
    desk.now_ms += 31_000
    gone = desk.gather().state.sessions[0].tmux
    assert (gone.pane, gone.session) == (pane, None)
