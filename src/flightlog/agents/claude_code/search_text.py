"""Read every record of a transcript with its offset and its text, for the search index.

A typed decode takes the text and skips the rest; tool output that a line contains twice is taken
once. A line that the typed decode rejects is parsed again, field by field.
"""

import os
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import msgspec
from msgspec import Struct

from flightlog.agents.claude_code.messages import is_task_start
from flightlog.agents.line_source import WORDS_MAX, WordColumns
from flightlog.model.errors import UNREADABLE, Unavailable, Unreadable
from flightlog.model.session import SessionFile
from flightlog.sources.foreign_json import (
    iter_strings,
    object_field,
    parse_object,
    parse_timestamp_ms,
    text_field,
)
from flightlog.store.index.files import fingerprint_file
from flightlog.store.index.records import IndexedRecord, RecordBatch
from flightlog.store.recordings.reader import open_reader, raw_lines
from flightlog.store.salvage import iter_spans

# Of one batch. A session of 228 MB in one batch took 330 MB of memory, and the C library gave
# half of it back; in parts it takes 70 MB.
BATCH_BYTES = 8 << 20
# The end of a transcript in which the last time is looked for; a single record may be long.
_TAIL_BYTES = (1 << 16, 1 << 22)
_REPEATING = frozenset({"api-request-blob", "last-prompt"})  # repeat other records
_QUEUED, _TAKEN_BACK = "queue-operation enqueue", "queue-operation popAll"


def read_records(file: SessionFile, start: int = 0) -> RecordBatch:
    """Read the records of a file from byte `start` on, at most about `BATCH_BYTES`."""
    result = RecordBatch([], end=start)
    result.records = _clear_repeated(list(_iter_records(file.path, result)))
    return result


def _clear_repeated(records: list[IndexedRecord]) -> list[IndexedRecord]:
    """Remove the words of queued prompts that a later record repeats, or that were taken back.

    Clients 2.0.30 to 2.1.81 record a prompt only there if they send it during a turn.
    """
    waiting: dict[int, str] = {}
    for position, record in enumerate(records):
        if record.kind == _QUEUED:
            waiting[position] = record.text.strip()
        elif waiting and record.kind in {"user", "attachment", _TAKEN_BACK}:
            for queued, words in list(waiting.items()):
                if record.kind == _TAKEN_BACK or words in record.text:
                    records[queued] = records[queued]._replace(text="")
                    del waiting[queued]
    return records


def read_last_ms(file: SessionFile) -> int:
    """Return the time of the last record that has one; 0 if none near the end has."""
    with suppress(OSError, Unreadable, Unavailable), closing(open_reader(file.path)) as reader:
        for width in _TAIL_BYTES:
            start = max(0, file.size - width)
            for line in reversed(reader.read(start, file.size - start).split(b"\n")):
                record = parse_object(line) if b'"timestamp"' in line else None
                at_ms = parse_timestamp_ms(text_field(record or {}, "timestamp"))
                if at_ms:
                    return at_ms
            if not start:
                break
    return 0


def read_text_at(path: str, offset: int, length: int) -> str:
    """Return the text of the record at `offset`, or "" if it is gone."""
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


class _SearchAttachment(Struct, gc=False):
    type: str = ""
    prompt: str | list[_Block] | None = None


class _SearchLine(Struct, gc=False):
    type: str = ""
    uuid: str | None = ""
    timestamp: str | None = ""
    cwd: str | None = ""
    message: _SearchMessage | None = None
    attachment: _SearchAttachment | None = None
    content: str | None = None
    summary: str | None = None
    operation: str | None = ""


_decode = msgspec.json.Decoder(_SearchLine).decode


def _iter_records(path: str, result: RecordBatch) -> Iterator[IndexedRecord]:
    try:
        offset = result.end
        for line in raw_lines(path, offset):
            result.bytes_read += len(line)
            whole = line.endswith(b"\n")
            record = None if line.isspace() else _decode_record(line, offset)
            if record is not None:
                yield record
            elif whole and not line.isspace():
                yield from _salvage_records(line, offset, result)
            offset += len(line)
            if whole or record is not None:  # a record without its newline is not read again
                result.end = offset
                if result.bytes_read >= BATCH_BYTES:
                    result.is_last = False
                    break
        with closing(open_reader(path)) as file:
            result.fingerprint = fingerprint_file(file, result.end)
    except OSError as error:
        result.error = error.strerror or os.strerror(error.errno or 0)


def _salvage_records(line: bytes, offset: int, result: RecordBatch) -> Iterator[IndexedRecord]:
    """Yield the undamaged records in a damaged line."""
    for span in iter_spans(line.rstrip(b"\n")):
        part = line[span.start : span.end]
        record = None if span.reason else _decode_record(part, offset + span.start)
        if record is None:
            result.damaged_lines += 1
        else:
            yield record


def _decode_record(line: bytes, offset: int) -> IndexedRecord | None:
    try:
        record = _decode(line)
    except UNREADABLE:
        fields = parse_object(line)
        return None if fields is None else _record_of_unknown_shape(fields, offset, len(line))
    words = WordColumns()
    message = record.message
    attachment = record.attachment
    if attachment is not None and attachment.type == "queued_command":
        _add_content(words, attachment.prompt)
    kind = f"{record.type} {record.operation}" if record.operation else record.type
    if record.type not in _REPEATING and (kind == _QUEUED or not record.operation):
        if message is not None:
            _add_content(words, message.content)
        texts = (record.content, record.summary)
        words.text += [text for text in texts if text and not is_task_start(text)]
    return IndexedRecord(
        offset,
        len(line),
        record.uuid or "",
        kind,
        parse_timestamp_ms(record.timestamp or "") or 0,
        *words.join(),
        (message.model or "") if message is not None else "",
        record.cwd or "",
    )


def _add_content(words: WordColumns, content: str | list[_Block] | None) -> None:
    if isinstance(content, str):
        words.text.append(content)
        return
    for block in content or ():
        if block.type == "tool_use":
            words.add_call(block.name, block.input or {})
        elif block.type == "tool_result":
            output = block.content
            parts = [output] if isinstance(output, str) else [part.text for part in output or ()]
            words.output += parts
        else:
            words.text.append(block.text or block.thinking)


def _record_of_unknown_shape(record: dict[str, Any], offset: int, length: int) -> IndexedRecord:
    texts = [record.get(name) for name in ("message", "content", "summary")]
    text = "\n".join(iter_strings(texts))
    model = text_field(object_field(record, "message"), "model")
    names = ("type", "uuid", "timestamp", "cwd")
    kind, uuid, timestamp, cwd = (text_field(record, name) for name in names)
    at_ms = parse_timestamp_ms(timestamp) or 0
    words = (text[:WORDS_MAX], "", "", "")
    return IndexedRecord(offset, length, uuid, kind, at_ms, *words, model, cwd)
