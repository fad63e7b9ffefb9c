import sqlite3
from datetime import UTC

import pytest
from msgspec.structs import replace

from flightlog.archive.archive import open_archive
from flightlog.model.errors import Invalid, NotFound
from flightlog.model.usage import Breakdown
from flightlog.web.data import WebData
from support.archive_maker import prompt
from support.pages import make_runtime
from support.recordings import CASES, archive, config_dir
from support.waiting import until


@pytest.fixture
def data(tmp_path):
    folder = config_dir(tmp_path / "config", *CASES)
    opened = WebData(replace(make_runtime(folder), data_dir=str(tmp_path / "home")))
    yield opened
    opened.close()


def test_the_list_is_the_archives_own(data):
    assert until(lambda: data.listing().pending == 0 and data.listing().sessions)
    assert data.listing().sessions == tuple(open_archive(data.runtime).iter_summaries())


def test_a_session_is_read_once_until_it_changes(data, tmp_path):
    name = archive(tmp_path / "other", "2.1.325/multi-turn-tools").latest_session()
    first = data.load_session_page(name)
    file = next(tmp_path.glob(f"config/projects/*/{name}.jsonl"))

    assert data.load_session_page(name) is first
    file.write_bytes(file.read_bytes() + b'{"type":"new-thing"}\n')
    assert until(lambda: data.load_session_page(name) is not first)


def test_hits_stand_in_the_order_of_the_session(data):
    name = next(
        each for each in open_archive(data.runtime).recordings if each.startswith("2123f2df")
    )

    hits = data.find_in_session(name, "greet", 200)

    thread = data.load_session_page(name).thread_of()
    rows = [thread.id_at(row) for row in range(thread.total)]
    assert [hit.row for hit in hits] == sorted((hit.row for hit in hits), key=rows.index)
    assert all(hit.match.lower() == "greet" for hit in hits)
    assert len(data.find_in_session(name, "greet", 2)) == 2


def test_a_search_names_each_session_once_and_takes_half_a_word(data):
    hits = data.search("subag", 30)

    assert len({hit.session for hit in hits}) == len(hits) > 1
    assert {hit.match.lower() for hit in hits} == {"subag"}


def test_a_search_does_not_wait_for_who_writes_the_index(data, tmp_path):
    before = data.search("greet", 30)
    name = before[0].session
    file = next(tmp_path.glob(f"config/projects/*/{name}.jsonl"))
    file.write_bytes(file.read_bytes() + prompt("Zebras greet nobody"))
    writer = sqlite3.connect(tmp_path / "home" / "index.db", isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")

    assert until(lambda: data.search("greet", 30) and data.is_behind)
    assert (data.search("zebras", 30), data.search("greet", 30)) == ([], before)
    writer.execute("ROLLBACK")
    writer.close()
    assert until(lambda: data.search("zebras", 30))
    assert not data.is_behind


def test_what_cannot_be_searched_for_is_refused(data):
    with pytest.raises(Invalid):
        data.search("- -", 5)
    with pytest.raises(Invalid):
        data.search("since:7d", 5)


def test_usage_is_the_books_own(data):
    told = data.usage_reports([Breakdown.DAY, Breakdown.MODEL])

    assert told[Breakdown.DAY] == open_archive(data.runtime).usage_report(Breakdown.DAY, UTC)


def test_no_such_session_is_said(data):
    with pytest.raises(NotFound):
        data.load_session_page("nobody")
