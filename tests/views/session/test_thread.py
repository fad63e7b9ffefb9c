"""A thread folded in bounded memory says what a whole one says, or that it cannot."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from flightlog.model.entries import ToolResult, UserPrompt
from flightlog.views.session.fold import Retain
from flightlog.views.session.thread import EVICTION, Eviction, OutOfOrder
from support.folding import entries_of, fold_items, session_lines

EVICTIONS = (EVICTION, Eviction(40, 8), Eviction(3, 1))


def later(entry, entries):
    return replace(entry, at_ms=entries[-1].order_ms + 1, order_ms=entries[-1].order_ms + 1)


@given(st.integers(0, 10_000), st.data())
def test_one_moved_entry_gives_the_same_outline_or_out_of_order(seed, data):
    entries = entries_of(session_lines(seed, 12))
    moved = data.draw(st.integers(0, len(entries) - 1))
    to = data.draw(st.integers(0, len(entries) - 1))
    entries.insert(to, entries.pop(moved))
    try:
        outline = fold_items(entries, Retain.TAIL, Eviction(6, 2))
    except OutOfOrder:
        return

    assert outline == fold_items(entries, Retain.ALL)


@pytest.mark.parametrize("failed", [False, True])
@pytest.mark.parametrize("eviction", EVICTIONS, ids=str)
def test_late_result_is_attached_to_its_row(eviction, failed):
    entries = entries_of(session_lines(3, 60))
    first = entries.pop(
        next(place for place, item in enumerate(entries) if isinstance(item.event, ToolResult))
    )
    entries = [
        replace(item, parent_uuid=first.parent_uuid) if item.parent_uuid == first.uuid else item
        for item in entries
    ]
    late = later(replace(first, uuid="late", key="late:0", parent_uuid=entries[-2].uuid), entries)
    late = replace(late, event=replace(late.event, is_error=failed))

    whole = fold_items([*entries, late], Retain.ALL)
    try:
        outline = fold_items([*entries, late], Retain.TAIL, eviction)
    except OutOfOrder:
        # Only an edit that failed, or entries of one moment that were cut apart.
        assert failed if eviction.keep > 1 else True
        return

    assert outline == whole
    assert outline.summary.failed_tool_calls == failed


def test_rewound_prompt_is_out_of_order():
    entries = entries_of(session_lines(4, 400))
    prompts = [item for item in entries if isinstance(item.event, UserPrompt)]
    again = later(
        replace(prompts[-1], uuid="again", key="again:0", parent_uuid=prompts[2].parent_uuid),
        entries,
    )

    with pytest.raises(OutOfOrder):
        fold_items([*entries, again], Retain.TAIL)
    assert fold_items([*entries, again], Retain.ALL).threads[""].total


def test_outline_does_not_grow_with_the_texts():
    few = fold_items(entries_of(session_lines(6, 30)), Retain.TAIL)
    many = fold_items(entries_of(session_lines(6, 30, scale=1.0)), Retain.TAIL)

    assert bytes_per_row(many) < 1.3 * bytes_per_row(few) < 150


def bytes_per_row(outline):
    thread = outline.threads[""]
    return sum(map(len, thread.chunks)) / thread.total
