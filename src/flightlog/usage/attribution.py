"""Which recorded line of a response counts, and in whose account.

One response is one message id, wherever and however often it was written down. Its line
with the most output counts whole (early lines of a stream carry a placeholder). Forks and
resumed copies repeat the messages of another session: those belong to the session they were
first said in. Nothing here depends on the order in which lines or files were read.
"""

import functools
from collections import defaultdict
from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from flightlog.model.usage import Response, Usage

_NEVER = -1


class Attribution(Struct, frozen=True):
    """Every response once, and where else it was seen."""

    responses: tuple[Response, ...]
    copies: dict[str, tuple[Response, ...]]
    """By session: the responses that stand in its files but belong to another session."""


def attribute_responses(lines: Iterable[Response], first_ms: Mapping[str, int]) -> Attribution:
    """Count each response once; `first_ms` is the first time stamp in each session's file."""
    seen: dict[str, dict[str, Response]] = defaultdict(dict)
    for line in lines:
        at_home = seen[line.message_id]
        known = at_home.get(line.session)
        if known is None or is_better_copy(line, known):
            at_home[line.session] = line
    elders = _elders(seen, first_ms)
    responses = []
    copies: dict[str, list[Response]] = defaultdict(list)
    for by_session in seen.values():
        fullest = _best(by_session.values())
        owner = min(by_session, key=elders.__getitem__) if len(by_session) > 1 else fullest.session
        mine = replace(fullest, session=owner, project=by_session[owner].project)
        responses.append(mine)
        for session in by_session:
            if session != owner:
                copies[session].append(mine)
    responses.sort(key=lambda response: (response.at_ms, response.message_id))
    return Attribution(tuple(responses), {session: tuple(kept) for session, kept in copies.items()})


def is_better_copy(line: Response, known: Response) -> bool:
    """Say whether `line` tells the response better: more output, the main thread, the earlier time."""
    this = (line.usage.output, not line.lane, -line.at_ms)
    that = (known.usage.output, not known.lane, -known.at_ms)
    if this != that:
        return this > that
    return _rest(line) < _rest(known)


def _rest(line: Response) -> tuple[str, str, str, str, Usage, str, bool]:
    return (line.session, line.request_id, line.lane, line.model, line.usage, line.project, line.aborted)


def _best(lines: Iterable[Response]) -> Response:
    return functools.reduce(lambda known, line: line if is_better_copy(line, known) else known, lines)


def _elders(seen: dict[str, dict[str, Response]], first_ms: Mapping[str, int]) -> dict[str, tuple[int, int, str]]:
    """Order sessions so that an original comes before its copies.

    A fork's file begins later. A copied file begins with the same record; then the copy is
    the one that said something of its own later.
    """
    own: dict[str, int] = {}
    sessions: set[str] = set()
    for by_session in seen.values():
        sessions.update(by_session)
        if len(by_session) == 1:
            ((session, line),) = by_session.items()
            own[session] = min(own.get(session, line.at_ms), line.at_ms)
    return {session: (first_ms.get(session, 0), own.get(session, _NEVER), session) for session in sessions}
