"""Every record of a transcript with its place and its words, for the index.

A typed decode takes the text and skips the rest; tool output that a line holds twice is taken
once. Lines the typed decode refuses are looked at again with patience. Knows nothing of
meaning: it feeds search, and search shows the recording itself.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

import msgspec
from msgspec import Struct

from flightlog.model.errors import UNREADABLE, Unreadable
from flightlog.sources.foreign_json import parse_object, parse_timestamp_ms
from flightlog.store.index.files import fingerprint_file
from flightlog.store.index.records import IndexedRecord, RecordBatch
from flightlog.store.recordings.reader import open_reader, raw_lines
from flightlog.store.salvage import iter_spans

WORDS_MAX = 1 << 20
_REPEATING = frozenset({"api-request-blob", "last-prompt", "queue-operation"})  # what other records say already
_PATHS = ("file_path", "path", "notebook_path")


def read_records(path: str, start: int) -> RecordBatch:
    """Read the records of a file from byte `start` on."""
    result = RecordBatch([], end=start)
    result.records = list(_iter_records(path, result))
    return result


def read_text_at(path: str, offset: int, length: int) -> str:
    """Return the words of the record that stands there, or nothing when it is gone."""
    try:
        with closing(open_reader(path)) as file:
            record = _decode_record(file.read(offset, length), offset)
    except (OSError, Unreadable):
        return ""
    return "\n".join(part for part in record[5:7] if part) if record else ""


class _Block(Struct, gc=False):
    type: str = ""
    text: str = ""
    thinking: str = ""
    name: str = ""
    input: dict[str, Any] | None = None
    content: "str | list[_Block] | None" = None


class _SearchMessage(Struct, gc=False):
    content: str | list[_Block] | None = None
    model: str | None = ""


class _SearchLine(Struct, gc=False):
    type: str = ""
    uuid: str | None = ""
    timestamp: str | None = ""
    cwd: str | None = ""
    message: _SearchMessage | None = None
    content: str | None = None
    summary: str | None = None


_decode = msgspec.json.Decoder(_SearchLine).decode


def _iter_records(path: str, result: RecordBatch) -> Iterator[IndexedRecord]:
    try:
        offset = result.end
        for line in raw_lines(path, offset):
            result.read += len(line)
            whole = line.endswith(b"\n")
            if not line.isspace():
                record = _decode_record(line, offset)
                if record is not None:
                    yield record
                elif whole:
                    yield from _salvage_records(line, offset, result)
            offset += len(line)
            if whole:
                result.end = offset
        with closing(open_reader(path)) as file:
            result.fingerprint = fingerprint_file(file, result.end)
    except OSError as error:
        result.error = error.strerror or os.strerror(error.errno or 0)


def _salvage_records(line: bytes, offset: int, result: RecordBatch) -> Iterator[IndexedRecord]:
    """Take the sound records out of a damaged line."""
    for span in iter_spans(line.rstrip(b"\n")):
        record = None if span.why else _decode_record(line[span.start : span.end], offset + span.start)
        if record is None:
            result.damaged += 1
        else:
            yield record


def _decode_record(line: bytes, offset: int) -> IndexedRecord | None:
    try:
        said = _decode(line)
    except UNREADABLE:
        patient = parse_object(line)
        return None if patient is None else _record_of_unknown_shape(patient, offset, len(line))
    words = _WordCollector()
    message = said.message
    if said.type not in _REPEATING:
        if message is not None:
            words.add_content(message.content)
        words.said += [text for text in (said.content, said.summary) if text]
    return IndexedRecord(
        offset,
        len(line),
        said.uuid or "",
        said.type,
        parse_timestamp_ms(said.timestamp or "") or 0,
        *words.join_columns(),
        (message.model or "") if message is not None else "",
        said.cwd or "",
    )


class _WordCollector:
    """The words of one record, by column."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.output: list[str] = []
        self.tools: list[str] = []
        self.files: list[str] = []

    def add_content(self, content: str | list[_Block] | None) -> None:
        if isinstance(content, str):
            self.said.append(content)
            return
        for block in content or ():
            if block.type == "tool_use":
                self._add_tool_use(block)
            elif block.type == "tool_result":
                self.output += _content_texts(block.content)
            else:
                self.said.append(block.text or block.thinking)

    def join_columns(self) -> tuple[str, str, str, str]:
        return _join_text(self.said), _join_text(self.output), _join_text(self.tools), _join_text(self.files)

    def _add_tool_use(self, block: _Block) -> None:
        given = block.input or {}
        self.tools.append(block.name)
        self.said += _iter_strings(given.values())
        self.files += [path for key in _PATHS if isinstance(path := given.get(key), str)]


def _content_texts(content: str | list[_Block] | None) -> list[str]:
    return [content] if isinstance(content, str) else [block.text for block in content or ()]


def _join_text(parts: list[str]) -> str:
    return "\n".join(parts)[:WORDS_MAX] if len(parts) != 1 else parts[0][:WORDS_MAX]


def _iter_strings(values: Iterable[Any]) -> Iterator[str]:
    """Yield every string, however deep it lies."""
    stack = [iter(values)]
    while stack:
        for value in stack[-1]:
            if isinstance(value, str):
                yield value
            elif isinstance(value, dict | list):
                stack.append(iter(value.values() if isinstance(value, dict) else value))
                break
        else:
            stack.pop()


def _record_of_unknown_shape(record: dict[str, Any], offset: int, length: int) -> IndexedRecord:
    """Take every string of a record of unknown shape."""
    message = record.get("message")
    model = message.get("model") if isinstance(message, dict) else ""
    said = "\n".join(_iter_strings([message, record.get("content"), record.get("summary")]))
    kind, uuid, stamp, cwd = (_text_or_empty(record.get(key)) for key in ("type", "uuid", "timestamp", "cwd"))
    return IndexedRecord(
        offset,
        length,
        uuid,
        kind,
        parse_timestamp_ms(stamp) or 0,
        said[:WORDS_MAX],
        "",
        "",
        "",
        _text_or_empty(model),
        cwd,
    )


def _text_or_empty(value: Any) -> str:
    return value if isinstance(value, str) else ""
