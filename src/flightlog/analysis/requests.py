"""The calls of a model in a session: what was counted, and what was sent as far as it is recorded."""

import enum
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from flightlog.agents.claude_code.request_log import read_captured_requests
from flightlog.archive.archive import SessionFiles
from flightlog.model.addresses import Address
from flightlog.model.entries import PromptKind
from flightlog.model.exchange import LoggedRequest
from flightlog.model.session import Note, NoteKind, Session, Step, Turn
from flightlog.model.usage import Usage
from flightlog.store.exchanges import EXCHANGES, exchanges_of
from flightlog.views.session.timeline import iter_steps

_COMMAND_CHARS = 60  # of a slash command, with its first words


class RequestStart(enum.Enum):
    """How a request relates to the one before it in its thread."""

    FIRST = "first"
    CLEARED = "cleared"
    COMPACTED = "compacted"
    RESUMED = "resumed"
    CONTINUES = "continues"


class ModelRequest(Struct, frozen=True):
    """One call of a model.

    `thread` is "" for the main thread, else the subagent. `at_ms` is when it was sent, or when its
    response began if only that is recorded. `preceded_by` is what happened since the request
    before it and may have changed it: slash commands, hooks, a rewind.
    """

    address: str
    thread: str
    at_ms: int | None
    model: str
    effort: str
    usage: Usage
    logged: LoggedRequest | None = None
    has_cache_writes: bool = True
    begins: RequestStart = RequestStart.CONTINUES
    preceded_by: tuple[str, ...] = ()
    message_id: str = ""


def read_sent_requests(session: Session, recording: SessionFiles) -> list[LoggedRequest]:
    """Return the requests of a session as they were captured, and those that the client logged.

    The exchanges of a session are beside its transcript, as those of a run are.
    """
    logged = list(recording.source.logged_requests(recording.files))
    folder = Path(recording.main.path).parent if recording.main else Path()
    if not (folder / EXCHANGES).is_dir():
        return logged
    replies = {
        name: (at.subagent, step.message_id)
        for at, step in iter_steps(session)
        for name in (step.request_id, step.message_id)
        if name and step.message_id
    }
    # Only the log tells where a new process begins, and what came before the first capture.
    bases = {message: one.has_base for one in logged for message in one.message_ids}
    captured = (
        replace(one, has_base=bases.get(one.message_ids[0], True))
        for one in read_captured_requests(exchanges_of(folder), replies)
        if one.previous_messages or one.message_ids[0] not in bases
    )
    return [*captured, *logged]


def has_sent_requests(session: Session, recording: SessionFiles) -> bool:
    """Return whether any answered request of a session is known, and so the causes of its misses."""
    return any(request.message_ids for request in read_sent_requests(session, recording))


def list_requests(session: Session, logged: Iterable[LoggedRequest]) -> list[ModelRequest]:
    """Return the requests of a session: the main thread's first, then each subagent's, by time.

    Each response counts once; responses that were copied from another session, and those without
    recorded usage, are left out.
    """
    by_message: dict[str, LoggedRequest] = {}
    for request in logged:
        for message in request.message_ids:
            by_message.setdefault(message, request)
    seen: set[str] = set()
    threads = [("", session.turns), *((agent.id, agent.turns) for agent in session.subagents)]
    addressed = ((Address(session.id, subagent=thread), turns) for thread, turns in threads)
    listed = (_list_thread(*thread, by_message, seen) for thread in addressed)
    requests = [request for thread in listed for request in thread]
    writes = bool(by_message) or any(request.usage.cache_write_tokens for request in requests)
    return requests if writes else [replace(one, has_cache_writes=False) for one in requests]


def _list_thread(
    address: Address, turns: Sequence[Turn], logged: dict[str, LoggedRequest], seen: set[str]
) -> Iterator[ModelRequest]:
    start, events = RequestStart.FIRST, list[str]()
    for number, item in ((turn.number, item) for turn in turns for item in (turn, *turn.items)):
        if not isinstance(item, Step):
            start, events = _note_event(item, start, events)
            continue
        request = logged.get(item.message_id)
        is_copied = request is not None and request.is_copied
        is_known = bool(item.usage.prompt_tokens)
        if is_copied or not is_known or (item.message_id and item.message_id in seen):
            continue
        seen.add(item.message_id)
        if start is RequestStart.CONTINUES and request is not None and _resumes(request):
            start = RequestStart.RESUMED
        yield ModelRequest(
            address=str(replace(address, turn=number, step=item.number)),
            thread=address.subagent,
            at_ms=item.at_ms if request is None or request.at_ms is None else request.at_ms,
            model=item.model,
            effort=(request.effort if request else "") or item.effort,
            usage=item.usage,
            logged=request,
            begins=start,
            preceded_by=tuple(dict.fromkeys(events)),
            message_id=item.message_id,
        )
        start, events = RequestStart.CONTINUES, []


def _note_event(
    item: Turn | Note, start: RequestStart, events: list[str]
) -> tuple[RequestStart, list[str]]:
    """Return how the next request begins, and what precedes it, after a turn's prompt or a note."""
    if isinstance(item, Note):
        if item.kind is NoteKind.COMPACTION and start is not RequestStart.FIRST:
            start = RequestStart.COMPACTED
        return start, [*events, "hook"] if item.kind is NoteKind.HOOK else events
    if item.is_rewound:
        events = [*events, "rewind"]
    if item.kind is PromptKind.COMMAND:
        command = " ".join(item.text.split())[:_COMMAND_CHARS]
        if command.partition(" ")[0] == "/clear" and start is not RequestStart.FIRST:
            start = RequestStart.CLEARED
        return start, [*events, command]
    return start, events


def _resumes(request: LoggedRequest) -> bool:
    """Return whether a new process sent the request: it repeats all messages and names no base."""
    return not request.has_base and request.kept_messages >= request.previous_messages > 0
