"""Where on the screen sessions run: tmux is asked once a while about all panes of a server."""

import os
import stat
from collections.abc import Iterable

from flightlog.live.observe import GIT_LIMIT_S, ObservedSession
from flightlog.live.state import TmuxPane
from flightlog.model.text import one_line

PANES_EVERY_MS = 30_000
_SEPARATOR = "\t"
_FORMAT = _SEPARATOR.join(f"#{{{name}}}" for name in ("pane_id", "pane_width", "pane_height", "window_index"))
_NAME_CHARS_MAX = 64


def observe_panes(memos: Iterable[ObservedSession], now_ms: int) -> None:
    """Bring what is known of each session's pane up to date; a server that is gone leaves the pane's id."""
    due: dict[str, list[ObservedSession]] = {}
    for memo in memos:
        launch = memo.told.launch if memo.told else None
        if launch is None or not launch.tmux_pane:
            memo.tmux = None
            continue
        if memo.tmux is None or memo.tmux.pane != launch.tmux_pane or now_ms - memo.tmux_ms > PANES_EVERY_MS:
            memo.tmux, memo.tmux_ms = TmuxPane(launch.tmux_pane), now_ms
            due.setdefault(launch.tmux.partition(",")[0], []).append(memo)
    for socket, mine in due.items():
        panes = _list_panes(socket)
        for memo in mine:
            memo.tmux = panes.get(memo.tmux.pane, memo.tmux) if memo.tmux else None


def _list_panes(socket: str) -> dict[str, TmuxPane]:
    if not _is_ours(socket):
        return {}
    command = ["tmux", "-S", socket, "list-panes", "-a", "-F", f"{_FORMAT}{_SEPARATOR}#{{session_name}}"]
    import subprocess  # noqa: PLC0415 - most looks ask nothing

    clean = {"PATH": os.defpath, "LC_ALL": "C.UTF-8"}
    try:
        done = subprocess.run(command, env=clean, capture_output=True, timeout=GIT_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return dict(
        _parse_pane(line) for line in done.stdout.decode("utf-8", "replace").splitlines() if line.count("\t") >= 4
    )


def _parse_pane(line: str) -> tuple[str, TmuxPane]:
    pane, width, height, window, session = line.split(_SEPARATOR, 4)
    shown = one_line(session, _NAME_CHARS_MAX)
    return pane, TmuxPane(pane, shown, window, *(int(each) if each.isdecimal() else None for each in (width, height)))


def _is_ours(socket: str) -> bool:
    """Whether this is a socket of our own user: nobody else's is spoken to."""
    try:
        told = os.stat(socket) if os.path.isabs(socket) else None  # noqa: PTH116, PTH117 - a name told by tmux
    except OSError:
        return False
    return told is not None and stat.S_ISSOCK(told.st_mode) and told.st_uid == os.geteuid()
