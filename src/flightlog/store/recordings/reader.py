"""Reading the bytes of a recorded file wherever they lie: in the agent's own file, in our copy, or sealed.

The same offsets give the same bytes in each. A plain file is read without a detour.
"""

import errno
import mmap
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol

from flightlog.model.errors import Unavailable

if TYPE_CHECKING:
    from flightlog.model.errors import Damage
    from flightlog.store.jsonl import JsonlLine
    from flightlog.store.recordings.recording import Recording


_BLOCK_BYTES = 4 << 20
_TAIL_BYTES = 2 << 20  # enough to know how a running session stands


class Reader(Protocol):
    """Bytes at an offset."""

    def fill(self, view: memoryview, offset: int) -> int:
        """Read into `view`; return how many bytes there were, 0 at the end."""

    def read(self, offset: int, length: int) -> bytes:
        """Return the bytes there, fewer only at the end."""

    def close(self) -> None:
        """Let go of the file."""

    @property
    def damaged(self) -> int:
        """Return how many damaged spans were read as NUL bytes."""


def open_reader(path: str) -> Reader:
    """Open `path`; where there is no such file, the sealed recording of that name."""
    try:
        return _PlainReader(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    except FileNotFoundError:
        return _SealedReader(_open_recording(path))


def map_file(path: str) -> mmap.mmap | None:
    """Map a plain file into memory; None where that cannot be done.

    Quicker than reading, but a file that shrinks meanwhile ends the process: only for a
    process that may end.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return mmap.mmap(file, 0, prot=mmap.PROT_READ)
    except (OSError, ValueError):
        return None
    finally:
        os.close(file)


class ByteBlock(NamedTuple):
    """A piece of a file: `view[:end]` are whole lines, or what follows the last newline."""

    view: memoryview
    end: int
    whole: bool


def read_blocks(file: Reader, start: int, buffer: bytearray) -> Iterator[ByteBlock]:
    """Read a file from `start` on through one buffer, cut at line ends; each block is gone with the next."""
    kept = 0
    while got := file.fill(memoryview(buffer)[kept:], start + kept):
        filled = kept + got
        end = buffer.rfind(b"\n", kept, filled) + 1
        if end:
            yield ByteBlock(memoryview(buffer), end, whole=True)
            start += end
            buffer[: filled - end] = buffer[end:filled]
        kept = filled - end
        if kept == len(buffer):
            buffer = buffer + bytes(len(buffer))
    if kept:
        yield ByteBlock(memoryview(buffer), kept, whole=False)


def raw_lines(path: str, start: int) -> Iterator[bytes]:
    """Yield lines from `start` on, each with its newline; the last may have none.

    A file that cannot be read has no lines: `sound_lines` reports it as damage, and other files are read on.
    """
    try:
        with open(path, "rb", buffering=_BLOCK_BYTES) as file:  # noqa: PTH123 - hot
            file.seek(start)
            yield from file
    except FileNotFoundError:
        with suppress(OSError):
            yield from _iter_recording_lines(path, start)
    except OSError:
        return


def _iter_recording_lines(path: str, start: int) -> Iterator[bytes]:
    with _open_recording(path) as recording:
        kept = b""
        while block := recording.read_around(start, _BLOCK_BYTES, []):
            start += len(block)
            *whole, kept = (kept + block).split(b"\n")
            yield from (line + b"\n" for line in whole)
        if kept:
            yield kept


def read_new_lines(path: str, start: int) -> tuple[list[bytes], int]:
    """Return the whole lines from `start` on and where they end; a first read takes the last 2 MB at most.

    A file that shrank is read from its beginning. One that cannot be read has no lines.
    """
    try:
        size = os.stat(path).st_size  # noqa: PTH116 - hot: 200 sessions, three files each
        if size == start:
            return [], start
        if size < start:
            start = 0
        skipped = start or max(size - _TAIL_BYTES, 0)
        with open(path, "rb") as file:  # noqa: PTH123 - hot
            file.seek(skipped)
            data = file.read(size - skipped)
    except OSError:
        return [], 0
    begin = data.find(b"\n") + 1 if skipped and not start else 0
    end = data.rfind(b"\n") + 1
    return [line for line in data[begin:end].split(b"\n") if line], skipped + end if end else start


def sound_lines(path: str, start: int = 0) -> Iterator["JsonlLine | Damage"]:
    """Read every sound record from the line at `start` on, and the damage between them."""
    from pathlib import Path  # noqa: PLC0415 - a usage report never comes here

    from flightlog.store.jsonl import read_lines  # noqa: PLC0415

    try:
        yield from read_lines(Path(path), start)
    except FileNotFoundError:
        with _open_recording(path) as recording:
            yield from recording.read_lines(start)


class _PlainReader:
    damaged = 0

    def __init__(self, file: int) -> None:
        self._file = file

    def fill(self, view: memoryview, offset: int) -> int:
        return os.preadv(self._file, [view], offset)

    def read(self, offset: int, length: int) -> bytes:
        return os.pread(self._file, length, offset)

    def close(self) -> None:
        os.close(self._file)


class _SealedReader:
    def __init__(self, recording: "Recording") -> None:
        self._recording = recording
        self._holes: list[range] = []

    @property
    def damaged(self) -> int:
        return len(self._holes)

    def fill(self, view: memoryview, offset: int) -> int:
        data = self.read(offset, len(view))
        view[: len(data)] = data
        return len(data)

    def read(self, offset: int, length: int) -> bytes:
        return self._recording.read_around(offset, length, self._holes)

    def close(self) -> None:
        self._recording.close()


def _open_recording(path: str) -> "Recording":
    from pathlib import Path  # noqa: PLC0415 - most files are plain

    from flightlog.store.recordings.recording import Recording  # noqa: PLC0415 - zstandard loads slowly

    try:
        return Recording(Path(path))
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None
    except Unavailable as error:
        # Every reader of a transcript expects an error of the system, and takes it for damage of this one file.
        raise OSError(errno.EIO, error.message, path) from error
