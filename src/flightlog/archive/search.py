"""Query language and full-text search.

A record matches if it contains all words and "phrases" and none of the `-words`. A word matches
at its beginning, a phrase as a whole. `tool: model: file: project: agent: since: cost:` restrict the
search; `cost:` is that of the session. A word of one or two letters matches as a whole, because
it begins too many others; `te*` asks for its beginning. The command line and the pages parse a
query here.

The first search builds the index. Snippets are read from the recordings, not from the index.
"""

import re
import sqlite3
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from flightlog.agents import agent_names, source_of
from flightlog.archive.session_values import SessionValueCache
from flightlog.model.errors import Invalid
from flightlog.model.session import DEFAULT_AGENT, SessionFile
from flightlog.model.usage import Cost, CostSource
from flightlog.sources.workers import read_all
from flightlog.store.index import fulltext
from flightlog.store.index.database import Index
from flightlog.store.index.files import SCHEMA as FILES
from flightlog.store.index.files import SyncStats
from flightlog.store.index.fulltext import SCHEMA as FULLTEXT
from flightlog.store.index.records import SCHEMA as RECORDS
from flightlog.store.index.records import RecordBatch
from flightlog.usage.pipeline import UsagePipeline
from flightlog.views.session.timeline import map_addresses

if TYPE_CHECKING:
    from flightlog.archive.archive import Archive

# One part of a query: `-`, `key:`, then a "phrase" or a word.
_PART = re.compile(
    r'(?P<minus>-?)(?:(?P<key>[A-Za-z]+):)?(?:"(?P<phrase>[^"]*)"?|(?P<word>[^\s"]+)|(?<=:))'
)
_COST = re.compile(r"[<>]?=?\$?(?P<usd>\d+(?:\.\d+)?)")
_TURN = re.compile(r"^@(\d+) (.+)$", re.MULTILINE)
_COSTS = ("cost:", "cost:<")  # the least and the most
_PREFIX_CHARS_MIN = 3  # "te" begins a third of all words: 360 ms among 450,000 records
_COLUMNS = frozenset({"tool", "model", "file"})
_FILTERS = frozenset({"project", "since", "cost", "agent"})
_EXAMPLE = """flightlog session search '"python3 greet.py" tool:bash since:2026-11-01'"""
# How an answer of our MCP server begins. It repeats recorded text, so its words are not indexed.
OWN_ANSWER = "[flightlog mcp]"
_ANSWER_CHARS = 400  # a client may put its own lines before an answer
_UNKNOWN = Cost(None, CostSource.UNKNOWN)
_ADDRESS_CHARS_MAX = 300  # two ids of at most 128 characters and two numbers
PATIENCE_S = 20.0  # a first run over a large archive releases the write lock only between batches
TRY_S = 1.0  # a background update gives up soon: another process is doing the same work


class SearchQuery(Struct, frozen=True):
    """A parsed query; `match` is for the index, `words` are those to highlight in a snippet."""

    match: str = ""
    words: tuple[str, ...] = ()
    project: str = ""
    since_ms: int = 0
    cost_min_usd: float | None = None
    cost_max_usd: float | None = None
    agent: str = ""

    def matches_cost(self, usd: float | None) -> bool:
        """Return whether `usd` is in the range; an unknown cost is in no range."""
        if self.cost_min_usd is None and self.cost_max_usd is None:
            return True
        low, high = self.cost_min_usd or 0.0, self.cost_max_usd
        return usd is not None and low <= usd and (high is None or usd <= high)


def parse_query(
    typed: str, read_time: Callable[[str], int], *, is_whole: bool = False
) -> SearchQuery:
    """Parse a query, or raise `Invalid` with an example; `read_time` parses `since:`.

    With `is_whole` only a word that ends in `*` matches at its beginning.
    """
    required: list[str] = []
    excluded: list[str] = []
    words: list[str] = []
    options: dict[str, str] = {}
    # A NUL byte would end the expression for SQLite.
    for part in _PART.finditer(typed.replace("\0", " ")):
        text = part["phrase"] or part["word"] or ""
        key = (part["key"] or "").lower()
        if key in _COLUMNS | _FILTERS and not text:
            raise Invalid(f"nothing after {key}:", hint=_EXAMPLE)
        if key in _FILTERS and part["minus"]:
            message = f"only words and tool: model: file: can be excluded, not {key}:"
            raise Invalid(message, hint=_EXAMPLE)
        if key in _FILTERS:
            name = "cost:<" if key == "cost" and text.startswith("<") else f"{key}:"
            if name in options:
                raise Invalid(f"only one {name} is possible", hint=_EXAMPLE)
            options[name] = text
            continue
        column = key if key in _COLUMNS else ""
        if part["key"] and not column:
            text = f"{part['key']}:{text}"
        is_prefix = part["phrase"] is None and (not is_whole or bool(column) or text[-1:] == "*")
        expression = _index_expression(text, column, is_prefix=is_prefix)
        if expression:
            (excluded if part["minus"] else required).append(expression)
            words += [] if part["minus"] or column else [text.removesuffix("*")]
    if not required and (excluded or not options):
        raise Invalid("nothing to search for", hint=_EXAMPLE)
    match = " AND ".join(required) + "".join(f" NOT {expression}" for expression in excluded)
    low, high = (_parse_cost(options[name]) if name in options else None for name in _COSTS)
    since_ms = read_time(options["since:"]) if "since:" in options else 0
    agent = options.get("agent:", "")
    if agent and agent not in agent_names():
        raise Invalid(f"no such agent: {agent[:40]!r}", hint=f"one of: {', '.join(agent_names())}")
    return SearchQuery(match, tuple(words), options.get("project:", ""), since_ms, low, high, agent)


def cut_snippet(text: str, words: tuple[str, ...], width: int = 160) -> str:
    """Return the passage of `text` around the first of `words`, on one line."""
    start = find_passage(text, words, width)
    cut = " ".join(text[start : start + width].split())
    return ("…" if start else "") + cut + ("…" if start + width < len(text) else "")


def find_passage(text: str, words: tuple[str, ...], width: int) -> int:
    """Return where the passage of `width` characters around the first of `words` starts."""
    lower = text.lower()
    positions = [position for word in words if (position := lower.find(word.lower())) >= 0]
    return max(0, min(positions, default=0) - width // 3)


def _index_expression(text: str, column: str, *, is_prefix: bool) -> str:
    """Return an FTS5 expression for a word or phrase; empty for punctuation."""
    if not re.search(r"\w", text):
        return ""
    # Two characters of other scripts can be a whole word.
    is_short = len(text) < _PREFIX_CHARS_MIN and text.isascii() and not column
    star = " *" if is_prefix and not is_short else ""
    quoted = '"' + text.removesuffix("*").replace('"', '""') + '"' + star
    return f"({column or '{said output}'} : {quoted})"


def _parse_cost(text: str) -> float:
    match = _COST.fullmatch(text)
    if match is None:
        raise Invalid(f"not an amount: {text[:40]!r}", hint="write cost:>1.50 or cost:<0.1, in USD")
    return float(match["usd"])


class SearchResult(Struct, frozen=True):
    """A record that matches a query, and the passage that matches."""

    hit: fulltext.RecordMatch
    snippet: str


class SearchResults(Struct, frozen=True):
    """The first matches, and how many there are in all.

    Records are all counted, sessions up to `SESSIONS_COUNTED_MAX`.
    """

    results: list[SearchResult]
    total: int


class SearchHit(Struct, frozen=True):
    """A match as it is shown: `address` names the step, `cost_usd` is that of the session."""

    address: str
    session: str
    project: str
    at_ms: int | None
    cost_usd: float | None
    snippet: str
    agent: str = DEFAULT_AGENT
    is_lower_bound: bool = False

    @property
    def cost(self) -> Cost:
        """The cost of the session."""
        return Cost(self.cost_usd, CostSource.TABLE, self.is_lower_bound)


def locate_results(
    archive: "Archive",
    results: Iterable[SearchResult],
    costs: Mapping[str, Cost],
    read_bytes_max: int = sys.maxsize,
) -> list[SearchHit]:
    """Return hits with address and the cost of their session, from `costs`.

    The addresses of a session are cached in the index. To find others, at most `read_bytes_max`
    are read; a hit in a session beyond that has the address of the session.
    """
    addresses: dict[str, str] = {}
    hits = []
    # As one text: decoding a table of 100,000 addresses takes a tenth of a second.
    with closing(SessionValueCache("address lines", str, archive.index_path)) as cache:
        for result in results:
            match, session = result.hit, result.hit.session
            # Another process may have added a session to the index since.
            recording = archive.recordings.get(session)
            if session not in addresses:
                known = cache.get_if_current(session, recording.files) if recording else ""
                if recording and known is None and recording.size <= read_bytes_max:
                    read_bytes_max -= recording.size
                    list_all = partial(_list_addresses, archive)
                    known = cache.get_or_compute(session, recording.files, list_all)
                addresses[session] = known or ""
            _, _, rest = addresses[session].partition(f"\n{match.uuid} ")
            address = rest[:_ADDRESS_CHARS_MAX].partition("\n")[0]
            if not address:
                at_ms = 0 if match.subagent else match.at_ms
                turns = _TURN.finditer(addresses[session])
                address = next((turn[2] for turn in turns if int(turn[1]) <= at_ms), session)
            agent = recording.agent if recording else DEFAULT_AGENT
            cost = costs.get(session, _UNKNOWN)
            facts = (match.project, match.at_ms or None, cost.usd, result.snippet)
            hits.append(SearchHit(address, session, *facts, agent, cost.is_lower_bound))
    return hits


def _list_addresses(archive: "Archive", session: str) -> str:
    """Return a line for each record of a session: its id and its address.

    Queued prompts and remarks of the client are found by time: the lines before have the start of
    each turn of the main thread, the last one first.
    """
    recorded = archive.read_session(session)
    turns = [f"@{turn.at_ms} {session}#{turn.number}" for turn in recorded.turns if turn.at_ms]
    records = (f"{uuid} {address}" for uuid, address in map_addresses(recorded).items())
    return "\n" + "\n".join([*reversed(turns), f"@0 {session}", *records, ""])


class SearchIndex:
    """The full-text index of some session files."""

    def __init__(self, files: Sequence[SessionFile], index: Path | None) -> None:
        """Search `files`, with the index at `index` or in memory."""
        self._files, self._path = files, index
        self._agents = {file.path: file.agent for file in files}
        self._index = Index(index, FILES, RECORDS, FULLTEXT)

    def sync_index(self) -> SyncStats:
        """Index new records; if another process keeps the index locked, build one in memory."""
        stats = self._index.try_query(self._index_new, PATIENCE_S)
        return self._index.query(self._index_new) if stats is None else stats

    def try_sync(self) -> SyncStats | None:
        """Index new records; return None if another process is writing to the index."""
        return self._index.try_query(self._index_new, TRY_S)

    def search_records(self, query: SearchQuery, limit: int = 20) -> SearchResults:
        """Index new records; return the first that match, newest session first; 0 returns all."""
        self.sync_index()
        return self.search_indexed(query, limit)

    def search_indexed(
        self, query: SearchQuery, limit: int = 20, *, once: bool = False
    ) -> SearchResults:
        """Return the first matches, all or `once` per session, newest first; indexes nothing."""
        scope = (query.match, query.since_ms, query.project, self._restrict_sessions(query))
        records = fulltext.RecordQuery(*scope, limit, once_per_session=once)
        hits, total = self._index.query(lambda database: fulltext.search_words(database, records))
        results = [SearchResult(hit, cut_snippet(self._text_of(hit), query.words)) for hit in hits]
        return SearchResults(results, total)

    def refresh(self) -> None:
        """Index new records if there is an index from an earlier search."""
        if self._index.query(fulltext.has_text):
            self.try_sync()

    def close(self) -> None:
        """Close the index."""
        self._index.close()

    def _text_of(self, hit: fulltext.RecordMatch) -> str:
        source = source_of(self._agents.get(hit.path, DEFAULT_AGENT))
        return source.text_at(hit.path, hit.offset, hit.length)

    def _index_new(self, database: sqlite3.Connection) -> SyncStats:
        return fulltext.sync_text(
            database,
            self._files,
            lambda reads: read_all(reads, _read_records),
            lambda file: source_of(file.agent).last_record_ms(file),
        )

    def _restrict_sessions(self, query: SearchQuery) -> frozenset[str] | None:
        """Return the sessions of the query's agent and cost range; None means all."""
        if query.matches_cost(None) and not query.agent:
            return None
        own = frozenset(file.session for file in self._files if query.agent in {"", file.agent})
        if query.matches_cost(None):
            return own
        pipeline = UsagePipeline(self._files, self._path)
        rows = pipeline.session_rows()
        pipeline.save()
        matching = {session for session, row in rows.items() if query.matches_cost(row.cost.usd)}
        return frozenset(matching & own)


def _read_records(file: SessionFile, start: int) -> RecordBatch:
    batch = source_of(file.agent).index_records(file, start)
    for at, record in enumerate(batch.records):
        if OWN_ANSWER in record.output[:_ANSWER_CHARS]:
            batch.records[at] = record._replace(output="")
    return batch
