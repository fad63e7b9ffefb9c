"""What tombstones say: which rows are gone for good, and which have lost their words.

Tombstones are rows, so they travel with every merge. Rules about a session, a chat or a time also apply to rows that
arrive later from another branch or clone. Readers apply them; compacting and forgetting remove the bytes. Pure.
"""

import hashlib
from collections.abc import Iterable
from typing import Any

from flightlog.dataset.extract.consent import withhold_words
from flightlog.dataset.rows import (
    WITHHELD,
    Row,
    TombstoneRow,
    encode_row,
    format_row_time,
    key_of,
    short_session_id,
    to_dict,
)

_NEVER = frozenset({"tombstone", "generation"})
_FILE_ACTIONS = frozenset({"read", "edit"})  # their target is the name of a file, which is not a word


class TombstoneRules:
    """The rules of every tombstone met so far."""

    def __init__(self) -> None:
        """Begin with no rule."""
        self.keys: set[str] = set()
        self._sessions: set[str] = set()
        self._untitled: set[str] = set()
        self._chats: set[str] = set()
        self._lanes: set[str] = set()
        self._times: set[tuple[str, str]] = set()
        self._silent_until = ""

    def add_tombstone(self, row: Row) -> None:
        """Take one more tombstone into account; fields of the wrong type are left out."""
        if row.get("of"):
            self.keys.add(str(row["of"]))
        session = short_session_id(str(row.get("session") or ""))
        since, before = str(row.get("since") or ""), str(row.get("before") or "")
        if session:
            (self._sessions if row.get("whole") is True else self._untitled).add(session)
        self._chats.update(_only_texts(row.get("chats")))
        self._lanes.update(_only_texts(row.get("lanes")))
        if before and row.get("words") == WITHHELD:
            self._silent_until = max(self._silent_until, before)
        elif before:
            self._times.add((since, before))

    def covers_row(self, row: Row) -> bool:
        """Return whether a row is gone."""
        kind = str(row.get("kind"))
        if kind in _NEVER:
            return False
        if kind == "update" and self._covers_key(str(row.get("of") or "")):
            return True
        return (
            key_of(row) in self.keys
            or (kind != "commit" and short_session_of(row) in self._sessions)  # a commit is the repository's own
            or (kind == "chat" and str(row.get("id")) in self._chats)
            or (kind == "action" and (str(row.get("chat_id")) in self._chats or str(row.get("lane")) in self._lanes))
            or all(map(self._is_in_time, _times_of(row)))
        )

    def strip_row(self, row: Row) -> Row:
        """Return a row without what was forgotten of it; the same object if nothing was."""
        times = _times_of(row)
        is_silent = bool(self._silent_until) and times[0] <= self._silent_until  # also a row that says no time
        is_partly_gone = row.get("kind") == "session" and (
            short_session_of(row) in self._untitled or any(map(self._is_in_time, times))
        )
        if str(row.get("kind")) in _NEVER or not (is_silent or is_partly_gone):
            return row
        made = withhold_words(row)
        if made.get("kind") == "action" and str(made.get("action_type")) not in _FILE_ACTIONS and made.get("target"):
            made["target_chars"] = len(str(made["target"]))
            made["target"] = None
        return row if made == row else made

    def _covers_key(self, key: str) -> bool:
        kind, _, rest = key.partition(":")
        name, _, more = rest.partition(":")
        session = {"action": more.partition(":")[0], "session": name, "orchestration": name}.get(kind, "")
        return (
            key in self.keys or name in self._chats or (bool(session) and short_session_id(session) in self._sessions)
        )

    def _is_in_time(self, written: str) -> bool:
        return any(since <= written < before for since, before in self._times) if written else False


def make_tombstone(why: str, now_ms: int, **rule: Any) -> Row:
    """Return a tombstone: `of` a row, or with a rule: `session`, `whole`, `chats`, `lanes`, `since`, `before`, `words`.

    The same row or rule has the same mark.
    """
    name = hashlib.sha256(encode_row(rule)).hexdigest()[:12]
    return to_dict(TombstoneRow(id=f"forget-{name}", timestamp=format_row_time(now_ms), why=why, rev=now_ms, **rule))


def short_session_of(row: Row) -> str:
    """Return the short id of the session that a row belongs to; empty where it says none."""
    return short_session_id(str(row.get("session") or row.get("session_id") or ""))


def _times_of(row: Row) -> list[str]:
    """Return when a row's event began and, for a session, ended; an empty text where it does not say."""
    if row.get("kind") == "session":
        return [str(row.get("started_at") or ""), str(row.get("ended_at") or row.get("started_at") or "")]
    return [str(row.get("timestamp") or "")]


def _only_texts(value: Any) -> Iterable[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
