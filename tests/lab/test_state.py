from flightlog.lab import events
from flightlog.lab.state import add_event, fold_run
from flightlog.model.errors import Damage
from flightlog.store.journal import Journal, JournalRecord, UnknownEvent

DAMAGE = Damage("j", 0, 4, "torn")
STRANGE = UnknownEvent("i", 9, "t", "later_kind", b"{}", "j", 0)


def records(*events):
    return [
        JournalRecord(f"i{at}", at, f"t{at}", event, "j", 0) for at, event in enumerate(events, 1)
    ]


STORY = (
    events.RunStarted("r", "1", "claude-code", "2", "acceptEdits"),
    events.RunResumed("p1"),
    events.BaselineSaved("b"),
    events.CommandRan("pre", 1, 0, 0.1),
    events.RunSessionStarted("session_01", 1, "s-1", "b"),
    events.AgentStarted("session_01", 1, "p2"),
    events.SnapshotSaved("session_01", 1, "t1", 1),
    events.CostRecorded("session_01", 1, 0.25),
    events.RunSessionEnded("session_01", 1, "completed", "t2"),
    events.WorkTreeRestored("t2"),
    events.RunSessionStarted("session_02", 1, "s-2", "t2"),
    events.CostRecorded("session_02", 1, 0.5),
)


def test_a_run_that_died_shows_what_is_finished_and_what_was_in_flight():
    state = fold_run(records(*STORY))

    assert state.last_attempt("session_01").stop_reason == "completed"
    assert [attempt.session for attempt in state.in_flight] == ["session_02"]
    assert (state.spent_usd, state.tree, state.end) == (0.75, "t2", None)


def test_a_second_attempt_leaves_the_first_on_record_and_paid_for():
    again = (
        events.RunResumed("p3"),
        events.RunSessionEnded("session_02", 1, "interrupted", "t3"),
        events.RunSessionSkipped("session_02", "interrupted"),
        events.RunSessionStarted("session_02", 2, "s-3", "t2"),
        events.CostRecorded("session_02", 2, 0.25),
        events.RunSessionEnded("session_02", 2, "completed", "t4", session_id="s-4"),
        events.RunEnded("completed", "t4"),
    )

    state = fold_run(records(*STORY, *again))

    assert [attempt.stop_reason for attempt in state.attempts["session_02"]] == [
        "interrupted",
        "completed",
    ]
    assert (state.spent_usd, state.tree, state.takeover_count) == (1.0, "t4", 2)
    assert (state.last_attempt("session_02").session_id, state.skipped) == ("s-4", {})
    assert state.finished_at


def test_folding_live_equals_folding_at_the_end():
    live = fold_run([])
    for record in records(*STORY):
        add_event(live, record)

    assert live == fold_run(records(*STORY))


def test_unreadable_events_are_counted_and_hide_no_others():
    orphan = events.CostRecorded("session_09", 1, 1.0)

    state = fold_run([DAMAGE, *records(*STORY), STRANGE, *records(orphan)])

    assert (state.damage, state.unrecognized_events, state.spent_usd) == ([DAMAGE], 1, 0.75)


def test_every_event_is_read_back_from_the_journal(tmp_path):
    ids = iter(range(100))
    journal = Journal(
        tmp_path / "j", events.RunEvent, now=lambda: "t", new_id=lambda: str(next(ids))
    )
    for event in STORY:
        journal.append(event)

    assert [record.event for record in journal.read_records()] == list(STORY)
