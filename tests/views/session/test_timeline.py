import pytest

from flightlog.model.addresses import parse_address
from flightlog.model.errors import Invalid, NotFound
from flightlog.model.session import Session, Step, Subagent, Turn
from flightlog.model.usage import CostSource
from flightlog.views.session.outline import ThreadOutline
from flightlog.views.session.summary import outline_session
from flightlog.views.session.timeline import (
    RowKind,
    RowMark,
    build_rows,
    find_part,
    map_addresses,
    mark_of,
)
from support.recordings import CASES, archive


def lay_out_rows(tmp_path, case, subagent=None):
    source = archive(tmp_path, case)
    session = source.read_session(source.latest_session())
    return session, build_rows(session, session.subagents[0] if subagent == 0 else None)


def test_every_prompt_step_and_note_is_a_row_with_an_address_of_its_own(tmp_path):
    for number, case in enumerate(CASES):
        source = archive(tmp_path / str(number), case)
        for name in source.recordings:
            session = source.read_session(name)
            timeline = build_rows(session)
            items = sum(1 + len(turn.items) for turn in session.turns)
            orphans = sum(not subagent.tool_call_id for subagent in session.subagents)

            assert len(timeline) == items + orphans
            assert len({row.id for row in timeline}) == len(timeline)


def test_a_step_knows_the_subagents_it_started(tmp_path):
    session, timeline = lay_out_rows(tmp_path, "2.1.325/subagents-background")

    started = [(subagent, row) for row in timeline for subagent in row.subagents]
    assert {subagent.id for subagent, _ in started} == {
        subagent.id for subagent in session.subagents
    }
    assert all(
        subagent.tool_call_id in {call.id for call in row.item.tool_calls}
        for subagent, row in started
    )


def test_a_subagents_thread_has_rows_of_its_own(tmp_path):
    _, timeline = lay_out_rows(tmp_path, "2.1.325/subagent-foreground", 0)

    assert [row.kind for row in timeline][:2] == [RowKind.TURN, RowKind.STEP]


def test_failures_and_compactions_are_marked(tmp_path):
    _, failed = lay_out_rows(tmp_path / "a", "2.1.325/multi-turn-tools")
    _, compacted = lay_out_rows(tmp_path / "b", "2.1.325/compaction-auto")

    assert [row.id for row in failed if row.failure_count] == ["1.5"]
    assert [row.id for row in compacted if mark_of(row.item) is RowMark.COMPACTION] == ["1.n1"]


def test_the_strip_sums_up_to_the_whole(tmp_path):
    session, timeline = lay_out_rows(tmp_path, "2.1.325/multi-turn-tools")

    for most in (1, 3, 240):
        bars = outline_session(session).threads[""].sum_bars(most)
        assert len(bars) <= most
        assert sum(bar.count for bar in bars) == len(timeline)
        assert sum(bar.total_tokens for bar in bars) == sum(
            step.usage.total_tokens for step in session.steps
        )
        assert sum(bar.turns for bar in bars) == len(session.turns)


def test_nothing_recorded_is_an_empty_strip():
    assert ThreadOutline().sum_bars() == []


@pytest.mark.parametrize(
    "case", ["2.1.325/multi-turn-tools", "2.1.325/subagents-background", "1.0.128/subagent"]
)
def test_every_record_of_the_story_has_an_address_that_opens(tmp_path, case):
    for session in archive(tmp_path, case).iter_sessions():
        addresses = map_addresses(session)
        uuids = {uuid for step in session.steps for uuid in step.record_uuids}

        assert uuids <= addresses.keys()
        for address in set(addresses.values()):
            assert not isinstance(find_part(session, parse_address(address)), Session)


STEP = Step(1, "m", None, "model", (), (), cost_usd=None, cost_source=CostSource.UNKNOWN)
TURN = Turn(1, None, (), None, (STEP,))
LANES = tuple(Subagent(name, "", "", "", (TURN,)) for name in ("a12", "a1", "b7"))
WHOLE = Session("s1", "a", "", "", "", "", "", None, None, (TURN,), LANES, None)


@pytest.mark.parametrize(
    ("written", "part"),
    [
        ("s1", WHOLE),
        ("s1#1", TURN),
        ("s1#1.1", STEP),
        ("s1@b", LANES[2]),
        ("s1@b7#1", TURN),
        ("s1@b7#1.1", STEP),
        ("s1@a1", LANES[1]),
        ("s1@a12", LANES[0]),
    ],
)
def test_an_address_names_a_part(written, part):
    assert find_part(WHOLE, parse_address(written)) is part


@pytest.mark.parametrize("written", ["s1#2", "s1#1.2", "s1@c", "s1@b7#2", "s1@b7#1.9", "s1#2.1"])
def test_an_address_that_leads_nowhere_is_refused_with_the_next_command(written):
    with pytest.raises(NotFound) as refusal:
        find_part(WHOLE, parse_address(written))

    assert refusal.value.hint.startswith("flightlog session show")


def test_an_ambiguous_subagent_prefix_is_refused_with_the_matches():
    with pytest.raises(Invalid) as refusal:
        find_part(WHOLE, parse_address("s1@a"))

    assert refusal.value.hint == "write more of it: a12, a1"
