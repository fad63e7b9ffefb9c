"""Reader of base files and shards: each row once.

Rows arrive by git, so that any other clone may have written them. `check` reports invalid ones; the
others count.

Two writers never write different content under one name, so git has nothing to merge. But git
guesses that a deleted file was renamed to a new one that is half the same, and reports a conflict
if the other side deleted it too. Git compares lines in chunks of 64 bytes, so the lines of each
shard are indented to a column of its own: no shard resembles the next one of its session or a base
file, and only 1 in 62 one of another session with equal rows. Shards are folded only into a shard
that is at least twice as large as any of them.

Whatever a merge did to the files (lines doubled, mixed, restored, conflict markers between them),
the result is the same: of every key the newest version, unless there is a tombstone. Damage is a
value.
"""

import functools
import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from flightlog.dataset.rows import BASES, OTHER, ROWS, WITHHELD, Row, encode_row, key_of, rev_of
from flightlog.dataset.tombstones import TombstoneRules
from flightlog.model.errors import Damage, Invalid
from flightlog.store.jsonl import JsonlLine, read_lines

_FIELD = re.compile(r"at `\$\.(\w+)")
_NAME = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d)-(?P<session>[A-Za-z0-9][A-Za-z0-9._-]*)-(?P<sha>[0-9a-f]{12})\.jsonl"
)
COLUMNS = 62  # below the 64 bytes that git compares at a time
_STRIDE = 11  # coprime to COLUMNS, so that successive shards of a session use all columns
_LARGEST_SHARE = 0.45  # of the folded size; git sees a rename at 50 % similarity
FOLD_AT_LEAST = 4  # fewer shards are not worth a new file
FOLDED = "folded"
GONE = "gone"  # what shards with tombstones are named after
_KIND_OF = {name: kind for kind, name in BASES.items()}
RATINGS = ("good", "bad", "neutral")
_RESULTS = ("success", "failure", "pass", "fail", "cancelled", "skipped")
# Fields that a judgment may set: the kinds of rows that have them, and the values.
_JUDGMENTS: dict[str, tuple[tuple[str, ...], str]] = {
    "feedback": (("chat", "session"), f"one of: {', '.join(RATINGS)}"),
    "reward": (("chat", "session", "action"), "a number"),
    "task": (("chat", "session", "commit"), "a name"),
    "related_commit": (("chat",), "a commit hash"),
    "ci_result": (("commit",), f"one of: {', '.join(_RESULTS)}"),
    "ci_details": (("commit",), "a text or an object"),
    "reverted": (("commit",), "true or false"),
    "reverted_by": (("commit",), "a commit hash"),
}
FIELDS = frozenset(_JUDGMENTS)
GENERATION = "generation.jsonl"
_WHOLE_BYTES_MAX = 64 << 20  # of a file that is decoded at once
_decode = msgspec.json.Decoder().decode


def check_judgment(kind: str, field: str, value: object) -> None:
    """Raise `Invalid` unless rows of this kind have `field`, and it can have this value."""
    fields = sorted(name for name, (kinds, _) in _JUDGMENTS.items() if kind in kinds)
    if field not in fields:
        hint = f"one of: {', '.join(fields)}"
        raise Invalid(f"no such judgment of a {kind}: {field[:40]!r}", hint=hint)
    rating = value.get("rating") if isinstance(value, dict) else value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    is_hash = isinstance(value, str) and re.fullmatch("[0-9a-f]{7,64}", value) is not None
    is_valid = {
        "feedback": rating in RATINGS,
        "reward": is_number and math.isfinite(value),  # type: ignore[arg-type]
        "task": isinstance(value, str) and bool(value.strip()),
        "ci_result": value in _RESULTS,
        "ci_details": isinstance(value, str | dict),
        "reverted": isinstance(value, bool),
    }.get(field, is_hash)
    if not is_valid:
        raise Invalid(f"not a value of {field}: {str(value)[:40]!r}", hint=_JUDGMENTS[field][1])


def drop_invalid_fields(row: Row) -> Row:
    """Return a row without fields of the wrong type for its kind, and with an id."""
    schema = _optional_schemas().get(str(row.get("kind")))
    while schema is not None:
        try:
            msgspec.convert(row, schema)
        except msgspec.ValidationError as error:
            invalid = _FIELD.search(str(error))
            assert invalid is not None, "a row is an object, so the error names one of its fields"
            row = {name: value for name, value in row.items() if name != invalid[1]}
        else:
            break
    return row if "id" in row else {**row, "id": ""}


@functools.cache
def _optional_schemas() -> dict[str, type[Any]]:
    """Return the kinds of rows with every field optional."""
    return {
        str(kind.__struct_config__.tag): msgspec.defstruct(
            kind.__name__,
            [(field.name, field.type, msgspec.UNSET) for field in msgspec.structs.fields(kind)],
            kw_only=True,
        )
        for kind in ROWS
    }


class Shard(NamedTuple):
    """A shard to write: its name below `pending/`, and its bytes."""

    name: str
    body: bytes


def indent_lines(lines: Iterable[bytes], number: int) -> bytes:
    """Return the body of a shard: lines indented to the column of `number`."""
    indent = b" " * shard_column(number)
    return b"".join(indent + line + b"\n" for line in lines)


def shard_column(number: int, session: str = "") -> int:
    """Return the column at which lines of a session's shard `number` start; 0 is for base files."""
    digest = hashlib.sha256(session.encode("utf-8", "replace")).digest()
    offset = int.from_bytes(digest[:4], "big") if session else 0
    return 1 + (offset + number * _STRIDE) % COLUMNS


def free_number(bodies: Iterable[bytes]) -> int:
    """Return a number whose column none of these shards uses, if there is one."""
    used = {len(body) - len(body.lstrip(b" ")) for body in bodies}
    return next((number for number in range(COLUMNS) if shard_column(number) not in used), 0)


def name_shard(session: str, body: bytes, day: str) -> Shard:
    """Return the shard with this body; the name holds day, session and hash."""
    safe = re.sub(r"[^A-Za-z0-9._-]", "-", session).strip("-.")[:60] or "rows"
    name = f"{day or '1970-01-01'}-{safe}-{hashlib.sha256(body).hexdigest()[:12]}.jsonl"
    return Shard(name, body)


def is_whole(name: str, body: bytes) -> bool:
    """Return whether a shard's content matches the hash in its name."""
    match = _NAME.fullmatch(name)
    return match is not None and match["sha"] == hashlib.sha256(body).hexdigest()[:12]


def shard_session(name: str) -> str:
    """Return the session in a shard's name."""
    match = _NAME.fullmatch(name)
    return match["session"] if match else ""


def choose_foldable(sizes: Iterable[tuple[str, int]]) -> list[str]:
    """Return shards to fold into one, none of which makes up half of it."""
    ordered = sorted(sizes, key=lambda pair: (pair[1], pair[0]))
    while len(ordered) >= FOLD_AT_LEAST:
        if ordered[-1][1] <= _LARGEST_SHARE * sum(size for _, size in ordered):
            return sorted(name for name, _ in ordered)
        ordered.pop()
    return []


def day_of(row: Row) -> str:
    """Return the day of a row, or ""."""
    for name in ("timestamp", "ended_at", "started_at"):
        value = row.get(name)
        if isinstance(value, str) and re.match(r"\d{4}-\d\d-\d\d", value):
            return value[:10]
    return ""


class RowVersion(NamedTuple):
    """One line of one key. The greatest wins: newest, then one with words, then the longest."""

    rev: int
    has_words: bool
    size: int
    line: bytes


class DatasetReader:
    """The rows of a dataset."""

    def __init__(self) -> None:
        self.lines: dict[str, RowVersion] = {}
        self.rows: dict[str, Row] = {}
        self.forgotten = TombstoneRules()
        self._removed: set[str] | None = None
        self.damage: list[Damage] = []
        self.repeats: Counter[str] = Counter()
        self.older = 0
        self._valid: dict[str, Row] = {}

    def add_line(self, line: bytes, kind: str = "") -> None:
        """Add one line; `kind` is the kind its file implies if the line has none."""
        row = msgspec.json.decode(line)
        if not isinstance(row, dict):
            raise msgspec.ValidationError("not a row")
        self.add_row(row, line, kind)

    def add_row(self, row: Row, line: bytes, kind: str = "") -> None:
        """Add one decoded line."""
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
        self._valid.pop(key, None)
        self._removed = None
        if row.get("kind") == "tombstone":
            self.forgotten.add_tombstone(row)
            self._valid.clear()

    @property
    def removed_keys(self) -> set[str]:
        """Return the keys that tombstones cover, with or without a row."""
        if self._removed is None:
            rules = self.forgotten
            self._removed = rules.keys | {
                key for key, row in self.rows.items() if rules.covers_row(row)
            }
        return self._removed

    def contains_row(self, row: Row) -> bool:
        """Return whether this row adds nothing: it is present, outdated, or removed."""
        if self.forgotten.covers_row(row):
            return True
        known, clean = self.lines.get(key_of(row)), self.forgotten.strip_row(row)
        return known is not None and _row_version(clean, encode_row(clean)) <= known

    def rows_of_kind(self, kind: str) -> Iterator[Row]:
        """Yield the valid rows of a kind by key, with later judgments applied."""
        judgments = self._judgments_by_key()
        for key in sorted(self.rows):
            if self.rows[key].get("kind") == kind and key not in self.removed_keys:
                if key not in self._valid:
                    self._valid[key] = drop_invalid_fields(self.forgotten.strip_row(self.rows[key]))
                yield self._valid[key] | judgments[key] if key in judgments else self._valid[key]

    def live_lines(self) -> dict[str, bytes]:
        """Return the line of every row that is not removed, by key, without removed words."""
        lines = {}
        for key, version in self.lines.items():
            if key not in self.removed_keys:
                row = self.forgotten.strip_row(self.rows[key])
                lines[key] = version.line if row is self.rows[key] else encode_row(row)
        return lines

    def count_rows(self) -> dict[str, int]:
        """Return the number of rows of each kind."""
        rows = (row for key, row in self.rows.items() if key not in self.removed_keys)
        return dict(Counter(str(row.get("kind", "")) for row in rows))

    def _judgments_by_key(self) -> dict[str, Row]:
        updates = sorted(
            (row for row in self.rows.values() if row.get("kind") == "update"), key=_sort_key
        )
        judgments: dict[str, Row] = {}
        for row in updates:
            if str(row.get("field")) in FIELDS:
                fields = judgments.setdefault(str(row.get("row_id", "")), {})
                fields[str(row["field"])] = row.get("value")
        return judgments


def read_dataset(tracked: Path) -> DatasetReader:
    """Read the base files and every shard below `tracked`."""
    return read_files([*base_files(tracked), *shard_files(tracked)])


def read_tombstones(tracked: Path) -> TombstoneRules:
    """Read only tombstones: their base file and the shards named after them."""
    return read_files(
        [tracked / BASES["tombstone"], *(tracked / "pending").glob(f"*-{GONE}-*.jsonl")]
    ).forgotten


def read_files(paths: Iterable[Path]) -> DatasetReader:
    """Read some files as one dataset."""
    dataset = DatasetReader()
    for path in paths:
        add_file(dataset, path)
    return dataset


def add_file(dataset: DatasetReader, path: Path) -> None:
    """Add one file; report unreadable lines as damage."""
    kind = _KIND_OF.get(path.name, "")
    try:
        rows = _read_all_rows(path)
        for row, line in rows or ():
            dataset.add_row(row, line, kind)
        for item in read_lines(path) if rows is None else ():
            if isinstance(item, JsonlLine):
                try:
                    dataset.add_line(item.data.strip(), kind)
                except (msgspec.MsgspecError, RecursionError) as error:
                    dataset.damage.append(Damage(str(path), item.offset, item.length, str(error)))
            else:
                dataset.damage.append(item)
    except FileNotFoundError:
        return


def _read_all_rows(path: Path) -> list[tuple[Row, bytes]] | None:
    """Return the rows of a file, or None if it is large or has an invalid line."""
    if path.stat().st_size > _WHOLE_BYTES_MAX:
        return None
    try:
        lines = [line.strip() for line in path.read_bytes().split(b"\n")]
        rows = [(_decode(line), line) for line in lines if line]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return rows if all(type(row) is dict for row, _ in rows) else None


def read_blobs(blobs: Mapping[str, bytes]) -> DatasetReader:
    """Read files from git objects instead of the work tree."""
    dataset = DatasetReader()
    for name, body in blobs.items():
        kind = _KIND_OF.get(name.rpartition("/")[2], "")
        for line in filter(bytes.strip, body.split(b"\n")):
            try:
                dataset.add_line(line.strip(), kind)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                dataset.damage.append(Damage(name, 0, len(line), str(error)))
    return dataset


def base_files(tracked: Path) -> list[Path]:
    """Return the paths of the base files, which may not exist."""
    return [tracked / name for name in (*BASES.values(), OTHER)]


def shard_files(tracked: Path) -> list[Path]:
    """Return the existing shards by name."""
    return sorted((tracked / "pending").glob("*.jsonl"))


def _row_version(row: Row, line: bytes) -> RowVersion:
    return RowVersion(rev_of(row), row.get("words") != WITHHELD, len(line), line)


def _sort_key(row: Row) -> tuple[int, str, str]:
    return rev_of(row), str(row.get("timestamp", "")), str(row.get("id", ""))
