"""An incident becomes a draft once; what was resolved and is seen again is told again."""

from flightlog.model.damage import Incident
from flightlog.retro import workflow
from flightlog.retro.noticing import notice
from retro.rooms import make_room


def test_what_is_seen_again_is_told_again_only_after_it_was_resolved(tmp_path):
    room = make_room(tmp_path)

    def seen():
        return notice(room, [Incident("damage", room.now_ms(), "dataset", ("a.jsonl",))])

    assert len(seen()) == 1
    assert seen() == []
    (name,) = workflow.process(room).imported
    workflow.resolve(room, name, "Mended the file")
    assert len(seen()) == 1

    assert workflow.process(room).reopened == (name,)


def test_what_a_journal_tells_is_told_once_for_ever(tmp_path):
    room = make_room(tmp_path)
    incident = Incident("breaker trip", room.now_ms(), "loop", ("session-001/journal.jsonl#9",))
    notice(room, [incident])
    (name,) = workflow.process(room).imported
    workflow.resolve(room, name, "Raised the limit")

    assert notice(room, [incident]) == []
