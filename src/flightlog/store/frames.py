"""Sealed files: zstd in independent frames, so that an offset into the original stays an address.

The format is zstd's own seekable one: frames of at most 1 MB, cut at line ends where lines allow,
then a table in a skippable frame; `zstd -d` reads it too. When the table is lost, the frames are
found again by walking them. Knows bytes and offsets, not sessions.
"""

import os
import struct
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from flightlog.model.errors import Unreadable

FRAME_BYTES_MAX = 1 << 20
_LEVEL = 3  # on real transcripts: 15 x smaller at 220 MB/s; level 9 gives 17 x at 60.
_SKIPPABLE = 0x184D2A5E
_MAGIC = 0x8F92EAB1
_FOOTER = struct.Struct("<IBI")
_HEADER = struct.Struct("<II")
_ENTRY = struct.Struct("<II")


class SealedFrame(NamedTuple):
    """Where a frame stands: in the original, and in the sealed file."""

    offset: int
    length: int
    packed_offset: int
    packed_length: int


def pack_frame(data: bytes) -> bytes:
    """Make one frame."""
    packed: bytes = _import_zstandard().ZstdCompressor(level=_LEVEL, write_checksum=True).compress(data)
    return packed


def encode_frame_table(frames: list[SealedFrame]) -> bytes:
    """Make the table that stands behind the frames."""
    entries = b"".join(_ENTRY.pack(frame.packed_length, frame.length) for frame in frames)
    body = entries + _FOOTER.pack(len(frames), 0, _MAGIC)
    return _HEADER.pack(_SKIPPABLE, len(body)) + body


def split_into_frames(file: int, start: int, end: int) -> Iterator[bytes]:
    """Cut the bytes of `file` into pieces for frames, at line ends unless a line is longer than a frame."""
    at = start
    while at < end and (piece := os.pread(file, min(FRAME_BYTES_MAX, end - at), at)):
        line_end = piece.rfind(b"\n") + 1
        if at + len(piece) < end and line_end:
            piece = piece[:line_end]
        yield piece
        at += len(piece)


class SealedFile:
    """A sealed file, open for reading; it decompresses only the frames it is asked for."""

    def __init__(self, path: Path) -> None:
        """Open `path` and read its table."""
        self.path = path
        self._file = os.open(path, os.O_RDONLY)
        self._last: tuple[int, bytes] = (-1, b"")
        packed_size = os.fstat(self._file).st_size
        self.frames = _read_table(self._file, packed_size) or list(_scan_frames(self._file, packed_size))
        self._offsets = [frame.offset for frame in self.frames]
        self.size = self.frames[-1].offset + self.frames[-1].length if self.frames else 0

    def frame_at(self, offset: int) -> SealedFrame:
        """Name the frame that holds `offset`."""
        assert 0 <= offset < self.size, "an offset inside the file"
        return self.frames[bisect_right(self._offsets, offset) - 1]

    def unpack_frame(self, frame: SealedFrame) -> bytes:
        """Return the bytes of one frame, checked."""
        if self._last[0] == frame.offset:
            return self._last[1]
        packed = os.pread(self._file, frame.packed_length, frame.packed_offset)
        try:
            sound = _import_zstandard().frame_content_size(packed) == frame.length
            data = _import_zstandard().decompress(packed) if sound else b""
        except _import_zstandard().ZstdError:
            sound = False
        if not sound:
            raise Unreadable(f"a sealed frame is damaged: {self.path}", hint="flightlog doctor")
        self._last = (frame.offset, data)
        return data

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)


def _read_table(file: int, size: int) -> list[SealedFrame]:
    """Read the table, or nothing where it does not fit the file."""
    footer = os.pread(file, _FOOTER.size, max(0, size - _FOOTER.size))
    if len(footer) < _FOOTER.size:
        return []
    count, flags, magic = _FOOTER.unpack(footer)
    start = size - _FOOTER.size - count * _ENTRY.size
    if magic != _MAGIC or flags or start < _HEADER.size:
        return []
    frames: list[SealedFrame] = []
    offset = packed = 0
    for packed_length, length in _ENTRY.iter_unpack(os.pread(file, count * _ENTRY.size, start)):
        frames.append(SealedFrame(offset, length, packed, packed_length))
        offset, packed = offset + length, packed + packed_length
    fits = packed == start - _HEADER.size and all(frame.length <= FRAME_BYTES_MAX for frame in frames)
    return frames if fits else []


def _scan_frames(file: int, size: int) -> Iterator[SealedFrame]:
    """Find the frames without their table, up to the first one that does not decompress."""
    offset = packed = 0
    while packed < size:
        head = os.pread(file, 2 * FRAME_BYTES_MAX, packed)
        unpacker = _import_zstandard().ZstdDecompressor().decompressobj()
        try:
            data = unpacker.decompress(head)
        except _import_zstandard().ZstdError:
            return
        length = len(head) - len(unpacker.unused_data)
        if not unpacker.eof or not data:
            return
        yield SealedFrame(offset, len(data), packed, length)
        offset, packed = offset + len(data), packed + length


def _import_zstandard() -> ModuleType:
    import zstandard  # noqa: PLC0415 - slow to load, and most reports meet nothing sealed

    return zstandard
