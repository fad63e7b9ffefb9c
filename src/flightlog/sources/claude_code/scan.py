"""The fast way through a transcript: only the lines that say what a response cost.

A byte search finds them, a typed decode takes the few fields a ledger needs, everything else
is skipped unread. Blocks are read into one buffer, never mapped: a file that shrinks under us
must not kill us. Which copy of a response counts is decided elsewhere; here only lines that
repeat the same response in the same place are folded into one.
"""

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import stringzilla as sz
from msgspec import Meta, Struct
from msgspec.structs import replace

from flightlog.model.usage import ClientTotals, Row
from flightlog.sources.claude_code.costs import SYNTHETIC_MODEL, client_totals, usage
from flightlog.sources.claude_code.values import mapping, milliseconds, parsed, text
from flightlog.store.index.files import fingerprint
from flightlog.store.reading import Reader, mapped, open_reader
from flightlog.store.salvage import spans

BLOCK_BYTES = 1 << 20
_HEAD_BYTES = 1 << 16
# Without what may follow a space: other tools write JSON with one after the colon.
_USAGE = b'"usage":'
_TOTALS = b'"cost-state"'
_STAMP = b'"timestamp":"'
_NEWLINE = b"\n"

Count = Annotated[int, Meta(ge=0, lt=2**53)]


class Target(Struct, frozen=True):
    """A file to scan from byte `start` on, and whose it is."""

    path: str
    session: str
    lane: str = ""
    start: int = 0


class Scan(Struct, array_like=True):
    """What the new bytes of one file say.

    `end` is where the next scan starts, `fingerprint` is of what stands before it; `born_ms` is
    the file's first time stamp, told only by a scan from its beginning. What another process
    scanned arrives with its rows and totals `packed`; `digest` is what somebody made of them.
    """

    rows: list[Row]
    totals: list[ClientTotals]
    end: int = 0
    read: int = 0
    decoded: int = 0
    damaged: int = 0
    born_ms: int = 0
    fingerprint: int = 0
    error: str = ""
    packed: bytes = b""
    keys: bytes = b""
    digest: bytes = b""


def scan_mapped(target: Target) -> Scan:
    """Scan one file through a memory map; a file that shrinks meanwhile ends the process."""
    memory = mapped(target.path)
    if memory is None or len(memory) < target.start:
        return scan(target)
    reading = _Reading(target)
    reading.over(memoryview(memory)[target.start :])
    file = open_reader(target.path)
    reading.result.fingerprint = fingerprint(file, reading.result.end)
    file.close()
    return reading.finished()


def scan(target: Target, buffer: bytearray | None = None) -> Scan:
    """Scan one file from `target.start`; a file that cannot be read says so in `error`.

    `buffer` saves a fresh block for each of many files.
    """
    reading = _Reading(target)
    try:
        file = open_reader(target.path)
    except OSError as error:
        return Scan([], [], target.start, error=error.strerror or "unreadable")
    try:
        reading.run(file, buffer or bytearray(BLOCK_BYTES))
    except OSError as error:
        reading.result.error = error.strerror or "unreadable"
    finally:
        file.close()
    return reading.finished()


class _CacheWrites(Struct, frozen=True, gc=False):
    ephemeral_1h_input_tokens: Count | None = 0


class _ServerTools(Struct, frozen=True, gc=False):
    web_search_requests: Count | None = 0


class _Usage(Struct, frozen=True, gc=False):
    input_tokens: Count | None = 0
    output_tokens: Count | None = 0
    cache_read_input_tokens: Count | None = 0
    cache_creation_input_tokens: Count | None = 0
    cache_creation: _CacheWrites | None = None
    server_tool_use: _ServerTools | None = None


_NO_USAGE = _Usage()


class _Message(Struct, frozen=True, gc=False):
    id: str = ""
    model: str = ""
    usage: _Usage = _NO_USAGE


_NO_MESSAGE = _Message()


class _Record(Struct, frozen=True, gc=False, rename="camel"):
    type: str
    message: _Message = _NO_MESSAGE
    timestamp: str = ""
    request_id: str | None = ""
    agent_id: str | None = ""
    is_sidechain: bool | None = False
    is_aborted_mid_stream: bool | None = False
    cwd: str | None = ""


class _Stamp(Struct, frozen=True, gc=False):
    timestamp: str = ""


_decode_stamp = msgspec.json.Decoder(_Stamp).decode
_decode_record = msgspec.json.Decoder(_Record).decode


class _Reading:
    """One pass over one file."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.result = Scan([], [], target.start)
        # The first place a response was written in; lines of other places are few and kept one by one.
        self.best: dict[str, _Record] = {}
        self.odd: list[Row] = []
        self.as_of_ms = 0

    def run(self, file: Reader, buffer: bytearray) -> None:
        """Read block by block; what follows the last newline waits for the next block."""
        kept = 0
        while got := file.fill(memoryview(buffer)[kept:], self.result.end + kept):
            self.result.read += got
            filled = kept + got
            whole = sz.rfind(buffer, _NEWLINE, kept, filled) + 1
            if whole:
                if not self.result.end:
                    self.result.born_ms = _born_ms(bytes(buffer[: min(whole, _HEAD_BYTES)]))
                self._block(memoryview(buffer), whole)
                self.result.end += whole
                buffer[: filled - whole] = buffer[whole:filled]
            kept = filled - whole
            if kept == len(buffer):
                buffer = buffer + bytes(len(buffer))
        self._tail(memoryview(buffer), kept)
        self.result.fingerprint = fingerprint(file, self.result.end)

    def over(self, view: memoryview) -> None:
        """Go over everything at once."""
        self.result.read = len(view)
        whole = sz.rfind(view, _NEWLINE, 0, len(view)) + 1
        if not self.result.end:
            self.result.born_ms = _born_ms(bytes(view[: min(whole, _HEAD_BYTES)]))
        self._block(view, whole)
        self.result.end += whole
        self._tail(view[whole:], len(view) - whole)

    def finished(self) -> Scan:
        """Return the result, one row for each response and place."""
        rows = [_row(record, self.target) for record in self.best.values()]
        self.result.rows = rows + self.odd
        return self.result

    def _tail(self, block: memoryview, kept: int) -> None:
        """Take a last line without newline if it is whole; it will be read again."""
        damaged = self.result.damaged
        self._block(block, kept)
        self.result.damaged = damaged

    def _block(self, block: memoryview, end: int) -> None:
        best, decode, synthetic = self.best, _decode_record, SYNTHETIC_MODEL
        hits = 0
        for line in lines_with(_USAGE, block, end):
            hits += 1
            try:
                record = decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                self._odd_line(bytes(line))
                continue
            message = record.message
            if record.type != "assistant" or message.usage is _NO_USAGE or message.model == synthetic:
                continue
            known = best.get(message.id)
            if known is None and message.id:
                best[message.id] = record
            elif known is None:
                self._odd_line(bytes(line))
            elif record.request_id != known.request_id or _lane(record) != _lane(known):
                self.odd.append(_row(record, self.target))
            elif _fuller(record, known):
                best[message.id] = record
        self.result.decoded += hits + self._totals(block, end)

    def _odd_line(self, line: bytes) -> None:
        """Look again, with patience, at a line the typed decode refused."""
        record = parsed(line)
        if record is not None:
            self._odd_record(record)
            return
        for span in spans(line):
            inner = None if span.why else parsed(line[span.start : span.end])
            if inner is None:
                self.result.damaged += 1
            else:
                self._odd_record(inner)

    def _odd_record(self, record: dict[str, Any]) -> None:
        message = mapping(record, "message")
        name = text(message, "id") or text(record, "requestId") or text(record, "uuid")
        if text(record, "type") != "assistant" or not name or not mapping(message, "usage"):
            return
        lane = text(record, "agentId") or ("?" if record.get("isSidechain") is True else "")
        if text(message, "model") == SYNTHETIC_MODEL:
            return
        said = usage(mapping(message, "usage"))
        row = (name, self.target.session, text(message, "model"), *msgspec.structs.astuple(said))
        rest = (text(record, "cwd"), text(record, "requestId"), self.target.lane or lane)
        aborted = record.get("isAbortedMidStream") is True
        self.odd.append(Row._make((*row, milliseconds(text(record, "timestamp")) or 0, *rest, aborted)))

    def _totals(self, block: memoryview, end: int) -> int:
        """Take the client's own totals, each with the time of the record before it."""
        hits = at = 0
        for line in lines_with(_TOTALS, block, end):
            hits += 1
            record = parsed(bytes(line))
            if record is None:
                self.result.damaged += 1
            elif text(record, "type") == "cost-state":
                at = sz.find(block, line, at, end)
                stamp = sz.rfind(block, _STAMP, 0, at)
                if stamp >= 0:
                    start = stamp + len(_STAMP)
                    self.as_of_ms = milliseconds(bytes(block[start : start + 24]).decode("ascii", "replace")) or 0
                said = replace(client_totals(record), session=self.target.session, as_of_ms=self.as_of_ms)
                self.result.totals.append(said)
        return hits


def lines_with(needle: bytes, block: memoryview, end: int) -> Iterator[memoryview]:
    """Yield the lines of `block[:end]` that hold `needle`, each once."""
    find, rfind = sz.find, sz.rfind
    floor = 0
    at = find(block, needle, 0, end)
    while at >= 0:
        first = rfind(block, _NEWLINE, floor, at) + 1 or floor
        last = find(block, _NEWLINE, at, end)
        if last < 0:
            last = end
        yield block[first:last]
        floor = last
        at = find(block, needle, last, end)


def _born_ms(head: bytes) -> int:
    for line in head.split(_NEWLINE):
        try:
            born = milliseconds(_decode_stamp(line).timestamp)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        if born is not None:
            return born
    return 0


def _lane(record: _Record) -> str:
    return record.agent_id or ("?" if record.is_sidechain else "")


def _fuller(record: _Record, known: _Record) -> bool:
    """Whether `record` is the better copy of a response: more output, else earlier."""
    new, old = record.message.usage.output_tokens or 0, known.message.usage.output_tokens or 0
    return new > old or (new == old and _tie(record) < _tie(known))


def _tie(record: _Record) -> tuple[str, str, tuple[object, ...], str]:
    """Between equals the order of lines must not decide."""
    said = record.message.usage
    counts = (said.input_tokens or 0, said.cache_read_input_tokens or 0, said.cache_creation_input_tokens or 0)
    return record.timestamp, record.message.model, counts, record.cwd or ""


def _row(record: _Record, target: Target) -> Row:
    said = record.message.usage
    hour = (said.cache_creation.ephemeral_1h_input_tokens or 0) if said.cache_creation else 0
    values = (
        record.message.id,
        target.session,
        record.message.model,
        said.input_tokens or 0,
        said.output_tokens or 0,
        said.cache_read_input_tokens or 0,
        max((said.cache_creation_input_tokens or 0) - hour, 0),
        hour,
        (said.server_tool_use.web_search_requests or 0) if said.server_tool_use else 0,
        milliseconds(record.timestamp) or 0,
        record.cwd or "",
        record.request_id or "",
        target.lane or _lane(record),
        record.is_aborted_mid_stream or False,
    )
    return tuple.__new__(Row, values)
