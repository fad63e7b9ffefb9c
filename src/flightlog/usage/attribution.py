"""Attribute each response to one session and one of its recorded lines.

One response is one message id, wherever and however often it was recorded. Its line with the
most output counts whole (early lines of a stream carry a placeholder). Forks and resumed copies
repeat the messages of another session; those belong to the session that recorded them first.
The result does not depend on the order in which lines or files were read.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from flightlog.model.usage import ModelResponse, UsageQuality

_NEVER = -1  # sorts a session without a response of its own before the others: it is the original


class Attribution(Struct, frozen=True):
    """Every response once, and its copies in other sessions."""

    responses: tuple[ModelResponse, ...]
    copies: dict[str, tuple[ModelResponse, ...]]
    """By session: the responses in its files that belong to another session."""


def attribute_responses(lines: Iterable[ModelResponse], first_ms: Mapping[str, int]) -> Attribution:
    """Give each response to one session; `first_ms` has the first timestamp of each session."""
    best: dict[str, dict[str, ModelResponse]] = defaultdict(dict)
    for line in lines:
        by_session = best[line.message_id]
        other = by_session.get(line.session)
        if other is None or is_better_copy(line, other):
            by_session[line.session] = line
    age = _session_ages(best, first_ms)
    responses = []
    copies: dict[str, list[ModelResponse]] = defaultdict(list)
    for by_session in best.values():
        fullest = min(by_session.values(), key=_copy_order)
        owner = min(by_session, key=age.__getitem__) if len(by_session) > 1 else fullest.session
        owned = replace(fullest, session=owner, project=by_session[owner].project)
        responses.append(owned)
        for session in by_session:
            if session != owner:
                copies[session].append(owned)
    responses.sort(key=lambda response: (response.at_ms, response.message_id))
    owned_by = {session: tuple(copied) for session, copied in copies.items()}
    return Attribution(tuple(responses), owned_by)


def is_better_copy(line: ModelResponse, other: ModelResponse) -> bool:
    """Return whether `line` has counts, more output, is of the main thread, or is earlier."""
    return _copy_order(line) < _copy_order(other)


def _copy_order(line: ModelResponse) -> tuple[object, ...]:
    """Return a sort key that puts the best copy first; the rest makes the order total."""
    names = (line.session, line.request_id, line.subagent, line.model)
    rest = (*names, line.usage, line.project, line.is_aborted, line.quality)
    is_missing = line.quality is UsageQuality.MISSING
    return (is_missing, -line.usage.output_tokens, bool(line.subagent), line.at_ms, *rest)


def _session_ages(
    best: dict[str, dict[str, ModelResponse]], first_ms: Mapping[str, int]
) -> dict[str, tuple[int, int, str]]:
    """Return a sort key for each session that puts an original before its copies.

    A fork's file begins later. A copied file begins with the same record; then the copy is
    the one whose first own response is later.
    """
    own: dict[str, int] = {}
    sessions: set[str] = set()
    for by_session in best.values():
        sessions.update(by_session)
        if len(by_session) == 1:
            ((session, line),) = by_session.items()
            own[session] = min(own.get(session, line.at_ms), line.at_ms)
    return {
        session: (first_ms.get(session, 0), own.get(session, _NEVER), session)
        for session in sessions
    }
