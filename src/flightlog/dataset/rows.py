"""Rows of the dataset: the source document's fields and names, and the keys of rows.

A row is written once and never edited. When a turn grows, its row is written again with a higher
`rev`; of all rows with one key, readers use the one with the highest. Ids are derived from the
recording's ids, never from text. Fields that the source document does not have are optional: its
own rows are valid.
"""

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from flightlog.model.errors import UNREADABLE

Row = dict[str, Any]

# Kind of row to base file; the first five are the source document's.
BASES = {
    "commit": "commits.jsonl",
    "session": "sessions.jsonl",
    "chat": "chats.jsonl",
    "orchestration": "orchestration.jsonl",
    "action": "actions.jsonl",
    "update": "updates.jsonl",
    "tombstone": "tombstones.jsonl",
}
OTHER = "other.jsonl"
COUNTED = ("session", "chat", "action", "commit", "orchestration")
WITHHELD, REDACTED = "withheld", "redacted"


class StepUsage(Struct, frozen=True, array_like=True):
    """One model response: id (unique over all rows), tokens, and its model if not the row's."""

    id: str
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_5m_tokens: int
    cache_write_1h_tokens: int
    model: str = ""


class SessionRow(
    Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="session"
):
    """A session; `id` is the source document's, `session` the recording's."""

    id: str
    started_at: str
    ended_at: str
    summary: str | None
    chat_count: int
    commits: list[str]
    session: str = ""
    agent: str = ""
    rev: int = 0
    words: str = REDACTED
    summary_chars: int = 0
    branch: str = ""
    version: str = ""
    duration_seconds: float = 0.0
    steps: int = 0
    actions: int = 0
    failed_actions: int = 0
    sub_agents: int = 0
    compactions: int = 0
    tools_used: dict[str, int] = {}
    files_modified: list[str] = []
    models: list[str] = []
    cost_usd: float | None = None


class ChatRow(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="chat"):
    """A turn: prompt, answer and effects. `rev` is its duration so far in milliseconds."""

    id: str
    timestamp: str
    session_id: str
    input: str | None
    output: str | None
    tools: list[str]
    files: list[str]
    uuid: str = ""
    rev: int = 0
    words: str = REDACTED
    input_chars: int = 0
    output_chars: int = 0
    prompt_source: str = "human"
    model: str = ""
    files_modified: list[str] = []
    steps: list[StepUsage] = []
    resulted_in_commit: bool = False
    related_commit: str = ""
    is_rewound: bool = False


class ActionRow(
    Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="action"
):
    """A tool call. It has no `rev`: the version with the result is longer, and wins."""

    id: str
    timestamp: str
    session_id: str
    action_type: str
    target: str | None
    tool: str = ""
    target_chars: int = 0
    chat_id: str = ""
    subagent: str = ""
    success: bool | None = None
    duration_ms: int = 0
    result_chars: int = 0
    result_summary: str = ""
    rev: int = 0


class SubagentUsage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A subagent of a session."""

    id: str
    model: str = ""
    agent_type: str = ""
    chat_id: str = ""
    started_at: str = ""
    duration_ms: int = 0
    actions: int = 0
    cost_usd: float = 0.0
    is_warmup: bool = False
    is_success: bool = True
    steps: list[StepUsage] = []


class AgentBatch(Struct, frozen=True, kw_only=True):
    """Subagents that ran in parallel, or one that ran alone."""

    execution_type: str
    agent_count: int
    duration_ms: int
    all_succeeded: bool
    agent_ids: list[str]


class OrchestrationRow(
    Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="orchestration"
):
    """The subagents of one session."""

    id: str
    session_id: str
    session: str
    timestamp: str
    rev: int
    total_sub_agents: int
    batch_count: int
    models_used: list[str]
    total_tools_used: int
    unique_tools: int
    total_duration_ms: int
    success_rate: float
    batches: list[AgentBatch]
    agents: list[SubagentUsage]


class CommitRow(
    Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="commit"
):
    """A commit, without its author."""

    id: str
    hash: str
    timestamp: str
    message: str | None
    files_changed: list[str]
    insertions: int
    deletions: int
    hour_of_day: int
    day_of_week: str
    parent_count: int
    is_merge: bool
    is_initial: bool
    rev: int
    words: str = REDACTED
    message_chars: int = 0
    files_left_out: int = 0
    seconds_since_last_commit: int | None = None
    session_id: str | None = None
    related_chats: list[str] = []
    ci_result: str | None = None
    reverted: bool = False


class UpdateRow(
    Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="update"
):
    """A later judgment: sets `field` of the row with key `row_id` to `value`."""

    id: str
    timestamp: str
    row_id: str
    field: str
    value: Any
    rev: int


class TombstoneRow(
    Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="tombstone"
):
    """A permanent removal of the row with key `row_id`, or of all rows that its rule names."""

    id: str
    timestamp: str
    reason: str
    rev: int
    row_id: str = ""
    session: str = ""  # if `is_whole_session` all of its rows, otherwise only its summary
    is_whole_session: bool = False
    chats: list[str] = []
    subagents: list[str] = []
    since: str = ""
    before: str = ""
    words: str = ""  # "withheld": rows up to `before` stay, without their words


AnyRow = SessionRow | ChatRow | ActionRow | OrchestrationRow | CommitRow | UpdateRow | TombstoneRow
ROWS: tuple[type[Struct], ...] = AnyRow.__args__
_KINDS: tuple[type[Struct], ...] = (*ROWS, SubagentUsage, AgentBatch)
# All field names, so that the redactor does not read one as a hint that its value is a secret.
NAMES = frozenset(("kind", *(name for kind in _KINDS for name in kind.__struct_encode_fields__)))
_decoder = msgspec.json.Decoder(AnyRow)


def to_dict(row: AnyRow) -> Row:
    """Return a row as plain values, in the order of its fields."""
    values = msgspec.to_builtins(row)
    assert isinstance(values, dict)
    for holder in (values, *values.get("agents", ())):
        if "steps" in holder and isinstance(holder["steps"], list):
            holder["steps"] = [step if step[-1] else step[:-1] for step in holder["steps"]]
    return values


def encode_row(row: Row) -> bytes:
    """Return the line of a row."""
    return msgspec.json.encode(row)


def base_line(line: bytes, kind: str) -> bytes:
    """Return a row's line without its kind, which the name of the base file implies."""
    prefix = b'{"kind":' + msgspec.json.encode(kind) + b","
    return b"{" + line.removeprefix(prefix) if line.startswith(prefix) else line


def schema_problem(line: bytes) -> str:
    """Return why a row violates its schema; "" if it does not or its kind is unknown."""
    try:
        _decoder.decode(line)
    except msgspec.ValidationError as error:
        return "" if "Invalid value" in str(error) and "$.kind" in str(error) else str(error)
    except UNREADABLE as error:
        return str(error)
    return ""


def key_of(row: Mapping[str, Any]) -> str:
    """Return the key that all versions of a row share."""
    kind, more = row.get("kind", ""), ""
    match kind:
        case "action":
            first = row.get("id")
            more = f":{row.get('session_id') or ''}:{row.get('timestamp') or ''}"
        case "chat":
            first, more = row.get("id"), f":{row.get('uuid') or ''}"
        case "session":
            first = row.get("session") or row.get("id") or row.get("session_id")
        case "commit":
            first = row.get("hash")
        case "orchestration":
            first = row.get("session") or row.get("session_id")
        case _:
            first = row.get("id")
    if not first:
        return f"{kind}#{hashlib.sha256(msgspec.json.encode(row)).hexdigest()[:16]}"
    return f"{kind}:{first}{more}"


def rev_of(row: Mapping[str, Any]) -> int:
    """Return the version number of a row."""
    rev = row.get("rev", 0)
    return rev if isinstance(rev, int) else 0


def short_session_id(session: str) -> str:
    """Shorten a session id as the source document does, if its start is random."""
    parts = session.split("-")
    is_random = [len(part) for part in parts] == [8, 4, 4, 4, 12] and parts[2][:1] in "45"
    return parts[0] if is_random else session


def session_names(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names under which the chats of a session refer to its row."""
    name = str(row.get("session") or row.get("id") or "")
    return name, short_session_id(name), str(row.get("id") or "").partition("_")[2]


def format_row_time(at_ms: int | None) -> str:
    """Return a time in the source document's form."""
    return datetime.fromtimestamp((at_ms or 0) / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def session_name(session: str, started_ms: int | None) -> str:
    """Return a session's id in the source document's form: day and short id."""
    return f"{format_row_time(started_ms)[:10]}_{short_session_id(session)}"


def chat_name(session: str, uuid: str, at_ms: int | None) -> str:
    """Return a chat's id in the source document's form: day, time, six digits of a hash."""
    stamp = datetime.fromtimestamp((at_ms or 0) / 1000, UTC).strftime("%Y%m%d-%H%M%S")
    return f"chat-{stamp}-{hashlib.sha256(f'{session} {uuid}'.encode()).hexdigest()[:6]}"
