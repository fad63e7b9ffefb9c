"""Process, approve, publish, resolve; incidents to drafts.

A room tells its incidents from its own journal or from a look at its files; here they are only values.
What a look finds again is not told again, until an issue of that room was resolved: then it came back.

Each step notes what it did in the journal and then writes the pages that follow from it, so that a
run cut short goes on where it stopped. Nothing is published before `checked` has seen the very bytes.
"""

from collections.abc import Iterable

from msgspec import Struct

from flightlog.model.errors import Conflict, Incident, Invalid
from flightlog.model.output_files import Clean, OutputFile
from flightlog.retro import events
from flightlog.retro.issues import board, clusters, triage
from flightlog.retro.issues.board import Board, Issue, IssueCluster
from flightlog.retro.layout import board_page, changelog_page, issue_name, issue_page
from flightlog.retro.store import RetroStore, format_utc_timestamp
from flightlog.store import files, output_files

_AGAIN = frozenset({"resolved"})
_PUBLISHABLE = board.OPEN


def draft_incidents(room: RetroStore, found: Iterable[Incident]) -> list[Incident]:
    """Draft what is new among these incidents, and return it."""
    board = room.load_board()
    known: dict[tuple[str, ...], int] = {}
    for noticed in board.incidents:
        key = _incident_key(noticed.incident)
        known[key] = max(known.get(key, 0), noticed.incident.at_ms)
    new = []
    for incident in found:
        key = _incident_key(incident)
        if key not in known or _has_recurred(incident, known[key], board):
            known[key] = incident.at_ms
            room.journal.append(events.IncidentNoticed(incident), durable=True)
            room.store_draft(triage.draft_from_incident(incident))
            new.append(incident)
    return new


def _incident_key(incident: Incident) -> tuple[str, ...]:
    return (incident.room, incident.kind, *incident.evidence)


def _has_recurred(incident: Incident, before_ms: int, board: Board) -> bool:
    """What a journal tells has one time for ever; what a look tells has the time of the look."""
    if incident.at_ms <= before_ms:
        return False
    of_room = {issue.id for issue in board.issues.values() if {incident.room, "incident"} <= set(issue.tags)}
    return any(each.issue in of_room and each.at_ms > before_ms for each in board.resolutions)


class ProcessResult(Struct, frozen=True):
    """What a run did."""

    imported: tuple[str, ...]
    repeated: tuple[str, ...]
    reopened: tuple[str, ...]
    unreadable: tuple[str, ...]
    board: Board


def process_drafts(room: RetroStore) -> ProcessResult:
    """Take every draft as far as prioritized, with the numbers of now."""
    imported, unreadable = _import_drafts(room)
    repeated, reopened = _triage_drafts(room)
    now = room.now_ms()
    board = room.load_board()
    if board.open_issues():
        room.journal.append(clusters.cluster_issues(board, now))
        room.journal.append(clusters.prioritize_issues(room.load_board(), now), durable=True)
    board = _write_pages(room)
    return ProcessResult(tuple(imported), tuple(repeated), tuple(reopened), tuple(unreadable), board)


def approve_clusters(room: RetroStore, written: str = "") -> list[str]:
    """Agree to a cluster, or to all that wait; return their names.

    Findings repeat words of a conversation, so a cluster with one is agreed to by its name alone.
    """
    board = room.load_board()
    chosen = [each for each in board.clusters.values() if each.id.startswith(written)]
    chosen = [each for each in chosen if written or not has_finding(board, each)]
    if written and len(chosen) != 1:
        raise Invalid(f"{len(chosen)} clusters begin with {written[:40]!r}", hint="flightlog issue clusters")
    for each in chosen:
        if each.status == "pending":
            room.journal.append(events.ClusterApproved(each.id, room.now_ms()))
    _write_pages(room)
    return [each.id for each in chosen]


def has_finding(board: Board, cluster: IssueCluster) -> bool:
    """Whether text of a cluster comes from a conversation."""
    return any(triage.FINDING in board.issues[name].tags for name in cluster.issue_ids)


def preview_issues(room: RetroStore, written: str = "") -> list[OutputFile]:
    """Return exactly what publishing would write: one issue, or all approved ones that are open."""
    board = room.load_board()
    if written:
        return [validate_issue(room, board.find_issue(written))]
    chosen = [
        issue for cluster in board.clusters.values() if cluster.status == "approved" for issue in cluster.issue_ids
    ]
    return [validate_issue(room, board.issues[name]) for name in chosen if board.issues[name].status in _PUBLISHABLE]


def validate_issue(room: RetroStore, issue: Issue) -> OutputFile:
    """Return the public page of an issue, or refuse it: drafts never, nor anything that still looks private."""
    if issue.status not in _PUBLISHABLE:
        raise Conflict(f"an issue that is {issue.status} is not published: {issue.id}", hint="flightlog issue process")
    page = issue_page(issue, room.redactor)
    assert isinstance(page.body, Clean)
    left = {each.rule for each in room.redactor.find_in_text(page.body.text)}
    problem = f"what looks private ({', '.join(sorted(left))})" if left else ""
    texts, names = (
        (issue.title, issue.description, issue.category, *issue.tags, *issue.affected_files),
        room.collect_names(),
    )
    if any(triage.without_private_text(text, names) != text for text in texts):
        problem = "conversation, names or addresses"
    if problem:
        hint = "edit the draft, then: flightlog issue process"
        raise Invalid(f"the issue still holds {problem}: {issue.id}", hint=hint)
    return page


def publish_issues(room: RetroStore, written: str = "") -> list[str]:
    """Write the public files of approved issues, or of one issue; return their paths."""
    board, found = room.load_board(), preview_issues(room, written)
    output_files.write_output_files(room.root, found)
    names = {issue_name(issue): issue.id for issue in board.issues.values()}
    for page in found:
        if not board.issues[names[page.path]].published:
            room.journal.append(events.IssuePublished(names[page.path], room.now_ms()))
    _write_pages(room)
    return [page.path for page in found]


def move_issue(room: RetroStore, written: str, to: events.Status, notes: str = "") -> Issue:
    """Put an issue elsewhere, if the table has the move."""
    issue = room.load_board().find_issue(written)
    board.check_move(issue, to)
    room.journal.append(events.IssueMoved(issue.id, to, room.now_ms(), _public_text(room, notes)), durable=True)
    if to not in board.OPEN:
        files.remove_files([files.resolve_inside(room.root, issue_name(issue))])
    return _write_pages(room).issues[issue.id]


def resolve_issue(room: RetroStore, written: str, notes: str, by: str = "") -> Issue:
    """Note that an issue is dealt with: out of `issues/`, into the changelog under today's date."""
    issue = room.load_board().find_issue(written)
    board.check_move(issue, "resolved")
    if not notes.strip():
        raise Invalid("how it was resolved was not said", hint='flightlog issue resolve ID --notes "…"')
    now = room.now_ms()
    done = events.IssueResolved(
        issue.id, _public_text(room, notes), format_utc_timestamp(now)[:10], now, _public_text(room, by)
    )
    room.journal.append(done, durable=True)
    files.remove_files([files.resolve_inside(room.root, issue_name(issue))])
    return _write_pages(room).issues[issue.id]


def _public_text(room: RetroStore, text: str) -> str:
    return triage.public_texts([text], room.redactor, room.collect_names()).value[0]


def _import_drafts(room: RetroStore) -> tuple[list[str], list[str]]:
    """Take drafts into the journal; a file goes only after its words are kept."""
    happened = list(room.iter_events())
    known = {event.issue for event in happened if isinstance(event, events.IssueDrafted)}
    noticed = [event.incident for event in happened if isinstance(event, events.IncidentNoticed)]
    imported, unreadable, done = [], [], []
    for path in sorted((room.root / "issue-drafts").glob("*.json")):
        try:
            one = triage.read_draft(path.name, path.read_bytes())
        except Invalid as error:
            unreadable.append(f"{path.name}: {error.message}")
            continue
        if one.id not in known:
            room.journal.append(triage.draft_event(one, noticed), durable=True)
            known.add(one.id)
            imported.append(one.id)
        done.append(path)
    files.remove_files(done)
    return imported, unreadable


def _triage_drafts(room: RetroStore) -> tuple[list[str], list[str]]:
    repeated, reopened = [], []
    waiting = [each for each in room.load_board().issues.values() if each.status == "draft"]
    for issue in sorted(waiting, key=lambda one: (one.created_ms, one.id)):
        board = room.load_board()
        now = room.now_ms()
        new = triage.triage_issue(issue, room.redactor, now, room.collect_names())
        same = triage.find_same_issue(new, [each for each in board.issues.values() if each.status != "draft"])
        if same is None:
            room.journal.append(new)
        elif same.status in _AGAIN:
            room.journal.append(events.IssueReopened(same.id, issue.id, now), durable=True)
            reopened.append(same.id)
        else:
            room.journal.append(events.DraftRepeated(issue.id, same.id, now), durable=True)
            repeated.append(issue.id)
    return repeated, reopened


def _write_pages(room: RetroStore) -> Board:
    """Write the pages that follow from the journal, and return the board."""
    board = room.load_board()
    told = [board_page(board)]
    if board.resolutions:
        told.append(changelog_page(board.resolutions, room.redactor))
    told += [issue_page(issue, room.redactor) for issue in board.issues.values() if issue.published]
    output_files.write_output_files(room.root, told)
    return board
