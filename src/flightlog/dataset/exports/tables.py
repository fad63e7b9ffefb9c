"""The dataset as flat tables, one schema for every form that has columns.

`responses` holds each model response once, so that a plain sum over it is the archive's. Lists and
objects that do not fit a cell are JSON text in CSV and nested columns in Parquet.
"""

from collections.abc import Iterator
from typing import Any

from flightlog.dataset.book import DatasetReader
from flightlog.dataset.rows import REDACTED, rev_of
from flightlog.dataset.stats import agents_by_session, iter_responses

Cell = Any
Record = dict[str, Cell]

TEXT, NUMBER, REAL, FLAG, NAMES, JSON = "text", "number", "real", "flag", "names", "json"

COLUMNS: dict[str, dict[str, str]] = {
    "chats": {
        "id": TEXT, "timestamp": TEXT, "session_id": TEXT, "input": TEXT, "output": TEXT, "tools": NAMES,
        "files": NAMES, "input_chars": NUMBER, "output_chars": NUMBER, "words": TEXT, "uuid": TEXT, "by": TEXT,
        "files_modified": NAMES, "duration_seconds": REAL, "responses": NUMBER, "resulted_in_commit": FLAG,
        "related_commit": TEXT, "rewound": FLAG, "feedback": JSON, "rev": NUMBER,
    },
    "sessions": {
        "id": TEXT, "started_at": TEXT, "ended_at": TEXT, "summary": TEXT, "chat_count": NUMBER, "commits": NAMES,
        "session": TEXT, "words": TEXT, "branch": TEXT, "version": TEXT, "duration_seconds": REAL, "steps": NUMBER,
        "actions": NUMBER, "failed_actions": NUMBER, "sub_agents": NUMBER, "compactions": NUMBER, "tools_used": JSON,
        "files_modified": NAMES, "models": NAMES, "cost_usd": REAL, "rev": NUMBER,
    },
    "actions": {
        "id": TEXT, "timestamp": TEXT, "session_id": TEXT, "action_type": TEXT, "target": TEXT, "tool": TEXT,
        "chat_id": TEXT, "lane": TEXT, "success": FLAG, "duration_ms": NUMBER, "result_chars": NUMBER,
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
        "id": TEXT, "model": TEXT, "session_id": TEXT, "chat_id": TEXT, "lane": TEXT, "timestamp": TEXT,
        "input_tokens": NUMBER, "output_tokens": NUMBER, "cache_read_tokens": NUMBER,
        "cache_write_5m_tokens": NUMBER, "cache_write_1h_tokens": NUMBER,
    },
}  # fmt: skip
_KINDS = {"chats": "chat", "sessions": "session", "actions": "action", "commits": "commit"}
NO_AGENT = "none"


def table_rows(book: DatasetReader, name: str) -> Iterator[tuple[str, str, Record]]:
    """Yield agent, day and cells of each row of a table."""
    if name == "responses":
        yield from _response_rows(book)
        return
    homes = agents_by_session(book)
    for row in book.rows_of_kind(_KINDS.get(name, name)):
        at = str(row.get("timestamp") or row.get("started_at") or "")
        agent = row.get("agent") or homes.get(str(row.get("session_id")))
        cells: Record = {column: row.get(column) for column in COLUMNS[name]}
        if "words" in COLUMNS[name]:
            cells["words"] = row.get("words", REDACTED)
        if name == "chats":
            cells |= {"responses": len(row.get("steps", ())), "by": row.get("by", "human")}
            cells["duration_seconds"] = row.get("duration_seconds", rev_of(row) / 1000)
            for text in ("input", "output"):
                cells[f"{text}_chars"] = row.get(f"{text}_chars", len(row.get(text) or ""))
        yield str(agent or NO_AGENT), at[:10] or "unknown", cells


def _response_rows(book: DatasetReader) -> Iterator[tuple[str, str, Record]]:
    for said in iter_responses(book):
        names = list(COLUMNS["responses"])
        values = [said.id, said.model, said.session_id, said.chat_id, said.lane, said.timestamp, *said.tokens]
        yield said.agent or NO_AGENT, said.timestamp[:10] or "unknown", dict(zip(names, values, strict=True))
