"""Carrying issues along: import, triage, cluster, rank, approve, publish, resolve.

Each step notes what it did in the journal and then writes the pages that follow from it, so that a
run cut short goes on where it stopped. Nothing is published before `checked` has seen the very bytes.
"""

from msgspec import Struct

from flightlog.model.errors import Conflict, Invalid
from flightlog.model.pages import Clean, Page
from flightlog.retro import events
from flightlog.retro.issues import board as boards
from flightlog.retro.issues import cluster, drafts, triage
from flightlog.retro.issues.board import Board, Cluster, Issue
from flightlog.retro.layout import board_page, changelog_page, issue_name, issue_page
from flightlog.retro.room import Room, stamp
from flightlog.store import files, pages

_AGAIN = frozenset({"resolved"})
_PUBLISHABLE = boards.OPEN


class Processed(Struct, frozen=True):
    """What a run did."""

    imported: tuple[str, ...]
    repeated: tuple[str, ...]
    reopened: tuple[str, ...]
    unreadable: tuple[str, ...]
    board: Board


def process(room: Room) -> Processed:
    """Take every draft as far as prioritized, with the numbers of now."""
    imported, unreadable = _import(room)
    repeated, reopened = _triage(room)
    now = room.now_ms()
    board = room.board()
    if board.open():
        room.journal.append(cluster.clustered(board, now))
        room.journal.append(cluster.prioritized(room.board(), now), durable=True)
    board = _shown(room)
    return Processed(tuple(imported), tuple(repeated), tuple(reopened), tuple(unreadable), board)


def approve(room: Room, written: str = "") -> list[str]:
    """Agree to a cluster, or to all that wait; return their names.

    Findings repeat words of a conversation, so a cluster with one is agreed to by its name alone.
    """
    board = room.board()
    chosen = [each for each in board.clusters.values() if each.id.startswith(written)]
    chosen = [each for each in chosen if written or not has_finding(board, each)]
    if written and len(chosen) != 1:
        raise Invalid(f"{len(chosen)} clusters begin with {written[:40]!r}", hint="flightlog issue clusters")
    for each in chosen:
        if each.status == "pending":
            room.journal.append(events.Approved(each.id, room.now_ms()))
    _shown(room)
    return [each.id for each in chosen]


def has_finding(board: Board, cluster: Cluster) -> bool:
    """Whether text of a cluster comes from a conversation."""
    return any(drafts.FINDING in board.issues[name].tags for name in cluster.issue_ids)


def preview(room: Room, written: str = "") -> list[Page]:
    """Return exactly what publishing would write: one issue, or all approved ones that are open."""
    board = room.board()
    if written:
        return [checked(room, board.issue(written))]
    chosen = [
        issue for cluster in board.clusters.values() if cluster.status == "approved" for issue in cluster.issue_ids
    ]
    return [checked(room, board.issues[name]) for name in chosen if board.issues[name].status in _PUBLISHABLE]


def checked(room: Room, issue: Issue) -> Page:
    """Return the public page of an issue, or refuse it: drafts never, nor anything that still looks private."""
    if issue.status not in _PUBLISHABLE:
        raise Conflict(f"an issue that is {issue.status} is not published: {issue.id}", hint="flightlog issue process")
    page = issue_page(issue, room.redactor)
    assert isinstance(page.body, Clean)
    left = {each.rule for each in room.redactor.find(page.body.text)}
    problem = f"what looks private ({', '.join(sorted(left))})" if left else ""
    texts, names = (issue.title, issue.description, issue.category, *issue.tags, *issue.affected_files), room.names()
    if any(triage.without_private_text(text, names) != text for text in texts):
        problem = "conversation, names or addresses"
    if problem:
        hint = "edit the draft, then: flightlog issue process"
        raise Invalid(f"the issue still holds {problem}: {issue.id}", hint=hint)
    return page


def publish(room: Room, written: str = "") -> list[str]:
    """Write the public files of approved issues, or of one issue; return their paths."""
    board, found = room.board(), preview(room, written)
    pages.publish(room.root, found)
    names = {issue_name(issue): issue.id for issue in board.issues.values()}
    for page in found:
        if not board.issues[names[page.path]].published:
            room.journal.append(events.Published(names[page.path], room.now_ms()))
    _shown(room)
    return [page.path for page in found]


def carry(room: Room, written: str, to: events.Status, notes: str = "") -> Issue:
    """Put an issue elsewhere, if the table has the move."""
    issue = room.board().issue(written)
    boards.check_move(issue, to)
    room.journal.append(events.Moved(issue.id, to, room.now_ms(), _public(room, notes)), durable=True)
    if to not in boards.OPEN:
        files.remove([files.inside(room.root, issue_name(issue))])
    return _shown(room).issues[issue.id]


def resolve(room: Room, written: str, notes: str, by: str = "") -> Issue:
    """Note that an issue is dealt with: out of `issues/`, into the changelog under today's date."""
    issue = room.board().issue(written)
    boards.check_move(issue, "resolved")
    if not notes.strip():
        raise Invalid("how it was resolved was not said", hint='flightlog issue resolve ID --notes "…"')
    now = room.now_ms()
    done = events.Resolved(issue.id, _public(room, notes), stamp(now)[:10], now, _public(room, by))
    room.journal.append(done, durable=True)
    files.remove([files.inside(room.root, issue_name(issue))])
    return _shown(room).issues[issue.id]


def _public(room: Room, text: str) -> str:
    return triage.public_texts([text], room.redactor, room.names()).value[0]


def _import(room: Room) -> tuple[list[str], list[str]]:
    """Take drafts into the journal; a file goes only after its words are kept."""
    happened = list(room.happened())
    known = {event.issue for event in happened if isinstance(event, events.Drafted)}
    noticed = [event.incident for event in happened if isinstance(event, events.Noticed)]
    imported, unreadable, done = [], [], []
    for path in sorted((room.root / "issue-drafts").glob("*.json")):
        try:
            one = drafts.read(path.name, path.read_bytes())
        except Invalid as error:
            unreadable.append(f"{path.name}: {error.message}")
            continue
        if one.id not in known:
            room.journal.append(drafts.event(one, noticed), durable=True)
            known.add(one.id)
            imported.append(one.id)
        done.append(path)
    files.remove(done)
    return imported, unreadable


def _triage(room: Room) -> tuple[list[str], list[str]]:
    repeated, reopened = [], []
    waiting = [each for each in room.board().issues.values() if each.status == "draft"]
    for issue in sorted(waiting, key=lambda one: (one.created_ms, one.id)):
        board = room.board()
        now = room.now_ms()
        new = triage.triaged(issue, room.redactor, now, room.names())
        same = triage.same_as(new, [each for each in board.issues.values() if each.status != "draft"])
        if same is None:
            room.journal.append(new)
        elif same.status in _AGAIN:
            room.journal.append(events.Reopened(same.id, issue.id, now), durable=True)
            reopened.append(same.id)
        else:
            room.journal.append(events.Repeated(issue.id, same.id, now), durable=True)
            repeated.append(issue.id)
    return repeated, reopened


def _shown(room: Room) -> Board:
    """Write the pages that follow from the journal, and return the board."""
    board = room.board()
    told = [board_page(board)]
    if board.resolutions:
        told.append(changelog_page(board.resolutions, room.redactor))
    told += [issue_page(issue, room.redactor) for issue in board.issues.values() if issue.published]
    pages.publish(room.root, told)
    return board
