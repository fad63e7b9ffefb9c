"""Journals: our own events, appended as lines and read back typed.

A journal knows the closed union of events of one room by its tags; what the events mean is the
room's business. An event kind this version has not met is kept and counted, never dropped. Time
and ids come from the caller.
"""

import json as plain_json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, TypeVar, get_args

import msgspec
from msgspec import Struct, json

from flightlog.model.errors import UNREADABLE, Damage, Misconfigured
from flightlog.store import salvage
from flightlog.store.files import replace_file
from flightlog.store.jsonl import JsonlLine, Last, append_built_line, list_shards, read_together

VERSION = 1
_TAIL_BYTES = 1 << 12
_TAIL_BYTES_MAX = 32 << 20
_HEADER = frozenset({"v", "id", "seq", "ts"})

E = TypeVar("E", bound=Struct)


class JournalRecord(Struct, Generic[E], frozen=True):
    """One event with its number, its time, and its place on disk."""

    id: str
    seq: int
    ts: str
    event: E
    path: str
    offset: int


class UnknownEvent(Struct, frozen=True):
    """A sound record of a kind this version has not met, as it was written."""

    id: str
    seq: int
    ts: str
    kind: str
    data: bytes
    path: str
    offset: int


class _Header(Struct):
    v: int
    id: str
    seq: int
    ts: str


class Journal(Generic[E]):
    """An append-only file of the events of one union; many processes may share it."""

    def __init__(
        self,
        path: Path,
        events: Any,
        *,
        now: Callable[[], str],
        new_id: Callable[[], str],
        allowed: Callable[[], None] = lambda: None,
    ) -> None:
        """Open the journal at `path` for `events`, a tagged struct or a union of them.

        `allowed` is called with the file locked, before each line; what it raises keeps the line out.
        """
        self.path = path
        kinds = get_args(events) or (events,)
        self._tag = _tag_field(kinds)
        self._known = {kind.__struct_config__.tag for kind in kinds}
        self._decoder = json.Decoder(events)
        self._now = now
        self._new_id = new_id
        self._allowed = allowed

    def append(self, event: E, *, durable: bool = False) -> JournalRecord[E]:
        """Write `event` with the next number; it is kept when this returns."""
        body = _encode_event(event)
        made: list[_Header] = []

        def line(last: Last) -> bytes:
            self._allowed()
            header = _Header(VERSION, self._new_id(), _last_seq(last, self.path) + 1, self._now())
            made.append(header)
            return json.encode(header)[:-1] + b"," + body[1:]

        place = append_built_line(self.path, line, durable=durable)
        return JournalRecord(made[-1].id, made[-1].seq, made[-1].ts, event, str(place.path), place.offset)

    def read_records(self) -> Iterator[JournalRecord[E] | UnknownEvent | Damage]:
        """Read all that was ever written, each record once, and the damage between."""
        seen: set[str] = set()
        for item in read_together(self.path):
            entry = item if isinstance(item, Damage) else self._decode_record(item)
            if not isinstance(entry, Damage):
                if entry.id in seen:
                    continue
                seen.add(entry.id)
            yield entry

    def rewrite_events(self, change: Callable[[E], E]) -> None:
        """Replace each event by what `change` makes of it; its id, number and time stay, and so do all other lines.

        For the one process that may write, when a value has to leave the file. A reader sees the old file or the new.
        """
        self._allowed()
        for path in (self.path, *list_shards(self.path)):
            lines = path.read_bytes().split(b"\n")
            changed = [self._rewrite_line(line, change) for line in lines]
            if changed != lines:
                replace_file(path, b"\n".join(changed))

    def _rewrite_line(self, line: bytes, change: Callable[[E], E]) -> bytes:
        try:
            header, event = json.decode(line, type=_Header), self._decoder.decode(line)
        except UNREADABLE:
            return line
        new = change(event)
        return line if new == event else json.encode(header)[:-1] + b"," + _encode_event(new)[1:]

    def _decode_record(self, line: JsonlLine) -> JournalRecord[E] | UnknownEvent | Damage:
        try:
            header = json.decode(line.data, type=_Header)
            kind = json.decode(line.data, type=dict[str, msgspec.Raw]).get(self._tag, msgspec.Raw(b'""'))
            name = str(json.decode(kind))
            if header.v != VERSION or name not in self._known:
                place = (name, line.data, line.path, line.offset)
                return UnknownEvent(header.id, header.seq, header.ts, *place)
            event = self._decoder.decode(line.data)
        except UNREADABLE as error:
            return Damage(line.path, line.offset, line.length, f"no record of this journal: {error}")
        return JournalRecord(header.id, header.seq, header.ts, event, line.path, line.offset)


def _tag_field(kinds: tuple[Any, ...]) -> str:
    """The one field that names the kind; events leave the header's names alone."""
    tags = {kind.__struct_config__.tag_field for kind in kinds}
    assert len(tags) == 1, "the events of a journal share a tag field"
    assert None not in tags, "the events of a journal are tagged"
    taken = {name for kind in kinds for name in kind.__struct_encode_fields__} | tags
    assert not taken & _HEADER, f"an event may not use {sorted(taken & _HEADER)}"
    return str(tags.pop())


def _encode_event(event: Struct) -> bytes:
    try:
        return json.encode(event)
    except UnicodeEncodeError:
        # Half an emoji in foreign text: it becomes a replacement character here, not a crash there.
        escaped = plain_json.dumps(msgspec.to_builtins(event), separators=(",", ":")).encode()
        return salvage.repair_text(escaped)[0]


def _last_seq(last: Last, path: Path) -> int:
    """Return the number of the last sound record; raise `Misconfigured` when a later version wrote it."""
    count = _TAIL_BYTES
    while True:
        tail = last(count)
        for line in reversed(tail.split(b"\n")):
            with suppress(*UNREADABLE):
                header = json.decode(line, type=_Header)
                if header.v > VERSION:
                    raise Misconfigured(
                        f"version {header.v} needs a later flightlog, this one writes version {VERSION}: {path}",
                        hint="pip install --upgrade flightlog",
                    )
                return header.seq
        if len(tail) < count or count >= _TAIL_BYTES_MAX:
            return 0
        count *= 4
