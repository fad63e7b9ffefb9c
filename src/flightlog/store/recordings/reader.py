"""Read a transcript from the agent's own file, from our copy, or sealed.

The same offsets give the same bytes in each. The path of a session that is no file of its own, such
as rows of a database, is that of the database and a name: `register_virtual_files` says how it is
read as lines.
"""

import errno
import io
import mmap
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

from flightlog.model.errors import Damage, Unavailable
from flightlog.store.jsonl import JsonlLine, read_lines, scan_lines
from flightlog.store.recordings.recording import Recording

_BLOCK_BYTES = 4 << 20  # per read: larger ones are not faster
_TAIL_BYTES = 2 << 20  # enough to know the state of a running session


class Reader(Protocol):
    """Reads bytes at an offset."""

    def fill(self, view: memoryview, offset: int) -> int:
        """Read into `view`; return the number of bytes, 0 at the end."""

    def read(self, offset: int, length: int) -> bytes:
        """Return the bytes at `offset`, fewer than `length` only at the end."""

    def close(self) -> None:
        """Close the file."""

    @property
    def damaged_spans(self) -> int:
        """Return how many damaged spans were read as NUL bytes."""


ReadVirtual = Callable[[str], bytes]
_virtual_readers: list[tuple[re.Pattern[str], ReadVirtual]] = []


def register_virtual_files(paths: re.Pattern[str], read: ReadVirtual) -> None:
    """Read each path that matches `paths` by `read`, which returns its lines or raises `OSError`."""
    _virtual_readers.append((paths, read))


def is_virtual(path: str) -> bool:
    """Return whether `path` is read by a registered function."""
    return any(paths.fullmatch(path) for paths, _ in _virtual_readers)


def _read_virtual(path: str) -> bytes | None:
    """Return the content of a path that is no file of its own; None if nothing reads it."""
    for paths, read in _virtual_readers:
        if paths.fullmatch(path):
            return read(path)
    return None


def open_reader(path: str) -> Reader:
    """Open `path`, or the sealed recording of that name if there is no such file."""
    try:
        return _PlainReader(_open_unblocked(path))
    except FileNotFoundError:
        return _SealedReader(_open_recording(path))
    except NotADirectoryError:
        content = _read_virtual(path)
        if content is None:
            raise
        return MemoryReader(content)


def _open_unblocked(path: str, flags: int = os.O_RDONLY) -> int:
    """Open a file; a named pipe does not wait for a writer, and fails when it is read."""
    return os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK)


def content_size(path: str, listed: int) -> int:
    """Return how many bytes can be read: `listed` ones, but that is a guess for a virtual file."""
    content = _read_virtual(path) if is_virtual(path) else None
    return listed if content is None else len(content)


def map_file(path: str) -> mmap.mmap | None:
    """Map a plain file into memory; return None if that fails.

    Faster than reading, but a file that shrinks meanwhile kills the process: call it only in a
    worker process.
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
    """A part of a file: `view[:end]` are whole lines, or what follows the last newline."""

    view: memoryview
    end: int
    is_complete: bool


def read_blocks(file: Reader, start: int, buffer: bytearray) -> Iterator[ByteBlock]:
    """Yield a file from `start` on in blocks of whole lines; each overwrites the one before."""
    rest = 0  # bytes of the last, incomplete line
    while count := file.fill(memoryview(buffer)[rest:], start + rest):
        filled = rest + count
        end = buffer.rfind(b"\n", rest, filled) + 1
        if end:
            yield ByteBlock(memoryview(buffer), end, is_complete=True)
            start += end
            buffer[: filled - end] = buffer[end:filled]
        rest = filled - end
        if rest == len(buffer):
            buffer = buffer + bytes(len(buffer))
    if rest:
        yield ByteBlock(memoryview(buffer), rest, is_complete=False)


def raw_lines(path: str, start: int) -> Iterator[bytes]:
    """Yield lines from `start` on, each with its newline; the last may have none.

    A file that cannot be read has no lines: `sound_lines` reports it as damage.
    """
    try:
        with open(path, "rb", _BLOCK_BYTES, opener=_open_unblocked) as file:
            file.seek(start)
            yield from file
    except FileNotFoundError:
        with suppress(OSError):
            yield from _iter_recording_lines(path, start)
    except NotADirectoryError:
        with suppress(OSError):
            yield from io.BytesIO((_read_virtual(path) or b"")[start:])
    except OSError:
        return


def _iter_recording_lines(path: str, start: int) -> Iterator[bytes]:
    with _open_recording(path) as recording:
        rest = b""
        while block := recording.read_around(start, _BLOCK_BYTES, []):
            start += len(block)
            *lines, rest = (rest + block).split(b"\n")
            yield from (line + b"\n" for line in lines)
        if rest:
            yield rest


def read_new_lines(path: str, start: int) -> tuple[list[bytes], int]:
    """Return the whole lines from `start` on and where they end; a first read takes the last 2 MB.

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
    except NotADirectoryError:
        content = _read_virtual(path) or b""
        start = start if start <= len(content) else 0
        skipped, data = start, content[start:]
    except OSError:
        return [], 0
    begin = data.find(b"\n") + 1 if skipped and not start else 0
    end = data.rfind(b"\n") + 1
    return [line for line in data[begin:end].split(b"\n") if line], skipped + end if end else start


def sound_lines(path: str, start: int = 0) -> Iterator[JsonlLine | Damage]:
    """Yield every sound record from the line at `start` on, and the damage between them."""
    if is_virtual(path):
        yield from scan_lines(path, open_reader(path).read, start)
        return
    try:
        yield from read_lines(Path(path), start)
    except FileNotFoundError:
        with _open_recording(path) as recording:
            yield from recording.read_lines(start)


def iter_lines_and_damage(path: str, start: int) -> Iterator[JsonlLine | Damage]:
    """Yield what `sound_lines` yields; a file that cannot be read is damage too."""
    try:
        yield from sound_lines(path, start)
    except OSError as error:
        yield Damage(path, start, 0, error.strerror or type(error).__name__)
    except Unavailable as error:
        yield Damage(path, start, 0, error.message.removesuffix(f": {path}"))


class _PlainReader:
    damaged_spans = 0

    def __init__(self, file: int) -> None:
        self._file = file

    def fill(self, view: memoryview, offset: int) -> int:
        return os.preadv(self._file, [view], offset)

    def read(self, offset: int, length: int) -> bytes:
        return os.pread(self._file, length, offset)

    def close(self) -> None:
        os.close(self._file)


class MemoryReader:
    """A `Reader` of bytes in memory."""

    damaged_spans = 0

    def __init__(self, content: bytes) -> None:
        self._content = content

    def fill(self, view: memoryview, offset: int) -> int:
        """Read into `view`; return the number of bytes, 0 at the end."""
        data = self.read(offset, len(view))
        view[: len(data)] = data
        return len(data)

    def read(self, offset: int, length: int) -> bytes:
        """Return the bytes at `offset`, fewer than `length` only at the end."""
        return self._content[offset : offset + length]

    def close(self) -> None:
        """Close nothing."""


class _SealedReader:
    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._holes: list[range] = []

    @property
    def damaged_spans(self) -> int:
        return len(self._holes)

    def fill(self, view: memoryview, offset: int) -> int:
        data = self.read(offset, len(view))
        view[: len(data)] = data
        return len(data)

    def read(self, offset: int, length: int) -> bytes:
        return self._recording.read_around(offset, length, self._holes)

    def close(self) -> None:
        self._recording.close()


def _open_recording(path: str) -> Recording:
    try:
        return Recording(Path(path))
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None
    except Unavailable as error:
        # Readers of a transcript expect an OSError, and report it as damage of this one file.
        raise OSError(errno.EIO, error.message, path) from error
