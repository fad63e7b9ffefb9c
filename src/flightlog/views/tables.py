"""Sessions as rows of three tables, for engines that read columns: sessions, steps, tool calls.

    sessions     one row for each session            key: session
    steps        one row for each model response     key: session, lane, message_id
    tool_calls   one row for each tool call          key: session, lane, call_id

Times are milliseconds since 1970, `day` is the UTC day a session began. Pure.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from flightlog.model.events import Text, Thinking
from flightlog.model.session import Session, Step, ToolCall, Turn
from flightlog.model.usage import Usage

TEXT, NUMBER, REAL, FLAG, NAMES = "text", "number", "real", "flag", "names"
_COUNTS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_5m_tokens", "cache_write_1h_tokens")
_TOKENS = dict.fromkeys(_COUNTS, NUMBER)
_PLACE = {"session": TEXT, "lane": TEXT, "turn": NUMBER, "step": NUMBER, "message_id": TEXT}
COLUMNS: dict[str, dict[str, str]] = {
    "sessions": {
        "session": TEXT,
        "title": TEXT,
        "cwd": TEXT,
        "branch": TEXT,
        "version": TEXT,
        "entrypoint": TEXT,
        "started_ms": NUMBER,
        "ended_ms": NUMBER,
        "turns": NUMBER,
        "steps": NUMBER,
        "tool_calls": NUMBER,
        "subagents": NUMBER,
        "models": NAMES,
        **_TOKENS,
        "cost_usd": REAL,
        "damaged": NUMBER,
    },
    "steps": {
        **_PLACE,
        "at_ms": NUMBER,
        "model": TEXT,
        "stop_reason": TEXT,
        "text": TEXT,
        "thinking": TEXT,
        "tools": NAMES,
        **_TOKENS,
        "cost_usd": REAL,
        "aborted": FLAG,
    },
    "tool_calls": {
        **_PLACE,
        "call_id": TEXT,
        "name": TEXT,
        "input": TEXT,
        "output": TEXT,
        "is_error": FLAG,
        "denied": TEXT,
        "started_ms": NUMBER,
        "ended_ms": NUMBER,
    },
}
Row = dict[str, Any]


def session_day(session: Session) -> str:
    """The day a session began."""
    if session.started_ms is None:
        return "unknown"
    return datetime.fromtimestamp(session.started_ms / 1000, tz=UTC).date().isoformat()


def build_rows(session: Session) -> dict[str, list[Row]]:
    """The rows of a session, by table."""
    steps = list(_iter_steps(session))
    return {
        "sessions": [_session_row(session, [step for _, _, step in steps])],
        "steps": [_step_row(session, *each) for each in steps],
        "tool_calls": [_tool_call_row(session, *each, call) for each in steps for call in each[2].calls],
    }


def _iter_steps(session: Session) -> Iterator[tuple[str, Turn, Step]]:
    threads = [("", session.turns), *((lane.id, lane.turns) for lane in session.lanes)]
    for lane, turns in threads:
        for turn in turns:
            yield from ((lane, turn, step) for step in turn.steps)


def _session_row(session: Session, steps: list[Step]) -> Row:
    costs = [step.cost.usd for step in steps]
    return {
        "session": session.id,
        "title": session.heading,
        "cwd": session.cwd,
        "branch": session.branch,
        "version": session.version,
        "entrypoint": session.entrypoint,
        "started_ms": session.started_ms,
        "ended_ms": session.ended_ms,
        "turns": len(session.turns),
        "steps": len(steps),
        "tool_calls": sum(len(step.calls) for step in steps),
        "subagents": len(session.lanes),
        "models": list(dict.fromkeys(step.model for step in steps if step.model)),
        **_token_counts(sum((step.usage for step in steps), Usage())),
        "cost_usd": None if None in costs else sum(usd or 0.0 for usd in costs),
        "damaged": len(session.damage),
    }


def _step_row(session: Session, lane: str, turn: Turn, step: Step) -> Row:
    return {
        **_address_columns(session, lane, turn, step),
        "at_ms": step.at_ms,
        "model": step.model,
        "stop_reason": step.stop_reason,
        "text": "\n".join(block.text for block in step.content if isinstance(block, Text)),
        "thinking": "\n".join(block.text for block in step.content if isinstance(block, Thinking)),
        "tools": [call.name for call in step.calls],
        **_token_counts(step.usage),
        "cost_usd": step.cost.usd,
        "aborted": step.aborted,
    }


def _tool_call_row(session: Session, lane: str, turn: Turn, step: Step, call: ToolCall) -> Row:
    return {
        **_address_columns(session, lane, turn, step),
        "call_id": call.id,
        "name": call.name,
        "input": msgspec.json.encode(call.input).decode(),
        "output": None if call.result is None else call.output,
        "is_error": call.is_error,
        "denied": call.denied,
        "started_ms": call.started_ms,
        "ended_ms": call.ended_ms,
    }


def _address_columns(session: Session, lane: str, turn: Turn, step: Step) -> Row:
    numbers = {"turn": turn.number, "step": step.number, "message_id": step.message_id}
    return {"session": session.id, "lane": lane, **numbers}


def _token_counts(usage: Usage) -> Row:
    counts = (usage.input, usage.output, usage.cache_read, usage.cache_write_5m, usage.cache_write_1h)
    return dict(zip(_TOKENS, counts, strict=True))
