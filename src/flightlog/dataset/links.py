"""Trace links of the dataset: rows with the session, turn or step they describe."""

from collections.abc import Iterator

from flightlog.dataset.extract.turns import uuid_of
from flightlog.dataset.reader import DatasetReader
from flightlog.dataset.rows import Row, chat_name, short_session_id
from flightlog.model.addresses import Address, TraceLink
from flightlog.model.session import Session
from flightlog.views.session.timeline import iter_steps

_KINDS = ("session", "chat", "action", "orchestration", "commit")


class DatasetLinks:
    """Links to the rows of a dataset."""

    def __init__(self, dataset: DatasetReader) -> None:
        """Link to the rows of `dataset` that are not removed."""
        self._rows = [row for kind in _KINDS for row in dataset.rows_of_kind(kind)]

    def find_links(self, prefix: str) -> Iterator[TraceLink]:
        """Yield the rows whose id or hash starts with `prefix`, with their session if known."""
        for row in self._rows:
            if any(str(row.get(name, "")).startswith(prefix) for name in ("id", "hash")):
                session = str(row.get("session") or row.get("session_id") or "")
                yield _row_link(row, (session,) if session else ())

    def links_for_session(self, session: Session) -> Iterator[TraceLink]:
        """Yield the rows about `session`, each at its turn or step."""
        turns = {
            chat_name(session.id, uuid_of(turn), turn.at_ms): turn.number for turn in session.turns
        }
        calls = ((at, call) for at, step in iter_steps(session) for call in step.tool_calls)
        addresses = {f"action-{call.id}": str(at) for at, call in calls}
        for row in self._rows:
            if row["kind"] in {"session", "orchestration"} and row.get("session") == session.id:
                yield _row_link(row, (session.id,))
            elif str(row.get("session_id") or "") == short_session_id(session.id):
                at = _row_address(row, session.id, turns, addresses)
                if at:
                    yield _row_link(row, (at,))


def _row_address(row: Row, session: str, turns: dict[str, int], addresses: dict[str, str]) -> str:
    match row["kind"]:
        case "action":
            return addresses.get(str(row["id"]), "")
        case "chat":
            number = turns.get(str(row["id"]), 0)
        case _:
            number = next(
                (turns[chat] for chat in row.get("related_chats", ()) if chat in turns), 0
            )
    return str(Address(session, number)) if number else ""


def _row_link(row: Row, at: tuple[str, ...]) -> TraceLink:
    commit = str(row.get("hash") or row.get("related_commit") or "")
    references = (("commit", commit),) if commit else ()
    return TraceLink("row", str(row["id"]), str(row["kind"]), at, references)
