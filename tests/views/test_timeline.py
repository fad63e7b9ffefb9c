from flightlog.model.session import Note
from flightlog.views.timeline import RowKind, rows, strip
from recordings import CASES, archive


def laid(tmp_path, case, lane=None):
    found = archive(tmp_path, case)
    session = found.session(found.latest())
    return session, rows(session, session.lanes[0] if lane == 0 else None)


def test_every_prompt_step_and_note_is_a_row_with_an_address_of_its_own(tmp_path):
    for number, case in enumerate(CASES):
        found = archive(tmp_path / str(number), case)
        for name in found.recordings:
            session = found.session(name)
            told = rows(session)
            items = sum(1 + len(turn.items) for turn in session.turns)
            orphans = sum(not lane.call_id for lane in session.lanes)

            assert len(told) == items + orphans
            assert len({row.id for row in told}) == len(told)


def test_a_step_knows_the_subagents_it_started(tmp_path):
    _, told = laid(tmp_path, "2.1.325/subagents-background")

    started = {row.id: [lane.id for lane in row.lanes] for row in told if row.lanes}
    assert started == {"1.1": ["ad6db2cb57d7b5135", "ab88dc5ab8d95003e"]}


def test_a_subagents_thread_has_rows_of_its_own(tmp_path):
    _, told = laid(tmp_path, "2.1.325/subagent-foreground", 0)

    assert [row.kind for row in told][:2] == [RowKind.TURN, RowKind.STEP]


def test_failures_and_compactions_are_marked(tmp_path):
    _, failed = laid(tmp_path / "a", "2.1.325/multi-turn-tools")
    _, compacted = laid(tmp_path / "b", "2.1.325/compaction-auto")

    assert [row.id for row in failed if row.failed] == ["1.5"]
    assert [row.id for row in compacted if row.compacted] == ["1.n1"]
    assert all(isinstance(row.item, Note) for row in compacted if row.compacted)


def test_the_strip_sums_up_to_the_whole(tmp_path):
    session, told = laid(tmp_path, "2.1.325/multi-turn-tools")

    for most in (1, 3, 240):
        bars = strip(told, most)
        assert len(bars) <= most
        assert sum(bar.count for bar in bars) == len(told)
        assert sum(bar.tokens for bar in bars) == sum(step.usage.total for step in session.steps)
        assert sum(bar.turns for bar in bars) == len(session.turns)


def test_nothing_recorded_is_an_empty_strip():
    assert strip([]) == []
