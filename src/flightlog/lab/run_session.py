"""Read one session's own directory: its transcript, its captured exchanges, its requests.

Reads nothing else, so the answers stay the same when the run is moved.
"""

from pathlib import Path

from msgspec import Struct

from flightlog.agents.claude_code.rebuild import RebuiltRequest, rebuild_requests
from flightlog.agents.dialects.anthropic_messages import decode_response
from flightlog.archive.session_reader import list_session_folder
from flightlog.model.errors import FlightlogError
from flightlog.model.exchange import Exchange, RequestOrigin
from flightlog.model.session import Session, Step
from flightlog.sources.foreign_json import read_json_objects
from flightlog.store.exchanges import ExchangeStore

SIDE = "(side)"


class ApiCall(Struct, frozen=True):
    """One request of a session: its thread, and the id of the answering message ("" if none)."""

    exchange: Exchange
    subagent: str
    message_id: str

    @property
    def index(self) -> int:
        return self.exchange.index


def calls_of(exchanges: ExchangeStore) -> list[ApiCall]:
    """Return the requests of a session in order, each with the message that answered it."""
    return [
        ApiCall(exchange, _thread_name(exchange), _message_id(exchanges, exchange))
        for exchange in exchanges.read_exchanges()
    ]


def rebuilt_of(folder: Path, session_id: str) -> list[RebuiltRequest]:
    """Return the requests of a session without capture, rebuilt from its transcripts, in order."""
    paths = (Path(file.path) for file in list_session_folder(folder, session_id))
    requests = [request for path in paths for request in rebuild_requests(read_json_objects(path))]
    return sorted(requests, key=lambda request: request.timestamp)


def steps_by_thread(session: Session) -> dict[str, tuple[Step, ...]]:
    """Return the steps of each thread; the main thread has the empty name."""
    return {"": session.steps} | {
        subagent.id: tuple(step for turn in subagent.turns for step in turn.steps)
        for subagent in session.subagents
    }


def message_ids(session: Session | None) -> frozenset[str]:
    if session is None:
        return frozenset()
    return frozenset(
        step.message_id for steps in steps_by_thread(session).values() for step in steps
    )


def _thread_name(exchange: Exchange) -> str:
    match exchange.request.agent_context:
        case RequestOrigin.MAIN:
            return ""
        case RequestOrigin.SUBAGENT:
            return exchange.request.agent_id or "(unnamed subagent)"
        case _:
            return SIDE


def _message_id(exchanges: ExchangeStore, exchange: Exchange) -> str:
    try:
        message = decode_response(exchanges.response_body(exchange)).message
    except FlightlogError:
        return ""
    return str((message or {}).get("id") or "")
