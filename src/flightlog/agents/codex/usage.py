"""Count Codex's tokens: which record counts, and which repeats another one.

A client from 0.150 on writes a `token_usage_record` after each response. All of them write
`token_count` events with a running total, some of them again: after a tool, in a fork's copy of its
parent, and after a compaction, there with an estimate in place of the counts. One counts only if
its total is new and it does not repeat the record before it. The totals in a record are no help: in
a session that an older client began they leave out what it spent.

The items of a response are written before its counts. So a response is named by what is known
then: its turn and the total before it. A fork that copies its parent copies both.
"""

import hashlib
from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from flightlog.model.session import SessionFile
from flightlog.model.usage import (
    ClientTotals,
    ModelResponse,
    Usage,
    UsageLine,
    response_to_row,
    split_prompt,
)
from flightlog.sources.foreign_json import parse_timestamp_ms

NEEDLES = (
    *(b'"token_usage_record"', b'"token_count"', b'"turn_context"', b'"task_started"'),
    *(b'"user_message"', b'"session_meta"'),
)
# Where a scan continues, an event that states limits and no total says nothing about what was before.
CONTEXT_NEEDLES = (b'"last_token_usage"', *(word for word in NEEDLES if word != b'"token_count"'))


# A count beyond what any number of JSON holds exactly is damage; no index could store it.
TokenCount = Annotated[int, Meta(gt=-(2**53), lt=2**53)]


class TokenFields(Struct, frozen=True, gc=False):
    """Token counts as Codex writes them: cached tokens are in the input, reasoning in the output."""

    input_tokens: TokenCount = 0
    cached_input_tokens: TokenCount = 0
    cache_write_input_tokens: TokenCount = 0
    output_tokens: TokenCount = 0

    def to_usage(self) -> Usage:
        """Return the counts by price class."""
        return split_prompt(
            max(self.input_tokens, 0),
            max(self.output_tokens, 0),
            cache_read=max(self.cached_input_tokens, 0),
            cache_write=max(self.cache_write_input_tokens, 0),
        )


class _CountInfo(Struct, frozen=True, gc=False):
    total_token_usage: TokenFields | None = None
    last_token_usage: TokenFields | None = None


class _CountPayload(Struct, frozen=True, gc=False):
    type: str = ""
    id: str = ""
    turn_id: str | None = ""
    response_id: str | None = ""
    model: str | None = ""
    cwd: str | None = ""
    message: Any = None
    usage: TokenFields | None = None
    info: _CountInfo | None = None


class CountedLine(Struct, frozen=True, gc=False):
    """One line of a rollout, without what does not concern its tokens."""

    type: str
    payload: _CountPayload = _CountPayload()
    timestamp: str = ""


_UUID_CHARS = 32  # without its dashes
decode_line = msgspec.json.Decoder(CountedLine).decode


class ResponseTracker:
    """Follows the turns and totals of one rollout; the decoder and the counter use it alike."""

    def __init__(self) -> None:
        self.model, self.cwd, self._turn = "", "", ""
        self._root = ""
        self._is_turn_named = False
        self._total = TokenFields()  # as the last event states it
        self._tokens = 0  # of all responses so far, those that the parent of a copy has included
        self._recorded: TokenFields | None = None  # counts of a record that no event repeated yet

    @property
    def turn(self) -> str:
        """The name of the turn; one that is no UUID is that of its thread."""
        return self._turn if len(self._turn) >= _UUID_CHARS else f"{self._root}.{self._turn}"

    @property
    def message_id(self) -> str:
        """The name of the response that is being written."""
        return f"{self.turn}.{self._tokens}"

    def follow_line(self, line: CountedLine) -> tuple[str, str, Usage] | None:
        """Take in a line; return id, response id and tokens of the response that it counts."""
        payload = line.payload
        match line.type:
            case "session_meta":
                # A copy begins with its own line, then that of the thread it copies.
                self._root = payload.id
            case "turn_context":
                self.model, self.cwd = payload.model or self.model, payload.cwd or self.cwd
                self._start_turn(payload.turn_id)
            case "token_usage_record" if payload.usage is not None:
                counted = (self.message_id, payload.response_id or "", payload.usage.to_usage())
                self._tokens += payload.usage.input_tokens + payload.usage.output_tokens
                self._recorded = payload.usage
                return counted
            case "event_msg" if payload.type == "task_started":
                self._start_turn(payload.turn_id)
            case "event_msg" if payload.type == "user_message" and not self._is_turn_named:
                # Versions up to 0.90 do not name their turns.
                text = str(payload.message).encode("utf-8", "replace")
                self._turn = hashlib.blake2b(text, digest_size=6).hexdigest()
            case "event_msg" if payload.type == "token_count" and payload.info is not None:
                return self._follow_total(payload.info)
        return None

    def _start_turn(self, turn: str | None) -> None:
        if turn:
            self._turn, self._is_turn_named = turn, True

    def _follow_total(self, info: _CountInfo) -> tuple[str, str, Usage] | None:
        total, last = info.total_token_usage, info.last_token_usage
        if total is None or last is None or total == self._total:
            return None
        counted = None if last == self._recorded else (self.message_id, "", last.to_usage())
        self._total, self._recorded = total, None
        self._tokens = total.input_tokens + total.output_tokens
        return counted


class RolloutCounter:
    """Counts the responses of one rollout; `agents.line_source.LineCounter` describes it."""

    def __init__(self, file: SessionFile) -> None:
        self._file = file
        self._tracker = ResponseTracker()

    def count(self, line: bytes) -> Iterable[UsageLine | ClientTotals]:
        """Return the response that a line counts, if it does."""
        record = decode_line(line)
        counted = self._tracker.follow_line(record)
        if counted is None:
            return ()
        message_id, response_id, usage = counted
        place = (self._tracker.cwd, response_id, self._file.subagent)
        at_ms, model = parse_timestamp_ms(record.timestamp) or 0, self._tracker.model
        row = ModelResponse(message_id, self._file.session, model, usage, at_ms, *place)
        return (response_to_row(row),)
