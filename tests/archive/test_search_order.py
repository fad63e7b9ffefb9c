"""Search: which matches come first, how many there are, and where they are."""

import json
import os

import pytest
from msgspec.structs import replace

from flightlog.agents.claude_code.files import find_transcripts
from flightlog.agents.claude_code.search_text import BATCH_BYTES, read_records
from flightlog.archive.archive import Archive
from flightlog.archive.search import SearchIndex, locate_results, parse_query
from flightlog.model.usage import Cost, CostSource
from flightlog.sources.workers import FORK_ABOVE_BYTES, read_all
from flightlog.store.index.files import PendingRead
from flightlog.store.index.fulltext import SESSIONS_COUNTED_MAX
from support.archive_maker import START_MS, find, prompt, put


def test_newer_recordings_come_first_and_no_more_than_asked_for(tmp_path):
    for number in range(9):
        path = put(tmp_path, f"s{number}", prompt("same words", at=number))
        os.utime(path, ns=(9 - number, 9 - number))

    results = find(tmp_path, "same", limit=3)

    assert [result.hit.session for result in results] == ["s8", "s7", "s6"]


def test_one_hit_a_session_is_the_first_of_each(tmp_path):
    for number in range(6):
        prompts = [prompt(f"parser {place}", at=10 * number + place) for place in range(1, 5)]
        put(tmp_path, f"s{number}", *prompts)
    finder = SearchIndex(find_transcripts(str(tmp_path)).files, None)
    query = parse_query("parser", int)
    every = finder.search_records(query, 100).results

    once = finder.search_indexed(query, 4, once=True).results

    first = {result.hit.session: result for result in reversed(every)}
    assert len(every) == 24
    assert once == sorted(first.values(), key=every.index)[:4]
    finder.close()


@pytest.mark.parametrize(
    ("typed", "records", "sessions"),
    [
        ("parser", 20, 4),
        ("parser project:app", 20, 4),
        ("parser project:nowhere", 0, 0),
        ("parser cost:>1", 0, 0),
        (f"parser since:{START_MS + 30_000}", 5, 1),
        (f"since:{START_MS + 30_000}", 5, 1),
    ],
)
def test_the_total_counts_what_the_limit_leaves_out(tmp_path, typed, records, sessions):
    for number in range(4):
        prompts = [prompt(f"parser {place}", at=10 * number + place) for place in range(5)]
        put(tmp_path, f"s{number}", *prompts)
    put(tmp_path, "gone", *(prompt("parser", at=1) for _ in range(3)))
    index = tmp_path / "index.db"
    find(tmp_path, "parser", index)
    (tmp_path / "projects" / "-srv-app" / "gone.jsonl").unlink()
    finder = SearchIndex(find_transcripts(str(tmp_path)).files, index)
    query = parse_query(typed, int)

    some, every = finder.search_records(query, 1), finder.search_records(query, 0)
    once = finder.search_indexed(query, 1, once=True)
    finder.close()

    assert (len(some.results), some.total) == (min(1, records), records)
    assert (len(every.results), every.total) == (records, records)
    assert once.total == sessions


def test_sessions_after_the_first_thousand_are_not_counted(tmp_path):
    for number in range(SESSIONS_COUNTED_MAX + 1):
        put(tmp_path, f"s{number}", prompt("zebra", at=number))
    finder = SearchIndex(find_transcripts(str(tmp_path)).files, None)
    query = parse_query("zebra", int)

    assert finder.search_records(query, 2).total == SESSIONS_COUNTED_MAX + 1
    page = finder.search_indexed(query, 2, once=True)
    assert (page.total, len(page.results)) == (SESSIONS_COUNTED_MAX, 2)
    finder.close()


@pytest.mark.parametrize("other_bytes", [0, FORK_ABOVE_BYTES])
def test_a_large_file_is_read_and_found_in_parts(tmp_path, other_bytes):
    filler = "word " * 20_000
    lines = [prompt(f"zebra {filler}", at=number) for number in range(100)]
    put(tmp_path, "large", *lines)
    put(tmp_path, "newer", prompt("zebra", at=500))
    files = find_transcripts(str(tmp_path)).files
    claimed = [replace(file, size=file.size + other_bytes) for file in files]
    reads = [PendingRead(file, 0, 0) for file in claimed]

    batches = list(read_all(reads, read_records))
    results = find(tmp_path, "zebra", tmp_path / "i.db", limit=0)

    assert sum(map(len, lines)) > BATCH_BYTES
    assert [batch.is_last for batch in batches] == [False, True, True]
    assert [result.hit.uuid for result in results] == [
        "p-500",
        *(f"p-{at}" for at in range(99, -1, -1)),
    ]
    unchanged = SearchIndex(files, tmp_path / "i.db")
    assert unchanged.sync_index().bytes_read == 0
    unchanged.close()


@pytest.mark.parametrize(
    ("after", "operations"),
    [
        ([], ["enqueue"]),
        ([{"operation": "remove"}], ["enqueue"]),
        ([{"operation": "remove", "content": "a zebra"}], ["enqueue"]),
        ([{"operation": "popAll", "content": "a zebra"}], []),
        ([{"operation": "dequeue"}, prompt("a zebra", at=3)], ["user"]),
    ],
)
def test_a_queued_prompt_is_found_once_unless_it_was_taken_back(tmp_path, after, operations):
    records = [{"operation": "enqueue", "content": "a zebra"}, *after]
    lines = [
        line
        if isinstance(line, bytes)
        else json.dumps({"type": "queue-operation", **line}).encode() + b"\n"
        for line in records
    ]
    path = put(tmp_path, "s", prompt("words", at=1), *lines)

    hits = [result.hit for result in find(tmp_path, "zebra")]

    data = path.read_bytes()
    kinds = [json.loads(data[hit.offset : hit.offset + hit.length]) for hit in hits]
    assert [record.get("operation", record["type"]) for record in kinds] == operations


def test_a_hit_in_a_session_that_another_process_added_has_its_address(tmp_path):
    put(tmp_path, "s1", prompt("zebra", at=1))
    before = Archive({"claude-code": (str(tmp_path),)})
    assert list(before.recordings) == ["s1"]
    put(tmp_path, "s2", prompt("zebra", at=2))

    hits = locate_results(before, find(tmp_path, "zebra"), {"s1": Cost(0.5, CostSource.TABLE)})

    addresses = [(hit.address, hit.cost_usd) for hit in hits]
    assert addresses == [("s2", None), ("s1#1", 0.5)]


def test_a_search_while_one_types_reads_no_session_for_its_addresses(tmp_path):
    put(tmp_path, "s1", prompt("zebra", at=1))
    archive = Archive({"claude-code": (str(tmp_path),)}, str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    results = find(tmp_path, "zebra")

    def addresses(**options):
        return [hit.address for hit in locate_results(archive, results, {}, **options)]

    assert addresses(read_bytes_max=0) == ["s1"]
    assert addresses() == ["s1#1"]
    assert addresses(read_bytes_max=0) == ["s1#1"]
