import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flightlog.agents.claude_code.files import find_transcripts
from flightlog.agents.claude_code.search_text import read_last_ms, read_records
from flightlog.archive.search import SearchIndex, parse_query
from flightlog.model.errors import Invalid
from flightlog.sources.workers import read_all
from flightlog.store.index.database import Index
from flightlog.store.index.files import SCHEMA as FILES
from flightlog.store.index.fulltext import SCHEMA as FULLTEXT
from flightlog.store.index.fulltext import sync_text
from flightlog.store.index.records import SCHEMA as RECORDS
from support.archive_maker import START_MS, find, prompt, put, reply
from support.strace_points import kill_everywhere

SYNC = """
from flightlog.archive.search import SearchIndex
from flightlog.agents.claude_code.files import find_transcripts
finder = SearchIndex(find_transcripts(str(root / "agent")).files, root / "home" / "index.db")
begin()
finder.sync_index()
finder.close()
end()
"""


def uuids(root, typed, index=None):
    return sorted(result.hit.uuid for result in find(root, typed, index))


@pytest.fixture
def archive(tmp_path):
    tool = {
        "type": "tool_use",
        "id": "t1",
        "name": "Bash",
        "input": {"command": "make lint", "file_path": "/a/main.py"},
    }
    result = [
        {
            "type": "tool_result",
            "tool_use_id": "t1",
            "content": [{"type": "text", "text": "two warnings"}],
        }
    ]
    put(
        tmp_path,
        "s1",
        prompt("Please repair the naïve parser", at=1),
        reply("m1", at=2, content=[{"type": "thinking", "thinking": "a parser, the naive kind"}]),
        reply("m2", at=3, content=[tool], model="claude-haiku-4-5"),
        prompt(result, at=4),
        b'{"type":"summary","summary":"Parser work","leafUuid":"x"}\n',
    )
    put(
        tmp_path,
        "s2",
        prompt("unrelated words", at=50, cwd="/srv/shop"),
        reply("m3", 900_000, at=60, text="parser too"),
    )
    return tmp_path


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("parser", ["", "p-1", "u-m1-2", "u-m3-60"]),
        ("PARSER repair", ["p-1"]),
        ('"naive parser"', ["p-1"]),
        ("pars", ["", "p-1", "u-m1-2", "u-m3-60"]),
        ("pars*", ["", "p-1", "u-m1-2", "u-m3-60"]),
        ('"pars"', []),
        ("parser -repair", ["", "u-m1-2", "u-m3-60"]),
        ("tool:bash", ["u-m2-3"]),
        ("lint tool:Bash", ["u-m2-3"]),
        ("warnings", ["p-4"]),
        ("file:main.py", ["u-m2-3"]),
        ('file:"a/main"', ["u-m2-3"]),
        ("model:haiku", ["u-m2-3"]),
        ("parser project:SHOP", ["u-m3-60"]),
        ("project:shop", ["p-50", "u-m3-60"]),
        (f"parser since:{START_MS + 30_000}", ["u-m3-60"]),
        ("parser cost:>1", ["u-m3-60"]),
        ("parser cost:<$1", ["", "p-1", "u-m1-2"]),
        ("nowhere", []),
        ('say:"x" AND NOT (', []),
    ],
)
def test_query_finds_its_records(archive, typed, expected):
    assert uuids(archive, typed) == expected


@pytest.mark.parametrize("typed", ["", "   ", "-only", '""', "...", "cost:much"])
def test_unsearchable_query_is_refused(archive, typed):
    with pytest.raises(Invalid):
        find(archive, typed)


@given(st.text(max_size=40))
@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_no_query_breaks_the_search(archive, typed):
    hint = "an answer"
    try:
        find(archive, typed.replace("since:", "").replace("cost:", ""))
    except Invalid as error:
        hint = error.hint

    assert hint


def test_a_hit_has_an_address_and_shows_the_passage(archive):
    (result,) = find(archive, "repair")

    with Path(result.hit.path).open("rb") as file:
        file.seek(result.hit.offset)
        assert json.loads(file.read(result.hit.length))["uuid"] == "p-1"
    assert (result.hit.session, result.hit.at_ms, result.hit.project) == (
        "s1",
        START_MS + 1000,
        "/srv/app",
    )
    assert result.snippet == "Please repair the naïve parser"


def test_an_unchanged_archive_is_not_read_again(archive):
    index = archive / "index.db"
    finder = SearchIndex(find_transcripts(str(archive)).files, index)
    assert finder.sync_index().decoded == 7
    finder.close()

    again = SearchIndex(find_transcripts(str(archive)).files, index)

    work = again.sync_index()
    assert (work.files, work.opened, work.bytes_read, work.decoded) == (2, 0, 0, 0)
    again.close()


def test_a_grown_file_costs_only_what_is_new(archive):
    index = archive / "index.db"
    find(archive, "parser", index)
    path = archive / "projects" / "-srv-app" / "s1.jsonl"
    with path.open("ab") as file:
        file.write(prompt("parser again", at=90))

    finder = SearchIndex(find_transcripts(str(archive)).files, index)
    work = finder.sync_index()
    finder.close()

    assert (work.decoded, work.bytes_read) == (1, len(prompt("parser again", at=90)))
    assert "p-90" in uuids(archive, "parser", index)


lines = st.builds(
    prompt, st.sampled_from(["red", "green", "red green", "blue"]), at=st.integers(0, 99)
)
archives = st.dictionaries(
    st.sampled_from(["s1", "s2", "s3"]), st.lists(lines, max_size=6), min_size=1
)


@settings(max_examples=40, deadline=None)
@given(states=st.lists(archives, min_size=2, max_size=4))
def test_an_index_brought_up_to_date_finds_what_a_new_one_finds(tmp_path_factory, states):
    root = tmp_path_factory.mktemp("law")
    for state in states:
        for path in root.rglob("*.jsonl"):
            path.unlink()
        for session, written in state.items():
            put(root, session, *written)
        find(root, "red", root / "index.db")

    for typed in ("red", '"red green"', "blue -red", "project:srv"):
        assert uuids(root, typed, root / "index.db") == uuids(root, typed)


def test_words_are_indexed_again_when_a_fifth_is_gone(tmp_path):
    put(tmp_path, "kept", *(prompt("steady", at=n) for n in range(20)))
    for turn in range(8):
        put(tmp_path, "moving", *(prompt(f"round{turn}", at=n) for n in range(3)))
        os.utime(tmp_path / "projects" / "-srv-app" / "moving.jsonl", ns=(turn, turn))
        assert len(find(tmp_path, f"round{turn}", tmp_path / "index.db")) == 3

    with closing(sqlite3.connect(tmp_path / "index.db", isolation_level=None)) as database:
        (gone,) = database.execute("SELECT coalesce(sum(last - first + 1), 0) FROM gone").fetchone()
        (there,) = database.execute("SELECT count(*) FROM lines").fetchone()
    assert there == 23
    assert gone <= 0.2 * (gone + there)
    assert len(find(tmp_path, "steady", tmp_path / "index.db", limit=50)) == 20


def test_damaged_and_odd_lines_hide_nothing(tmp_path):
    odd = b'{"type":"user","uuid":7,"message":{"content":[{"type":"text","text":"odd \\ud800 one"}]},"cwd":3}\n'
    put(
        tmp_path,
        "s",
        prompt("first one"),
        b'{"torn',
        b"\n",
        b"\n",
        odd,
        prompt("last one", at=9),
        b'{"type":"user"',
    )

    assert len(find(tmp_path, "one")) == 3


def test_a_recording_that_is_gone_shows_no_passage(archive):
    finder = SearchIndex(find_transcripts(str(archive)).files, None)
    finder.sync_index()
    (archive / "projects" / "-srv-app" / "s1.jsonl").rename(archive / "moved")

    (result,) = finder.search_records(parse_query("repair", int)).results

    assert result.snippet == ""


@pytest.mark.slow
def test_dying_at_any_system_call_of_an_update_leaves_an_index_that_heals(tmp_path):
    def prepare(root):
        put(root / "agent", "s", prompt("old words"))
        find(root / "agent", "old", root / "home" / "index.db")
        put(root / "agent", "s", prompt("old words"), prompt("new words", at=9))

    def check(root, _):
        assert uuids(root / "agent", "words", root / "home" / "index.db") == ["p-0", "p-9"]

    assert len(kill_everywhere(SYNC, tmp_path, prepare, check)) > 5


def test_two_writers_of_one_fact_store_it_once(archive, tmp_path):
    index = tmp_path / "shared.db"
    sources = list(find_transcripts(str(archive)).files)
    first = Index(index, FILES, RECORDS, FULLTEXT)

    def read_behind_another(readings):
        find(archive, "parser", index)
        yield from read_all(readings, read_records)

    sync_text(first.database, sources, read_behind_another, read_last_ms)
    first.close()

    assert uuids(archive, "parser", index) == uuids(archive, "parser")
    path = archive / "projects" / "-srv-app" / "s1.jsonl"
    with path.open("ab") as file:
        file.write(prompt("parser again", at=90))
    assert uuids(archive, "parser", index) == uuids(archive, "parser")


def test_record_added_during_an_update_is_found_later(archive, tmp_path):
    index = tmp_path / "shared.db"
    path = archive / "projects" / "-srv-app" / "s1.jsonl"
    first = Index(index, FILES, RECORDS, FULLTEXT)

    def grown_behind_another(readings):
        if b"again" not in path.read_bytes():
            find(archive, "parser", index)
            with path.open("ab") as file:
                file.write(prompt("parser again", at=90))
            sources[:] = list(find_transcripts(str(archive)).files)
        yield from read_all(readings, read_records)

    sources = list(find_transcripts(str(archive)).files)
    sync_text(first.database, sources, grown_behind_another, read_last_ms)
    first.close()

    finder = SearchIndex(find_transcripts(str(archive)).files, index)
    uuids_indexed = [
        result.hit.uuid for result in finder.search_indexed(parse_query("again", int)).results
    ]
    finder.close()
    assert uuids_indexed == ["p-90"]


def test_an_index_that_another_process_writes_is_searched_as_it_is(archive, tmp_path):
    index = tmp_path / "shared.db"
    find(archive, "parser", index)
    put(archive, "s9", prompt("parser at last", at=99))
    writer = Index(index, FILES, RECORDS, FULLTEXT)
    writer.database.execute("BEGIN IMMEDIATE")
    finder = SearchIndex(find_transcripts(str(archive)).files, index)

    done = finder.try_sync()
    query = parse_query("parser", int)
    before = sorted(result.hit.uuid for result in finder.search_indexed(query).results)
    writer.database.execute("ROLLBACK")
    again = finder.try_sync()
    after = sorted(result.hit.uuid for result in finder.search_indexed(query).results)

    assert done is None
    assert again.opened == 1
    assert set(after) - set(before) == {"p-99"}
    finder.close()
    writer.close()
