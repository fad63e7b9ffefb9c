"""Journals: events of a feature, appended as lines and read back typed.

A journal has the closed union of events of one feature, distinguished by their tags. An event of an
unknown kind is returned as `UnknownEvent`, never dropped. Time and ids come from the caller.
"""

import json as plain_json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, TypeVar, get_args

import msgspec
from msgspec import Struct, json

from flightlog.model.errors import UNREADABLE, Damage, Misconfigured
from flightlog.store import salvage
from flightlog.store.files import replace_file
from flightlog.store.jsonl import JsonlLine, Last, append_built_line, list_shards, read_together

# The version of the line's header, checked by readers and writers.
VERSION = 1
_TAIL_BYTES = 1 << 12  # where the last number is looked for; most events are shorter
_TAIL_BYTES_MAX = 32 << 20  # two lines of the greatest length
_HEADER = frozenset({"v", "id", "seq", "ts"})

E = TypeVar("E", bound=Struct)


class JournalRecord(Struct, Generic[E], frozen=True):
    """One event with its number, its time, and its location on disk."""

    id: str
    seq: int
    ts: str
    event: E
    path: str
    offset: int


class UnknownEvent(Struct, frozen=True):
    """A sound record of a kind that this version does not know, as it was written."""

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

        `allowed` is called with the file locked, before each line; if it raises, nothing is written.
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
        """Write `event` with the next number and return its record."""
        body = _encode_event(event)
        headers: list[_Header] = []

        def make_line(last: Last) -> bytes:
            self._allowed()
            number = _last_seq(last, self.path) + 1
            headers.append(_Header(VERSION, self._new_id(), number, self._now()))
            return _join_header(headers[-1], body)

        location = append_built_line(self.path, make_line, durable=durable)
        place = (str(location.path), location.offset)
        return JournalRecord(headers[-1].id, headers[-1].seq, headers[-1].ts, event, *place)

    def read_records(self) -> Iterator[JournalRecord[E] | UnknownEvent | Damage]:
        """Yield every record once, and the damage between."""
        seen: set[str] = set()
        for item in read_together(self.path):
            entry = item if isinstance(item, Damage) else self._decode_record(item)
            if not isinstance(entry, Damage):
                if entry.id in seen:
                    continue
                seen.add(entry.id)
            yield entry

    def rewrite_events(self, change: Callable[[list[E]], Sequence[E]]) -> None:
        """Replace the events by `change(events)`; ids, numbers, times and all other lines stay.

        For the one process that may write, when a value has to be removed. A reader sees the old
        file or the new one.
        """
        self._allowed()
        for path in (self.path, *list_shards(self.path)):
            lines = path.read_bytes().split(b"\n")
            found: list[tuple[int, _Header, E]] = []
            for at, line in enumerate(lines):
                with suppress(*UNREADABLE):
                    found.append((at, json.decode(line, type=_Header), self._decoder.decode(line)))
            changed = change([event for _, _, event in found])
            pairs = [(old, new) for old, new in zip(found, changed, strict=True) if new != old[2]]
            for (at, header, _), new in pairs:
                lines[at] = _join_header(header, _encode_event(new))
            if pairs:
                replace_file(path, b"\n".join(lines))

    def _decode_record(self, line: JsonlLine) -> JournalRecord[E] | UnknownEvent | Damage:
        place = (line.path, line.offset)
        try:
            header = json.decode(line.data, type=_Header)
            fields = json.decode(line.data, type=dict[str, msgspec.Raw])
            name = str(json.decode(fields.get(self._tag, msgspec.Raw(b'""'))))
            head = (header.id, header.seq, header.ts)
            if header.v != VERSION or name not in self._known:
                return UnknownEvent(*head, name, line.data, *place)
            return JournalRecord(*head, self._decoder.decode(line.data), *place)
        except UNREADABLE as error:
            return Damage(*place, line.length, f"not a record of this journal: {error}")


def _tag_field(kinds: tuple[Any, ...]) -> str:
    """Return the field that names the kind; check that events do not use the header's names."""
    tags = {kind.__struct_config__.tag_field for kind in kinds}
    assert len(tags) == 1, "the events of a journal share a tag field"
    assert None not in tags, "the events of a journal are tagged"
    names = {name for kind in kinds for name in kind.__struct_encode_fields__} | tags
    assert not names & _HEADER, f"an event may not use {sorted(names & _HEADER)}"
    return str(tags.pop())


def _join_header(header: _Header, body: bytes) -> bytes:
    return json.encode(header)[:-1] + b"," + body[1:]


def _encode_event(event: Struct) -> bytes:
    try:
        return json.encode(event)
    except UnicodeEncodeError:
        # Half an emoji in foreign text becomes a replacement character.
        escaped = plain_json.dumps(msgspec.to_builtins(event), separators=(",", ":")).encode()
        return salvage.repair_text(escaped)[0]


def _last_seq(last: Last, path: Path) -> int:
    """Return the last sound record's number; raise `Misconfigured` for a later version."""
    count = _TAIL_BYTES
    while True:
        tail = last(count)
        for line in reversed(tail.split(b"\n")):
            with suppress(*UNREADABLE):
                header = json.decode(line, type=_Header)
                if header.v > VERSION:
                    text = f"version {header.v} needs a later flightlog, this one writes version"
                    hint = "pip install --upgrade flightlog"
                    raise Misconfigured(f"{text} {VERSION}: {path}", hint=hint)
                return header.seq
        if len(tail) < count or count >= _TAIL_BYTES_MAX:
            return 0
        count *= 4
