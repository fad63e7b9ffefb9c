"""Write the output files that changed; JSON documents that grow in place.

A growing document is complete after every write. Spaces at its end reserve room, so that its
size changes rarely: a reader that asks for the size and then reads sees one state, not two. A
crash inside a write can leave a torn file, which is written again from the journal.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from flightlog.model.output_files import Clean, OutputFile, Tier
from flightlog.store import files

_END = b"\n  ]\n}\n"
_ROOM_BYTES = 4096  # spaces for a few more entries; an eighth of the document comes on top


class AppendableJsonFile:
    """A document `{HEAD, "NAME": [entries]}` on disk; an entry may change until it is settled."""

    def __init__(
        self, path: Path, head: bytes, name: str, settled: Sequence[bytes], pending: Sequence[bytes]
    ) -> None:
        """Write the document; `head` is a JSON object with the members before the list."""
        self.path = path
        self._count = 0
        begin = head.rstrip(b"}\n ") + b',\n  "' + name.encode() + b'": ['
        body, settled_bytes = self._format_entries(settled, pending)
        with files.open_temporary(path) as (temp, file), files.os_errors_as_unavailable(path):
            files.write_all(file, begin + body + _END)
            files.commit_temporary(temp, file, path, durable=False)
        with files.os_errors_as_unavailable(path):
            self._file = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        self._at = len(begin) + settled_bytes
        self._size = self._end = len(begin) + len(body) + len(_END)
        self._count = len(settled)

    def add_entries(self, settled: Sequence[bytes], pending: Sequence[bytes] = ()) -> None:
        """Replace the pending entries: append settled ones, then those that may still change."""
        body, settled_bytes = self._format_entries(settled, pending)
        self._end = self._at + len(body) + len(_END)
        if self._end > self._size:
            self._size = self._end + _ROOM_BYTES + self._end // 8
        data = body + _END + b" " * (self._size - self._end)
        with files.os_errors_as_unavailable(self.path):
            written = os.pwrite(self._file, data, self._at)
            while written < len(data):
                written += os.pwrite(self._file, data[written:], self._at + written)
        self._at += settled_bytes
        self._count += len(settled)

    def close(self) -> None:
        """Remove the spaces at the end and close the file."""
        with files.os_errors_as_unavailable(self.path):
            os.ftruncate(self._file, self._end)
        os.close(self._file)

    def _format_entries(
        self, settled: Sequence[bytes], pending: Sequence[bytes]
    ) -> tuple[bytes, int]:
        texts = [
            (b",\n    " if self._count + number else b"\n    ") + entry
            for number, entry in enumerate([*settled, *pending])
        ]
        return b"".join(texts), sum(map(len, texts[: len(settled)]))


def write_output_files(
    root: Path, outputs: Iterable[OutputFile], *, durable: bool = True
) -> list[Path]:
    """Write the files whose content changed and return their paths; remove nothing."""
    return [
        path for output in outputs if (path := _write_output_file(root, output, durable=durable))
    ]


def _write_output_file(root: Path, output: OutputFile, *, durable: bool) -> Path | None:
    if output.tier is Tier.TRACKED and not isinstance(output.body, Clean):
        raise TypeError(f"a tracked output file must hold clean text: {output.path}")
    text = output.body.text if isinstance(output.body, Clean) else output.body
    body = text.encode("utf-8", "replace")
    path = files.resolve_inside(root, output.path)
    with files.os_errors_as_unavailable(path):
        if path.is_file() and not path.is_symlink() and path.read_bytes() == body:
            return None
    files.replace_file(path, body, durable=durable)
    return path
