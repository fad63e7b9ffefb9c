"""Training examples from chats: messages to learn from, and pairs to prefer between.

Takes rows with words only; says how many had none. A pair is made where one prompt was answered
twice and something on record says which answer was better: a rating, a revert, a failed build, or
that the person took the first one back.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from typing import Any

from flightlog.dataset.book import DatasetReader
from flightlog.dataset.rows import Row

_SHORT = 12
_RATINGS = {"good": 2, "neutral": 0, "bad": -2}


def chat_examples(book: DatasetReader) -> Iterator[dict[str, Any]]:
    """Yield each answered prompt of a person as a conversation of two messages."""
    commits = _commits_by_hash(book)
    for row in _answered_chats(book):
        if row.get("by", "human") == "human" and not row.get("rewound") and answer_score(row, commits) >= 0:
            said = [{"role": "user", "content": row["input"]}, {"role": "assistant", "content": row["output"]}]
            facts = {name: row.get(name) for name in ("id", "session_id", "timestamp", "tools", "files")}
            yield {"messages": said, **facts}


def preference_pairs(book: DatasetReader) -> Iterator[dict[str, Any]]:
    """Yield two answers to one prompt, the better one first."""
    commits = _commits_by_hash(book)
    for asked, rows in sorted(_group_by_prompt(_answered_chats(book)).items()):
        for one, other in combinations(sorted(rows, key=lambda row: str(row["id"])), 2):
            left, right = answer_score(one, commits), answer_score(other, commits)
            if left == right or one["output"] == other["output"]:
                continue
            chosen, rejected = (one, other) if left > right else (other, one)
            yield {
                "prompt": asked,
                "chosen": chosen["output"],
                "rejected": rejected["output"],
                "chosen_id": chosen["id"],
                "rejected_id": rejected["id"],
                "margin": abs(left - right),
            }


def answer_score(row: Row, commits: Mapping[str, Row]) -> int:
    """Say what is on record for and against an answer."""
    feedback = row.get("feedback")
    rating = feedback.get("rating") if isinstance(feedback, dict) else feedback
    value = _RATINGS.get(str(rating), 0)
    value -= 1 if row.get("rewound") else 0
    commit = commits.get(str(row.get("related_commit") or "")[:_SHORT], {})
    value += {"success": 1, "pass": 1, "failure": -1, "fail": -1}.get(str(commit.get("ci_result")), 0)
    return value - (2 if commit.get("reverted") else 0)


def _commits_by_hash(book: DatasetReader) -> dict[str, Row]:
    return {str(row.get("hash", ""))[:_SHORT]: row for row in book.rows_of_kind("commit")}


def _answered_chats(book: DatasetReader) -> Iterator[Row]:
    for row in book.rows_of_kind("chat"):
        if row.get("input") and row.get("output"):
            yield row


def _group_by_prompt(rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[str(row["input"]).strip()].append(row)
    return found
