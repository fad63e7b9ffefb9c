"""The second way to a turn: the recorded answers served again up to it, the tools run again, then live.

For agents that cannot resume. Their messages stay their own, prompt, tools and settings are the recorded
ones; whether they came to the same place is decided when they ask for the turn itself. Until then
nothing is asked of a model.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from flightlog.lab.replaying.context import RecordedContext, RewrittenBody, append_prompt
from flightlog.lab.replaying.differences import canonical_value, find_differences
from flightlog.lab.told import ApiCall
from flightlog.model.errors import Conflict
from flightlog.model.exchange import RequestOrigin as Lane
from flightlog.sources.api.recorder import IncomingRequest, RewrittenRequest, ServedResponse
from flightlog.sources.api.wire import RequestInfo
from flightlog.store.exchanges import ExchangeStore

_HEADERS = ("content-type", "request-id", "retry-after", "x-should-retry")


class RecordedAnswer(Struct, frozen=True):
    """One recorded answer, and what it answered: `asked` tells requests of subagents apart."""

    lane: str
    asked: str
    status: int
    headers: dict[str, str]
    body: bytes


class RecordedAnswers:
    """The recorded answers that were not served yet."""

    def __init__(self, answers: Iterable[RecordedAnswer]) -> None:
        """Begin before the first."""
        self._left = list(answers)

    @property
    def is_on(self) -> bool:
        """Whether the main thread has answers left."""
        return any(each.lane == Lane.MAIN.value for each in self._left)

    def pop_answer(self, lane: Lane, body: Mapping[str, Any]) -> RecordedAnswer | None:
        """The answer to a request: the main thread's in their order, others by what they ask."""
        asked = _request_key(lane, body)
        found = next((each for each in self._left if each.lane == lane.value and each.asked == asked), None)
        if found is not None:
            self._left.remove(found)
        return found


class RecordedAnswerServer:
    """What becomes of the requests of such a branch; `judge` is shown the first that is not served, and may refuse."""

    def __init__(
        self,
        cursor: RecordedAnswers,
        context: RecordedContext,
        judge: Callable[[RewrittenBody, IncomingRequest], None],
        *,
        allow_drift: bool,
    ) -> None:
        """Take the answers, and the recorded request of the turn with the prompt that is said there."""
        self._cursor = cursor
        self._context = context
        self._judge = judge
        self._allow_drift = allow_drift
        self._length = 0

    def rewrite_request(self, said: RequestInfo, arrived: IncomingRequest) -> RewrittenRequest | ServedResponse | None:
        """Serve, or pass on."""
        body = msgspec.json.decode(arrived.body)
        given = self._cursor.pop_answer(said.context, body)
        if given is not None:
            return ServedResponse(given.status, given.headers, given.body)
        if said.context is not Lane.MAIN:
            if self._cursor.is_on and not self._allow_drift:
                what = f"a request of a {said.context.value} the recording does not have"
                raise Conflict(
                    f"the branch left the recording: {what}", hint="go on all the same, labelled so, with --allow-drift"
                )
            return None
        self._length = self._length or len(body.get("messages") or ())
        told = self._apply_recorded_settings(body)
        self._judge(told, arrived)
        return RewrittenRequest(told.data, told.replaced)

    def _apply_recorded_settings(self, body: dict[str, Any]) -> RewrittenBody:
        """The request with the recorded settings, and the prompt where it was first said: the client knows neither."""
        messages = list(body.get("messages") or ())
        said = [*append_prompt(messages[: self._length], self._context.prompt), *messages[self._length :]]
        told = self._context.apply_recorded_settings({**body, "messages": said})
        own = {"messages", "metadata", "stream"}
        return RewrittenBody(told, tuple(find_differences(body, self._context.recorded, ignored=own)))


def list_recorded_answers(calls: Sequence[ApiCall], exchanges: ExchangeStore, before: int) -> list[RecordedAnswer]:
    """List what was answered before request `before`, in order."""
    return [
        _recorded_answer(each, exchanges)
        for each in calls
        if each.index < before and each.exchange.response is not None
    ]


def _recorded_answer(call: ApiCall, exchanges: ExchangeStore) -> RecordedAnswer:
    exchange = call.exchange
    assert exchange.response is not None, "only what was answered"
    headers = {name: value for name, value in exchange.response.headers.items() if name in _HEADERS}
    headers["request-id"] = exchange.response.request_id
    lane = exchange.request.context
    asked = _request_key(lane, msgspec.json.decode(exchanges.sent_body(exchange)))
    return RecordedAnswer(lane.value, asked, exchange.response.status, headers, exchanges.response_body(exchange))


def _request_key(lane: Lane, body: Mapping[str, Any]) -> str:
    if lane is Lane.MAIN:
        return ""
    messages = body.get("messages") or []
    said = msgspec.json.encode([canonical_value(messages[:1]), len(messages)], order="sorted")
    return hashlib.sha256(said).hexdigest()
