"""Recordings: what an agent wrote, verbatim, read at the same addresses whether sealed or not.

A recording `transcript.jsonl` is a chain of segments beside that name: `.from-N.zst` is sealed and
begins at offset N, the live tail is the bare name or `.from-N`. When a source was rewritten, a new
generation `transcript.g2.jsonl` stands beside the old. Knows nothing of what the lines say.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from msgspec.structs import replace as changed

from flightlog.model.damage import Damage
from flightlog.model.errors import NotFound, Unavailable, Unreadable
from flightlog.store import frames
from flightlog.store.files import (
    commit_temporary,
    open_temporary,
    os_errors_as_unavailable,
    quarantine_file,
    sync_dir,
    write_all,
)
from flightlog.store.frames import SealedFile
from flightlog.store.lines import JsonlLine, scan_lines

_TRIES = 5
_SECTOR_BYTES = 4096  # what a failing disk loses at once
DAMAGED_FRAME = "sealed data damaged or missing"


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
            written: list[frames.SealedFrame] = []
            offset = packed = 0
            for piece in frames.split_into_frames(source, 0, os.fstat(source).st_size):
                frame = frames.pack_frame(piece)
                write_all(file, frame)
                written.append(frames.SealedFrame(offset, len(piece), packed, len(frame)))
                offset, packed = offset + len(piece), packed + len(frame)
            write_all(file, frames.encode_frame_table(written))
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
