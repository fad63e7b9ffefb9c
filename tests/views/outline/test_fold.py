"""An outline made record by record says what the session told whole says, or that it cannot."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tools.bench.transcript import Session as Maker
from tools.bench.words import Words

from flightlog.model.events import Prompted, ToolReturned
from flightlog.sources.claude_code.decode import decode
from flightlog.usage.prices import price
from flightlog.views.outline import tail
from flightlog.views.outline.fold import Disorder, Outlining, Whole
from flightlog.views.session import fold
from flightlog.views.summary import summarise
from flightlog.views.timeline import rows, strip
from recordings import CASES, archive

WORDS = Words(5)


@pytest.fixture(params=[(2_000, 200), (40, 8), (3, 1)], ids=str)
def eager(request):
    """Put records away as late as ever, and as early as can be."""
    before = tail.SETTLE_AT, tail.KEEP
    tail.SETTLE_AT, tail.KEEP = request.param
    yield
    tail.SETTLE_AT, tail.KEEP = before


def made(kind, session, items):
    making = kind(session, "claude-code", price)
    for item in items:
        making.add(item)
    return making.value()


def recorded(tmp_path):
    for number, case in enumerate(CASES):
        found = archive(tmp_path / str(number), case)
        for name in found.recordings:
            yield case, name, list(found.records(name))


def session_lines(seed, turns):
    maker = Maker(WORDS, random.Random(seed), "s", 1_780_272_000_000)
    maker.scale = 0.02
    return [line for _ in range(turns) for line in maker.turn()]


def entries_of(lines):
    entries, offset = [], 0
    for line in lines:
        for entry in decode(line.encode()):
            order = entry.at_ms if entry.at_ms is not None else entries[-1].order_ms
            entries.append(replace(entry, order_ms=order, path="f", offset=offset, length=len(line) + 1))
        offset += len(line) + 1
    return entries


def later(entry, entries):
    return replace(entry, at_ms=entries[-1].order_ms + 1, order_ms=entries[-1].order_ms + 1)


def test_the_outline_of_every_recording_is_that_of_its_whole_session(tmp_path, eager):
    in_order = 0
    for case, name, items in recorded(tmp_path):
        try:
            told = made(Outlining, name, items)
        except Disorder:
            continue
        in_order += 1

        assert told == made(Whole, name, items), case
    assert in_order >= 33


def test_an_outline_says_what_the_summary_and_the_timeline_say(tmp_path):
    for case, name, items in recorded(tmp_path):
        session = fold(name, "claude-code", price, items)
        outline = made(Whole, name, items)

        assert outline.told == summarise(session), case
        assert outline.session == replace(session, turns=(), lanes=())
        for lane in (None, *session.lanes):
            thread, laid = outline.threads[lane.id if lane else ""], rows(session, lane)
            ids = [row.id for row in laid]
            assert [thread.id_at(row) for row in range(thread.total)] == ids
            assert [thread.row_of(each) for each in ids] == list(range(len(ids)))
            assert thread.firsts() == ids[::20]
            assert thread.bars() == strip(laid)


@given(st.integers(0, 10_000), st.integers(3, 40), st.data())
def test_looking_at_any_moment_is_looking_at_the_whole(seed, turns, data):
    entries = entries_of(session_lines(seed, turns))
    cut = data.draw(st.integers(1, len(entries)))
    before = tail.SETTLE_AT, tail.KEEP
    tail.SETTLE_AT, tail.KEEP = data.draw(st.sampled_from([(2_000, 200), (60, 24)]))
    try:
        making = Outlining("s", "claude-code", price)
        for entry in entries[:cut]:
            making.add(entry)
        early = making.value()
        for entry in entries[cut:]:
            making.add(entry)
        late = making.value()
    finally:
        tail.SETTLE_AT, tail.KEEP = before

    assert early == made(Whole, "s", entries[:cut])
    assert late == made(Whole, "s", entries)


@given(st.integers(0, 10_000), st.data())
def test_a_shuffled_session_is_told_right_or_not_at_all(seed, data):
    entries = entries_of(session_lines(seed, 12))
    moved = data.draw(st.integers(0, len(entries) - 1))
    to = data.draw(st.integers(0, len(entries) - 1))
    entries.insert(to, entries.pop(moved))
    before = tail.SETTLE_AT, tail.KEEP
    tail.SETTLE_AT, tail.KEEP = 6, 2
    try:
        told = made(Outlining, "s", entries)
    except Disorder:
        return
    finally:
        tail.SETTLE_AT, tail.KEEP = before

    assert told == made(Whole, "s", entries)


@pytest.mark.parametrize("failed", [False, True])
def test_a_result_that_comes_late_is_put_in_its_row(eager, failed):
    entries = entries_of(session_lines(3, 60))
    first = entries.pop(next(place for place, each in enumerate(entries) if isinstance(each.event, ToolReturned)))
    entries = [replace(each, parent=first.parent) if each.parent == first.uuid else each for each in entries]
    late = later(replace(first, uuid="late", key="late:0", parent=entries[-2].uuid), entries)
    late = replace(late, event=replace(late.event, is_error=failed))

    # A change that failed, and records of one moment cut apart, cannot be put in a row that was packed.
    if (tail.KEEP, failed) in {(8, True), (1, True), (1, False)}:
        with pytest.raises(Disorder):
            made(Outlining, "s", [*entries, late])
        return
    told = made(Outlining, "s", [*entries, late])

    assert told == made(Whole, "s", [*entries, late])
    assert told.told.failed_calls == failed


def test_a_prompt_taken_back_is_noticed():
    entries = entries_of(session_lines(4, 400))
    prompts = [each for each in entries if isinstance(each.event, Prompted)]
    again = replace(prompts[-1], uuid="again", key="again:0", parent=prompts[2].parent)
    again = later(again, entries)

    with pytest.raises(Disorder):
        made(Outlining, "s", [*entries, again])
    assert made(Whole, "s", [*entries, again]).threads[""].total


def test_what_is_kept_does_not_grow_with_the_words():
    few = made(Outlining, "s", entries_of(session_lines(6, 30)))
    maker = Maker(WORDS, random.Random(6), "s", 1_780_272_000_000)
    many = made(Outlining, "s", entries_of([line for _ in range(30) for line in maker.turn()]))

    assert per_row(many) < 1.3 * per_row(few) < 150


def per_row(outline):
    thread = outline.threads[""]
    return sum(map(len, thread.chunks)) / thread.total
