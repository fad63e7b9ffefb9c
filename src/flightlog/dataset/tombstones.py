"""Rules of tombstones: which rows are removed for good, and which lost their words.

Tombstones are rows, so they travel with every merge. Rules about a session, a chat or a time also
apply to rows that arrive later from another branch or clone. Readers apply them; compacting and
forgetting remove the bytes. Pure.
"""

import hashlib
from collections.abc import Iterable
from typing import Any

from flightlog.dataset import rows
from flightlog.dataset.extract.consent import withhold_words

_NEVER = frozenset({"tombstone", "generation"})
_FILE_ACTIONS = frozenset({"read", "edit"})  # a file name does not count as words


class TombstoneRules:
    """The rules of all tombstones read so far."""

    def __init__(self) -> None:
        self.keys: set[str] = set()
        self._sessions: set[str] = set()
        self._untitled: set[str] = set()
        self._chats: set[str] = set()
        self._subagents: set[str] = set()
        self._times: set[tuple[str, str]] = set()
        self._silent_until = ""

    def add_tombstone(self, row: rows.Row) -> None:
        """Add the rules of one tombstone; fields of the wrong type are ignored."""
        if row.get("row_id"):
            self.keys.add(str(row["row_id"]))
        session = rows.short_session_id(str(row.get("session") or ""))
        since, before = str(row.get("since") or ""), str(row.get("before") or "")
        if session:
            (self._sessions if row.get("is_whole_session") is True else self._untitled).add(session)
        self._chats.update(_only_texts(row.get("chats")))
        self._subagents.update(_only_texts(row.get("subagents")))
        if before and row.get("words") == rows.WITHHELD:
            self._silent_until = max(self._silent_until, before)
        elif before:
            self._times.add((since, before))

    def covers_row(self, row: rows.Row) -> bool:
        """Return whether a row is removed."""
        kind = str(row.get("kind"))
        if kind in _NEVER:
            return False
        if kind == "update" and self._covers_key(str(row.get("row_id") or "")):
            return True
        if kind == "chat":
            is_of_chat = str(row.get("id")) in self._chats
        else:
            is_of_chat = kind == "action" and (
                str(row.get("chat_id")) in self._chats
                or str(row.get("subagent")) in self._subagents
            )
        return (
            is_of_chat
            or rows.key_of(row) in self.keys
            # Commits belong to the repository.
            or (kind != "commit" and short_session_of(row) in self._sessions)
            or all(map(self._is_in_time, _times_of(row)))
        )

    def strip_row(self, row: rows.Row) -> rows.Row:
        """Return a row without its removed words; the same object if it lost none."""
        times = _times_of(row)
        # Also a row without a time.
        is_silent = bool(self._silent_until) and times[0] <= self._silent_until
        is_partly_removed = row.get("kind") == "session" and (
            short_session_of(row) in self._untitled or any(map(self._is_in_time, times))
        )
        if str(row.get("kind")) in _NEVER or not (is_silent or is_partly_removed):
            return row
        stripped = withhold_words(row)
        is_of_file = str(stripped.get("action_type")) in _FILE_ACTIONS
        if stripped.get("kind") == "action" and not is_of_file and stripped.get("target"):
            stripped["target_chars"] = len(str(stripped["target"]))
            stripped["target"] = None
        return row if stripped == row else stripped

    def _covers_key(self, key: str) -> bool:
        kind, _, rest = key.partition(":")
        name, _, more = rest.partition(":")
        session = {"action": more.partition(":")[0], "session": name, "orchestration": name}.get(
            kind, ""
        )
        return (
            key in self.keys
            or name in self._chats
            or (bool(session) and rows.short_session_id(session) in self._sessions)
        )

    def _is_in_time(self, time: str) -> bool:
        return any(since <= time < before for since, before in self._times) if time else False


def make_tombstone(reason: str, now_ms: int, **rule: Any) -> rows.Row:
    """Return a tombstone of a row (`row_id`) or of a rule.

    A rule consists of `session`, `is_whole_session`, `chats`, `subagents`, `since`, `before` and
    `words`. Equal rules have equal ids.
    """
    name = hashlib.sha256(rows.encode_row(rule)).hexdigest()[:12]
    timestamp = rows.format_row_time(now_ms)
    return rows.to_dict(
        rows.TombstoneRow(
            id=f"forget-{name}", timestamp=timestamp, reason=reason, rev=now_ms, **rule
        )
    )


def short_session_of(row: rows.Row) -> str:
    """Return the short id of a row's session, or ""."""
    return rows.short_session_id(str(row.get("session") or row.get("session_id") or ""))


def _times_of(row: rows.Row) -> list[str]:
    """Return the start of a row's event and, for a session, its end; "" if unknown."""
    if row.get("kind") == "session":
        return [
            str(row.get("started_at") or ""),
            str(row.get("ended_at") or row.get("started_at") or ""),
        ]
    return [str(row.get("timestamp") or "")]


def _only_texts(value: Any) -> Iterable[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []
