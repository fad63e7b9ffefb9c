"""What is held is what would be told: the same rows, the same words, whatever was left in the recording."""

from msgspec.structs import replace

from flightlog.model.session import Step, Turn
from flightlog.views.timeline import rows
from flightlog.web.held import hold, text_of
from recordings import CASES, archive


def shown(row):
    item = row.item
    if isinstance(item, Turn):
        return (row.id, item.prompt, item.kind, item.rewound)
    return (row.id, item)


def test_full_rows_say_what_the_whole_session_says(tmp_path):
    for number, case in enumerate(CASES):
        found = archive(tmp_path / str(number), case)
        for name in found.recordings:
            session = found.session(name)
            held = hold(found, name)
            for lane in (None, *session.lanes):
                mine = next((each for each in held.session.lanes if lane and each.id == lane.id), None)
                told = held.full(held.rows(mine))

                assert [shown(row) for row in told] == [shown(row) for row in rows(session, lane)]


def test_long_texts_are_left_in_the_recording(tmp_path):
    found = archive(tmp_path, "2.1.325/odd-outputs")
    held = hold(found, found.latest())
    slim, full = held.rows(), held.full(held.rows())

    longest = max(len(call.output) for row in slim if isinstance(row.item, Step) for call in row.item.calls)

    assert longest < 600
    assert any(len(call.output) > 1_500 for row in full if isinstance(row.item, Step) for call in row.item.calls)


def test_a_recording_that_vanished_shows_what_is_held(tmp_path):
    found = archive(tmp_path, "2.1.325/single-turn")
    held = hold(found, found.latest())
    for file in tmp_path.glob("projects/*/*.jsonl"):
        file.unlink()

    assert held.full(held.rows()) == [replace(row) for row in held.rows()]


def test_every_place_leads_to_a_row(tmp_path):
    found = archive(tmp_path, "2.1.325/subagent-foreground")
    held = hold(found, found.latest())
    lanes = {lane for lane, _ in held.by_place.values()}

    assert lanes == {"", *(lane.id for lane in held.session.lanes)}


def test_the_words_of_a_record_are_those_a_page_shows(tmp_path):
    found = archive(tmp_path, "2.1.325/multi-turn-tools")

    said = "\n".join(text_of(entry) for entry in found.records_with(found.latest(), "greet"))

    assert "def greet(name)" in said
    assert "Write a greeting module" in said
