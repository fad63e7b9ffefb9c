"""Segments, generations, sealed zstd frames; bytes at stable addresses.

A recording `transcript.jsonl` is a chain of segments beside that name: `.from-N.zst` is sealed
and begins at offset N, the live tail is the bare name or `.from-N`. If a source was rewritten, a
new generation `transcript.g2.jsonl` begins beside the old one.

A sealed segment has zstd's seekable format: frames of at most 1 MB, split at line ends if
possible, then a table in a skippable frame; `zstd -d` reads it too. If the table is lost, the
frames are found by reading them in order.
"""

import os
import re
import struct
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import ModuleType, TracebackType
from typing import NamedTuple, Self

from msgspec.structs import replace

from flightlog.model.errors import Damage, NotFound, Unavailable, Unreadable
from flightlog.store import files
from flightlog.store.jsonl import JsonlLine, scan_lines

FRAME_BYTES_MAX = 1 << 20  # decompressed for one record; smaller frames compress worse
_LEVEL = 3  # on real transcripts: 15 x smaller at 220 MB/s; level 9 gives 17 x at 60 MB/s
_SKIPPABLE = 0x184D2A5E  # skippable frame of the seekable format
_MAGIC = 0x8F92EAB1  # seekable format
_FOOTER = struct.Struct("<IBI")  # number of frames, flags, magic
_HEADER = struct.Struct("<II")  # skippable magic, length
_ENTRY = struct.Struct("<II")  # packed length, length
_TRIES = 5  # a seal renames files while they are opened
_SECTOR_BYTES = 4096  # what a failing disk loses at once
DAMAGED_FRAME = "sealed data damaged or missing"


class SealedFrame(NamedTuple):
    """The position of a frame in the original and in the sealed file."""

    offset: int
    length: int
    packed_offset: int
    packed_length: int


def pack_frame(data: bytes) -> bytes:
    """Return `data` as one compressed frame."""
    zstd = import_zstd()
    parameter = zstd.CompressionParameter
    options = {parameter.compression_level: _LEVEL, parameter.checksum_flag: 1}
    packed: bytes = zstd.compress(data, options=options)
    return packed


def encode_frame_table(frames: list[SealedFrame]) -> bytes:
    """Return the table that follows the frames."""
    entries = b"".join(_ENTRY.pack(frame.packed_length, frame.length) for frame in frames)
    body = entries + _FOOTER.pack(len(frames), 0, _MAGIC)
    return _HEADER.pack(_SKIPPABLE, len(body)) + body


def split_into_frames(file: int, start: int, end: int) -> Iterator[bytes]:
    """Split the bytes of `file` for frames, at line ends unless a line is longer than a frame."""
    at = start
    while at < end and (data := os.pread(file, min(FRAME_BYTES_MAX, end - at), at)):
        line_end = data.rfind(b"\n") + 1
        if at + len(data) < end and line_end:
            data = data[:line_end]
        yield data
        at += len(data)


class SealedFile:
    """A sealed file, open for reading; it decompresses only the frames that are needed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDONLY)
        self._last: tuple[int, bytes] = (-1, b"")
        packed_size = os.fstat(self._file).st_size
        table = _read_table(self._file, packed_size)
        self.frames = table or list(_scan_frames(self._file, packed_size))
        self._offsets = [frame.offset for frame in self.frames]
        self.size = self.frames[-1].offset + self.frames[-1].length if self.frames else 0

    def frame_at(self, offset: int) -> SealedFrame:
        """Return the frame that holds `offset`."""
        assert 0 <= offset < self.size, "an offset inside the file"
        return self.frames[bisect_right(self._offsets, offset) - 1]

    def unpack_frame(self, frame: SealedFrame) -> bytes:
        """Return the bytes of one frame; raise `Unreadable` if it is damaged."""
        if self._last[0] == frame.offset:
            return self._last[1]
        packed = os.pread(self._file, frame.packed_length, frame.packed_offset)
        zstd = import_zstd()
        unpacker = zstd.ZstdDecompressor()
        try:
            is_sound = zstd.get_frame_info(packed).decompressed_size == frame.length
            data = unpacker.decompress(packed) if is_sound else b""
        except zstd.ZstdError:
            is_sound = False
        if not is_sound or not unpacker.eof:
            raise Unreadable(f"a sealed frame is damaged: {self.path}", hint="flightlog doctor")
        self._last = (frame.offset, data)
        return data

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def _read_table(file: int, size: int) -> list[SealedFrame]:
    """Return the frames of the table; none if it does not match the file."""
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
    is_small = all(frame.length <= FRAME_BYTES_MAX for frame in frames)
    return frames if is_small and packed == start - _HEADER.size else []


def _scan_frames(file: int, size: int) -> Iterator[SealedFrame]:
    """Yield the frames without the table, up to the first one that does not decompress."""
    offset = packed = 0
    zstd = import_zstd()
    while packed < size:
        head = os.pread(file, 2 * FRAME_BYTES_MAX, packed)
        unpacker = zstd.ZstdDecompressor()
        try:
            data = unpacker.decompress(head)
        except zstd.ZstdError:
            return
        length = len(head) - len(unpacker.unused_data)
        if not unpacker.eof or not data:
            return
        yield SealedFrame(offset, len(data), packed, length)
        offset, packed = offset + len(data), packed + length


def import_zstd() -> ModuleType:
    """Return the module that compresses, imported on first use."""
    from flightlog.store.compression import zstd  # noqa: PLC0415 - 6 ms, and few reports need it

    return zstd


class RecordingSegment(NamedTuple):
    """One file of a recording and the offset at which it begins."""

    offset: int
    path: Path
    is_sealed: bool


def generation_path(path: Path, number: int) -> Path:
    """Return the path of a generation of the recording `path`; the first has the plain name."""
    return path if number == 1 else path.with_name(f"{path.stem}.g{number}{path.suffix}")


def list_generations(path: Path) -> list[int]:
    """List the generations of `path` that exist, oldest first."""
    stem, suffix = re.escape(path.stem), re.escape(path.suffix)
    matches = _match_names(path.parent, rf"{stem}(?:\.g(\d+))?{suffix}(?:\.from-\d+(?:\.zst)?)?")
    return sorted({int(match[1] or 1) for match in matches})


def list_segments(path: Path) -> list[RecordingSegment]:
    """List the files that hold the recording `path`, in order; sealed before live."""
    matches = _match_names(path.parent, rf"{re.escape(path.name)}(?:\.from-(\d+)(\.zst)?)?")
    segments = [
        RecordingSegment(int(match[1] or 0), path.with_name(match[0]), bool(match[2]))
        for match in matches
    ]
    return sorted(segments, key=lambda segment: (segment.offset, not segment.is_sealed))


def _match_names(folder: Path, pattern: str) -> list[re.Match[str]]:
    with suppress(FileNotFoundError), files.os_errors_as_unavailable(folder):
        return [match for file in folder.iterdir() if (match := re.fullmatch(pattern, file.name))]
    return []


def open_recording(path: Path) -> "Recording":
    """Open one generation of a recording for reading, even while it is being sealed."""
    for _ in range(_TRIES):
        with suppress(FileNotFoundError), files.os_errors_as_unavailable(path):
            return Recording(path)
    raise NotFound(f"no such recording: {path}", hint="flightlog session list")


class Recording:
    """A recording open for reading: bytes at an offset, or lines from an offset on."""

    def __init__(self, path: Path) -> None:
        """Open every segment of `path`; raise `FileNotFoundError` if there is none."""
        self.path = path
        self._segments: list[_OpenSegment] = []
        try:
            self._segments.extend(map(_OpenSegment, list_segments(path)))
        except OSError:
            self.close()
            raise
        if not self._segments:
            raise FileNotFoundError(path)

    @property
    def size(self) -> int:
        """The size of the source; it grows with the live tail."""
        return max(segment.end for segment in self._segments)

    def read(self, offset: int, length: int) -> bytes:
        """Return the bytes at `[offset, offset + length)`, fewer only at the end."""
        parts: list[bytes] = []
        while length > 0 and (part := self._read_part(offset, length)):
            parts.append(part)
            offset, length = offset + len(part), length - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_lines(self, start: int = 0) -> Iterator[JsonlLine | Damage]:
        """Yield every sound record from the line at `start` on, and the damage between them."""
        holes: list[range] = []
        for item in scan_lines(str(self.path), partial(self.read_around, holes=holes), start):
            if isinstance(item, Damage) and any(item.offset in hole for hole in holes):
                yield replace(item, reason=DAMAGED_FRAME)
            else:
                yield item

    def close(self) -> None:
        """Close the files."""
        for segment in self._segments:
            segment.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def _read_part(self, offset: int, length: int) -> bytes:
        """Return what one frame or file has at `offset`; nothing at the end."""
        for segment in self._segments:
            if segment.offset <= offset < segment.end:
                with files.os_errors_as_unavailable(self.path):
                    return segment.read(offset, length)
        if offset < self.size:
            raise Unreadable(f"a segment is missing: {self.path}", hint="flightlog doctor")
        return b""

    def read_around(self, offset: int, length: int, holes: list[range]) -> bytes:
        """Return what `read` does, with NUL bytes for damaged spans, which are added to `holes`."""
        parts: list[bytes] = []
        while length > 0:
            try:
                part = self._read_part(offset, length)
            except (Unreadable, Unavailable):
                hole = range(offset, self._hole_end(offset))
                if hole not in holes:
                    holes.append(hole)
                part = bytes(min(len(hole), length))
            if not part:
                break
            parts.append(part)
            offset, length = offset + len(part), length - len(part)
        return b"".join(parts)

    def _hole_end(self, offset: int) -> int:
        for segment in self._segments:
            if segment.offset <= offset < segment.end:
                return segment.hole_end(offset)
        return min(segment.offset for segment in self._segments if segment.offset > offset)


class _OpenSegment:
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
    """Compress the live tail of the recording `path` and return the new sealed segments.

    The caller holds the session's lock. The original is removed only after the sealed file is
    durable and was read back; a crash in between leaves both, and readers use the sealed one.
    """
    finish_sealing(path)
    sealed = []
    for segment in list_segments(path):
        with files.os_errors_as_unavailable(segment.path):
            is_due = not segment.is_sealed and segment.path.stat().st_size > 0
        if is_due:
            target = path.with_name(f"{path.name}.from-{segment.offset}.zst")
            if target.exists():
                files.quarantine_file(target)  # it differs from the live file, which is older
            _seal_segment(segment.path, target)
            sealed.append(target)
    finish_sealing(path)
    return sealed


def finish_sealing(path: Path) -> None:
    """Remove live files that are sealed completely, also those that a crash left."""
    segments = list_segments(path)
    sealed = {segment.offset: segment.path for segment in segments if segment.is_sealed}
    with files.os_errors_as_unavailable(path):
        for segment in segments:
            has_seal = segment.offset in sealed and not segment.is_sealed
            if has_seal and _is_same(sealed[segment.offset], segment.path):
                segment.path.unlink()
                files.sync_dir(path.parent)


def _seal_segment(live: Path, target: Path) -> None:
    with files.os_errors_as_unavailable(live):
        source = os.open(live, os.O_RDONLY)
    try:
        with files.open_temporary(target) as (temp, file), files.os_errors_as_unavailable(target):
            frames: list[SealedFrame] = []
            offset = packed_offset = 0
            for data in split_into_frames(source, 0, os.fstat(source).st_size):
                packed = pack_frame(data)
                files.write_all(file, packed)
                frames.append(SealedFrame(offset, len(data), packed_offset, len(packed)))
                offset, packed_offset = offset + len(data), packed_offset + len(packed)
            files.write_all(file, encode_frame_table(frames))
            files.commit_temporary(temp, file, target)
    finally:
        os.close(source)


def _is_same(packed: Path, live: Path) -> bool:
    """Return whether a sealed file has the bytes of the original."""
    sealed = SealedFile(packed)
    try:
        with live.open("rb") as file:
            frames = sealed.frames
            same = all(sealed.unpack_frame(frame) == file.read(frame.length) for frame in frames)
            return same and not file.read(1)
    except Unreadable:
        return False
    finally:
        sealed.close()
