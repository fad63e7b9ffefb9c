"""Query language and full-text search.

Words and "phrases" must all be there; `-word` must not; `word*` is the beginning of a word.
`tool: model: file: project: since: cost:` narrow it down. Knows nothing of the index but the
syntax of its full-text expressions, and nothing of the clock: how to read a time is passed in.

The words are indexed when they are first asked for; a passage is read from the recording
itself, so what is shown is what was said.
"""

import re
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from flightlog.agents.claude_code.search_text import read_records, read_text_at
from flightlog.model.errors import Invalid
from flightlog.model.session import SessionFile
from flightlog.sources.workers import read_all
from flightlog.store.index.database import Index
from flightlog.store.index.files import SCHEMA as FILES
from flightlog.store.index.files import SyncStats
from flightlog.store.index.fulltext import SCHEMA as FULLTEXT
from flightlog.store.index.fulltext import RecordMatch, RecordQuery, has_text, search_words, sync_text
from flightlog.store.index.records import SCHEMA as RECORDS
from flightlog.usage.pipeline import UsagePipeline

_PART = re.compile(r'(?P<minus>-?)(?:(?P<key>[A-Za-z]+):)?(?:"(?P<phrase>[^"]*)"?|(?P<word>[^\s"]+))')
_COST = re.compile(r"(?P<sign>>=|<=|>|<|)\$?(?P<usd>\d+(?:\.\d+)?)")
_INDEXED = {"tool": "tool", "model": "model", "file": "file"}
_HINT = 'flightlog session search "retry loop" tool:Bash since:7d cost:>1'
PATIENCE_S = 20.0  # whoever indexes a large archive for the first time lets go for a moment only
TRY_S = 1.0


class SearchQuery(Struct, frozen=True):
    """What to look for; `words` are what to mark in a hit."""

    match: str = ""
    words: tuple[str, ...] = ()
    project: str = ""
    since_ms: int = 0
    cost_from: float | None = None
    cost_to: float | None = None

    def matches_cost(self, usd: float | None) -> bool:
        """Say whether a session that costs `usd` is wanted; one of unknown cost is not, if a cost is asked for."""
        if self.cost_from is None and self.cost_to is None:
            return True
        return usd is not None and (self.cost_from or 0.0) <= usd <= (self.cost_to if self.cost_to is not None else usd)


def parse_query(typed: str, read_time: Callable[[str], int]) -> SearchQuery:
    """Read a query; what cannot be read is refused with an example."""
    wanted: list[str] = []
    unwanted: list[str] = []
    words: list[str] = []
    rest: dict[str, str] = {}
    # A NUL byte would end the expression for SQLite.
    for part in _PART.finditer(typed.replace("\0", " ")):
        said = part["phrase"] if part["phrase"] is not None else part["word"]
        key = (part["key"] or "").lower()
        if key in ("project", "since", "cost"):
            rest[key] = said
            continue
        column = _INDEXED.get(key, "")
        if part["key"] and not column:
            said = f"{part['key']}:{said}"
        expression = _index_expression(said, column)
        if expression:
            (unwanted if part["minus"] else wanted).append(expression)
            words += [] if part["minus"] or column else [said.removesuffix("*")]
    if not wanted and (unwanted or not rest):
        raise Invalid("nothing to search for", hint=_HINT)
    match = " AND ".join(wanted) + "".join(f" NOT {each}" for each in unwanted)
    low, high = _parse_cost(rest["cost"]) if "cost" in rest else (None, None)
    since_ms = read_time(rest["since"]) if "since" in rest else 0
    return SearchQuery(match, tuple(words), rest.get("project", ""), since_ms, low, high)


def cut_snippet(text: str, words: tuple[str, ...], width: int = 160) -> str:
    """Cut the passage of `text` around the first of `words`, on one line."""
    low = text.lower()
    places = [at for word in words if (at := low.find(word.lower())) >= 0]
    at = min(places, default=0)
    start = max(0, at - width // 3)
    cut = " ".join(text[start : start + width].split())
    return ("…" if start else "") + cut + ("…" if start + width < len(text) else "")


def _index_expression(said: str, column: str) -> str:
    """Write one word or phrase in the index's own syntax; punctuation alone finds nothing."""
    if not re.search(r"\w", said):
        return ""
    star = " *" if said.endswith("*") else ""
    quoted = '"' + said.removesuffix("*").replace('"', '""') + '"' + star
    return f"({column or '{said output}'} : {quoted})"


def _parse_cost(said: str) -> tuple[float | None, float | None]:
    match = _COST.fullmatch(said)
    if match is None:
        raise Invalid(f"not an amount: {said[:40]!r}", hint="write cost:>1.50 or cost:<0.1, in USD")
    usd = float(match["usd"])
    return (None, usd) if match["sign"].startswith("<") else (usd, None)


class SearchResult(Struct, frozen=True):
    """A record that matches a search, and the passage that does."""

    hit: RecordMatch
    snippet: str


class SearchIndex:
    """Searches recorded files."""

    def __init__(self, files: Sequence[SessionFile], index: Path | None) -> None:
        """Look into `files`; keep the index at `index`, or nowhere."""
        self._files, self._path = files, index
        self._index = Index(index, FILES, RECORDS, FULLTEXT)

    def sync_index(self) -> SyncStats:
        """Index what is new; `search` does so by itself."""
        done = self._index.try_query(self._index_new, PATIENCE_S)
        # Somebody holds the index and does not let go: this once, do without it.
        return self._index.query(self._index_new) if done is None else done

    def try_sync(self) -> SyncStats | None:
        """Index what is new, unless somebody else is writing just now."""
        return self._index.try_query(self._index_new, TRY_S)

    def search_records(self, query: SearchQuery, limit: int = 20) -> list[SearchResult]:
        """Return the first records that match, the newest recordings first."""
        self.sync_index()
        return self.search_indexed(query, limit)

    def search_indexed(self, query: SearchQuery, limit: int = 20) -> list[SearchResult]:
        """Return what `search` does, of what is already indexed."""
        return self._fetch_snippets(
            query, RecordQuery(query.match, query.since_ms, query.project, self._sessions_within_cost(query), limit)
        )

    def search_once_per_session(self, query: SearchQuery, limit: int) -> list[SearchResult]:
        """Return the first record of each session that matches, of what is already indexed."""
        costing = self._sessions_within_cost(query)
        return self._fetch_snippets(
            query, RecordQuery(query.match, query.since_ms, query.project, costing, limit, once=True)
        )

    def _fetch_snippets(self, query: SearchQuery, wanted: RecordQuery) -> list[SearchResult]:
        hits = self._index.query(lambda database: search_words(database, wanted))
        return [
            SearchResult(hit, cut_snippet(read_text_at(hit.path, hit.offset, hit.length), query.words)) for hit in hits
        ]

    def refresh(self) -> None:
        """Bring the words up to date if somebody has searched before."""
        if self._index.query(has_text):
            self.try_sync()

    def close(self) -> None:
        """Let go of the index."""
        self._index.close()

    def _index_new(self, database: sqlite3.Connection) -> SyncStats:
        return sync_text(database, self._files, lambda reads: read_all(reads, read_records))

    def _sessions_within_cost(self, query: SearchQuery) -> frozenset[str] | None:
        """The sessions of the cost that is asked for; None means any."""
        if query.matches_cost(None):
            return None
        pipeline = UsagePipeline(self._files, self._path)
        rows = pipeline.session_rows()
        pipeline.save()
        return frozenset(session for session, row in rows.items() if query.matches_cost(row.cost.usd))
