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

from flightlog.lab.replaying.context import Context, Spliced, prompted
from flightlog.lab.replaying.differences import canonical, differences
from flightlog.lab.told import Call
from flightlog.model.errors import Conflict
from flightlog.model.exchange import Context as Lane
from flightlog.sources.api.recorder import Arrived, Sent, Served
from flightlog.sources.api.wire import Said
from flightlog.store.exchanges import Exchanges

_HEADERS = ("content-type", "request-id", "retry-after", "x-should-retry")


class Given(Struct, frozen=True):
    """One recorded answer, and what it answered: `asked` tells requests of subagents apart."""

    lane: str
    asked: str
    status: int
    headers: dict[str, str]
    body: bytes


class Cursor:
    """The recorded answers that were not served yet."""

    def __init__(self, answers: Iterable[Given]) -> None:
        """Begin before the first."""
        self._left = list(answers)

    @property
    def is_on(self) -> bool:
        """Whether the main thread has answers left."""
        return any(each.lane == Lane.MAIN.value for each in self._left)

    def next(self, lane: Lane, body: Mapping[str, Any]) -> Given | None:
        """The answer to a request: the main thread's in their order, others by what they ask."""
        asked = _asked(lane, body)
        found = next((each for each in self._left if each.lane == lane.value and each.asked == asked), None)
        if found is not None:
            self._left.remove(found)
        return found


class Serving:
    """What becomes of the requests of such a branch; `judge` is shown the first that is not served, and may refuse."""

    def __init__(
        self, cursor: Cursor, context: Context, judge: Callable[[Spliced, Arrived], None], *, allow_drift: bool
    ) -> None:
        """Take the answers, and the recorded request of the turn with the prompt that is said there."""
        self._cursor = cursor
        self._context = context
        self._judge = judge
        self._allow_drift = allow_drift
        self._length = 0

    def rewrite(self, said: Said, arrived: Arrived) -> Sent | Served | None:
        """Serve, or pass on."""
        body = msgspec.json.decode(arrived.body)
        given = self._cursor.next(said.context, body)
        if given is not None:
            return Served(given.status, given.headers, given.body)
        if said.context is not Lane.MAIN:
            if self._cursor.is_on and not self._allow_drift:
                what = f"a request of a {said.context.value} the recording does not have"
                raise Conflict(
                    f"the branch left the recording: {what}", hint="go on all the same, labelled so, with --allow-drift"
                )
            return None
        self._length = self._length or len(body.get("messages") or ())
        told = self._told(body)
        self._judge(told, arrived)
        return Sent(told.data, told.replaced)

    def _told(self, body: dict[str, Any]) -> Spliced:
        """The request with the recorded settings, and the prompt where it was first said: the client knows neither."""
        messages = list(body.get("messages") or ())
        said = [*prompted(messages[: self._length], self._context.prompt), *messages[self._length :]]
        told = self._context.as_recorded({**body, "messages": said})
        own = {"messages", "metadata", "stream"}
        return Spliced(told, tuple(differences(body, self._context.recorded, ignored=own)))


def answers(calls: Sequence[Call], exchanges: Exchanges, before: int) -> list[Given]:
    """List what was answered before request `before`, in order."""
    return [_given(each, exchanges) for each in calls if each.index < before and each.exchange.response is not None]


def _given(call: Call, exchanges: Exchanges) -> Given:
    exchange = call.exchange
    assert exchange.response is not None, "only what was answered"
    headers = {name: value for name, value in exchange.response.headers.items() if name in _HEADERS}
    headers["request-id"] = exchange.response.request_id
    lane = exchange.request.context
    asked = _asked(lane, msgspec.json.decode(exchanges.sent(exchange)))
    return Given(lane.value, asked, exchange.response.status, headers, exchanges.received(exchange))


def _asked(lane: Lane, body: Mapping[str, Any]) -> str:
    if lane is Lane.MAIN:
        return ""
    messages = body.get("messages") or []
    said = msgspec.json.encode([canonical(messages[:1]), len(messages)], order="sorted")
    return hashlib.sha256(said).hexdigest()
