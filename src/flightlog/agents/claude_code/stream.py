"""Read the records of a headless session: `-p --output-format stream-json`.

Callers pass the records of one attempt, so that a signal of an earlier run cannot count. Status
words count only at the start of a line or in a JSON object, not when a sentence mentions them.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from flightlog.agents.claude_code.usage import SYNTHETIC_MODEL, model_totals
from flightlog.agents.dialects.anthropic_messages import decode_usage
from flightlog.agents.protocol import AgentOutcome
from flightlog.model.usage import Usage
from flightlog.sources.foreign_json import int_field, list_field, object_field, text_field

_EXIT = re.compile(r"^\W*EXIT_SIGNAL\W*:\W*(true|false)\b", re.IGNORECASE | re.MULTILINE)
_STATUS = re.compile(r"^\W*STATUS\W*:\W*([A-Z_]+)\b", re.IGNORECASE | re.MULTILINE)
_TESTS = re.compile(r"^\W*TESTS_STATUS\W*:\W*([A-Z_]+)\b", re.IGNORECASE | re.MULTILINE)
_LIMIT = re.compile(r"usage limit reached\|(\d{10})")
_LIMIT_WORDS = re.compile(
    r"(usage|session|rate|weekly) limit (reached|exceeded|hit)|limit will reset", re.IGNORECASE
)
_UNKNOWN_OPTION = re.compile(r"unknown option '(--[\w-]+)'")
_QUESTION = "AskUserQuestion"
_ASKING_TOOLS = frozenset({_QUESTION, "ExitPlanMode"})  # denied because no person is there to ask
_LIMIT_STATUS = frozenset({429, 529})  # too many requests; the API is overloaded
_LOGIN_STATUS = frozenset({401, 403})
_STOPPED = {"error_max_turns": "max_turns", "error_max_budget_usd": "budget_exhausted"}
_TAIL_CHARS = 4000  # a status block is at the end of an answer; one quoted earlier must not count
_ERROR_CHARS_MAX = 2000  # what a journal stores of an error


class ModelCall(NamedTuple):
    """One response of a model."""

    message_id: str
    model: str
    usage: Usage


class ResultRecord(Struct, frozen=True):
    """The client's last record of a session.

    `cost_usd` covers the whole session if `is_session_total`; older clients count each run alone.
    """

    text: str
    is_error: bool
    subtype: str
    api_status: int
    errors: tuple[str, ...]
    denied_tools: tuple[str, ...]
    num_turns: int
    duration_ms: int
    usage: Usage
    client_tokens: int
    cost_usd: float | None
    is_session_total: bool


class StreamResult(NamedTuple):
    """The end of a stream; `tokens` and `usd` are the client's own totals.

    `question` is what the agent asks at the end, by its tool for questions or in its last words.
    """

    is_error: bool
    text: str
    denied_tools: tuple[str, ...]
    question: str
    exit_signal: bool
    indicators: tuple[str, ...]
    is_rate_limited: bool
    resets_at: float | None
    total_tokens: int
    cost_usd: float | None


class AgentResult(Struct, frozen=True):
    """Stop reason, error, turns and cost that an agent reports."""

    stop_reason: str
    error: str = ""
    num_turns: int = 0
    cost_usd: float | None = None


class StreamToolCall(NamedTuple):
    """A tool call, and its output if it returned."""

    name: str
    input: dict[str, Any]
    output: Any


def read_session_id(records: Sequence[Mapping[str, Any]]) -> str:
    """Return the session id of the first `init` record; records before it may carry another id."""
    candidates = [record for record in records if record.get("subtype") == "init"] or records
    names = (record.get("session_id") for record in candidates)
    return next((str(name) for name in names if name), "")


def read_model_call(record: dict[str, Any]) -> ModelCall | None:
    """Return the model call of a record, or None if it is no response of a model."""
    message = object_field(record, "message")
    model = text_field(message, "model")
    if record.get("type") != "assistant" or not message.get("id") or model == SYNTHETIC_MODEL:
        return None
    return ModelCall(str(message["id"]), model, decode_usage(message.get("usage")))


def has_reply(records: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether the model responded at all."""
    return any(record.get("type") == "assistant" for record in records)


def read_tool_calls(records: Iterable[dict[str, Any]]) -> list[StreamToolCall]:
    """Return the model's tool calls with their results."""
    blocks = [block for record in records for block in _blocks(record)]
    returned = (block for block in blocks if block.get("type") == "tool_result")
    results = {block.get("tool_use_id"): block.get("content") for block in returned}
    uses = [block for block in blocks if block.get("type") == "tool_use"]
    calls = ((str(use.get("name")), dict(use.get("input") or {}), use.get("id")) for use in uses)
    return [StreamToolCall(name, given, results.get(call)) for name, given, call in calls]


def read_result(records: Sequence[dict[str, Any]]) -> ResultRecord | None:
    """Return the last `result` record, or None if the client wrote none."""
    record = next((record for record in reversed(records) if record.get("type") == "result"), None)
    if record is None:
        return None
    cost = record.get("total_cost_usd")
    return ResultRecord(
        str(record.get("result") or ""),
        bool(record.get("is_error")),
        text_field(record, "subtype"),
        int_field(record, "api_error_status"),
        tuple(map(str, list_field(record, "errors"))),
        tuple(
            dict.fromkeys(
                str(denial.get("tool_name"))
                for denial in list_field(record, "permission_denials")
                if isinstance(denial, dict)
            )
        ),
        int_field(record, "num_turns"),
        int_field(record, "duration_ms"),
        decode_usage(record.get("usage")),
        sum(total.usage.total_tokens for total in model_totals(record)),
        float(cost) if isinstance(cost, int | float) else None,
        "model_usage_since_last_result" in record,
    )


def read_outcome(outcome: AgentOutcome) -> AgentResult:
    """Return how a session ended, by its last record and otherwise by its exit code."""
    if outcome.timed_out:
        # Records that the agent wrote while it was being stopped do not count.
        return AgentResult("timeout", "the session exceeded its time limit")
    result = read_result(outcome.records)
    code, stderr = outcome.exit_code, outcome.stderr.strip()[-_ERROR_CHARS_MAX:]
    exit_error = f"exit code {code}: {stderr}".rstrip(": ")
    if (unknown := _UNKNOWN_OPTION.search(outcome.stderr)) and result is None:
        return AgentResult("error", f"this client is too old: it has no option {unknown[1]}")
    if result is None:
        is_complete = outcome.exit_code == 0
        return AgentResult("completed") if is_complete else AgentResult("error", exit_error)
    reason, error = _stop_reason(result), ""
    if reason not in {"completed", "max_turns"}:
        error = (result.text or "; ".join(result.errors))[:_ERROR_CHARS_MAX] or exit_error
    return AgentResult(reason, error, result.num_turns, result.cost_usd)


def read_stream(records: Sequence[dict[str, Any]]) -> StreamResult:
    """Return the agent's last text, whether it hit a limit, and whether it reports to be done."""
    result = read_result(records)
    text = (result.text if result else "") or _last_text(records)
    tail = text[-_TAIL_CHARS:]
    resets = _rejected_until(records)
    limit = _LIMIT.search(tail)
    limited = resets is not None or limit is not None
    if result is not None:
        limited = limited or result.api_status in _LIMIT_STATUS
        limited = limited or (result.is_error and _LIMIT_WORDS.search(tail) is not None)
    exit_signal, indicators = _read_status_block(tail)
    denied = result.denied_tools if result else ()
    return StreamResult(
        is_error=result is None or result.is_error,
        text=text,
        denied_tools=tuple(name for name in denied if name not in _ASKING_TOOLS),
        question=_read_question(records, tail),
        exit_signal=exit_signal,
        indicators=indicators,
        is_rate_limited=limited,
        resets_at=resets if resets is not None else float(limit[1]) if limit else None,
        total_tokens=result.client_tokens if result else 0,
        cost_usd=result.cost_usd if result else None,
    )


def read_activity(record: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what a record shows of the work: a tool with its main argument, or ("", words)."""
    if record.get("type") != "assistant":
        return []
    shown = []
    for block in _blocks(record):
        if block.get("type") == "text":
            shown.append(("", str(block.get("text", ""))))
        elif block.get("type") == "tool_use":
            given = object_field(block, "input")
            main = next((value for value in given.values() if isinstance(value, str)), "")
            shown.append((str(block.get("name")), main))
    return shown


def _read_question(records: Sequence[dict[str, Any]], tail: str) -> str:
    """Return the question the agent ends with, or ""."""
    blocks = (block for record in records for block in _blocks(record))
    asked = [block for block in blocks if block.get("name") == _QUESTION]
    lines = []
    for question in list_field(object_field(asked[-1], "input"), "questions") if asked else ():
        if isinstance(question, dict):
            options = [item for item in list_field(question, "options") if isinstance(item, dict)]
            labels = ", ".join(text_field(item, "label") for item in options)
            lines.append(text_field(question, "question") + (f" ({labels})" if labels else ""))
    if lines or asked:
        return "\n".join(lines) or tail.strip()
    return tail.strip().rpartition("\n\n")[2] if tail.rstrip().endswith("?") else ""


def _stop_reason(result: ResultRecord) -> str:
    if result.subtype in _STOPPED:
        return _STOPPED[result.subtype]
    if not result.is_error:
        return "completed"
    if result.api_status in _LOGIN_STATUS or "/login" in result.text:
        return "auth_error"
    return "rate_limited" if result.api_status == 429 else "error"


def _read_status_block(tail: str) -> tuple[bool, tuple[str, ...]]:
    """Return the explicit exit flag, and other indicators that the work is done."""
    block = _json_status(tail)
    exit_flag = (
        block["exit_signal"] if "exit_signal" in block else (_EXIT.findall(tail) or [""])[-1]
    )
    status = str(block.get("status") or (_STATUS.findall(tail) or [""])[-1]).upper()
    tests = str(block.get("tests_status") or (_TESTS.findall(tail) or [""])[-1]).upper()
    indicators = [("status complete", status == "COMPLETE"), ("tests passing", tests == "PASSING")]
    return str(exit_flag).lower() == "true", tuple(name for name, is_set in indicators if is_set)


def _json_status(tail: str) -> dict[str, Any]:
    """Return a status block written as JSON, alone or in a fence."""
    try:
        block = json.loads(tail[max(tail.find("{"), 0) : tail.rfind("}") + 1])
    except ValueError:
        return {}
    if not isinstance(block, dict):
        return {}
    inner = next((value for value in block.values() if isinstance(value, dict)), {})
    return {str(name).lower(): value for name, value in {**inner, **block}.items()}


def _last_text(records: Sequence[dict[str, Any]]) -> str:
    for record in reversed(records):
        blocks = (block for block in _blocks(record) if block.get("type") == "text")
        texts = [str(block.get("text", "")) for block in blocks]
        if record.get("type") == "assistant" and texts:
            return "\n".join(texts)
    return ""


def _blocks(record: dict[str, Any]) -> list[dict[str, Any]]:
    content = list_field(object_field(record, "message"), "content")
    return [block for block in content if isinstance(block, dict)]


def _rejected_until(records: Sequence[dict[str, Any]]) -> float | None:
    for record in reversed(records):
        limit = object_field(record, "rate_limit_info")
        if record.get("type") == "rate_limit_event" and limit.get("status") == "rejected":
            resets = limit.get("resetsAt")
            return float(resets) if isinstance(resets, int | float) else None
    return None
