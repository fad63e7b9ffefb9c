"""Recorded messages or answers in place of the client's own.

A client says things of its own in between (how long it has been silent, say), from counters that
begin anew when it resumes. While the model says what it said then (tools may answer otherwise), what
the client said is taken from the recording too; from the first other word on it is the client's own. Pure.

A client that resumes makes its history anew, and not always the same. It is given a sentinel as its
prompt, which stands in each of its requests from then on. Everything up to the sentinel is replaced
by the messages of the recorded request, verbatim; system prompt, tools and settings are the recorded
ones too. What follows the sentinel is the client's and is left alone. Pure.

For agents that cannot resume. Their messages stay their own, prompt, tools and settings are the recorded
ones; whether they came to the same place is decided when they ask for the turn itself. Until then
nothing is asked of a model.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from flightlog.agents.capture.recorder import IncomingRequest, RewrittenRequest, ServedResponse
from flightlog.agents.dialects.anthropic_messages import RequestInfo
from flightlog.lab.replay.request_diff import canonical_value, find_differences
from flightlog.lab.run_session import ApiCall
from flightlog.model.errors import Conflict
from flightlog.model.exchange import RequestOrigin as Lane
from flightlog.store.exchanges import ExchangeStore

_IDS = frozenset({"id", "tool_use_id", "signature"})
_MARK = {"cache_control": {"type": "ephemeral"}}
# Who asks is the asker's own to say.
_OWN = frozenset({"messages", "metadata", "stream"})
_HEADERS = ("content-type", "request-id", "retry-after", "x-should-retry")


def insert_reminders(suffix: Sequence[Any], recorded: Sequence[Any]) -> list[Any]:
    """Put the recorded reminders into what a client sends after the branch point; `recorded` is what came then."""
    told: list[Any] = []
    place = 0
    left = list(suffix)
    while left:
        while place < len(recorded) and _is_reminder(recorded[place]):
            told.append(recorded[place])
            place += 1
        while left and _is_reminder(left[0]):
            left.pop(0)
        if not left:
            break
        if place >= len(recorded) or _comparable_message(recorded[place]) != _comparable_message(left[0]):
            return list(suffix)
        told.append(left.pop(0))
        place += 1
    while told and place < len(recorded) and _is_reminder(recorded[place]):
        told.append(recorded[place])
        place += 1
    return _mark_last_block(told)


def _mark_last_block(messages: list[Any]) -> list[Any]:
    """The cache mark on the last block of all, as the client puts it."""
    if not messages or not _is_reminder(messages[-1]):
        return messages
    *before, last = messages
    plain = [_strip_cache_marks(each) for each in before]
    content = last["content"]
    blocks: list[dict[str, Any]]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else [dict(block) for block in content]
    if blocks:
        blocks[-1] |= _MARK
    return [*plain, {**last, "content": blocks}]


def _strip_cache_marks(message: Any) -> Any:
    content = message.get("content")
    if not isinstance(content, list):
        return message
    return {**message, "content": [{key: block[key] for key in block if key != "cache_control"} for block in content]}


def _is_reminder(message: Any) -> bool:
    return isinstance(message, dict) and message.get("role") == "system"


def _comparable_message(message: Any) -> Any:
    """What the model said, whatever ids it got this time; of an answer to it only that it is one."""
    if not isinstance(message, dict) or message.get("role") != "assistant":
        return message.get("role") if isinstance(message, dict) else message
    return _without_ids(canonical_value(message))


def _without_ids(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_ids(each) for each in value]
    if isinstance(value, dict):
        return {key: _without_ids(each) for key, each in value.items() if key not in _IDS}
    return value


class RewrittenBody(Struct, frozen=True):
    """A request as it is sent, and each place in which the client's own was another."""

    body: dict[str, Any]
    replaced: tuple[str, ...]

    @property
    def data(self) -> bytes:
        """The bytes of it."""
        return msgspec.json.encode(self.body)


class RecordedContext:
    """What was recorded up to a branch point, and the mark that stands for it."""

    def __init__(self, recorded: Mapping[str, Any], sentinel: str, prompt: str = "", after: Sequence[Any] = ()) -> None:
        """Take the body of the recorded request; `prompt` is said right after it, `after` is what came then."""
        self.recorded = dict(recorded)
        self.prompt = prompt
        self._sentinel = sentinel
        self._messages = append_prompt(list(recorded.get("messages") or ()), prompt)
        self._after = () if prompt else after
        self._before: list[Any] | None = None
        self._added: list[Any] = []
        self._is_first = True

    def mark_resumed(self) -> None:
        """Know that the first request was another process's: what the client added to it can no longer be told."""
        self._is_first = False

    def splice_context(self, body: Mapping[str, Any], *, compacts: bool = False) -> RewrittenBody | None:
        """Put the recorded context into a request; None when it does not go on from the branch point."""
        messages = list(body.get("messages") or ())
        at = next((place for place, each in enumerate(messages) if self._has_sentinel(each)), None)
        if at is None:
            return None
        own = [*messages[:at], *self._without_mark(messages[at])]
        if self._before is None:
            self._before = canonical_value(own)
            self._added = canonical_value(messages[at + 1 :]) if self._is_first else []
        elif canonical_value(own) != self._before:
            # The client rewrote its history (it compacted): the recorded one is no longer what it goes on from.
            return RewrittenBody({**body, "messages": [*own, *messages[at + 1 :]]}, ("sentinel",))
        rest = messages[at + 1 :]
        if canonical_value(rest[: len(self._added)]) == self._added:
            rest = rest[len(self._added) :]
        rest = insert_reminders(rest, self._after) if self._after else rest
        told = {**body, "messages": [*(_strip_all_cache_marks(self._messages) if rest else self._messages), *rest]}
        if not compacts:
            told = self.apply_recorded_settings(told)
        compared = self.recorded | {"messages": self._messages}
        client = {**body, "messages": [*own, *self._added]}
        if isinstance(client.get("system"), list) and not self._has_billing:
            client["system"] = [each for each in client["system"] if not is_billing(each)]
        return RewrittenBody(told, tuple(find_differences(client, compared, ignored={"metadata", "stream"})))

    @property
    def _has_billing(self) -> bool:
        """Whether the recorded prompt says who pays, as every captured one does and none from a transcript."""
        system = self.recorded.get("system")
        return not isinstance(system, list) or any(map(is_billing, system))

    def apply_recorded_settings(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """In the recorded order, with the recorded settings; what says who asks stays."""
        told = {name: body.get(name, value) if name in _OWN else value for name, value in self.recorded.items()}
        told |= {name: body[name] for name in _OWN if name in body and name not in told}
        billing = [each for each in body.get("system") or () if is_billing(each)]
        if billing and not self._has_billing:
            told["system"] = [*billing, *told["system"]]
        return told

    def _has_sentinel(self, message: Any) -> bool:
        return isinstance(message, dict) and any(self._sentinel in text for text in _message_texts(message))

    def _without_mark(self, message: Mapping[str, Any]) -> list[Any]:
        """The message the sentinel came in, without it; nothing when it held nothing else."""
        content = message.get("content")
        blocks = content if isinstance(content, list) else []
        kept = [block for block in blocks if self._sentinel not in str(block.get("text", ""))]
        kept += [{"type": "text", "text": self.prompt}] if self.prompt else []
        return [{**message, "content": kept}] if kept else []


def is_billing(block: Any) -> bool:
    """Whether a block of a system prompt only says who pays; a transcript does not tell it."""
    return isinstance(block, dict) and str(block.get("text", "")).startswith("x-anthropic-billing-header")


def append_prompt(messages: list[Any], prompt: str) -> list[Any]:
    """Say the prompt as the client would: as one more text of the last user message, where the cache mark moves to."""
    if not prompt:
        return messages
    said = {"type": "text", "text": prompt, "cache_control": {"type": "ephemeral"}}
    plain = _strip_all_cache_marks(messages)
    last = plain[-1] if plain else {}
    if last.get("role") != "user":
        return [*plain, {"role": "user", "content": [said]}]
    return [*plain[:-1], {**last, "content": [*_content_blocks(last["content"]), said]}]


def _strip_all_cache_marks(messages: Sequence[Any]) -> list[Any]:
    """The messages without marks for the cache, written as the client writes them then."""
    return [_without_cache_control(message) for message in messages]


def _without_cache_control(message: Any) -> Any:
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list) or not any(isinstance(each, dict) and "cache_control" in each for each in content):
        return message
    blocks = [{key: value for key, value in block.items() if key != "cache_control"} for block in content]
    # A system message of one text is written as that text once the mark has moved on.
    if message.get("role") == "system" and len(blocks) == 1 and set(blocks[0]) == {"type", "text"}:
        return {**message, "content": blocks[0]["text"]}
    return {**message, "content": blocks}


def _content_blocks(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _message_texts(message: Mapping[str, Any]) -> list[str]:
    content = message.get("content")
    if isinstance(content, str):
        return [content]
    blocks = content if isinstance(content, list) else []
    return [str(block.get("text", "")) for block in blocks if isinstance(block, dict)]


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
        _recorded_answer(call, exchanges)
        for call in calls
        if call.index < before and call.exchange.response is not None
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
