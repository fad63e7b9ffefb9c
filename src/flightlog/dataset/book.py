"""Reading the dataset: base files and shards together, each row once, the gone ones gone.

Whatever a merge did to the files (lines doubled, mixed, brought back, conflict marks between them), the
answer is the same: of every key the newest version, unless there is a tombstone. Damage is a value.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from flightlog.dataset.forgotten import TombstoneRules
from flightlog.dataset.rows import BASES, OTHER, WITHHELD, Row, encode_row, key_of, rev_of
from flightlog.dataset.shape import drop_invalid_fields
from flightlog.dataset.shards import GONE
from flightlog.model.damage import Damage
from flightlog.store.lines import JsonlLine, read_lines

_KIND_OF = {name: kind for kind, name in BASES.items()}
FIELDS = frozenset({"ci_result", "ci_details", "reverted", "reverted_by", "feedback", "related_commit", "task"})
GENERATION = "generation.jsonl"
_WHOLE_BYTES_MAX = 64 << 20
_decode = msgspec.json.Decoder().decode


class RowVersion(NamedTuple):
    """One line of one key; the greatest counts: the newest, then one with words, then the one that says more."""

    rev: int
    has_words: bool
    size: int
    line: bytes


class DatasetReader:
    """The rows of a dataset."""

    def __init__(self) -> None:
        """Begin empty."""
        self.lines: dict[str, RowVersion] = {}
        self.rows: dict[str, Row] = {}
        self.forgotten = TombstoneRules()
        self._gone: set[str] | None = None
        self.damage: list[Damage] = []
        self.repeats: Counter[str] = Counter()
        self.older = 0
        self._sound: dict[str, Row] = {}

    def add_line(self, line: bytes, kind: str = "") -> None:
        """Take one line into account; `kind` is what its file says of a line that does not say it itself."""
        row = msgspec.json.decode(line)
        if not isinstance(row, dict):
            raise msgspec.ValidationError("not a row")
        self.add_row(row, line, kind)

    def add_row(self, row: Row, line: bytes, kind: str = "") -> None:
        """Take one decoded line into account."""
        if "kind" not in row and kind:
            row = {"kind": kind, **row}
            line = msgspec.json.encode(row)
        key = key_of(row)
        version = _row_version(row, line)
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
            self.forgotten.add_tombstone(row)
            self._sound.clear()

    @property
    def removed_keys(self) -> set[str]:
        """The keys of rows that tombstones cover, whether the rows are here or not."""
        if self._gone is None:
            rules = self.forgotten
            self._gone = rules.keys | {key for key, row in self.rows.items() if rules.covers_row(row)}
        return self._gone

    def contains_row(self, row: Row) -> bool:
        """Whether the book needs nothing of this row: it is in, or older than what is, or gone."""
        if self.forgotten.covers_row(row):
            return True
        known, clean = self.lines.get(key_of(row)), self.forgotten.strip_row(row)
        return known is not None and _row_version(clean, encode_row(clean)) <= known

    def rows_of_kind(self, kind: str) -> Iterator[Row]:
        """Yield the rows of a kind, fit to be counted, later judgements applied, in the order of their keys."""
        judged = self._judgments_by_key()
        for key in sorted(self.rows):
            if self.rows[key].get("kind") == kind and key not in self.removed_keys:
                row = self._sound.get(key) or self._sound.setdefault(
                    key, drop_invalid_fields(self.forgotten.strip_row(self.rows[key]))
                )
                yield {**row, **judged[key]} if key in judged else row

    def live_lines(self) -> dict[str, bytes]:
        """Return the line of every row that is not gone, by key, without words that were forgotten."""
        gone = self.removed_keys
        return {key: self._clean_line(key, version) for key, version in self.lines.items() if key not in gone}

    def _clean_line(self, key: str, version: RowVersion) -> bytes:
        row = self.forgotten.strip_row(self.rows[key])
        return version.line if row is self.rows[key] else encode_row(row)

    def count_rows(self) -> dict[str, int]:
        """Return how many rows there are of each kind."""
        return dict(Counter(str(row.get("kind", "")) for key, row in self.rows.items() if key not in self.removed_keys))

    def _judgments_by_key(self) -> dict[str, Row]:
        updates = sorted((row for row in self.rows.values() if row.get("kind") == "update"), key=_sort_key)
        judged: dict[str, Row] = {}
        for row in updates:
            if str(row.get("field")) in FIELDS:
                judged.setdefault(str(row.get("of", "")), {})[str(row["field"])] = row.get("value")
        return judged


def read_dataset(tracked: Path) -> DatasetReader:
    """Read the base files and every shard below `tracked`."""
    return read_files([*base_files(tracked), *shard_files(tracked)])


def read_tombstones(tracked: Path) -> TombstoneRules:
    """Read tombstones alone: their base file and the shards that are named after them."""
    return read_files([tracked / BASES["tombstone"], *(tracked / "pending").glob(f"*-{GONE}-*.jsonl")]).forgotten


def read_files(paths: Iterable[Path]) -> DatasetReader:
    """Read some files as one book."""
    book = DatasetReader()
    for path in paths:
        add_file(book, path)
    return book


def add_file(book: DatasetReader, path: Path) -> None:
    """Read one more file; what cannot be read is damage."""
    kind = _KIND_OF.get(path.name, "")
    try:
        whole = _read_all_rows(path)
        for row, line in whole or ():
            book.add_row(row, line, kind)
        for item in read_lines(path) if whole is None else ():
            if isinstance(item, JsonlLine):
                try:
                    book.add_line(item.data.strip(), kind)
                except (msgspec.MsgspecError, RecursionError) as error:
                    book.damage.append(Damage(str(path), item.offset, item.length, str(error)))
            else:
                book.damage.append(item)
    except FileNotFoundError:
        return


def _read_all_rows(path: Path) -> list[tuple[Row, bytes]] | None:
    """Read a file in which every line is a row, as nearly all are; None for one to be looked at closely."""
    if path.stat().st_size > _WHOLE_BYTES_MAX:
        return None
    try:
        lines = [line.strip() for line in path.read_bytes().split(b"\n")]
        rows = [(_decode(line), line) for line in lines if line]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return rows if all(type(row) is dict for row, _ in rows) else None


def read_blobs(blobs: Mapping[str, bytes]) -> DatasetReader:
    """Read files that stand in git and not in the work tree."""
    book = DatasetReader()
    for name, body in blobs.items():
        kind = _KIND_OF.get(name.rpartition("/")[2], "")
        for line in filter(bytes.strip, body.split(b"\n")):
            try:
                book.add_line(line.strip(), kind)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                book.damage.append(Damage(name, 0, len(line), str(error)))
    return book


def base_files(tracked: Path) -> list[Path]:
    """Return the base files, there or not."""
    return [tracked / name for name in (*BASES.values(), OTHER)]


def shard_files(tracked: Path) -> list[Path]:
    """Return the shards there are, in the order of their names."""
    return sorted((tracked / "pending").glob("*.jsonl"))


def _row_version(row: Row, line: bytes) -> RowVersion:
    return RowVersion(rev_of(row), row.get("words") != WITHHELD, len(line), line)


def _sort_key(row: Row) -> tuple[int, str, str]:
    return rev_of(row), str(row.get("timestamp", "")), str(row.get("id", ""))
