"""Exports as files: JSONL, CSV, Parquet by agent and day, a Hugging Face folder, training examples.

Parquet needs pyarrow, which is an extra; it is loaded when asked for.
"""

import csv
import io
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from flightlog.dataset.book import DatasetReader
from flightlog.dataset.exports import tables
from flightlog.dataset.exports.examples import chat_examples, preference_pairs
from flightlog.dataset.exports.tables import COLUMNS, FLAG, JSON, NAMES, NUMBER, REAL, Record, table_rows
from flightlog.dataset.rows import COUNTED
from flightlog.dataset.stats import count_by_kind, count_withheld, token_counts
from flightlog.model.errors import Invalid, Unavailable
from flightlog.model.extras import optional_import
from flightlog.model.text import pluralize
from flightlog.store.files import ensure_dir, remove_files, replace_file, resolve_inside

_TAG = re.compile(rb"<([a-z]+):([a-z0-9_-]+):[0-9a-f]{6}>")
_SAFE = re.compile(r"[^A-Za-z0-9._-]")
_NUMBER_MAX = 2**63
_ONE_FILE = ("jsonl", "sft", "preferences")


def export_dataset(book: DatasetReader, form: str, output: Path) -> dict[str, int]:
    """Write the dataset in one of `FORMS` and return how many rows each file or table holds."""
    if form not in FORMS:
        raise Invalid(f"no such format: {form[:40]!r}", hint=f"one of: {', '.join(FORMS)}")
    if form in _ONE_FILE and output.is_dir():
        raise Invalid(
            f"{form} is one file, and that is a directory: {output}", hint=f"--output {output / 'rows.jsonl'}"
        )
    try:
        return FORMS[form](book, output)
    except OSError as error:
        raise Unavailable(f"cannot be written: {error.strerror}: {output}", hint="--output somewhere else") from error


def _write_jsonl(book: DatasetReader, output: Path) -> dict[str, int]:
    lines = [msgspec.json.encode(row) for kind in COUNTED for row in book.rows_of_kind(kind)]
    replace_file(output, b"".join(line + b"\n" for line in lines), durable=False)
    return {output.name: len(lines)}


def _write_examples(
    make: Callable[[DatasetReader], Iterator[dict[str, Any]]], book: DatasetReader, output: Path
) -> dict[str, int]:
    lines = [msgspec.json.encode(row) for row in make(book)]
    if not lines and count_withheld(book):
        raise Invalid(
            f"{pluralize(count_withheld(book), 'chat')} without words: the project did not agree to track them",
            hint="set track_words = true under [dataset] in flightlog.toml, then: flightlog trust --yes",
        )  # fmt: skip
    replace_file(output, b"".join(line + b"\n" for line in lines), durable=False)
    return {output.name: len(lines)}


def _write_csv(book: DatasetReader, output: Path) -> dict[str, int]:
    """One file for each table."""
    made = {}
    for name, columns in COLUMNS.items():
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["agent", "day", *columns])
        rows = list(table_rows(book, name))
        writer.writerows([agent, day, *map(_csv_cell, cells.values())] for agent, day, cells in rows)
        replace_file(inside_of(output, f"{name}.csv"), text.getvalue().encode("utf-8", "replace"), durable=False)
        made[f"{name}.csv"] = len(rows)
    return made


def _write_parquet(book: DatasetReader, output: Path) -> dict[str, int]:
    """Partitioned by agent and day, the way every engine that reads Parquet understands."""
    made = {}
    for name in COLUMNS:
        parts: dict[tuple[str, str], list[Record]] = defaultdict(list)
        for agent, day, cells in table_rows(book, name):
            parts[agent, day].append(cells)
        for (agent, day), rows in sorted(parts.items()):
            folder = f"{name}/agent={_SAFE.sub('-', agent)}/day={_SAFE.sub('-', day)}"
            replace_file(inside_of(output, f"{folder}/part-0.parquet"), _pack_parquet(name, rows), durable=False)
        made[name] = sum(map(len, parts.values()))
    return made


def _write_hugging_face(book: DatasetReader, output: Path) -> dict[str, int]:
    """A folder that `datasets.load_dataset` reads, with a card and a report of what was redacted."""
    made = {}
    for name in COLUMNS:
        rows = [{"agent": agent, "day": day, **cells} for agent, day, cells in table_rows(book, name)]
        path = inside_of(output, f"data/{name}-00000-of-00001.parquet")
        made[name] = len(rows)
        if rows:
            replace_file(path, _pack_parquet(name, rows, whole=True), durable=False)
        else:
            remove_files([path] if path.exists() else [])  # `load_dataset` refuses a table without rows
    report = count_redactions(book)
    replace_file(inside_of(output, "redaction_report.json"), msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    replace_file(inside_of(output, "README.md"), _dataset_card(book, made, report).encode())
    return made


FORMS: dict[str, Callable[[DatasetReader, Path], dict[str, int]]] = {
    "jsonl": _write_jsonl,
    "csv": _write_csv,
    "parquet": _write_parquet,
    "huggingface": _write_hugging_face,
    "sft": partial(_write_examples, chat_examples),
    "preferences": partial(_write_examples, preference_pairs),
}


def count_redactions(book: DatasetReader) -> dict[str, Any]:
    """Count what stands in place of something private, by rule."""
    found = Counter(
        f"{kind.decode()}:{rule.decode()}" for line in book.live_lines().values() for kind, rule in _TAG.findall(line)
    )
    chats = count_by_kind(book)["chats"]
    return {"chats": chats, "chats_without_words": count_withheld(book), "redacted": dict(sorted(found.items()))}


def inside_of(output: Path, name: str) -> Path:
    """Return where a file of an export goes; `output` is made when it is not there."""
    ensure_dir(output)
    return resolve_inside(output, name)


def _pack_parquet(name: str, rows: Iterable[Record], *, whole: bool = False) -> bytes:
    arrow, parquet = _import_pyarrow()
    kinds = {NUMBER: arrow.int64(), REAL: arrow.float64(), FLAG: arrow.bool_(), NAMES: arrow.list_(arrow.string())}
    front = {"agent": tables.TEXT, "day": tables.TEXT} if whole else {}
    columns = {**front, **COLUMNS[name]}
    schema = arrow.schema([(column, kinds.get(kind, arrow.string())) for column, kind in columns.items()])
    cells = [{column: _convert_value(row.get(column), kind) for column, kind in columns.items()} for row in rows]
    sink = io.BytesIO()
    parquet.write_table(arrow.Table.from_pylist(cells, schema=schema), sink, compression="zstd")
    return sink.getvalue()


def _convert_value(value: Any, kind: str) -> Any:
    if kind == JSON:
        return None if value is None else msgspec.json.encode(value).decode()
    if kind == NAMES:
        return [str(each) for each in value or ()]
    if kind == tables.TEXT:
        return None if value is None else str(value)
    if kind == FLAG or isinstance(value, bool):
        return value if kind == FLAG and isinstance(value, bool) else None
    fits = isinstance(value, int | float) and abs(value) < _NUMBER_MAX
    return (float if kind == REAL else int)(value) if fits else None


def _csv_cell(value: Any) -> Any:
    return msgspec.json.encode(value).decode() if isinstance(value, list | dict) else value


def _import_pyarrow() -> tuple[Any, Any]:
    """Load pyarrow: an extra, and slow to load."""
    with optional_import():
        return import_module("pyarrow"), import_module("pyarrow.parquet")


def _dataset_card(book: DatasetReader, made: dict[str, int], report: dict[str, Any]) -> str:
    configs = "".join(
        f"- config_name: {name}\n  data_files: data/{name}-*.parquet\n{'  default: true' if name == 'chats' else ''}\n"
        for name in made
        if made[name]
    ).replace("\n\n", "\n")
    rows = "\n".join(f"| {name} | {number:,} |" for name, number in made.items())
    spent = token_counts(book)
    private = "\n".join(f"| {rule} | {times:,} |" for rule, times in report["redacted"].items()) or "| none | 0 |"
    return f"""---
pretty_name: Coding agent sessions
configs:
{configs}---

# Coding agent sessions

Turns, tool calls, subagents and commits of coding agent sessions, recorded by flightlog.

| table | rows |
|---|---|
{rows}

{spent["input"]:,} input and {spent["output"]:,} output tokens; `responses` holds each model response once.

## What was taken out

Text was redacted before it was first written. {report["chats_without_words"]:,} of {report["chats"]:,} chats hold no
words at all, because their project did not agree to track them. Who made a commit is not recorded.

| rule | times |
|---|---|
{private}
"""
