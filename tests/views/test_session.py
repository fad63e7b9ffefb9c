"""Laws of the fold: the same records give the same session, however they reach it."""

import random
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightlog.model.damage import Damage
from flightlog.model.events import LaneFacts
from flightlog.sources.claude_code.transcript import entries, lane_facts
from flightlog.sources.protocol import SessionFile
from flightlog.usage.prices import price
from flightlog.views.session import SessionFold, fold
from recordings import CASES, ROOT

TRANSCRIPTS = sorted((ROOT).glob("*/*/transcripts/**/*.jsonl"))
MAIN = [path for path in TRANSCRIPTS if not path.name.startswith("agent-")]


@cache
def recorded(path):
    """Everything on record for the session whose main transcript is `path`, file by file."""
    session = path.stem
    lanes = sorted(path.with_suffix("").glob("subagents/*.jsonl"))
    files = [SessionFile(str(path), session, 0, 0)]
    files += [SessionFile(str(lane), session, 0, 0, lane.stem.removeprefix("agent-")) for lane in lanes]
    return tuple((tuple(entries(file)), (lane_facts(file),) if file.lane else ()) for file in files)


def whole(path):
    return [item for items, facts in recorded(path) for item in (*items, *facts)]


def told(path, items):
    return fold(path.stem, "claude-code", price, items)


@pytest.mark.parametrize("path", MAIN, ids=lambda path: f"{path.parts[-4]}-{path.parts[-3]}-{path.stem[:8]}")
def test_records_in_any_order_tell_the_same_session(path):
    items = whole(path)
    expected = told(path, items)

    for seed in range(5):
        shuffled = random.Random(seed).sample(items, len(items))
        assert told(path, shuffled) == expected


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_files_shuffled_split_and_repeated_tell_the_same_session(data):
    path = data.draw(st.sampled_from(MAIN))
    pieces = []
    for items, facts in recorded(path):
        cuts = sorted(data.draw(st.lists(st.integers(0, len(items)), max_size=4)))
        pieces += [items[start:end] for start, end in zip([0, *cuts], [*cuts, len(items)], strict=True)]
        pieces.append(facts)
    again = data.draw(st.lists(st.sampled_from(pieces), max_size=3))
    order = data.draw(st.permutations([*pieces, *again]))

    assert told(path, [item for piece in order for item in piece]) == told(path, whole(path))


@settings(deadline=None, max_examples=40)
@given(path=st.sampled_from(MAIN), asked=st.integers(1, 20))
def test_folding_live_equals_folding_at_the_end(path, asked):
    live = SessionFold(path.stem, "claude-code", price)
    for place, item in enumerate(whole(path)):
        match item:
            case Damage():
                live.add_damage(item)
            case LaneFacts():
                live.add_facts(item)
            case _:
                live.add(item)
        if place % asked == 0:
            live.value()

    assert live.value() == told(path, whole(path))


def test_there_are_recordings_of_four_versions():
    assert {case.split("/")[0] for case in CASES} == {"1.0.128", "2.0.76", "2.1.100", "2.1.325"}
    assert len(MAIN) == 33
