"""Base files and shards, each row once.

Rows come by git, so anybody may have written them. What is wrong with one is said by `check`; the others count.

Two writers cannot write different things under one name, so git has nothing to merge. Git does
guess that a deleted file was renamed to a new one that is half the same, and calls it a conflict when
the other side deleted it too. Git compares 64 bytes of a line at a time, so lines of shards begin at a
column of their own: no shard looks like the next one of its session, nor like a base file, and seldom like
one of another session (one time in 62, if their rows say the same). And shards
are only folded into one that is twice as large as any of them.

Whatever a merge did to the files (lines doubled, mixed, brought back, conflict marks between them), the
answer is the same: of every key the newest version, unless there is a tombstone. Damage is a value.
"""

import functools
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from flightlog.dataset.rows import BASES, OTHER, ROWS, WITHHELD, Row, encode_row, key_of, rev_of
from flightlog.dataset.tombstones import TombstoneRules
from flightlog.model.errors import Damage
from flightlog.store.jsonl import JsonlLine, read_lines

_FIELD = re.compile(r"at `\$\.(\w+)")
_NAME = re.compile(r"(?P<day>\d{4}-\d\d-\d\d)-(?P<session>[A-Za-z0-9][A-Za-z0-9._-]*)-(?P<sha>[0-9a-f]{12})\.jsonl")
COLUMNS = 62
_STRIDE = 11
_LARGEST_SHARE = 0.45
FOLD_AT_LEAST = 4
FOLDED = "folded"
GONE = "gone"  # what shards with tombstones are named after
_KIND_OF = {name: kind for kind, name in BASES.items()}
FIELDS = frozenset({"ci_result", "ci_details", "reverted", "reverted_by", "feedback", "related_commit", "task"})
GENERATION = "generation.jsonl"
_WHOLE_BYTES_MAX = 64 << 20
_decode = msgspec.json.Decoder().decode


def drop_invalid_fields(row: Row) -> Row:
    """Return a row whose fields have the types its kind says, and an id."""
    shape = _optional_schemas().get(str(row.get("kind")))
    found = row
    while shape is not None:
        try:
            msgspec.convert(found, shape)
        except msgspec.ValidationError as error:
            named = _FIELD.search(str(error))
            assert named is not None, "a row is an object, so a complaint names a field of it"
            found = {name: value for name, value in found.items() if name != named[1]}
        else:
            break
    return found if "id" in found else {**found, "id": ""}


@functools.cache
def _optional_schemas() -> dict[str, type[Any]]:
    """The kinds of rows with no field required."""
    return {
        str(kind.__struct_config__.tag): msgspec.defstruct(
            kind.__name__,
            [(field.name, field.type, msgspec.UNSET) for field in msgspec.structs.fields(kind)],
            kw_only=True,
        )
        for kind in ROWS
    }


class Shard(NamedTuple):
    """A file to be: its name below `pending/`, and its bytes."""

    name: str
    body: bytes


def indent_lines(lines: Iterable[bytes], number: int) -> bytes:
    """Return lines as a shard holds them."""
    margin = b" " * shard_column(number)
    return b"".join(margin + line + b"\n" for line in lines)


def shard_column(number: int, session: str = "") -> int:
    """Return where the lines of the shard with this number in its session begin; 0 is for base files."""
    begin = int.from_bytes(hashlib.sha256(session.encode("utf-8", "replace")).digest()[:4], "big") if session else 0
    return 1 + (begin + number * _STRIDE) % COLUMNS


def free_number(bodies: Iterable[bytes]) -> int:
    """Return a number whose column none of these shards begins at, if there is one."""
    taken = {len(body) - len(body.lstrip(b" ")) for body in bodies}
    return next((number for number in range(COLUMNS) if shard_column(number) not in taken), 0)


def name_shard(session: str, body: bytes, day: str) -> Shard:
    """Name a shard's body."""
    safe = re.sub(r"[^A-Za-z0-9._-]", "-", session).strip("-.")[:60] or "rows"
    return Shard(f"{day or '1970-01-01'}-{safe}-{hashlib.sha256(body).hexdigest()[:12]}.jsonl", body)


def is_whole(name: str, body: bytes) -> bool:
    """Whether a shard holds what its name says."""
    found = _NAME.fullmatch(name)
    return found is not None and found["sha"] == hashlib.sha256(body).hexdigest()[:12]


def shard_session(name: str) -> str:
    """Return the session a shard is named after."""
    found = _NAME.fullmatch(name)
    return found["session"] if found else ""


def choose_foldable(sizes: Iterable[tuple[str, int]]) -> list[str]:
    """Choose shards that may be folded into one: none of them makes up half of it."""
    ordered = sorted(sizes, key=lambda pair: (pair[1], pair[0]))
    while len(ordered) >= FOLD_AT_LEAST:
        if ordered[-1][1] <= _LARGEST_SHARE * sum(size for _, size in ordered):
            return sorted(name for name, _ in ordered)
        ordered.pop()
    return []


def day_of(row: Row) -> str:
    """Return the day a row is about; empty when it does not say."""
    for name in ("timestamp", "ended_at", "started_at"):
        value = row.get(name)
        if isinstance(value, str) and re.match(r"\d{4}-\d\d-\d\d", value):
            return value[:10]
    return ""


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
