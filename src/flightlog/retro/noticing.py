"""Incidents of every room become drafts, each once.

A room tells its incidents from its own journal or from a look at its files; here they are only values.
What a look finds again is not told again, until an issue of that room was resolved: then it came back.
"""

from collections.abc import Iterable

from flightlog.model.damage import Incident
from flightlog.retro import events
from flightlog.retro.issues import drafts
from flightlog.retro.issues.board import Board
from flightlog.retro.room import RetroStore


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
            room.store_draft(drafts.draft_from_incident(incident))
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
