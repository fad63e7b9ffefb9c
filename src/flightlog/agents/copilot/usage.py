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

import msgspec
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

_AMOUNT_MAX = 10**18  # more is damage
_NANO = 1_000_000_000  # `totalNanoAiu` counts billionths of an AI credit
USAGE_RECORD = "session.usage_record"
COMPACTION = "session.compaction_complete"
# The records that report a model call: where its counts are, and the id in them.
_CALLS = {
    USAGE_RECORD: ("usage", "apiCallId"),
    COMPACTION: ("compactionTokensUsed", ""),
    "tool.execution_complete": ("toolUsage", "requestId"),
}
_MESSAGE = b'"assistant.message"'
_STARTS = ("session.start", "session.resume")
_CONTEXTS = (*_STARTS, "session.context_changed")
_TOTALS = ("session.shutdown", "session.usage_checkpoint")
CONTEXT_NEEDLES = tuple(f'"{kind}"'.encode() for kind in (*_CONTEXTS, USAGE_RECORD))
USAGE_NEEDLES = (
    *CONTEXT_NEEDLES,
    *(f'"{kind}"'.encode() for kind in (*_TOTALS, COMPACTION)),
    _MESSAGE,
    b'"toolUsage":',  # of a tool that asks a model of its own
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


def find_call(record: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """Return the id and the counts of the model call that a record reports, if it does."""
    counts_field, id_field = _CALLS.get(text_field(record, "type"), ("", ""))
    counts = object_field(object_field(record, "data"), counts_field)
    return (text_field(counts, id_field) or text_field(record, "id"), counts) if counts else None


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
    snapshot = object_field(object_field(record, "data"), "accountingSnapshot")
    models = list(_model_usage(snapshot))
    if text_field(record, "type") not in _TOTALS or not models:
        return None
    is_billed = text_field(snapshot, "aiCreditsStatus") != "unavailable"
    nano = amount_field(snapshot, "totalNanoAiu")
    requests = amount_field(snapshot, "totalPremiumRequestCost")
    return ClientTotals(
        session=session,
        cost_usd=None,
        started_ms=parse_timestamp_ms(text_field(snapshot, "sessionStartTime")) or 0,
        models=tuple(
            ModelTotal(name, None, **asdict(decode_usage(counts))) for name, counts in models
        ),
        as_of_ms=parse_timestamp_ms(text_field(record, "timestamp")) or 0,
        # Absent billing is unknown, and written as 0.
        credits=nano / _NANO if nano is not None and is_billed else None,
        premium_requests=requests if is_billed else requests or None,
    )


def amount_field(record: dict[str, Any], key: str) -> float | None:
    """Return a number, or None for anything else."""
    value = record.get(key)
    if isinstance(value, int | float) and 0 <= value < _AMOUNT_MAX:
        return float(value)
    return None


def _model_usage(totals: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, metrics in sorted(object_field(totals, "modelMetrics").items()):
        if isinstance(metrics, dict):
            yield name, object_field(metrics, "usage")


class CopilotCounter:
    """Counts the calls in the events of one session, see `agents.line_source.LineCounter`."""

    def __init__(self, file: SessionFile) -> None:
        self._session = file.session
        self._cwd = ""
        self._run = ""  # the record that began the client's current run
        self._has_records = False  # in this run

    def count(self, line: bytes) -> Iterator[UsageLine | ClientTotals]:
        """Yield the usage that a line adds."""
        if self._has_records and _MESSAGE in line and USAGE_RECORD.encode() not in line:
            return  # counted by its usage record
        record = parse_object(line) or msgspec.json.decode(line, type=dict[str, Any])
        kind, data = text_field(record, "type"), object_field(record, "data")
        if (directory := working_directory(record)) is not None:
            self._cwd = text_field(directory, "cwd") or self._cwd
        if kind in _STARTS:
            self._run, self._has_records = text_field(record, "id"), False
        self._has_records = self._has_records or kind == USAGE_RECORD
        if call := find_call(record):
            row = self._make_line(record, *call)
            yield row._replace(quality=UsageQuality.UNCOUNTED) if kind == COMPACTION else row
        elif kind == "assistant.message":
            yield self._make_line(record, self._run or self._session, {"model": data.get("model")})
        elif totals := read_client_totals(self._session, record):
            yield totals
        elif kind == "session.shutdown" and not self._has_records:
            yield from self._count_run(record)

    def _count_run(self, record: dict[str, Any]) -> Iterator[UsageLine]:
        """Yield the sums of a run; the first replaces the unknown usage of the run's messages."""
        name = self._run or self._session
        for model, usage in _model_usage(object_field(record, "data")):
            yield self._make_line(record, name, {**usage, "model": model})
            name = f"{self._run or self._session}:{model}"

    def _make_line(
        self, record: dict[str, Any], message_id: str, counts: dict[str, Any]
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
