import os
import re
import sqlite3
from datetime import UTC

import pytest
from msgspec.structs import replace

from flightlog.analysis.service import analyze_session
from flightlog.archive.archive import LONG_BYTES, open_archive
from flightlog.model.errors import Invalid, NotFound, Unavailable
from flightlog.model.usage import Breakdown
from flightlog.views.session.outline import sort_newest_first
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


def test_list_equals_the_sessions_of_the_archive(data):
    assert until(lambda: data.listing().pending == 0 and data.listing().sessions)
    summaries = open_archive(data.runtime).iter_summaries()
    assert data.listing().sessions == tuple(sort_newest_first(summaries))


def test_a_session_is_read_once_until_it_changes(data, tmp_path):
    name = archive(tmp_path / "other", "2.1.325/multi-turn-tools").latest_session()
    first = data.load_session_page(name)
    file = next(tmp_path.glob(f"config/projects/*/{name}.jsonl"))

    assert data.load_session_page(name) is first
    file.write_bytes(file.read_bytes() + b'{"type":"new-thing"}\n')
    assert until(lambda: data.load_session_page(name) is not first)


def test_hits_stand_in_the_order_of_the_session(data):
    name = next(
        name for name in open_archive(data.runtime).recordings if name.startswith("2123f2df")
    )

    hits = data.find_in_session(name, "greet", 200)

    thread = data.load_session_page(name).thread_of()
    rows = [thread.id_at(row) for row in range(thread.total)]
    assert [hit.row for hit in hits] == sorted((hit.row for hit in hits), key=rows.index)
    assert all(hit.match.lower() == "greet" for hit in hits)
    assert len(data.find_in_session(name, "greet", 2)) == 2


def test_a_search_names_each_session_once_and_takes_half_a_word(data):
    results = data.search("subag", 30)

    sessions = {match.hit.session for match in results.matches}
    assert len(sessions) == len(results.matches) == results.total > 1
    assert {match.match.lower() for match in results.matches} == {"subag"}
    assert data.search("subag", 1).total == results.total


def test_the_page_takes_the_filters_of_the_command_line(data):
    since = data.search("tool:bash since:2026-11-01 cost:>0.1", 30).matches

    assert since
    assert all(match.hit.cost_usd > 0.1 and match.hit.at_ms for match in since)
    assert all(match.hit.address.startswith(f"{match.hit.session}") for match in since)
    assert all(re.search(r"\?(subagent=\w+&)?offset=\d+$", match.url) for match in since)


def test_search_does_not_wait_for_an_index_writer(data, tmp_path):
    before = data.search("greet", 30)
    name = before.matches[0].hit.session
    # The first listing writes to the index; it must not wait for the lock below.
    listed = data._listed_archive()
    assert until(lambda: data._watcher._fingerprint == listed.fingerprint)
    file = next(tmp_path.glob(f"config/projects/*/{name}.jsonl"))
    file.write_bytes(file.read_bytes() + prompt("Zebras greet nobody"))
    writer = sqlite3.connect(open_archive(data.runtime).index_path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")

    assert until(lambda: data.search("greet", 30).matches and data.is_behind)
    assert data.search("zebras", 30).matches == []
    assert [match.hit.session for match in data.search("greet", 30).matches] == [
        match.hit.session for match in before.matches
    ]
    writer.execute("ROLLBACK")
    writer.close()
    assert until(lambda: data.search("zebras", 30).matches)
    assert not data.is_behind


def test_an_unchanged_archive_is_listed_once(data, tmp_path):
    first = data.current_archive()
    assert data._reopen_archive() is first

    file = next(tmp_path.glob("config/projects/*/*.jsonl"))
    file.write_bytes(file.read_bytes() + prompt("One more"))

    assert data._reopen_archive() is not first


def test_a_long_session_is_analyzed_in_a_process_of_its_own(data, tmp_path):
    file = max(tmp_path.glob("config/projects/*/*.jsonl"), key=lambda path: path.stat().st_size)
    file.write_bytes(file.read_bytes() + prompt("x" * LONG_BYTES))
    here = analyze_session(open_archive(data.runtime), file.stem)

    process, requests = data.read_analysis(file.stem, _process_and_requests)

    assert process != os.getpid()
    assert requests == here.requests
    assert data.load_session_page(file.stem).summary.steps
    with pytest.raises(Unavailable):
        data.read_analysis(file.stem, _end_process)


def _process_and_requests(_, detail):
    return os.getpid(), detail.requests


def _end_process(_, __):
    os._exit(1)


def test_unsearchable_query_is_refused(data):
    with pytest.raises(Invalid):
        data.search("- -", 5)
    with pytest.raises(Invalid):
        data.search("since:foo", 5)
    with pytest.raises(Invalid, match="banana"):
        data.search("cost:banana", 5)


def test_usage_equals_the_report_of_the_archive(data):
    reports = data.usage_reports([Breakdown.DAY, Breakdown.MODEL])

    assert reports[Breakdown.DAY] == open_archive(data.runtime).usage_report(Breakdown.DAY, UTC)


def test_unknown_session_is_reported(data):
    with pytest.raises(NotFound):
        data.load_session_page("nobody")
