"""The first full index against `agentsview sync`, and search over it."""

import random
import sqlite3
import statistics
import time
from collections import defaultdict
from pathlib import Path

from tools.bench.measure import Contender, Result, clear, plain_env, race
from tools.bench.table import Table
from tools.bench.usage import Ground

from flightlog.agents.adoption import adopt_session_files
from flightlog.agents.claude_code.files import AGENT_NAME, find_transcripts
from flightlog.agents.recordings import list_recorded_files
from flightlog.archive.search import SearchIndex, parse_query
from flightlog.model.session import SessionFile
from flightlog.store.recordings.sessions import seal_session

_WORDS = (
    "error",
    "the file",
    "import",
    "test function",
    "config",
    "return value",
    "server request",
)


def first(ground: Ground, table: Table, *, peer: bool) -> None:
    """Index every line and word, once; then again with nothing to do."""
    env = plain_env(
        CLAUDE_CONFIG_DIR=str(ground.corpus),
        FLIGHTLOG_HOME=str(ground.index),
        HOME=str(ground.work / "ours"),
    )
    command = [str(ground.program), "session", "search", "error", "--json"]
    results = race(
        [
            Contender("flightlog search, first", command, env, clear(ground.index)),
            *_agentsview(ground, on=peer),
        ],
        1,
    )
    table.results("first full index", results)
    ours = results["flightlog search, first"]
    size = _bytes(_index_file(ground))
    table.note("  our index, MB", size // 1_000_000)
    table.most("  peak memory, MB", ours.rss_mb, 250)
    if "agentsview sync" in results:
        _compare(ground, table, ours, results["agentsview sync"], size)
    table.results(
        "search, unchanged, process start included",
        race([Contender("flightlog search", command, env)], 5),
    )


def search(ground: Ground, table: Table) -> None:
    """Time the first 20 hits of many queries where most recordings are sealed and gone from the agent's own place."""
    draw = random.Random(7)
    queries = [
        *_WORDS,
        *(f'"{one}"' for one in _WORDS),
        *_list_filtered_queries(draw),
        *_rare(ground, draw),
    ]
    share = _seal_sessions(ground)
    files = list_recorded_files({"claude-code": (str(ground.corpus),)}, str(ground.index)).files
    finder = SearchIndex(files, _index_file(ground))
    finder.search_records(parse_query("warm", int))
    times = []
    for query in queries * 3:
        began = time.perf_counter()
        finder.search_records(parse_query(query, int))
        times.append((time.perf_counter() - began) * 1000)
    finder.close()
    table.title(f"search, first 20 hits, {len(queries)} queries")
    table.least("  share of the bytes that is sealed", share, 0.9)
    table.note("  median, ms", f"{statistics.median(times):.1f}")
    table.most("  p95, ms", sorted(times)[len(times) * 95 // 100], 50)
    table.note("  slowest, ms", f"{max(times):.1f}")


def _seal_sessions(ground: Ground) -> float:
    """Adopt and seal nineteen of twenty sessions and delete their sources, as the agent does after a month."""
    sessions: dict[str, list[SessionFile]] = defaultdict(list)
    for file in find_transcripts(str(ground.corpus)).files:
        sessions[file.session].append(file)
    sealed = whole = 0
    for place, (session, files) in enumerate(sorted(sessions.items())):
        size = sum(file.size for file in files)
        whole += size
        if place % 20:
            adopt_session_files(str(ground.index), session, files)
            seal_session(ground.index, AGENT_NAME, session)
            for file in files:
                Path(file.path).unlink()
            sealed += size
    return sealed / whole


def _list_filtered_queries(draw: random.Random) -> list[str]:
    return [
        *(f"{word} project:project-{draw.randrange(24):02d}" for word in _WORDS),
        *(f"{word} tool:Bash" for word in _WORDS),
        *(f"file:module_{draw.randrange(4000)}" for _ in _WORDS),
        *(f"{word} model:haiku" for word in _WORDS),
    ]


def _rare(ground: Ground, draw: random.Random) -> list[str]:
    """Words as they occur somewhere in the recordings."""
    files = sorted(ground.corpus.rglob("*.jsonl"))
    texts = (draw.choice(files).read_bytes()[5000:9000].decode(errors="ignore") for _ in range(40))
    return [word for text in texts if (word := draw.choice(text.split())).isalpha()]


def _agentsview(ground: Ground, *, on: bool) -> list[Contender]:
    program = ground.peers["agentsview"].program
    if not on or program is None:
        return []
    home = ground.work / "peers"
    env = plain_env(HOME=str(home), AGENTSVIEW_NO_DAEMON="1")
    return [Contender("agentsview sync", [str(program), "sync"], env, clear(home / ".agentsview"))]


def _compare(ground: Ground, table: Table, ours: Result, theirs: Result, size: int) -> None:
    databases = list((ground.work / "peers" / ".agentsview").rglob("*.db"))
    table.note("  agentsview's database, MB", sum(map(_bytes, databases)) // 1_000_000)
    table.ratio("  against agentsview sync", theirs.wall_s / ours.wall_s, 5)
    table.ratio("  CPU, against agentsview sync", theirs.cpu_s / ours.cpu_s, 0)
    table.most(
        "  size against agentsview's database", size / max(sum(map(_bytes, databases)), 1), 0.4
    )


def _index_file(ground: Ground) -> Path:
    """The index that commands use for this set of directories; its name depends on the set."""
    return next(ground.index.glob("index*.db"))


def _bytes(database: Path) -> int:
    with sqlite3.connect(database) as opened:
        (pages,) = opened.execute("PRAGMA page_count").fetchone()
        (page,) = opened.execute("PRAGMA page_size").fetchone()
    assert isinstance(pages, int)
    assert isinstance(page, int)
    return pages * page
