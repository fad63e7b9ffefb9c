"""Letting old rows go: planned by the one retention engine, carried out as tombstones.

A tombstone keeps a row gone through every merge. The rows themselves leave the files at the next
compaction; what git's history holds is not touched. The older layouts' files are a person's own.
"""

from collections.abc import Iterable
from datetime import datetime

from flightlog.dataset.book import Book
from flightlog.dataset.rows import COUNTED, Row, plain, tombstone
from flightlog.model.retention import Deed, Item, Move, Policy, Rule
from flightlog.views.retention import plan

WHY = "older than the project keeps rows"


def policy(keep_days: int) -> Policy:
    """Return the rules: every kind of row after so many days."""
    rules = tuple(Rule(kind, keep_days, Deed.DELETE) for kind in COUNTED)
    return Policy("dataset", rules, untouched=("chats", "sessions", "actions"))


def due(book: Book, keep_days: int, now_ms: int) -> tuple[Move, ...]:
    """Return the rows that are to go, oldest first; a row without a time stays."""
    items = [
        Item(key, str(row.get("kind")), at_ms, len(book.lines[key].line))
        for key, row in book.rows.items()
        if key not in book.gone and (at_ms := _time(row))
    ]
    return plan(policy(keep_days), items, now_ms)


def tombstones(keys: Iterable[str], why: str, now_ms: int) -> list[Row]:
    """Return the marks that these rows are gone."""
    return [plain(tombstone(key, why, now_ms)) for key in sorted(set(keys))]


def _time(row: Row) -> int:
    said = str(row.get("ended_at") or row.get("timestamp") or row.get("started_at") or "")
    try:
        return int(datetime.fromisoformat(said).timestamp() * 1000)
    except (ValueError, OverflowError):
        return 0
