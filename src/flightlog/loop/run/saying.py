"""Reading what an agent says: model calls, denials, limits, whether it thinks it is done.

Only the records of the attempt itself are read, so that a signal of an earlier run cannot
count. Words are matched as a status block or as JSON; a mention in passing is neither.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from flightlog.model.usage import Usage
from flightlog.usage.prices import price

_EXIT = re.compile(r"^\W*EXIT_SIGNAL\W*:\W*(true|false)\b", re.IGNORECASE | re.MULTILINE)
_STATUS = re.compile(r"^\W*STATUS\W*:\W*([A-Z_]+)\b", re.IGNORECASE | re.MULTILINE)
_TESTS = re.compile(r"^\W*TESTS_STATUS\W*:\W*([A-Z_]+)\b", re.IGNORECASE | re.MULTILINE)
_LIMIT = re.compile(r"usage limit reached\|(\d{10})")
_LIMIT_WORDS = re.compile(r"(usage|session|rate|weekly) limit (reached|exceeded|hit)|limit will reset", re.IGNORECASE)
_LIMIT_STATUS = frozenset({429, 529})
_TAIL_CHARS = 4000


class Call(NamedTuple):
    """One answer of a model, as far as the stream tells."""

    message: str
    model: str
    tokens: int
    usd: float | None


class Said(NamedTuple):
    """What the end of a stream says."""

    failed: bool
    text: str
    denials: int
    asked: bool
    exit_signal: bool
    indicators: tuple[str, ...]
    limited: bool
    resets_at: float | None
    tokens: int | None
    usd: float | None


def call(record: Mapping[str, Any]) -> Call | None:
    """The model call a record tells of, if it does."""
    message = record.get("message")
    if record.get("type") != "assistant" or not isinstance(message, dict) or not message.get("id"):
        return None
    model = str(message.get("model", ""))
    if model == "<synthetic>":
        return None
    usage = _usage(message.get("usage"))
    return Call(str(message["id"]), model, usage.total, price(model, usage).usd)


def said(records: Iterable[Mapping[str, Any]]) -> Said:
    """Read a whole stream."""
    records = list(records)
    result: Mapping[str, Any] = next((each for each in reversed(records) if each.get("type") == "result"), {})
    whole = str(result.get("result") or _last_text(records))
    text = whole[-_TAIL_CHARS:]
    resets = _rejected_until(records)
    told = _LIMIT.search(text)
    status = result.get("api_error_status")
    limited = resets is not None or told is not None or status in _LIMIT_STATUS
    limited = limited or bool(result.get("is_error") and _LIMIT_WORDS.search(text))
    exits, indicators = _signs(text)
    tokens, usd = _totals(result)
    return Said(
        failed=not result or bool(result.get("is_error")),
        text=whole,
        denials=len(result.get("permission_denials") or ()),
        asked=_asks(records, text),
        exit_signal=exits,
        indicators=indicators,
        limited=limited,
        resets_at=resets if resets is not None else float(told[1]) if told else None,
        tokens=tokens,
        usd=usd,
    )


def _signs(text: str) -> tuple[bool, tuple[str, ...]]:
    """The explicit flag, and what else speaks for «done»."""
    told = _json_status(text)
    exits = [found.lower() == "true" for found in _EXIT.findall(text)]
    flag = told.get("exit_signal") if "exit_signal" in told else (exits[-1] if exits else False)
    status = str(told.get("status") or (_STATUS.findall(text) or [""])[-1]).upper()
    tests = str(told.get("tests_status") or (_TESTS.findall(text) or [""])[-1]).upper()
    signs = [("status complete", status == "COMPLETE"), ("tests passing", tests == "PASSING")]
    return flag is True or str(flag).lower() == "true", tuple(name for name, holds in signs if holds)


def _json_status(text: str) -> dict[str, Any]:
    """A status block written as JSON, alone or in a fence."""
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start:
        return {}
    try:
        told = json.loads(text[start : end + 1])
    except ValueError:
        return {}
    if not isinstance(told, dict):
        return {}
    inner = next((each for each in told.values() if isinstance(each, dict)), {})
    return {str(name).lower(): value for name, value in {**inner, **told}.items()}


def _last_text(records: list[Mapping[str, Any]]) -> str:
    for record in reversed(records):
        blocks = _blocks(record)
        texts = [str(block.get("text", "")) for block in blocks if block.get("type") == "text"]
        if record.get("type") == "assistant" and texts:
            return "\n".join(texts)
    return ""


def _asks(records: list[Mapping[str, Any]], text: str) -> bool:
    tools = {block.get("name") for record in records for block in _blocks(record) if block.get("type") == "tool_use"}
    return "AskUserQuestion" in tools or text.rstrip().endswith("?")


def _blocks(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    message = record.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _rejected_until(records: list[Mapping[str, Any]]) -> float | None:
    for record in reversed(records):
        told = record.get("rate_limit_info")
        if record.get("type") == "rate_limit_event" and isinstance(told, dict) and told.get("status") == "rejected":
            resets = told.get("resetsAt")
            return float(resets) if isinstance(resets, int | float) else None
    return None


def _totals(result: Mapping[str, Any]) -> tuple[int | None, float | None]:
    """What the client counted in all; the stream's own figures are not final."""
    models = result.get("modelUsage")
    cost = result.get("total_cost_usd")
    if not isinstance(models, dict):
        return None, float(cost) if isinstance(cost, int | float) else None
    names = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")
    tokens = sum(int(each.get(name) or 0) for each in models.values() if isinstance(each, dict) for name in names)
    return tokens, float(cost) if isinstance(cost, int | float) else None


def _usage(told: object) -> Usage:
    if not isinstance(told, dict):
        return Usage()
    names = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return Usage(*(int(told.get(name) or 0) for name in names))
