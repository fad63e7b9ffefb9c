"""Exports: JSONL, CSV, Parquet, Hugging Face, SFT and preference pairs.

SFT and preference exports use rows with words only and report how many have none. A preference
pair needs two answers to one prompt and a recorded reason to prefer one: a rating, a revert, a
failed build, or that the person rewound the first answer.

`responses` holds each model response once, so that its sum equals the archive's. Lists and objects
are JSON text in CSV and nested columns in Parquet.

Parquet needs pyarrow, an optional dependency that is imported on demand.
"""

import csv
import io
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib import import_module
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec

from flightlog.dataset import stats
from flightlog.dataset.reader import DatasetReader
from flightlog.dataset.rows import COUNTED, REDACTED, Row, rev_of
from flightlog.model.errors import Invalid, Unavailable, optional_import
from flightlog.model.text import REDACTION_TAG, pluralize
from flightlog.store.files import ensure_dir, remove_files, replace_file, resolve_inside

_SHORT = 12  # characters of a commit hash that rows refer to
_RATINGS = {"good": 2, "neutral": 0, "bad": -2}  # a rating outweighs a build result
Cell = Any
Record = dict[str, Cell]
TEXT, NUMBER, REAL, FLAG, NAMES, JSON = "text", "number", "real", "flag", "names", "json"
COLUMNS: dict[str, dict[str, str]] = {
    "chats": {
        "id": TEXT, "timestamp": TEXT, "session_id": TEXT, "input": TEXT, "output": TEXT, "tools": NAMES,
        "files": NAMES, "input_chars": NUMBER, "output_chars": NUMBER, "words": TEXT, "uuid": TEXT,
        "prompt_source": TEXT, "files_modified": NAMES, "duration_seconds": REAL, "responses": NUMBER,
        "resulted_in_commit": FLAG, "related_commit": TEXT, "is_rewound": FLAG, "feedback": JSON, "reward": REAL,
        "rev": NUMBER,
    },
    "sessions": {
        "id": TEXT, "started_at": TEXT, "ended_at": TEXT, "summary": TEXT, "chat_count": NUMBER, "commits": NAMES,
        "session": TEXT, "words": TEXT, "branch": TEXT, "version": TEXT, "duration_seconds": REAL, "steps": NUMBER,
        "actions": NUMBER, "failed_actions": NUMBER, "sub_agents": NUMBER, "compactions": NUMBER, "tools_used": JSON,
        "files_modified": NAMES, "models": NAMES, "cost_usd": REAL, "rev": NUMBER,
    },
    "actions": {
        "id": TEXT, "timestamp": TEXT, "session_id": TEXT, "action_type": TEXT, "target": TEXT, "tool": TEXT,
        "chat_id": TEXT, "subagent": TEXT, "success": FLAG, "duration_ms": NUMBER, "result_chars": NUMBER,
        "result_summary": TEXT, "rev": NUMBER,
    },
    "commits": {
        "hash": TEXT, "timestamp": TEXT, "message": TEXT, "message_chars": NUMBER, "words": TEXT,
        "files_changed": NAMES, "insertions": NUMBER, "deletions": NUMBER, "hour_of_day": NUMBER, "day_of_week": TEXT,
        "parent_count": NUMBER, "is_merge": FLAG, "is_initial": FLAG, "session_id": TEXT, "related_chats": NAMES,
        "ci_result": TEXT, "reverted": FLAG, "reverted_by": TEXT,
    },
    "orchestration": {
        "id": TEXT, "session_id": TEXT, "session": TEXT, "timestamp": TEXT, "total_sub_agents": NUMBER,
        "batch_count": NUMBER, "models_used": NAMES, "total_tools_used": NUMBER, "unique_tools": NUMBER,
        "total_duration_ms": NUMBER, "success_rate": REAL, "batches": JSON, "agents": JSON,
    },
    "responses": {
        "id": TEXT, "model": TEXT, "session_id": TEXT, "chat_id": TEXT, "subagent": TEXT, "timestamp": TEXT,
        "input_tokens": NUMBER, "output_tokens": NUMBER, "cache_read_tokens": NUMBER,
        "cache_write_tokens": NUMBER, "cache_write_1h_tokens": NUMBER,
    },
}  # fmt: skip
_KINDS = {"chats": "chat", "sessions": "session", "actions": "action", "commits": "commit"}
NO_AGENT = "none"
_SAFE = re.compile(r"[^A-Za-z0-9._-]")
_NUMBER_MAX = 2**63  # Parquet's int64
_ONE_FILE = ("jsonl", "sft", "preferences")  # formats written to a single file


def chat_examples(dataset: DatasetReader) -> Iterator[dict[str, Any]]:
    """Yield each answered prompt of a person as a conversation of two messages."""
    commits = _commits_by_hash(dataset)
    for row in _answered_chats(dataset):
        is_human = row.get("prompt_source", "human") == "human" and not row.get("is_rewound")
        if is_human and answer_score(row, commits) >= 0:
            messages = [
                {"role": "user", "content": row["input"]},
                {"role": "assistant", "content": row["output"]},
            ]
            facts = {
                name: row.get(name) for name in ("id", "session_id", "timestamp", "tools", "files")
            }
            yield {"messages": messages, **facts}


def preference_pairs(dataset: DatasetReader) -> Iterator[dict[str, Any]]:
    """Yield two answers to one prompt, the better one as `chosen`."""
    commits = _commits_by_hash(dataset)
    for prompt, rows in sorted(_group_by_prompt(_answered_chats(dataset)).items()):
        for one, other in combinations(sorted(rows, key=lambda row: str(row["id"])), 2):
            left, right = answer_score(one, commits), answer_score(other, commits)
            if left == right or one["output"] == other["output"]:
                continue
            chosen, rejected = (one, other) if left > right else (other, one)
            yield {
                "prompt": prompt,
                "chosen": chosen["output"],
                "rejected": rejected["output"],
                "chosen_id": chosen["id"],
                "rejected_id": rejected["id"],
                "margin": abs(left - right),
            }


def answer_score(row: Row, commits: Mapping[str, Row]) -> int:
    """Return the recorded evidence for (positive) or against (negative) an answer."""
    feedback = row.get("feedback")
    rating = feedback.get("rating") if isinstance(feedback, dict) else feedback
    value = _RATINGS.get(str(rating), 0)
    reward = row.get("reward")
    value += (2 if reward > 0 else -2) if isinstance(reward, int | float) and reward else 0
    value -= 1 if row.get("is_rewound") else 0
    commit = commits.get(str(row.get("related_commit") or "")[:_SHORT], {})
    value += {"success": 1, "pass": 1, "failure": -1, "fail": -1}.get(
        str(commit.get("ci_result")), 0
    )
    return value - (2 if commit.get("reverted") else 0)


def _commits_by_hash(dataset: DatasetReader) -> dict[str, Row]:
    return {str(row.get("hash", ""))[:_SHORT]: row for row in dataset.rows_of_kind("commit")}


def _answered_chats(dataset: DatasetReader) -> Iterator[Row]:
    for row in dataset.rows_of_kind("chat"):
        if row.get("input") and row.get("output"):
            yield row


def _group_by_prompt(rows: Iterable[Row]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[str(row["input"]).strip()].append(row)
    return groups


def table_rows(dataset: DatasetReader, name: str) -> Iterator[tuple[str, str, Record]]:
    """Yield agent, day and cells of each row of a table."""
    if name == "responses":
        yield from _response_rows(dataset)
        return
    agents = stats.agents_by_session(dataset)
    for row in dataset.rows_of_kind(_KINDS.get(name, name)):
        at = str(row.get("timestamp") or row.get("started_at") or "")
        agent = row.get("agent") or agents.get(str(row.get("session_id")))
        cells: Record = {column: row.get(column) for column in COLUMNS[name]}
        if "words" in COLUMNS[name]:
            cells["words"] = row.get("words", REDACTED)
        if name == "chats":
            cells |= {
                "responses": len(row.get("steps", ())),
                "prompt_source": row.get("prompt_source", "human"),
            }
            cells["duration_seconds"] = row.get("duration_seconds", rev_of(row) / 1000)
            for text in ("input", "output"):
                cells[f"{text}_chars"] = row.get(f"{text}_chars", len(row.get(text) or ""))
        yield str(agent or NO_AGENT), at[:10] or "unknown", cells


def _response_rows(dataset: DatasetReader) -> Iterator[tuple[str, str, Record]]:
    for response in stats.iter_responses(dataset):
        fields = response._asdict() | dict(zip(stats.TOKENS, response.token_counts, strict=True))
        cells = {column: fields[column] for column in COLUMNS["responses"]}
        yield response.agent or NO_AGENT, response.timestamp[:10] or "unknown", cells


def export_dataset(dataset: DatasetReader, form: str, output: Path) -> dict[str, int]:
    """Write the dataset in one of `FORMS`; return the number of rows by file or table."""
    if form not in FORMS:
        raise Invalid(f"no such format: {form[:40]!r}", hint=f"one of: {', '.join(FORMS)}")
    if form in _ONE_FILE and output.is_dir():
        hint = f"--output {output / 'rows.jsonl'}"
        raise Invalid(f"{form} needs a file, not a directory: {output}", hint=hint)
    try:
        return FORMS[form](dataset, output)
    except OSError as error:
        hint = "choose another --output"
        raise Unavailable(f"cannot write {output}: {error.strerror}", hint=hint) from error


def _write_jsonl(dataset: DatasetReader, output: Path) -> dict[str, int]:
    return _write_lines(output, [row for kind in COUNTED for row in dataset.rows_of_kind(kind)])


def _write_lines(output: Path, rows: list[Row]) -> dict[str, int]:
    replace_file(output, b"".join(msgspec.json.encode(row) + b"\n" for row in rows), durable=False)
    return {output.name: len(rows)}


def _write_examples(
    make: Callable[[DatasetReader], Iterator[dict[str, Any]]], dataset: DatasetReader, output: Path
) -> dict[str, int]:
    rows = list(make(dataset))
    if not rows and (withheld := stats.count_withheld(dataset)):
        raise Invalid(
            f"{pluralize(withheld, 'chat')} without words: the project does not track words",
            hint="set track_words = true under [dataset] in flightlog.toml, then: flightlog trust --yes",
        )
    return _write_lines(output, rows)


def _write_csv(dataset: DatasetReader, output: Path) -> dict[str, int]:
    counts = {}
    for name, columns in COLUMNS.items():
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["agent", "day", *columns])
        rows = list(table_rows(dataset, name))
        writer.writerows(
            [agent, day, *map(_csv_cell, cells.values())] for agent, day, cells in rows
        )
        path = inside_of(output, f"{name}.csv")
        replace_file(path, text.getvalue().encode("utf-8", "replace"), durable=False)
        counts[f"{name}.csv"] = len(rows)
    return counts


def _write_parquet(dataset: DatasetReader, output: Path) -> dict[str, int]:
    """Write each table partitioned by agent and day, in Hive style."""
    counts = {}
    for name in COLUMNS:
        parts: dict[tuple[str, str], list[Record]] = defaultdict(list)
        for agent, day, cells in table_rows(dataset, name):
            parts[agent, day].append(cells)
        for (agent, day), rows in sorted(parts.items()):
            folder = f"{name}/agent={_SAFE.sub('-', agent)}/day={_SAFE.sub('-', day)}"
            path = inside_of(output, f"{folder}/part-0.parquet")
            replace_file(path, _pack_parquet(name, rows), durable=False)
        counts[name] = sum(map(len, parts.values()))
    return counts


def _write_hugging_face(dataset: DatasetReader, output: Path) -> dict[str, int]:
    """Write a folder that `datasets.load_dataset` reads, with a card and a redaction report."""
    counts = {}
    for name in COLUMNS:
        rows = [
            {"agent": agent, "day": day, **cells} for agent, day, cells in table_rows(dataset, name)
        ]
        path = inside_of(output, f"data/{name}-00000-of-00001.parquet")
        counts[name] = len(rows)
        if rows:
            replace_file(path, _pack_parquet(name, rows, whole=True), durable=False)
        else:
            # `load_dataset` refuses a table without rows.
            remove_files([path] if path.exists() else [])
    report = count_redactions(dataset)
    data = msgspec.json.format(msgspec.json.encode(report)) + b"\n"
    replace_file(inside_of(output, "redaction_report.json"), data)
    replace_file(inside_of(output, "README.md"), _dataset_card(dataset, counts, report).encode())
    return counts


FORMS: dict[str, Callable[[DatasetReader, Path], dict[str, int]]] = {
    "jsonl": _write_jsonl,
    "csv": _write_csv,
    "parquet": _write_parquet,
    "huggingface": _write_hugging_face,
    "sft": partial(_write_examples, chat_examples),
    "preferences": partial(_write_examples, preference_pairs),
}


def count_redactions(dataset: DatasetReader) -> dict[str, Any]:
    """Return the number of redaction placeholders by rule."""
    texts = (line.decode("utf-8", "replace") for line in dataset.live_lines().values())
    tags = (tag for text in texts for tag in REDACTION_TAG.findall(text))
    placeholders = Counter(f"{kind}:{rule}" for kind, rule in tags)
    return {
        "chats": stats.count_by_kind(dataset)["chats"],
        "chats_without_words": stats.count_withheld(dataset),
        "redacted_rows": dict(sorted(placeholders.items())),
    }


def inside_of(output: Path, name: str) -> Path:
    """Return the path of an export's file; create `output`."""
    ensure_dir(output)
    return resolve_inside(output, name)


def _pack_parquet(name: str, rows: Iterable[Record], *, whole: bool = False) -> bytes:
    with optional_import():  # slow to import, too
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    kinds = {
        NUMBER: arrow.int64(),
        REAL: arrow.float64(),
        FLAG: arrow.bool_(),
        NAMES: arrow.list_(arrow.string()),
    }
    front = {"agent": TEXT, "day": TEXT} if whole else {}
    columns = {**front, **COLUMNS[name]}
    schema = arrow.schema(
        [(column, kinds.get(kind, arrow.string())) for column, kind in columns.items()]
    )
    cells = [
        {column: _convert_value(row.get(column), kind) for column, kind in columns.items()}
        for row in rows
    ]
    sink = io.BytesIO()
    parquet.write_table(arrow.Table.from_pylist(cells, schema=schema), sink, compression="zstd")
    return sink.getvalue()


def _convert_value(value: Any, kind: str) -> Any:
    if kind == JSON:
        return None if value is None else msgspec.json.encode(value).decode()
    if kind == NAMES:
        return [str(name) for name in value or ()]
    if kind == TEXT:
        return None if value is None else str(value)
    if kind == FLAG or isinstance(value, bool):
        return value if kind == FLAG and isinstance(value, bool) else None
    fits = isinstance(value, int | float) and abs(value) < _NUMBER_MAX
    return (float if kind == REAL else int)(value) if fits else None


def _csv_cell(value: Any) -> Any:
    return msgspec.json.encode(value).decode() if isinstance(value, list | dict) else value


def _dataset_card(dataset: DatasetReader, counts: dict[str, int], report: dict[str, Any]) -> str:
    configs = "".join(
        f"- config_name: {name}\n  data_files: data/{name}-*.parquet\n{'  default: true' if name == 'chats' else ''}\n"
        for name in counts
        if counts[name]
    ).replace("\n\n", "\n")
    rows = "\n".join(f"| {name} | {number:,} |" for name, number in counts.items())
    tokens = "{input_tokens:,} input and {output_tokens:,} output tokens".format_map(
        stats.token_counts(dataset)
    )
    redacted = report["redacted_rows"].items()
    private = "\n".join(f"| {rule} | {times:,} |" for rule, times in redacted) or "| none | 0 |"
    return f"""---
pretty_name: Coding agent sessions
configs:
{configs}---

# Coding agent sessions

Turns, tool calls, subagents and commits of coding agent sessions, recorded by flightlog.

| table | rows |
|---|---|
{rows}

{tokens}; `responses` holds each model response once.

## What was removed

Text was redacted before it was first written. {report["chats_without_words"]:,} of {report["chats"]:,} chats
have no text, because their project does not track words. Authors of commits are not recorded.

| rule | times |
|---|---|
{private}
"""
