"""Count OpenCode's tokens: each assistant message is one response, with its own counts.

`input` is without cached tokens. `output` is without reasoning tokens, which are billed as output
too; clients before April 2026 counted them in both, which their `total` shows. The session's own
total is the sum of its messages; the call that made its title is in neither.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import asdict

from flightlog.model.session import SessionFile
from flightlog.model.usage import ClientTotals, ModelTotal, Usage, UsageLine, UsageQuality
from flightlog.sources.foreign_json import (
    int_field,
    object_field,
    parse_object,
    text_field,
    time_field,
)

ABORTED = "MessageAbortedError"


def decode_tokens(tokens: dict[str, Any]) -> Usage:
    """Return the `tokens` of a message or of a step."""
    cache = object_field(tokens, "cache")
    fresh = int_field(tokens, "input")
    read, write = int_field(cache, "read"), int_field(cache, "write")
    output, reasoning = int_field(tokens, "output"), int_field(tokens, "reasoning")
    is_inside = int_field(tokens, "total") in {0, fresh + read + write + output}
    return Usage(fresh, output if is_inside else output + reasoning, read, write)


def is_refused(data: dict[str, Any]) -> bool:
    """Return whether the API answered with an error, so that there is no response to count."""
    error = object_field(data, "error")
    is_error = bool(int_field(object_field(error, "data"), "statusCode"))
    return is_error and not decode_tokens(object_field(data, "tokens"))


def is_uncalled(data: dict[str, Any]) -> bool:
    """Return whether no model was called: a person ran a command, which is recorded as a reply."""
    is_complete = bool(int_field(object_field(data, "time"), "completed"))
    is_answer = text_field(data, "finish") or data.get("error")
    return is_complete and not is_answer and not decode_tokens(object_field(data, "tokens"))


def decode_totals(state: dict[str, Any]) -> ClientTotals | None:
    """Return the client's total of a session and its subagents, if it keeps one.

    It is one sum for all models, shown under the last one.
    """
    tree = object_field(state, "tree")
    output = int_field(tree, "output") + int_field(tree, "reasoning")
    usage = decode_tokens({**tree, "output": output, "cache": tree})
    if not usage:
        return None
    model = text_field(parse_object(text_field(state, "model").encode()) or {}, "id")
    cost = tree.get("cost")
    # Without a price for its model the client counts 0.
    cost_usd = float(cost) if isinstance(cost, int | float) and cost > 0 else None
    total = ModelTotal(model=model, cost_usd=cost_usd, **asdict(usage))
    as_of_ms = time_field(state, "time_updated")
    return ClientTotals(text_field(state, "id"), cost_usd, 0, (total,), as_of_ms)


class OpenCodeCounter:
    """Counts the messages of one session; a later version of a message replaces it."""

    def __init__(self, file: SessionFile) -> None:
        self._file = file
        self._project = ""

    def count(self, line: bytes) -> Iterable[UsageLine | ClientTotals]:
        """Return the usage of a message, or the totals of the session."""
        record = parse_object(line) or msgspec.json.decode(line, type=dict[str, Any])
        kind, data = text_field(record, "type"), object_field(record, "data")
        if kind == "session":
            self._project = text_field(record, "directory")
        elif kind == "state" and not self._file.subagent:
            if totals := decode_totals(record):
                yield totals
        elif text_field(data, "role") == "assistant" and not (
            is_refused(data) or is_uncalled(data)
        ):
            yield self._count_message(record, data)

    def _count_message(self, record: dict[str, Any], data: dict[str, Any]) -> UsageLine:
        usage = decode_tokens(object_field(data, "tokens"))
        return UsageLine(
            message_id=text_field(record, "response"),
            session=self._file.session,
            model=text_field(data, "modelID"),
            **asdict(usage),
            at_ms=time_field(object_field(data, "time"), "created"),
            project=text_field(object_field(data, "path"), "cwd") or self._project,
            request_id="",
            subagent=self._file.subagent,
            is_aborted=text_field(object_field(data, "error"), "name") == ABORTED,
            quality=UsageQuality.EXACT if usage else UsageQuality.MISSING,
        )
