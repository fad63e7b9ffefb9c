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

from flightlog.model.damage import UNREADABLE
from flightlog.model.errors import Unreadable
from flightlog.sources.claude_code.values import milliseconds, parsed
from flightlog.store.index.files import fingerprint
from flightlog.store.index.lines import Record, Records
from flightlog.store.reading import open_reader, raw_lines
from flightlog.store.salvage import spans

WORDS_MAX = 1 << 20
_REPEATING = frozenset({"api-request-blob", "last-prompt", "queue-operation"})  # what other records say already
_PATHS = ("file_path", "path", "notebook_path")


def read_records(path: str, start: int) -> Records:
    """Read the records of a file from byte `start` on."""
    result = Records([], end=start)
    result.records = list(_records(path, result))
    return result


def text_at(path: str, offset: int, length: int) -> str:
    """Return the words of the record that stands there, or nothing when it is gone."""
    try:
        with closing(open_reader(path)) as file:
            record = _record(file.read(offset, length), offset)
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


class _Message(Struct, gc=False):
    content: str | list[_Block] | None = None
    model: str | None = ""


class _Line(Struct, gc=False):
    type: str = ""
    uuid: str | None = ""
    timestamp: str | None = ""
    cwd: str | None = ""
    message: _Message | None = None
    content: str | None = None
    summary: str | None = None


_decode = msgspec.json.Decoder(_Line).decode


def _records(path: str, result: Records) -> Iterator[Record]:
    try:
        offset = result.end
        for line in raw_lines(path, offset):
            result.read += len(line)
            whole = line.endswith(b"\n")
            if not line.isspace():
                record = _record(line, offset)
                if record is not None:
                    yield record
                elif whole:
                    yield from _salvaged(line, offset, result)
            offset += len(line)
            if whole:
                result.end = offset
        with closing(open_reader(path)) as file:
            result.fingerprint = fingerprint(file, result.end)
    except OSError as error:
        result.error = error.strerror or os.strerror(error.errno or 0)


def _salvaged(line: bytes, offset: int, result: Records) -> Iterator[Record]:
    """Take the sound records out of a damaged line."""
    for span in spans(line.rstrip(b"\n")):
        record = None if span.why else _record(line[span.start : span.end], offset + span.start)
        if record is None:
            result.damaged += 1
        else:
            yield record


def _record(line: bytes, offset: int) -> Record | None:
    try:
        said = _decode(line)
    except UNREADABLE:
        patient = parsed(line)
        return None if patient is None else _patient(patient, offset, len(line))
    words = _Words()
    message = said.message
    if said.type not in _REPEATING:
        if message is not None:
            words.take(message.content)
        words.said += [text for text in (said.content, said.summary) if text]
    return Record(
        offset,
        len(line),
        said.uuid or "",
        said.type,
        milliseconds(said.timestamp or "") or 0,
        *words.columns(),
        (message.model or "") if message is not None else "",
        said.cwd or "",
    )


class _Words:
    """The words of one record, by column."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.output: list[str] = []
        self.tools: list[str] = []
        self.files: list[str] = []

    def take(self, content: str | list[_Block] | None) -> None:
        if isinstance(content, str):
            self.said.append(content)
            return
        for block in content or ():
            if block.type == "tool_use":
                self._tool(block)
            elif block.type == "tool_result":
                self.output += _texts(block.content)
            else:
                self.said.append(block.text or block.thinking)

    def columns(self) -> tuple[str, str, str, str]:
        return _text(self.said), _text(self.output), _text(self.tools), _text(self.files)

    def _tool(self, block: _Block) -> None:
        given = block.input or {}
        self.tools.append(block.name)
        self.said += _strings(given.values())
        self.files += [path for key in _PATHS if isinstance(path := given.get(key), str)]


def _texts(content: str | list[_Block] | None) -> list[str]:
    return [content] if isinstance(content, str) else [block.text for block in content or ()]


def _text(parts: list[str]) -> str:
    return "\n".join(parts)[:WORDS_MAX] if len(parts) != 1 else parts[0][:WORDS_MAX]


def _strings(values: Iterable[Any]) -> Iterator[str]:
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


def _patient(record: dict[str, Any], offset: int, length: int) -> Record:
    """Take every string of a record of unknown shape."""
    message = record.get("message")
    model = message.get("model") if isinstance(message, dict) else ""
    said = "\n".join(_strings([message, record.get("content"), record.get("summary")]))
    kind, uuid, stamp, cwd = (_str(record.get(key)) for key in ("type", "uuid", "timestamp", "cwd"))
    return Record(offset, length, uuid, kind, milliseconds(stamp) or 0, said[:WORDS_MAX], "", "", "", _str(model), cwd)


def _str(value: Any) -> str:
    return value if isinstance(value, str) else ""
