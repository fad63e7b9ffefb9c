"""What one session of a run says: its transcript, its exchanges, and what was only copied into it.

Reads the session's own directory and nothing else, so it answers the same wherever the run is moved.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from flightlog.archive.growing import list_session_folder
from flightlog.model.errors import FlightlogError
from flightlog.model.exchange import Context, Exchange
from flightlog.model.session import Session, Step
from flightlog.sources.api.rebuild import Rebuilt, rebuilt
from flightlog.sources.api.sse import answer
from flightlog.store.exchanges import Exchanges

EXCHANGES = ".exchanges"
SIDE = "(side)"


class Call(Struct, frozen=True):
    """One request of a session: in which lane, and the message it was answered with, if it was."""

    exchange: Exchange
    lane: str
    message_id: str

    @property
    def index(self) -> int:
        """Its number in the capture."""
        return self.exchange.index


def exchanges_of(folder: Path) -> Exchanges:
    """Open what was captured of a session, for reading."""
    return Exchanges(folder / EXCHANGES, now=_never, new_id=_never)


def calls_of(exchanges: Exchanges) -> list[Call]:
    """List the requests of a session in order, each with the message that answered it."""
    return [Call(each, _lane(each), _message_id(exchanges, each)) for each in exchanges.read()]


def rebuilt_of(folder: Path, session_id: str) -> list[Rebuilt]:
    """The requests of a session nobody captured, in order, as its transcripts tell them."""
    found = [each for file in list_session_folder(folder, session_id) for each in rebuilt(_records(Path(file.path)))]
    return sorted(found, key=lambda each: each.at)


def _records(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_bytes().splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            yield record


def lanes_of(session: Session) -> dict[str, tuple[Step, ...]]:
    """The steps of each thread, the main one under the empty name."""
    return {"": session.steps} | {
        lane.id: tuple(step for turn in lane.turns for step in turn.steps) for lane in session.lanes
    }


def message_ids(session: Session | None) -> frozenset[str]:
    """Every response a session holds."""
    if session is None:
        return frozenset()
    return frozenset(step.message_id for steps in lanes_of(session).values() for step in steps)


def _lane(exchange: Exchange) -> str:
    match exchange.request.context:
        case Context.MAIN:
            return ""
        case Context.SUBAGENT:
            return exchange.request.agent_id or "(unnamed subagent)"
        case _:
            return SIDE


def _message_id(exchanges: Exchanges, exchange: Exchange) -> str:
    try:
        message = answer(exchanges.received(exchange)).message
    except FlightlogError:
        return ""
    return str((message or {}).get("id") or "")


_never: Callable[[], str] = lambda: ""  # noqa: E731 - a reader writes nothing
