"""Laws of the fold: the same records give the same session and outline, however they reach it."""

import random
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightlog.agents.claude_code.source import entries, read_subagent_info
from flightlog.model.entries import AssistantReply, Entry, PromptSubmitted, ToolResult
from flightlog.model.errors import Damage
from flightlog.model.session import SessionFile
from flightlog.usage.prices import price
from flightlog.views.session.fold import Retain, SessionFold, fold_session
from flightlog.views.session.thread import EVICTION, Eviction, OutOfOrder, shorten_texts
from support.folding import entries_of, fold_items, random_entries, session_lines
from support.recordings import CASES, ROOT

TRANSCRIPTS = sorted((ROOT).glob("*/*/transcripts/**/*.jsonl"))
MAIN = [path for path in TRANSCRIPTS if not path.name.startswith(("agent-", "journal"))]
EAGER = Eviction(3, 1)
EVICTIONS = (EVICTION, Eviction(40, 8), EAGER)


@cache
def read_recording(path):
    """Everything on record for the session whose main transcript is `path`, file by file."""
    session = path.stem
    subagents = sorted(path.with_suffix("").glob("subagents/*.jsonl"))
    files = [SessionFile(str(path), session, 0, 0)]
    files += [
        SessionFile(str(subagent), session, 0, 0, subagent.stem.removeprefix("agent-"))
        for subagent in subagents
    ]
    return tuple(
        (tuple(entries(file)), (read_subagent_info(file),) if file.subagent else ())
        for file in files
    )


def list_items(path):
    return [item for items, facts in read_recording(path) for item in (*items, *facts)]


def session_of(path, items):
    return fold_session(path.stem, "claude-code", price, items)


def name_of(path):
    return f"{path.parts[-4]}-{path.parts[-3]}-{path.stem[:8]}"


@pytest.mark.parametrize("path", MAIN, ids=name_of)
def test_shuffled_records_give_the_same_session(path):
    items = list_items(path)
    expected = session_of(path, items)

    for seed in range(5):
        shuffled = random.Random(seed).sample(items, len(items))
        assert session_of(path, shuffled) == expected


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_split_and_repeated_files_give_the_same_session(data):
    path = data.draw(st.sampled_from(MAIN))
    pieces = []
    for items, facts in read_recording(path):
        cuts = sorted(data.draw(st.lists(st.integers(0, len(items)), max_size=4)))
        pieces += [
            items[start:end] for start, end in zip([0, *cuts], [*cuts, len(items)], strict=True)
        ]
        pieces.append(facts)
    again = data.draw(st.lists(st.sampled_from(pieces), max_size=3))
    order = data.draw(st.permutations([*pieces, *again]))

    assert session_of(path, [item for piece in order for item in piece]) == session_of(
        path, list_items(path)
    )


@settings(deadline=None, max_examples=40)
@given(path=st.sampled_from(MAIN), every=st.integers(1, 20))
def test_outline_read_while_entries_come_changes_nothing(path, every):
    fold = SessionFold(path.stem, "claude-code", price)
    for place, item in enumerate(list_items(path)):
        fold.add(item)
        if place % every == 0:
            fold.session()

    assert fold.session() == session_of(path, list_items(path))


@pytest.mark.parametrize("eviction", EVICTIONS, ids=str)
def test_tail_outline_of_every_recording_equals_all_outline(eviction):
    in_order = 0
    for path in MAIN:
        try:
            outline = fold_items(list_items(path), Retain.TAIL, eviction)
        except OutOfOrder:
            continue
        in_order += 1

        assert outline == fold_items(map(shorten_texts, list_items(path)), Retain.ALL)
    assert in_order >= 28


@settings(deadline=None, max_examples=100)
@given(random_entries(), st.sampled_from([EAGER, Eviction(8, 2)]))
def test_tail_outline_of_random_entries_equals_all_outline(items, eviction):
    try:
        outline = fold_items(items, Retain.TAIL, eviction)
    except OutOfOrder:
        return

    assert outline == fold_items(items, Retain.ALL)


def test_step_without_record_id_keeps_its_number_in_a_packed_turn():
    events = [AssistantReply("", "m", ()), ToolResult("stray", ()), AssistantReply("", "m", ())]
    items = [
        Entry(event, "s", uuid=uuid, at_ms=at_ms, order_ms=at_ms, key=str(at_ms), path="f")
        for at_ms, (event, uuid) in enumerate(zip(events, ("u0", "u1", ""), strict=True))
    ]

    assert fold_items(items, Retain.TAIL, EAGER) == fold_items(items, Retain.ALL)


@given(st.integers(0, 10_000), st.integers(3, 40), st.data())
def test_outline_at_any_cut_equals_one_read(seed, turns, data):
    items = entries_of(session_lines(seed, turns))
    cut = data.draw(st.integers(1, len(items)))
    fold = SessionFold(
        "s",
        "claude-code",
        price,
        Retain.TAIL,
        data.draw(st.sampled_from([EVICTION, Eviction(60, 24)])),
    )

    for item in items[:cut]:
        fold.add(item)
    early = fold.outline()
    for item in items[cut:]:
        fold.add(item)

    assert early == fold_items(items[:cut], Retain.ALL)
    assert fold.outline() == fold_items(items, Retain.ALL)


def test_fold_of_a_tail_refuses_to_build_a_session():
    with pytest.raises(AssertionError):
        SessionFold("s", "claude-code", price, Retain.TAIL).session()


def test_an_ended_prompt_of_the_hook_log_changes_nothing():
    items = [Damage("f", 0, 1, "torn"), *entries_of(session_lines(1, 2))]

    assert fold_items([*items, PromptSubmitted(1)], Retain.ALL) == fold_items(items, Retain.ALL)


def test_there_are_recordings_of_fourteen_versions():
    versions = {case.split("/")[0] for case in CASES}

    assert versions >= {"1.0.128", "2.0.14", "2.0.60", "2.0.76", "2.1.7", "2.1.29", "2.1.63"}
    assert versions >= {"2.1.81", "2.1.96", "2.1.100", "2.1.150", "2.1.210", "2.1.280", "2.1.325"}
    assert len(MAIN) >= 43
