"""Issues: legal moves, duplicates, clusters, ranks, what comes back."""

import itertools
import random

import pytest

from flightlog.model.errors import Conflict, Incident, Invalid
from flightlog.retro.issues import triage, workflow
from flightlog.retro.issues.board import MOVES, STATUSES, Issue, check_move
from flightlog.retro.state import Pattern
from retro.planted import name as invent_name
from retro.rooms import DAY_MS, make_room, report, report_issue
from support.fresh import seeds

PARTS = {
    "cart": "basket checkout total coupon",
    "login": "password session cookie captcha",
    "search": "index ranking filter query",
    "mail": "inbox attachment sender folder",
    "chart": "axis legend tooltip colour",
}


@pytest.mark.parametrize(("start", "to"), list(itertools.product(STATUSES, STATUSES)))
def test_only_the_moves_of_the_table_are_made(start, to):
    issue = Issue("a" * 12, "t", "d", 1, 1, status=start)

    if to in MOVES[start]:
        check_move(issue, to)
    else:
        with pytest.raises(Conflict):
            check_move(issue, to)


def test_problem_that_recurs_reopens_its_issue(tmp_path):
    room = make_room(tmp_path)
    text = "ValueError: cannot read state of version 3"
    name = report_issue(room, "State cannot be read", text)
    workflow.resolve_issue(room, name, "Version 3 is read")

    report(room, "Again broken", "ValueError: cannot read state of version 4")
    done = workflow.process_drafts(room)

    assert done.reopened_issues == (name,)
    assert done.board.issues[name].status == "prioritized"
    assert done.board.issues[name].frequency == 2
    assert len(done.board.issues) == 1


def test_priority_is_severity_times_log_frequency_times_ease_times_recency():
    issue = Issue("a", "t", "d", 0, 0, severity="high", frequency=3, fix_complexity="small")

    assert workflow.priority_score(issue, DAY_MS) == 3 * 2 * 3 * 1.5
    assert workflow.priority_score(issue, 8 * DAY_MS) == 3 * 2 * 3


@pytest.mark.parametrize("seed", seeds(3))
def test_planted_duplicates_and_clusters_are_found(tmp_path, seed):
    dice = random.Random(seed)
    room = make_room(tmp_path)
    truth, doubles = {}, 0
    for part, words in PARTS.items():
        for _ in range(4):
            chosen = dice.sample(words.split(), 2)
            title = f"The {chosen[0]} breaks at {invent_name(dice)} near {invent_name(dice)}"
            body = f"When {invent_name(dice)} is open, {chosen[1]} shows {invent_name(dice)} for {invent_name(dice)}."
            files = (f"src/{part}/main.py", f"src/{part}/view.py")
            truth[report(room, title, body, affected_files=files)] = part
            if dice.random() < 0.4:
                report(room, f"Again: {title.lower()}", body)
                doubles += 1

    done = workflow.process_drafts(room)

    assert len(done.duplicate_drafts) >= 0.9 * doubles
    assert doubles >= 0.9 * len(done.duplicate_drafts)
    issues = [issue for issue in done.board.issues.values() if issue.id in truth]
    assert len(issues) >= 0.9 * len(truth)
    cluster_of = {issue.id: issue.cluster_id for issue in issues}
    pairs = list(itertools.combinations(cluster_of, 2))
    there = {(one, two) for one, two in pairs if truth[one] == truth[two]}
    clustered = {(one, two) for one, two in pairs if cluster_of[one] == cluster_of[two]}
    assert len(there & clustered) >= 0.8 * max(len(there), len(clustered))


def test_an_incident_is_drafted_once_and_a_broken_draft_is_left_alone(tmp_path):
    room = make_room(tmp_path)
    incident = Incident("breaker trip", room.now_ms(), "loop", ("s#1",))
    room.store_draft(triage.draft_from_incident(incident))
    room.store_draft(triage.draft_from_incident(incident))
    (room.root / "issue-drafts" / "draft_20260101_000000_abcdef123456.json").write_text("{")

    done = workflow.process_drafts(room)

    assert (len(done.imported_issues), len(done.unreadable_drafts)) == (1, 1)
    assert [path.name for path in (room.root / "issue-drafts").glob("*.json")] == [
        "draft_20260101_000000_abcdef123456.json"
    ]


def test_an_interrupted_import_goes_on_without_doubling(tmp_path):
    room = make_room(tmp_path)
    path = room.root / "issue-drafts"
    report(room, "Something")
    (draft,) = path.glob("*.json")
    body = draft.read_bytes()
    workflow.process_drafts(room)
    draft.write_bytes(body)  # as if the run had ended between keeping and removing

    assert workflow.process_drafts(room).imported_issues == ()
    assert len(room.load_board().issues) == 1


def test_resolving_needs_words_and_a_deferred_issue_leaves_the_public(tmp_path):
    room = make_room(tmp_path)
    name = report_issue(room, "Something")
    workflow.approve_clusters(room)
    assert workflow.publish_issues(room) == [f"issues/issue_{name}.json"]
    with pytest.raises(Invalid):
        workflow.resolve_issue(room, name, " ")

    workflow.move_issue(room, name, "deferred", "later")

    assert not (room.root / "issues" / f"issue_{name}.json").exists()
    with pytest.raises(Conflict):
        workflow.resolve_issue(room, name, "done")


def test_only_an_unchanged_incident_draft_is_approved_unasked(tmp_path):
    room = make_room(tmp_path)
    report(room, "Ottilie has Crohn", "data loss", "critical", tags=("retro", "incident"))
    (room.root / "state" / "analysis.json").write_text('{"schema_version": 1, "label": "Ottilie')
    assert room.load_analysis() is None
    (draft,) = [
        path
        for path in (room.root / "issue-drafts").glob("*.json")
        if "corrupt" in path.read_text()
    ]
    forged = draft.with_name("draft_20260101_000000_abcdef123456.json")
    forged.write_text(draft.read_text().replace("retro: corrupt state", "Ottilie was diagnosed"))

    board = workflow.process_drafts(room).board

    approved = {
        cluster.theme for cluster in board.clusters.values() if cluster.status == "approved"
    }
    assert approved == {"retro: corrupt state"}
    assert len(board.clusters) == 3


def test_a_finding_is_approved_by_its_name_alone(tmp_path):
    room = make_room(tmp_path)
    pattern = Pattern(
        "failure-1", "Ottilie: no such file", "behavioral", 0.9, kind="failure again", count=3
    )
    room.store_draft(triage.draft_from_finding(pattern, room.now_ms()))
    workflow.process_drafts(room)
    (cluster_id,) = room.load_board().clusters

    assert workflow.approve_clusters(room) == []
    assert workflow.publish_issues(room) == []
    assert workflow.approve_clusters(room, cluster_id) == [cluster_id]
