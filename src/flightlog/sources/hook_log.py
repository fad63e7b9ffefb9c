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

from flightlog.hooks.writer import name_loss_count
from flightlog.model.entries import HookRecord
from flightlog.model.errors import UNREADABLE, Damage, Unavailable
from flightlog.store.jsonl import TORN_TAIL, list_shards, read_lines, read_together
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


def follow_hook_records(folder: Path, ends: dict[Path, int]) -> list[HookRecord]:
    """Return the hook records after `ends`, in order of time, and advance `ends`.

    `ends` is where the last read of each file ended; an event that could not wait for the lock
    of the log is in a file of its own.
    """
    lines: list[bytes] = []
    for path in (folder / HOOKS, *list_shards(folder / HOOKS)):
        with suppress(OSError, Unavailable):
            for line in read_lines(path, ends.get(path, 0)):
                if isinstance(line, Damage) and line.reason == TORN_TAIL:
                    break
                ends[path] = line.offset + line.length
                if not isinstance(line, Damage):
                    lines.append(line.data)
    return sorted(_decode_lines(lines, _decode_hook), key=lambda record: record.at_ms)


def measure_hook_log(folder: Path) -> int:
    """Return the size of a session's hook log in bytes; 0 if there is none."""
    size = 0
    for path in (folder / HOOKS, *list_shards(folder / HOOKS)):
        with suppress(OSError):
            size += path.stat().st_size
    return size


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
    paths = (home / "lost", temporary / name_loss_count(str(home)))
    return [path for path in paths if _read_count(path)]


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
