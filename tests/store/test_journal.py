import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from flightlog.model.errors import Damage, Misconfigured
from flightlog.store.journal import Journal, JournalRecord, UnknownEvent


class Started(Struct, frozen=True, tag="started", tag_field="kind"):
    text: str


class Ended(Struct, frozen=True, tag="ended", tag_field="kind"):
    code: int = 0


events = st.builds(Started, st.text(max_size=20)) | st.builds(Ended, st.integers(-5, 5))


def journal(path: Path, union=Started | Ended, prefix="") -> Journal:
    ids = itertools.count()
    return Journal(
        path, union, now=lambda: "2026-01-01T00:00:00Z", new_id=lambda: f"{prefix}{next(ids)}"
    )


def read_events(book: Journal) -> list:
    return [item.event for item in book.read_records() if isinstance(item, JournalRecord)]


@given(st.lists(events, max_size=8), st.booleans())
def test_events_come_back_as_they_went_in_and_are_numbered(tmp_path_factory, written, durable):
    book = journal(tmp_path_factory.mktemp("home") / "journal.jsonl")
    records = [book.append(event, durable=durable) for event in written]

    assert list(book.read_records()) == records
    assert [record.seq for record in records] == list(range(1, len(written) + 1))


def test_a_record_says_version_id_number_and_time_first(tmp_path):
    journal(tmp_path / "j").append(Ended(3))

    assert (tmp_path / "j").read_text() == (
        '{"v":1,"id":"0","seq":1,"ts":"2026-01-01T00:00:00Z","kind":"ended","code":3}\n'
    )


def test_a_crash_costs_at_most_the_last_record_and_the_numbers_go_on(tmp_path):
    book = journal(tmp_path / "j")
    for n in range(3):
        book.append(Ended(n))
    whole = (tmp_path / "j").read_bytes()
    (tmp_path / "j").write_bytes(whole[:-10])

    book.append(Ended(9))

    read = list(book.read_records())
    assert [type(item) for item in read] == [JournalRecord, JournalRecord, Damage, JournalRecord]
    assert [item.seq for item in read if isinstance(item, JournalRecord)] == [1, 2, 3]
    assert read[2].offset == whole.rindex(b'{"v"')


def test_numbers_go_on_behind_damage_of_any_length(tmp_path):
    book = journal(tmp_path / "j")
    book.append(Ended(1))
    with (tmp_path / "j").open("ab") as file:
        file.write(b"\0" * 200_000 + b'\n{"v":"odd"}\n')

    assert book.append(Ended(2)).seq == 2


def test_an_event_from_a_later_version_is_kept_and_marked(tmp_path):
    journal(tmp_path / "j", Started | Ended, "new-").append(Started("x"))
    with (tmp_path / "j").open("ab") as file:
        file.write(b'{"v":2,"id":"b","seq":2,"ts":"t","kind":"ended","code":1}\n')
        file.write(b'{"v":1,"id":"c","seq":3,"ts":"t","kind":["list"]}\n')
        file.write(b'{"v":1,"id":"d","seq":4,"ts":"t"}\n')

    read = list(journal(tmp_path / "j", Ended).read_records())

    assert [type(item) for item in read] == [UnknownEvent] * 4
    assert [item.kind for item in read] == ["started", "ended", "['list']", ""]
    assert json.loads(read[0].data)["text"] == "x"


def test_a_record_of_another_shape_is_damage_with_its_offset(tmp_path):
    (tmp_path / "j").write_bytes(
        b'{"other":1}\n{"v":1,"id":"a","seq":1,"ts":"t","kind":"ended","code":"one"}\n'
    )

    read = list(journal(tmp_path / "j").read_records())

    assert [(type(item), item.offset) for item in read] == [(Damage, 0), (Damage, 12)]


def test_a_record_that_a_merge_doubled_is_read_once(tmp_path):
    book = journal(tmp_path / "j")
    book.append(Ended(1))
    book.append(Ended(2))
    (tmp_path / "j").write_bytes((tmp_path / "j").read_bytes() * 2)

    assert read_events(book) == [Ended(1), Ended(2)]


def test_half_an_emoji_is_written_as_a_replacement(tmp_path):
    book = journal(tmp_path / "j")
    book.append(Started("cut \ud83d"))

    assert read_events(book) == [Started("cut \ufffd")]


def test_many_processes_share_one_numbering(tmp_path):
    code = """
import itertools, sys
from pathlib import Path
from msgspec import Struct
from flightlog.store.journal import Journal
class Ended(Struct, tag="ended", tag_field="kind"): code: int
ids = itertools.count()
book = Journal(Path(sys.argv[1]), Ended, now=lambda: "t", new_id=lambda: f"{sys.argv[2]}-{next(ids)}")
for n in range(50): book.append(Ended(n))
"""
    writers = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "j"), str(n)])
        for n in range(4)
    ]
    assert [writer.wait() for writer in writers] == [0] * 4

    read = list(journal(tmp_path / "j").read_records())

    assert [item.seq for item in read] == list(range(1, 201))


def test_events_may_not_use_the_names_of_the_header(tmp_path):
    class Bad(Struct, tag="bad", tag_field="kind"):
        seq: int

    class Plain(Struct):
        code: int

    for union in (Bad, Plain, Started | Bad):
        with pytest.raises(AssertionError):
            journal(tmp_path / "j", union)


def test_a_clock_that_jumps_reorders_loses_and_doubles_nothing(tmp_path):
    """A year back, a year on, an hour twice in autumn, a second twice: what counts is who came first."""
    times = [
        "2026-10-25T02:59:59Z",
        "2025-10-25T02:00:00Z",
        "2027-10-25T02:00:00Z",
        "2026-10-25T02:00:00Z",
    ]
    times += ["2016-12-31T23:59:60Z", "2016-12-31T23:59:60Z", "1970-01-01T00:00:00Z"]
    clock, ids = iter(times), itertools.count()
    path = tmp_path / "journal.jsonl"

    for number in range(len(times)):  # each from a process of its own, as after a crash
        Journal(
            path, Started | Ended, now=lambda: next(clock), new_id=lambda: f"i{next(ids)}"
        ).append(Ended(number))

    records = [item for item in journal(path).read_records() if isinstance(item, JournalRecord)]
    assert [record.event.code for record in records] == list(range(len(times)))
    assert [record.seq for record in records] == sorted({record.seq for record in records})


def test_a_journal_of_a_later_version_is_read_and_not_written(tmp_path):
    book = journal(tmp_path / "j")
    book.append(Ended(1))
    later = (tmp_path / "j").read_bytes().replace(b'{"v":1,"id":"0"', b'{"v":9,"id":"later"')
    with (tmp_path / "j").open("ab") as file:
        file.write(later)

    with pytest.raises(Misconfigured, match="version 9 needs a later flightlog"):
        book.append(Ended(2))

    assert [type(item) for item in book.read_records()] == [JournalRecord, UnknownEvent]


def test_rewrite_changes_events_and_keeps_everything_around_them(tmp_path):
    book = journal(tmp_path / "j")
    for event in (Started("a secret"), Ended(3), Started("plain")):
        book.append(event)
    with (tmp_path / "j").open("ab") as file:
        file.write(b"damaged {\n")
    before = (tmp_path / "j").read_text()

    swap = {Started("a secret"): Started("a tag")}
    book.rewrite_events(lambda events: [swap.get(event, event) for event in events])

    assert (tmp_path / "j").read_text() == before.replace("a secret", "a tag")
    assert book.append(Ended(4)).seq == 4
