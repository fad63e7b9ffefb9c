"""Records of many transcripts, read ahead by a second process while the first one indexes them.

The two take about the same time, so together they take half. If the reader dies, whoever
waits for it reads the rest.
"""

import gc
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO

import msgspec

from flightlog.sources.claude_code.parallel import FORK_ABOVE_BYTES
from flightlog.store.index.files import PendingRead
from flightlog.store.index.lines import RecordBatch

_RECORDS_LENGTH_BYTES = 8

ReadRecords = Callable[[str, int], RecordBatch]
_encode_records = msgspec.msgpack.Encoder().encode
_decode_records = msgspec.msgpack.Decoder(RecordBatch).decode


def read_all(readings: Sequence[PendingRead], read_records: ReadRecords) -> Iterator[RecordBatch]:
    """Yield the records of each reading, in order."""
    size = sum(max(each.file.size - each.start, 0) for each in readings)
    done = 0
    if size >= FORK_ABOVE_BYTES and threading.active_count() == 1:
        for found in _read_ahead(readings, read_records):
            done += 1
            yield found
    for reading in readings[done:]:
        yield read_records(reading.file.path, reading.start)


def _read_ahead(readings: Sequence[PendingRead], read_records: ReadRecords) -> Iterator[RecordBatch]:
    inbox, outbox = os.pipe()
    child = os.fork()
    if not child:
        _send_all(readings, read_records, inbox, outbox)
    os.close(outbox)
    try:
        with os.fdopen(inbox, "rb") as file:
            for _ in readings:
                body = _read_message(file)
                if body is None:
                    return
                yield _decode_records(body)
    finally:
        os.waitpid(child, 0)


def _send_all(readings: Sequence[PendingRead], read_records: ReadRecords, inbox: int, outbox: int) -> None:
    status = 1
    try:
        gc.disable()
        os.close(inbox)
        with os.fdopen(outbox, "wb") as file:
            for reading in readings:
                body = _encode_records(read_records(reading.file.path, reading.start))
                file.write(len(body).to_bytes(_RECORDS_LENGTH_BYTES, "big") + body)
        status = 0
    finally:
        os._exit(status)


def _read_message(file: BinaryIO) -> bytes | None:
    length = int.from_bytes(file.read(_RECORDS_LENGTH_BYTES), "big")
    body = file.read(length)
    return body if length and len(body) == length else None
