"""Segments, generations, sealed zstd frames; bytes at stable addresses.

The format is zstd's own seekable one: frames of at most 1 MB, cut at line ends where lines allow,
then a table in a skippable frame; `zstd -d` reads it too. When the table is lost, the frames are
found again by walking them. Knows bytes and offsets, not sessions.

A recording `transcript.jsonl` is a chain of segments beside that name: `.from-N.zst` is sealed and
begins at offset N, the live tail is the bare name or `.from-N`. When a source was rewritten, a new
generation `transcript.g2.jsonl` stands beside the old. Knows nothing of what the lines say.
"""

import os
import re
import struct
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType, TracebackType
from typing import NamedTuple, Self

from msgspec.structs import replace as changed

from flightlog.model.errors import Damage, NotFound, Unavailable, Unreadable
from flightlog.store.files import (
    commit_temporary,
    open_temporary,
    os_errors_as_unavailable,
    quarantine_file,
    sync_dir,
    write_all,
)
from flightlog.store.jsonl import JsonlLine, scan_lines

FRAME_BYTES_MAX = 1 << 20
_LEVEL = 3  # on real transcripts: 15 x smaller at 220 MB/s; level 9 gives 17 x at 60.
_SKIPPABLE = 0x184D2A5E
_MAGIC = 0x8F92EAB1
_FOOTER = struct.Struct("<IBI")
_HEADER = struct.Struct("<II")
_ENTRY = struct.Struct("<II")
_TRIES = 5
_SECTOR_BYTES = 4096  # what a failing disk loses at once
DAMAGED_FRAME = "sealed data damaged or missing"


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


class RecordingSegment(NamedTuple):
    """One file of a recording and the offset at which it begins."""

    offset: int
    path: Path
    is_sealed: bool


def generation_path(path: Path, number: int) -> Path:
    """Name a generation of the recording `path`; the first has the plain name."""
    return path if number == 1 else path.with_name(f"{path.stem}.g{number}{path.suffix}")


def list_generations(path: Path) -> list[int]:
    """List the generations of `path` that exist, oldest first."""
    named = re.compile(rf"{re.escape(path.stem)}(?:\.g(\d+))?{re.escape(path.suffix)}(?:\.from-\d+(?:\.zst)?)?")
    found = (named.fullmatch(name) for name in _list_file_names(path.parent))
    return sorted({int(each[1] or 1) for each in found if each})


def list_segments(path: Path) -> list[RecordingSegment]:
    """List the files that hold the recording `path`, in order; sealed before live."""
    named = re.compile(rf"{re.escape(path.name)}(?:\.from-(\d+)(\.zst)?)?")
    found = (named.fullmatch(name) for name in _list_file_names(path.parent))
    listed = [RecordingSegment(int(each[1] or 0), path.with_name(each[0]), bool(each[2])) for each in found if each]
    return sorted(listed, key=lambda segment: (segment.offset, not segment.is_sealed))


def open_recording(path: Path) -> "Recording":
    """Open one generation of a recording for reading, even while it is being sealed."""
    for _ in range(_TRIES):
        with suppress(FileNotFoundError), os_errors_as_unavailable(path):
            return Recording(path)
    raise NotFound(f"no such recording: {path}", hint="flightlog session list")


class Recording:
    """A recording open for reading: bytes at an address, or lines from one on."""

    def __init__(self, path: Path) -> None:
        """Open every segment of `path`."""
        self.path = path
        self._parts: list[_OpenSegment] = []
        try:
            self._parts.extend(map(_OpenSegment, list_segments(path)))
        except OSError:
            self.close()
            raise
        if not self._parts:
            raise FileNotFoundError(path)

    @property
    def size(self) -> int:
        """How many bytes the source had, now that the live tail is as long as it is."""
        return max(part.end for part in self._parts)

    def read(self, offset: int, length: int) -> bytes:
        """Return the bytes at `[offset, offset + length)`, fewer only at the end."""
        pieces: list[bytes] = []
        while length > 0 and (piece := self._read_piece(offset, length)):
            pieces.append(piece)
            offset, length = offset + len(piece), length - len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def read_lines(self, start: int = 0) -> Iterator[JsonlLine | Damage]:
        """Read every sound record from the line at `start` on, and the damage between them."""
        holes: list[range] = []
        for item in scan_lines(str(self.path), lambda offset, length: self.read_around(offset, length, holes), start):
            if isinstance(item, Damage) and any(item.offset in hole for hole in holes):
                yield changed(item, why=DAMAGED_FRAME)
            else:
                yield item

    def close(self) -> None:
        """Let go of the files."""
        for part in self._parts:
            part.close()

    def __enter__(self) -> Self:
        """Use the recording in a `with` block."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Let go of the files at the end of the block."""
        self.close()

    def _read_piece(self, offset: int, length: int) -> bytes:
        """Return what one frame or file has at `offset`; nothing at the end."""
        for part in self._parts:
            if part.offset <= offset < part.end:
                with os_errors_as_unavailable(self.path):
                    return part.read(offset, length)
        if offset < self.size:
            raise Unreadable(f"a segment is missing: {self.path}", hint="flightlog doctor")
        return b""

    def read_around(self, offset: int, length: int, holes: list[range]) -> bytes:
        """Return what `read` does, with NUL bytes where data is damaged or missing; add those spans to `holes`."""
        pieces: list[bytes] = []
        while length > 0:
            try:
                piece = self._read_piece(offset, length)
            except (Unreadable, Unavailable):
                hole = range(offset, self._hole_end(offset))
                if hole not in holes:
                    holes.append(hole)
                piece = bytes(min(len(hole), length))
            if not piece:
                break
            pieces.append(piece)
            offset, length = offset + len(piece), length - len(piece)
        return b"".join(pieces)

    def _hole_end(self, offset: int) -> int:
        ends = [part.hole_end(offset) for part in self._parts if part.offset <= offset < part.end]
        return ends[0] if ends else min(part.offset for part in self._parts if part.offset > offset)


class _OpenSegment:
    """One segment, open."""

    def __init__(self, segment: RecordingSegment) -> None:
        self.offset = segment.offset
        self._sealed = SealedFile(segment.path) if segment.is_sealed else None
        self._file = -1 if segment.is_sealed else os.open(segment.path, os.O_RDONLY)

    @property
    def end(self) -> int:
        return self.offset + (self._sealed.size if self._sealed else os.fstat(self._file).st_size)

    def read(self, offset: int, length: int) -> bytes:
        at = offset - self.offset
        if self._sealed is None:
            return os.pread(self._file, length, at)
        frame = self._sealed.frame_at(at)
        return self._sealed.unpack_frame(frame)[at - frame.offset :][:length]

    def hole_end(self, offset: int) -> int:
        if self._sealed is None:
            return min(self.end, offset + _SECTOR_BYTES)
        frame = self._sealed.frame_at(offset - self.offset)
        return self.offset + frame.offset + frame.length

    def close(self) -> None:
        if self._sealed is None:
            os.close(self._file)
        else:
            self._sealed.close()


def seal_recording(path: Path) -> list[Path]:
    """Compress the live tail of the recording `path` and return the sealed segments made.

    The caller holds the session's lock. The original goes only after the sealed file is durable and
    was read back; a crash in between leaves both, and reading takes the sealed one.
    """
    finish_sealing(path)
    made = []
    for segment in list_segments(path):
        if not segment.is_sealed and _file_bytes(segment.path):
            target = path.with_name(f"{path.name}.from-{segment.offset}.zst")
            if target.exists():
                quarantine_file(target)  # It does not hold what the live file does, and the live file is older.
            _seal_segment(segment.path, target)
            made.append(target)
    finish_sealing(path)
    return made


def finish_sealing(path: Path) -> None:
    """Remove live files whose every byte is sealed: the last step of a seal that a crash cut short."""
    listed = list_segments(path)
    sealed = {segment.offset: segment.path for segment in listed if segment.is_sealed}
    with os_errors_as_unavailable(path):
        for segment in listed:
            if not segment.is_sealed and segment.offset in sealed and _is_same(sealed[segment.offset], segment.path):
                segment.path.unlink()
                sync_dir(path.parent)


def _seal_segment(live: Path, target: Path) -> None:
    with os_errors_as_unavailable(live):
        source = os.open(live, os.O_RDONLY)
    try:
        with open_temporary(target) as (temp, file), os_errors_as_unavailable(target):
            written: list[SealedFrame] = []
            offset = packed = 0
            for piece in split_into_frames(source, 0, os.fstat(source).st_size):
                frame = pack_frame(piece)
                write_all(file, frame)
                written.append(SealedFrame(offset, len(piece), packed, len(frame)))
                offset, packed = offset + len(piece), packed + len(frame)
            write_all(file, encode_frame_table(written))
            commit_temporary(temp, file, target)
    finally:
        os.close(source)


def _is_same(packed: Path, live: Path) -> bool:
    """Read a sealed file back and compare it with the original, byte by byte."""
    sealed = SealedFile(packed)
    try:
        with live.open("rb") as file:
            same = all(sealed.unpack_frame(frame) == file.read(frame.length) for frame in sealed.frames)
            return same and not file.read(1)
    except Unreadable:
        return False
    finally:
        sealed.close()


def _list_file_names(directory: Path) -> list[str]:
    with suppress(FileNotFoundError), os_errors_as_unavailable(directory):
        return [each.name for each in directory.iterdir()]
    return []


def _file_bytes(path: Path) -> int:
    with os_errors_as_unavailable(path):
        return path.stat().st_size
