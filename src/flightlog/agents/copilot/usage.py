"""Count the tokens of Copilot CLI's events.

Cached tokens, read and written, are inside `inputTokens`, and reasoning is inside `outputTokens`;
both were measured against the responses that version 1.0.102 received. It writes a
`session.usage_record` for each call before the message of that call. A compaction has none: its
tokens are in `session.compaction_complete`, and the client's own totals lack them.

Versions before usage records write the sum of each run when it ends (`session.shutdown`), so a run
is one row for each model there; a run that never ended is unknown.
"""

from collections.abc import Iterator
from typing import Any

from msgspec import DecodeError
from msgspec.structs import asdict

from flightlog.model.addresses import is_safe
from flightlog.model.session import SessionFile
from flightlog.model.usage import (
    ClientTotals,
    ModelTotal,
    Usage,
    UsageLine,
    UsageQuality,
    split_prompt,
)
from flightlog.sources.foreign_json import (
    int_field,
    object_field,
    parse_object,
    parse_timestamp_ms,
    text_field,
)

USAGE_RECORD = "session.usage_record"
COMPACTION = "session.compaction_complete"
_MESSAGE = b'"assistant.message"'
_STARTS = ("session.start", "session.resume")
_CONTEXTS = (*_STARTS, "session.context_changed")
_TOTALS = ("session.shutdown", "session.usage_checkpoint")
CONTEXT_NEEDLES = tuple(f'"{kind}"'.encode() for kind in (*_CONTEXTS, USAGE_RECORD))
USAGE_NEEDLES = (
    *CONTEXT_NEEDLES,
    *(f'"{kind}"'.encode() for kind in (*_TOTALS, COMPACTION)),
    _MESSAGE,
)


def decode_usage(counts: dict[str, Any]) -> Usage:
    """Return the tokens of a call; what was cached is taken out of the input."""
    return split_prompt(
        int_field(counts, "inputTokens"),
        int_field(counts, "outputTokens"),
        cache_read=int_field(counts, "cacheReadTokens"),
        cache_write=int_field(counts, "cacheWriteTokens"),
    )


def usage_quality(counts: dict[str, Any]) -> UsageQuality:
    """Return whether the client recorded the counts of a call."""
    is_counted = isinstance(counts.get("inputTokens"), int | float)
    return UsageQuality.EXACT if is_counted else UsageQuality.MISSING


def call_id(call: dict[str, Any], record: dict[str, Any]) -> str:
    """Return the id of a model call; the same in its usage record and in its message."""
    return text_field(call, "apiCallId") or text_field(record, "id")


def working_directory(record: dict[str, Any]) -> dict[str, Any] | None:
    """Return the directory and git branch that a record says the session is in from now on."""
    data = object_field(record, "data")
    if text_field(record, "type") in _STARTS:
        return object_field(data, "context")
    return data if text_field(record, "type") in _CONTEXTS else None


def subagent_of(record: dict[str, Any]) -> str:
    """Return the subagent that wrote a record; "" is the main thread."""
    name = text_field(record, "agentId")
    return name if is_safe(name) else "?" if name else ""


def read_client_totals(session: str, record: dict[str, Any]) -> ClientTotals | None:
    """Return what the client has counted for the session, over all its runs."""
    data = object_field(record, "data")
    snapshot = object_field(data, "accountingSnapshot")
    models = list(_model_usage(snapshot))
    if text_field(record, "type") not in _TOTALS or not models:
        return None
    return ClientTotals(
        session=session,
        cost_usd=None,
        started_ms=parse_timestamp_ms(text_field(snapshot, "sessionStartTime")) or 0,
        models=tuple(
            ModelTotal(name, None, **asdict(decode_usage(counts))) for name, counts in models
        ),
        as_of_ms=parse_timestamp_ms(text_field(record, "timestamp")) or 0,
    )


def _model_usage(totals: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, metrics in sorted(object_field(totals, "modelMetrics").items()):
        if isinstance(metrics, dict):
            yield name, object_field(metrics, "usage")


class CopilotCounter:
    """Counts the calls in the events of one session, see `agents.line_source.LineCounter`."""

    def __init__(self, file: SessionFile) -> None:
        """Start before the first line of `file`."""
        self._session = file.session
        self._cwd = ""
        self._run = ""  # the record that began the client's current run
        self._has_records = False  # in this run

    def count(self, line: bytes) -> Iterator[UsageLine | ClientTotals]:
        """Yield the usage that a line adds."""
        if self._has_records and _MESSAGE in line and USAGE_RECORD.encode() not in line:
            return  # counted by its usage record
        record = parse_object(line)
        if record is None:
            raise DecodeError("not a record")
        kind, data = text_field(record, "type"), object_field(record, "data")
        if (directory := working_directory(record)) is not None:
            self._cwd = text_field(directory, "cwd") or self._cwd
        if kind in _STARTS:
            self._run, self._has_records = text_field(record, "id"), False
        elif kind == USAGE_RECORD:
            self._has_records = True
            counts = object_field(data, "usage")
            yield self._make_line(record, counts, call_id(counts, record))
        elif kind == COMPACTION and (counts := object_field(data, "compactionTokensUsed")):
            line_of_call = self._make_line(record, counts, text_field(record, "id"))
            yield line_of_call._replace(quality=UsageQuality.UNCOUNTED)
        elif kind == "assistant.message":
            yield self._make_line(record, {"model": data.get("model")}, self._run or self._session)
        elif totals := read_client_totals(self._session, record):
            yield totals
        elif kind == "session.shutdown" and not self._has_records:
            yield from self._count_run(record)

    def _count_run(self, record: dict[str, Any]) -> Iterator[UsageLine]:
        """Yield the sums of a run; the first replaces the unknown usage of the run's messages."""
        name = self._run or self._session
        for model, usage in _model_usage(object_field(record, "data")):
            yield self._make_line(record, {**usage, "model": model}, name)
            name = f"{self._run or self._session}:{model}"

    def _make_line(
        self, record: dict[str, Any], counts: dict[str, Any], message_id: str
    ) -> UsageLine:
        return UsageLine(
            message_id=message_id,
            session=self._session,
            model=text_field(counts, "model"),
            **asdict(decode_usage(counts)),
            at_ms=parse_timestamp_ms(text_field(record, "timestamp")) or 0,
            project=self._cwd,
            request_id=text_field(counts, "providerCallId"),
            subagent=subagent_of(record),
            is_aborted=False,
            quality=usage_quality(counts),
        )
