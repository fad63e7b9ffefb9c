"""Reading the dataset: base files and shards together, each row once, the gone ones gone.

Whatever a merge did to the files (lines doubled, mixed, brought back, conflict marks between them), the
answer is the same: of every key the newest version, unless there is a tombstone. Damage is a value.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from flightlog.dataset.forgotten import Forgotten
from flightlog.dataset.rows import BASES, OTHER, WITHHELD, Row, encoded, key_of, rev_of
from flightlog.dataset.shape import sound
from flightlog.dataset.shards import GONE
from flightlog.model.damage import Damage
from flightlog.store.lines import Line, read

_KIND_OF = {name: kind for kind, name in BASES.items()}
FIELDS = frozenset({"ci_result", "ci_details", "reverted", "reverted_by", "feedback", "related_commit", "task"})
GENERATION = "generation.jsonl"
_WHOLE_BYTES_MAX = 64 << 20
_decode = msgspec.json.Decoder().decode


class Version(NamedTuple):
    """One line of one key; the greatest counts: the newest, then one with words, then the one that says more."""

    rev: int
    has_words: bool
    size: int
    line: bytes


class Book:
    """The rows of a dataset."""

    def __init__(self) -> None:
        """Begin empty."""
        self.lines: dict[str, Version] = {}
        self.rows: dict[str, Row] = {}
        self.forgotten = Forgotten()
        self._gone: set[str] | None = None
        self.damage: list[Damage] = []
        self.repeats: Counter[str] = Counter()
        self.older = 0
        self._sound: dict[str, Row] = {}

    def add(self, line: bytes, kind: str = "") -> None:
        """Take one line into account; `kind` is what its file says of a line that does not say it itself."""
        row = msgspec.json.decode(line)
        if not isinstance(row, dict):
            raise msgspec.ValidationError("not a row")
        self.take(row, line, kind)

    def take(self, row: Row, line: bytes, kind: str = "") -> None:
        """Take one decoded line into account."""
        if "kind" not in row and kind:
            row = {"kind": kind, **row}
            line = msgspec.json.encode(row)
        key = key_of(row)
        version = _version(row, line)
        known = self.lines.get(key)
        if known is not None:
            same = known.line == line
            self.repeats[str(row.get("kind", ""))] += same
            self.older += not same
            if version <= known:
                return
        self.lines[key] = version
        self.rows[key] = row
        self._sound.pop(key, None)
        self._gone = None
        if row.get("kind") == "tombstone":
            self.forgotten.add(row)
            self._sound.clear()

    @property
    def gone(self) -> set[str]:
        """The keys of rows that tombstones cover, whether the rows are here or not."""
        if self._gone is None:
            rules = self.forgotten
            self._gone = rules.keys | {key for key, row in self.rows.items() if rules.covers(row)}
        return self._gone

    def has(self, row: Row) -> bool:
        """Whether the book needs nothing of this row: it is in, or older than what is, or gone."""
        if self.forgotten.covers(row):
            return True
        known, clean = self.lines.get(key_of(row)), self.forgotten.stripped(row)
        return known is not None and _version(clean, encoded(clean)) <= known

    def of(self, kind: str) -> Iterator[Row]:
        """Yield the rows of a kind, fit to be counted, later judgements applied, in the order of their keys."""
        judged = self._judgements()
        for key in sorted(self.rows):
            if self.rows[key].get("kind") == kind and key not in self.gone:
                row = self._sound.get(key) or self._sound.setdefault(
                    key, sound(self.forgotten.stripped(self.rows[key]))
                )
                yield {**row, **judged[key]} if key in judged else row

    def kept(self) -> dict[str, bytes]:
        """Return the line of every row that is not gone, by key, without words that were forgotten."""
        gone = self.gone
        return {key: self._line(key, version) for key, version in self.lines.items() if key not in gone}

    def _line(self, key: str, version: Version) -> bytes:
        row = self.forgotten.stripped(self.rows[key])
        return version.line if row is self.rows[key] else encoded(row)

    def counts(self) -> dict[str, int]:
        """Return how many rows there are of each kind."""
        return dict(Counter(str(row.get("kind", "")) for key, row in self.rows.items() if key not in self.gone))

    def _judgements(self) -> dict[str, Row]:
        updates = sorted((row for row in self.rows.values() if row.get("kind") == "update"), key=_order)
        judged: dict[str, Row] = {}
        for row in updates:
            if str(row.get("field")) in FIELDS:
                judged.setdefault(str(row.get("of", "")), {})[str(row["field"])] = row.get("value")
        return judged


def read_book(tracked: Path) -> Book:
    """Read the base files and every shard below `tracked`."""
    return read_files([*base_files(tracked), *shard_files(tracked)])


def read_forgotten(tracked: Path) -> Forgotten:
    """Read tombstones alone: their base file and the shards that are named after them."""
    return read_files([tracked / BASES["tombstone"], *(tracked / "pending").glob(f"*-{GONE}-*.jsonl")]).forgotten


def read_files(paths: Iterable[Path]) -> Book:
    """Read some files as one book."""
    book = Book()
    for path in paths:
        read_into(book, path)
    return book


def read_into(book: Book, path: Path) -> None:
    """Read one more file; what cannot be read is damage."""
    kind = _KIND_OF.get(path.name, "")
    try:
        whole = _whole(path)
        for row, line in whole or ():
            book.take(row, line, kind)
        for item in read(path) if whole is None else ():
            if isinstance(item, Line):
                try:
                    book.add(item.data.strip(), kind)
                except (msgspec.MsgspecError, RecursionError) as error:
                    book.damage.append(Damage(str(path), item.offset, item.length, str(error)))
            else:
                book.damage.append(item)
    except FileNotFoundError:
        return


def _whole(path: Path) -> list[tuple[Row, bytes]] | None:
    """Read a file in which every line is a row, as nearly all are; None for one to be looked at closely."""
    if path.stat().st_size > _WHOLE_BYTES_MAX:
        return None
    try:
        lines = [line.strip() for line in path.read_bytes().split(b"\n")]
        rows = [(_decode(line), line) for line in lines if line]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return rows if all(type(row) is dict for row, _ in rows) else None


def read_blobs(blobs: Mapping[str, bytes]) -> Book:
    """Read files that stand in git and not in the work tree."""
    book = Book()
    for name, body in blobs.items():
        kind = _KIND_OF.get(name.rpartition("/")[2], "")
        for line in filter(bytes.strip, body.split(b"\n")):
            try:
                book.add(line.strip(), kind)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                book.damage.append(Damage(name, 0, len(line), str(error)))
    return book


def base_files(tracked: Path) -> list[Path]:
    """Return the base files, there or not."""
    return [tracked / name for name in (*BASES.values(), OTHER)]


def shard_files(tracked: Path) -> list[Path]:
    """Return the shards there are, in the order of their names."""
    return sorted((tracked / "pending").glob("*.jsonl"))


def _version(row: Row, line: bytes) -> Version:
    return Version(rev_of(row), row.get("words") != WITHHELD, len(line), line)


def _order(row: Row) -> tuple[int, str, str]:
    return rev_of(row), str(row.get("timestamp", "")), str(row.get("id", ""))
