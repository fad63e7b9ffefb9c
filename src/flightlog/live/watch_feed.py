"""What `watch` shows besides the dashboard: titles, the last steps of a session, its tmux pane."""

import time
from collections.abc import Sequence

from flightlog.archive.archive import open_archive
from flightlog.archive.session_reader import iter_last_entries
from flightlog.live.dashboard import Dashboard, build_dashboard
from flightlog.live.observe import list_panes, list_recent
from flightlog.live.service import watch_here
from flightlog.live.state import TmuxPane
from flightlog.model.errors import NotFound
from flightlog.model.runtime import Runtime
from flightlog.views.transcript import TranscriptLine
from flightlog.views.transcript_formats import FollowFormatter

STEPS_BYTES = 256 << 10  # about twenty steps; read again at each change of an open session
STEPS_MAX = 300  # paragraphs; more than a person scrolls through in a dashboard
IDLE_SHARE = 100  # at most one percent of the time is spent on collecting while nothing changes
IDLE_PAUSE_MAX_S = 10.0


class WatchFeed:
    """Collects the dashboard again and again; remembers titles and what was shown last."""

    def __init__(self, runtime: Runtime, every_s: float) -> None:
        """Collect nothing yet; `every_s` is the shortest time between two collections."""
        self.pause_s = every_s
        self.titles: dict[str, str] = {}
        self._runtime, self._every_s = runtime, every_s
        self._last: object = None

    def load(self) -> Dashboard:
        """Collect the state, and set the pause until the next time: longer while nothing happens."""
        began = time.thread_time()
        lives, recent = watch_here(self._runtime), list_recent(self._runtime)
        board = build_dashboard(lives, recent, self._runtime.clock.now_ms())
        self._read_titles(board)
        seen = [(row.session.session_id, row.session.activity, row.cost_usd) for row in board.rows]
        idle_s = min(IDLE_SHARE * (time.thread_time() - began), IDLE_PAUSE_MAX_S)
        self.pause_s = max(self._every_s, idle_s) if seen == self._last else self._every_s
        self._last = seen
        return board

    def read_steps(self, session: str) -> list[TranscriptLine]:
        """Return the last steps of a session; none if it has no transcript yet."""
        recording = open_archive(self._runtime).recordings.get(session)
        if recording is None:
            return []
        formatter = FollowFormatter()
        entries = iter_last_entries(recording, STEPS_BYTES)
        return [line for entry in entries for line in formatter.render_lines(entry)][-STEPS_MAX:]

    def _read_titles(self, board: Dashboard) -> None:
        sessions = [row.session.session_id for row in board.rows]
        if missing := [name for name in sessions if not self.titles.get(name)]:
            archive = open_archive(self._runtime)
            for name in missing:
                if name in archive.recordings:
                    self.titles[name] = archive.read_outline(name).summary.title
        self.titles = {name: self.titles.get(name, "") for name in sessions}


def pane_command(pane: TmuxPane | None, tmux: str) -> tuple[Sequence[str], bool]:
    """Return the command that shows a pane, and whether it takes over this terminal.

    `tmux` is the variable TMUX of this process. Raises NotFound if the pane is unknown or gone.
    """
    if pane is None or not pane.socket:
        message = "this session is in no tmux pane that its status line reported"
        raise NotFound(message, hint="flightlog init, then start the agent inside tmux")
    if pane.pane not in list_panes(pane.socket):
        raise NotFound(f"the tmux pane {pane.pane} is gone", hint="tmux list-panes -a")
    is_here = tmux.partition(",")[0] == pane.socket
    select = ("select-window", "-t", pane.pane, ";", "select-pane", "-t", pane.pane, ";")
    show = ("switch-client" if is_here else "attach-session", "-t", pane.pane)
    return ("tmux", "-S", pane.socket, *select, *show), not is_here
