import json
import os
import time
from datetime import UTC, datetime, timedelta

import pytest

from flightlog.app.runtime import open_runtime
from flightlog.archive.archive import Archive
from flightlog.archive.session_reader import follow_entries
from flightlog.model.errors import Invalid, NotFound
from flightlog.model.usage import Breakdown
from support.transcripts import SESSION, archive, assistant, user, write


def test_session_is_found_by_any_unique_prefix(tmp_path):
    write(tmp_path, "abc", user("one"))
    write(tmp_path, "abcd", user("two"))
    door = Archive({"claude-code": (str(tmp_path),)})

    assert door.read_session("abc").title == "one"
    assert door.read_session("abcd").title == "two"
    with pytest.raises(Invalid):
        door.read_session("ab")
    with pytest.raises(NotFound):
        door.read_session("x")


@pytest.mark.parametrize("written", ["", "../x", "a/b", "a\x1b", "-x", "."])
def test_invalid_id_is_refused_even_in_an_empty_archive(tmp_path, written):
    with pytest.raises(Invalid):
        Archive({"claude-code": (str(tmp_path),)}).find_recording(written)


def test_transcript_with_spaced_json_reads_the_same(tmp_path):
    totals = {"type": "cost-state", "totalCostUSD": 1, "modelUsage": {"m": {"costUSD": 1}}}
    records = [user("x", 1), assistant("m1", 2), totals]

    plain = archive(tmp_path / "1", *records).usage_report(Breakdown.SESSION, UTC)
    spaced = archive(tmp_path / "2", *(json.dumps(record) for record in records)).usage_report(
        Breakdown.SESSION, UTC
    )

    assert spaced.total == plain.total
    assert len(spaced.reconciliations) == len(plain.reconciliations) == 1


def test_a_title_given_again_is_the_title_in_whatever_order_files_are_read(tmp_path):
    titles = [{"type": "custom-title", "customTitle": name} for name in ("A", "B", "A")]
    records = [user("x", 1), titles[0], user("y", 2), titles[1], user("z", 3), titles[2]]

    assert archive(tmp_path, *records).read_session(SESSION).title == "A"


def test_equal_copies_of_a_record_are_shown_alike_in_any_order(tmp_path):
    one, two = user("x", 1, gitBranch="main"), user("x", 1, gitBranch="next")
    for folder, records in (("1", (one, two)), ("2", (two, one))):
        write(tmp_path / folder, SESSION, *records)

    first, second = (
        Archive({"claude-code": (str(tmp_path / folder),)}).read_session(SESSION)
        for folder in ("1", "2")
    )

    assert first == second


def test_the_machines_own_days_follow_summer_time():
    before = os.environ.get("TZ")
    os.environ["TZ"] = "Europe/Berlin"
    time.tzset()
    try:
        zone = open_runtime().zone
        summer = datetime(2026, 6, 30, 22, 30, tzinfo=UTC).astimezone(zone)
        winter = datetime(2026, 12, 31, 23, 30, tzinfo=UTC).astimezone(zone)
        assert (summer.date().isoformat(), summer.utcoffset()) == ("2026-07-01", timedelta(hours=2))
        assert (winter.date().isoformat(), winter.utcoffset()) == ("2027-01-01", timedelta(hours=1))
        assert datetime(2026, 7, 1, tzinfo=zone).timestamp() == 1782856800
        assert str(zone) in {"CET", "CEST"}
    finally:
        os.environ.pop("TZ") if before is None else os.environ.update(TZ=before)
        time.tzset()


def test_file_that_stays_unreadable_is_reported_once(tmp_path):
    folder = tmp_path / "projects" / "p"
    folder.mkdir(parents=True)
    path = folder / "s1.jsonl"
    path.write_bytes(b'{"broken": \n')
    looks = iter([True, True, True, False])

    messages = list(
        follow_entries(Archive({"claude-code": (str(tmp_path),)}), "s1", lambda: next(looks))
    )

    assert len(messages) == 1
