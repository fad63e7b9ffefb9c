"""The three logs: tool calls (shareable), full tool I/O (private, per session), costs (tracked).

A metrics line holds numbers only: no free text fits its type, and the session is a keyed
pseudonym. A log that grows too large is rotated; old logs go through the retention engine.
"""

import hashlib
import hmac
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from flightlog.model import retention
from flightlog.store import files, jsonl
from flightlog.store.directories import carry_out_moves

AUDIT, DEBUG, METRICS = "logs/debug_audit.jsonl", "logs/debug.jsonl", "logs/metrics.jsonl"
LOG_BYTES_MAX = 8 << 20  # of `debug_audit.jsonl` before it is rotated
KEEP_DAYS = 90  # of rotated logs
SWITCH = frozenset({"1", "true", "yes"})  # values of CHAT_RETRO_DEBUG that turn the full log on
POLICY = retention.RetentionPolicy(
    "retro",
    (retention.RetentionRule("log", KEEP_DAYS, retention.RetentionAction.DELETE),),
    excluded_names=("outputs", "issues", "feedback", "issue-drafts", "state"),
)
ErrorKind = Literal["timeout", "refused", "unreadable", "interrupted", "agent"]


class SessionTokens(Struct, frozen=True):
    """Tokens of a session."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    total: int = 0


class Timing(Struct, frozen=True):
    """Durations of a session."""

    total_latency_seconds: float = 0.0
    avg_latency_seconds: float = 0.0
    session_duration_seconds: float = 0.0


class SessionMetrics(Struct, frozen=True):
    """One line of `logs/metrics.jsonl`."""

    session_id: str
    cost_usd: float | None  # of a program that states none: unknown
    tokens: SessionTokens
    turns: int = 0
    timing: Timing = Timing()
    errors: dict[ErrorKind, int] = {}
    prompts: int = 0


def pseudonymize_session(session: str, key: bytes) -> str:
    """Return a name for a session that cannot be traced back without the key."""
    return hmac.new(key, f"retro session\0{session}".encode(), hashlib.sha256).hexdigest()[:16]


def append_metrics(root: Path, metrics: SessionMetrics) -> None:
    """Append a line of numbers; its only text is a pseudonym."""
    assert len(metrics.session_id) == 16, "a session is named by its pseudonym"
    assert int(metrics.session_id, 16) >= 0, "a session is named by its pseudonym"
    jsonl.append_line(root / METRICS, msgspec.json.encode(metrics))


class ToolLog:
    """The tool calls of one session; with full input and output only if enabled."""

    def __init__(self, root: Path, session: str, *, in_full: bool) -> None:
        """Start the logs of a session: empty the full log, rotate the other if large."""
        self._root, self._session, self._in_full = root, session, in_full
        files.remove_files([root / DEBUG])
        _rotate_log(root / AUDIT)

    def append_call(
        self, at: str, tool: str, arguments: Mapping[str, Any], response: Any = None
    ) -> None:
        """Append one call: the path as a short hash, other text only to the full log."""
        path = str(arguments.get("file_path") or arguments.get("path") or "")
        record = {"timestamp": at, "tool": tool, "session": self._session}
        if path:
            record["file_hash"] = hashlib.sha256(path.encode("utf-8", "replace")).hexdigest()[:8]
        jsonl.append_line(self._root / AUDIT, msgspec.json.encode(record))
        if self._in_full:
            full = {
                "timestamp": at,
                "tool": tool,
                "tool_input": dict(arguments),
                "tool_response": response,
            }
            line = msgspec.json.encode(full | {"session": self._session}, enc_hook=str)
            jsonl.append_line(self._root / DEBUG, line)


def logs_due(root: Path, now_ms: int) -> tuple[retention.RetentionMove, ...]:
    """Return the logs that are old enough to be deleted."""
    items = []
    for path in sorted((root / "logs").glob("debug*.jsonl")):
        stat = path.stat()
        at_ms = int(stat.st_mtime * 1000)
        items.append(retention.RetentionItem(f"logs/{path.name}", "log", at_ms, stat.st_size))
    return retention.plan_retention(POLICY, items, now_ms)


def remove_old_logs(root: Path, now_ms: int) -> retention.RetentionResult:
    """Delete the logs that are old enough."""
    moves = logs_due(root, now_ms)
    return carry_out_moves(root, moves, lambda _name, _moves, before: before or b"")


def empty_tmp(root: Path) -> None:
    """Empty `tmp/` at the end of a session."""
    paths = sorted(path for path in (root / "tmp").glob("*") if path.name != ".gitkeep")
    moves = [
        retention.RetentionMove(
            retention.RetentionItem(f"tmp/{path.name}", "script", 0),
            retention.RetentionAction.DELETE,
            0,
        )
        for path in paths
    ]
    carry_out_moves(root, moves, lambda _name, _moves, before: before or b"")


def _rotate_log(path: Path) -> None:
    if path.is_file() and path.stat().st_size > LOG_BYTES_MAX:
        number = 1
        while (aside := path.with_name(f"{path.stem}_{number}.jsonl")).exists():
            number += 1
        files.rename_file(path, aside.name)
