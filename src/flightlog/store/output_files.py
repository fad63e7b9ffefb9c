"""Write the output files that changed; JSON documents that grow in place.

The document is whole after every write. Blanks at its end make room for what comes, so that its
size changes rarely: a reader that asks for the size and then reads finds one state, not two. A
crash inside a write can leave a torn page, which is made again from the journal it is a view of.

Writes what changed, whole, and removes nothing. Knows tiers only so far that a tracked page
must hold text that passed the redactor.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from flightlog.model.output_files import Clean, OutputFile, Tier
from flightlog.store.files import (
    commit_temporary,
    open_temporary,
    os_errors_as_unavailable,
    replace_file,
    resolve_inside,
    write_all,
)

_END = b"\n  ]\n}\n"
_ROOM = 4096


class AppendableJsonFile:
    """A document `{HEAD, "NAME": [entries]}` on disk; an entry may change until it is settled."""

    def __init__(self, path: Path, head: bytes, name: str, settled: Sequence[bytes], pending: Sequence[bytes]) -> None:
        """Write the document anew and whole; `head` is the text of an object with what stands before the list."""
        self.path = path
        self._count = 0
        begin = head.rstrip(b"}\n ") + b',\n  "' + name.encode() + b'": ['
        body, kept = self._format_entries(settled, pending)
        with open_temporary(path) as (temp, file), os_errors_as_unavailable(path):
            write_all(file, begin + body + _END)
            commit_temporary(temp, file, path, durable=False)
        with os_errors_as_unavailable(path):
            self._file = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        self._at = len(begin) + kept
        self._size = self._end = len(begin) + len(body) + len(_END)
        self._count = len(settled)

    def add_entries(self, settled: Sequence[bytes], pending: Sequence[bytes] = ()) -> None:
        """Put entries that will not change any more after those before, then the ones that may."""
        body, kept = self._format_entries(settled, pending)
        data = self._pad_with_blanks(body + _END)
        with os_errors_as_unavailable(self.path):
            written = os.pwrite(self._file, data, self._at)
            while written < len(data):
                written += os.pwrite(self._file, data[written:], self._at + written)
        self._size = self._at + len(data)
        self._at += kept
        self._count += len(settled)

    def close(self) -> None:
        """Take the blanks away and let go of the file."""
        with os_errors_as_unavailable(self.path):
            os.ftruncate(self._file, self._end)
        os.close(self._file)

    def _pad_with_blanks(self, data: bytes) -> bytes:
        """Fill up with blanks to the size there is, or to a larger one with room for more."""
        self._end = end = self._at + len(data)
        size = self._size if end <= self._size else end + _ROOM + end // 8
        return data + b" " * (size - end)

    def _format_entries(self, settled: Sequence[bytes], pending: Sequence[bytes]) -> tuple[bytes, int]:
        texts = [
            (b",\n    " if self._count + number else b"\n    ") + each
            for number, each in enumerate([*settled, *pending])
        ]
        return b"".join(texts), sum(map(len, texts[: len(settled)]))


def write_output_files(root: Path, pages: Iterable[OutputFile], *, durable: bool = True) -> list[Path]:
    """Write the pages that differ from what is there and return their paths."""
    return [path for page in pages if (path := _write_output_file(root, page, durable=durable))]


def _write_output_file(root: Path, page: OutputFile, *, durable: bool) -> Path | None:
    if page.tier is Tier.TRACKED and not isinstance(page.body, Clean):
        raise TypeError(f"a tracked page holds clean text only: {page.path}")
    text = page.body.text if isinstance(page.body, Clean) else page.body
    body = text.encode("utf-8", "replace")
    path = resolve_inside(root, page.path)
    with os_errors_as_unavailable(path):
        if path.is_file() and not path.is_symlink() and path.read_bytes() == body:
            return None
    replace_file(path, body, durable=durable)
    return path
