"""Shards: files of rows that are written once, named by what they hold, and never changed.

Two writers cannot write different things under one name, so git has nothing to merge. Git does
guess that a deleted file was renamed to a new one that is half the same, and calls it a conflict when
the other side deleted it too. Git compares 64 bytes of a line at a time, so lines of shards begin at a
column of their own: no shard looks like the next one of its session, nor like a base file, and seldom like
one of another session (one time in 62, if their rows say the same). And shards
are only folded into one that is twice as large as any of them.
"""

import hashlib
import re
from collections.abc import Iterable
from typing import NamedTuple

from flightlog.dataset.rows import Row

_NAME = re.compile(r"(?P<day>\d{4}-\d\d-\d\d)-(?P<session>[A-Za-z0-9][A-Za-z0-9._-]*)-(?P<sha>[0-9a-f]{12})\.jsonl")
COLUMNS = 62
_STRIDE = 11
_LARGEST_SHARE = 0.45
FOLD_AT_LEAST = 4
FOLDED = "folded"
GONE = "gone"  # what shards with tombstones are named after


class Shard(NamedTuple):
    """A file to be: its name below `pending/`, and its bytes."""

    name: str
    body: bytes


def indent_lines(lines: Iterable[bytes], number: int) -> bytes:
    """Return lines as a shard holds them."""
    margin = b" " * shard_column(number)
    return b"".join(margin + line + b"\n" for line in lines)


def shard_column(number: int, session: str = "") -> int:
    """Return where the lines of the shard with this number in its session begin; 0 is for base files."""
    begin = int.from_bytes(hashlib.sha256(session.encode("utf-8", "replace")).digest()[:4], "big") if session else 0
    return 1 + (begin + number * _STRIDE) % COLUMNS


def free_number(bodies: Iterable[bytes]) -> int:
    """Return a number whose column none of these shards begins at, if there is one."""
    taken = {len(body) - len(body.lstrip(b" ")) for body in bodies}
    return next((number for number in range(COLUMNS) if shard_column(number) not in taken), 0)


def name_shard(session: str, body: bytes, day: str) -> Shard:
    """Name a shard's body."""
    safe = re.sub(r"[^A-Za-z0-9._-]", "-", session).strip("-.")[:60] or "rows"
    return Shard(f"{day or '1970-01-01'}-{safe}-{hashlib.sha256(body).hexdigest()[:12]}.jsonl", body)


def is_whole(name: str, body: bytes) -> bool:
    """Whether a shard holds what its name says."""
    found = _NAME.fullmatch(name)
    return found is not None and found["sha"] == hashlib.sha256(body).hexdigest()[:12]


def shard_session(name: str) -> str:
    """Return the session a shard is named after."""
    found = _NAME.fullmatch(name)
    return found["session"] if found else ""


def choose_foldable(sizes: Iterable[tuple[str, int]]) -> list[str]:
    """Choose shards that may be folded into one: none of them makes up half of it."""
    ordered = sorted(sizes, key=lambda pair: (pair[1], pair[0]))
    while len(ordered) >= FOLD_AT_LEAST:
        if ordered[-1][1] <= _LARGEST_SHARE * sum(size for _, size in ordered):
            return sorted(name for name, _ in ordered)
        ordered.pop()
    return []


def day_of(row: Row) -> str:
    """Return the day a row is about; empty when it does not say."""
    for name in ("timestamp", "ended_at", "started_at"):
        value = row.get(name)
        if isinstance(value, str) and re.match(r"\d{4}-\d\d-\d\d", value):
            return value[:10]
    return ""
