"""Read the logs that our hooks write for each session: `hooks.jsonl` and `status.jsonl`.

A record that cannot be decoded is skipped: short-lived processes write the log and may be killed,
and one bad line must not hide the next.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

from flightlog.model.entries import HookRecord
from flightlog.model.errors import UNREADABLE, Damage, Unavailable
from flightlog.store.jsonl import TORN_TAIL, read_lines, read_together
from flightlog.store.recordings.manifest import HOOKS
from flightlog.store.recordings.reader import read_new_lines

STATUS = "status.jsonl"

Payload = TypeVar("Payload")
Decoded = TypeVar("Decoded")


class StatusLaunch(Struct):
    """How a session was started, and a fingerprint of the account that pays."""

    config_dir: str = ""
    account: str = ""
    name: str = ""
    """The account's e-mail address or plan, or the end of its key."""
    alias: str = ""
    profile: str = ""
    tmux_pane: str = ""
    tmux: str = ""
    pid: int = 0
    pid_started: int = 0


class StatusRecord(Struct, Generic[Payload]):
    """One logged status-line payload; its type is the agent's."""

    at_ms: int
    launch: StatusLaunch
    payload: Payload


_decode_hook = msgspec.json.Decoder(HookRecord).decode


def read_hook_records(folder: Path) -> Iterator[HookRecord]:
    """Yield every hook record of a session's directory."""
    lines = (line.data for line in read_together(folder / HOOKS) if not isinstance(line, Damage))
    return _decode_lines(lines, _decode_hook)


def follow_hook_records(folder: Path, start: int) -> tuple[list[HookRecord], int]:
    """Return all hook records from byte `start` on, and where the next read starts."""
    lines: list[bytes] = []
    with suppress(OSError, Unavailable):
        for line in read_lines(folder / HOOKS, start):
            if isinstance(line, Damage) and line.reason == TORN_TAIL:
                break
            start = line.offset + line.length
            if not isinstance(line, Damage):
                lines.append(line.data)
    return list(_decode_lines(lines, _decode_hook)), start


def measure_hook_log(folder: Path) -> int:
    """Return the size of a session's hook log in bytes; 0 if there is none."""
    try:
        return (folder / HOOKS).stat().st_size
    except OSError:
        return 0


def read_new_hook_records(folder: str, start: int) -> tuple[list[HookRecord], int]:
    """Return the hook records added since byte `start`, and where the next read starts."""
    return read_new_records(f"{folder}/{HOOKS}", start, _decode_hook)


def read_new_records(
    path: str, start: int, decode: Callable[[bytes], Decoded]
) -> tuple[list[Decoded], int]:
    """Return the records added to a log since byte `start`, and where the next read starts."""
    lines, end = read_new_lines(path, start)
    return list(_decode_lines(lines, decode)), end


def count_lost_records(home: Path, temporary: Path) -> int:
    """Return how many events the hook could not record."""
    return sum(_read_count(path) for path in list_loss_counts(home, temporary))


def list_loss_counts(home: Path, temporary: Path) -> list[Path]:
    """Return the files with a positive count of events that the hook could not record."""
    return [
        path for path in (home / "lost", *temporary.glob("flightlog-lost-*")) if _read_count(path)
    ]


def _decode_lines(lines: Iterable[bytes], decode: Callable[[bytes], Decoded]) -> Iterator[Decoded]:
    for line in lines:
        try:
            yield decode(line)
        except UNREADABLE:
            continue


def _read_count(path: Path) -> int:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0
