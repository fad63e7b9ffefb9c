"""The rows of the dataset: the source document's fields and names, and what tells two rows apart.

A row is written once and never edited. When a turn grows, its row is written again with a higher
`rev`; readers keep, of all rows with one key, the one with the highest. Ids come from the recording's
own ids, never from text.
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
    """One model response: its id, tokens, and model where it is not the row's. One id is one response, in any row."""

    id: str
    input: int
    output: int
    cache_read: int
    cache_write_5m: int
    cache_write_1h: int
    model: str = ""


class SessionRow(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="session"):
    """A session; `id` is the document's, `session` the recording's."""

    id: str
    started_at: str
    ended_at: str
    summary: str | None
    chat_count: int
    commits: list[str]
    session: str
    agent: str
    rev: int
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
    """A turn: what was asked and what came of it. Its `rev` is how many milliseconds it has taken so far."""

    id: str
    timestamp: str
    session_id: str
    input: str | None
    output: str | None
    tools: list[str]
    files: list[str]
    uuid: str
    rev: int
    words: str = REDACTED
    input_chars: int = 0
    output_chars: int = 0
    by: str = "human"
    model: str = ""
    files_modified: list[str] = []
    steps: list[StepUsage] = []
    resulted_in_commit: bool = False
    related_commit: str = ""
    rewound: bool = False


class ActionRow(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="action"):
    """A tool call. It has no `rev`: the version that knows the result says more, and counts."""

    id: str
    timestamp: str
    session_id: str
    action_type: str
    target: str | None
    tool: str = ""
    target_chars: int = 0
    chat_id: str = ""
    lane: str = ""
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
    warmup: bool = False
    succeeded: bool = True
    steps: list[StepUsage] = []


class AgentBatch(Struct, frozen=True, kw_only=True):
    """Subagents that ran together, or one after the other."""

    execution_type: str
    agent_count: int
    duration_ms: int
    all_succeeded: bool
    agent_ids: list[str]


class OrchestrationRow(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="orchestration"):
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


class CommitRow(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="commit"):
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


class UpdateRow(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="update"):
    """A later judgement of a row: `field` of the row whose key is `of` is `value` from now on."""

    id: str
    timestamp: str
    of: str
    field: str
    value: Any
    rev: int


class TombstoneRow(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="tombstone"):
    """The row whose key is `of` is gone for good, wherever a merge brings it back to; so is all that a rule names."""

    id: str
    timestamp: str
    why: str
    rev: int
    of: str = ""
    session: str = ""  # with `whole` all rows of it, else its summary alone
    whole: bool = False
    chats: list[str] = []
    lanes: list[str] = []
    since: str = ""
    before: str = ""
    words: str = ""  # withheld: rows up to `before` stay, without their words


AnyRow = SessionRow | ChatRow | ActionRow | OrchestrationRow | CommitRow | UpdateRow | TombstoneRow
ROWS: tuple[type[Struct], ...] = AnyRow.__args__
_KINDS: tuple[type[Struct], ...] = (*ROWS, SubagentUsage, AgentBatch)
NAMES = frozenset(("kind", *(name for each in _KINDS for name in each.__struct_encode_fields__)))
"""The names of all fields. None of them says that its value is a secret."""
_decoder = msgspec.json.Decoder(AnyRow)


def to_dict(row: AnyRow) -> Row:
    """Return a row as plain values, in the order of its fields."""
    made = msgspec.to_builtins(row)
    assert isinstance(made, dict)
    for holder in (made, *made.get("agents", ())):
        if "steps" in holder and isinstance(holder["steps"], list):
            holder["steps"] = [step if step[-1] else step[:-1] for step in holder["steps"]]
    return made


def encode_row(row: Row) -> bytes:
    """Return the one line of a row."""
    return msgspec.json.encode(row)


def base_line(line: bytes, kind: str) -> bytes:
    """Return a row's line as its base file holds it, whose name says the kind."""
    said = b'{"kind":' + msgspec.json.encode(kind) + b","
    return b"{" + line.removeprefix(said) if line.startswith(said) else line


def schema_problem(line: bytes) -> str:
    """Say what is wrong with a row by its schema; empty when nothing is, or when its kind is not ours."""
    try:
        _decoder.decode(line)
    except msgspec.ValidationError as error:
        return "" if "Invalid value" in str(error) and "$.kind" in str(error) else str(error)
    except UNREADABLE as error:
        return str(error)
    return ""


def key_of(row: Mapping[str, Any]) -> str:
    """Return what a row is a version of."""
    kind, more = row.get("kind", ""), ""
    match kind:
        case "action":
            first, more = row.get("id"), f":{row.get('session_id') or ''}:{row.get('timestamp') or ''}"
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
    """Return how new a version is."""
    rev = row.get("rev", 0)
    return rev if isinstance(rev, int) else 0


def short_session_id(session: str) -> str:
    """Shorten a session id as the document does, where its beginning is drawn at random."""
    parts = session.split("-")
    is_drawn = [len(part) for part in parts] == [8, 4, 4, 4, 12] and parts[2][:1] in "45"
    return parts[0] if is_drawn else session


def format_row_time(at_ms: int | None) -> str:
    """Write a time as the document does."""
    return datetime.fromtimestamp((at_ms or 0) / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def session_name(session: str, started_ms: int | None) -> str:
    """Name a session as the document does: day and id."""
    return f"{format_row_time(started_ms)[:10]}_{short_session_id(session)}"


def chat_name(session: str, uuid: str, at_ms: int | None) -> str:
    """Name a chat as the document does: day, time, six digits that come from the recording's own ids."""
    stamp = datetime.fromtimestamp((at_ms or 0) / 1000, UTC).strftime("%Y%m%d-%H%M%S")
    return f"chat-{stamp}-{hashlib.sha256(f'{session} {uuid}'.encode()).hexdigest()[:6]}"
