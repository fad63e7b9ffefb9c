"""Clean up the `session-health` directory: removed sessions, old output files, the log.

The text of a session that leaves the state file goes to `archive/` with its comments and is
compressed once a day, so no edit of a person is lost.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from flightlog.live.events import Event, SessionArchived
from flightlog.live.layout import LOG, NOT_SESSIONS
from flightlog.live.state_file.runtime_state import KEEP_DAYS, OWN
from flightlog.model.addresses import is_safe
from flightlog.model.usage import DAY_MS
from flightlog.store import files, jsonl, shared_files
from flightlog.store.journal import Journal

LOG_BYTES_MAX = 200_000  # some weeks of collections
LOG_LINES_KEPT = 500
ARCHIVE = "archive"
_TEMP_AGE_S = 3600.0  # no write of ours takes an hour, so an older temporary file is abandoned


def archive_removed(
    folder: Path, journal: Journal[Event], removed: Sequence[tuple[str, str]], now_ms: int
) -> None:
    """Append the text of sessions that left the state file to the archive."""
    for session, text in removed:
        line = msgspec.json.encode({"sessionId": session, "archivedAt": now_ms, "yaml": text})
        jsonl.append_line(folder / ARCHIVE / "sessions.jsonl", line)
        journal.append(SessionArchived(session, "no longer live"))


def clean_up(folder: Path, home: Path, now_ms: int) -> list[str]:
    """Compress the archive and remove files of sessions long gone; return the sessions' names."""
    _compress_log(folder / ARCHIVE / "sessions.jsonl", now_ms)
    gone = []
    for path in sorted(folder.glob("*.json")):
        if path.name not in NOT_SESSIONS and is_safe(path.stem) and _is_old(path, now_ms):
            shared_files.remove_with_dir(path)
            gone.append(path.stem)
    markers = home / "live"
    for path in sorted(markers.iterdir()) if markers.is_dir() else ():
        if _is_old(path, now_ms):
            shared_files.remove_with_dir(path)
    for directory in (folder, folder / OWN):
        if directory.is_dir():
            files.remove_stale_temps(directory, _TEMP_AGE_S, now_ms / 1000)
    return gone


def log_line(folder: Path, text: str) -> None:
    """Append a line to the log; above `LOG_BYTES_MAX` keep only the last lines."""
    path = folder / LOG
    jsonl.append_line(path, text.encode("utf-8", "replace").replace(b"\n", b" "))
    if path.stat().st_size > LOG_BYTES_MAX:
        last_lines = path.read_bytes().splitlines()[-LOG_LINES_KEPT:]
        files.replace_file(path, b"\n".join(last_lines) + b"\n", durable=False)


def _compress_log(path: Path, now_ms: int) -> None:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    if data:
        # This module is loaded after each turn, but compresses at most once a day.
        from flightlog.store.compression import zstd  # noqa: PLC0415

        files.replace_file(path.with_name(f"sessions-{now_ms}.jsonl.zst"), zstd.compress(data, 10))
    shared_files.remove_with_dir(path)


def _is_old(path: Path, now_ms: int) -> bool:
    try:
        return now_ms - path.stat().st_mtime * 1000 > KEEP_DAYS * DAY_MS
    except OSError:
        return False
