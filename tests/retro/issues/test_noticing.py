"""An incident becomes a draft once; what was resolved and is seen again is told again."""

from flightlog.model.errors import Incident
from flightlog.retro.issues import workflow
from flightlog.retro.issues.workflow import draft_incidents
from retro.rooms import make_room


def test_an_incident_is_reported_again_only_after_it_was_resolved(tmp_path):
    room = make_room(tmp_path)

    def draft_damage():
        return draft_incidents(room, [Incident("damage", room.now_ms(), "dataset", ("a.jsonl",))])

    assert len(draft_damage()) == 1
    assert draft_damage() == []
    (name,) = workflow.process_drafts(room).imported_issues
    workflow.resolve_issue(room, name, "Mended the file")
    assert len(draft_damage()) == 1

    assert workflow.process_drafts(room).reopened_issues == (name,)


def test_an_incident_of_a_journal_is_reported_once(tmp_path):
    room = make_room(tmp_path)
    incident = Incident("breaker trip", room.now_ms(), "loop", ("session-001/journal.jsonl#9",))
    draft_incidents(room, [incident])
    (name,) = workflow.process_drafts(room).imported_issues
    workflow.resolve_issue(room, name, "Raised the limit")

    assert draft_incidents(room, [incident]) == []
