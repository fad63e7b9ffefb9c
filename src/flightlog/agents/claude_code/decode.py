"""Decode one line of a Claude Code transcript into entries of the common model.

One decoder serves all versions: every field is optional. It knows nothing of files, sessions or
order; `source` reads files, `views.session` joins the entries.
"""

import hashlib
import pkgutil
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from flightlog.agents.claude_code.messages import (
    cut_output_tags,
    decode_blocks,
    decode_queued,
    is_task_start,
    prompt_kind,
    typed_command,
    user_events,
)
from flightlog.agents.claude_code.usage import SYNTHETIC_MODEL, client_totals, recorded_quality
from flightlog.agents.dialects.anthropic_messages import decode_usage
from flightlog.model import entries
from flightlog.model.addresses import is_safe
from flightlog.sources.foreign_json import (
    int_field,
    list_field,
    object_field,
    objects_field,
    parse_object,
    parse_timestamp_ms,
    text_field,
)

# Below these, keys are data (tool inputs, file names, model names), not format.
DATA_FIELDS = frozenset(
    "input tool_input tool_response toolUseResult updatedInput trackedFileBackups modelUsage "
    "params shape tool_calls permission_suggestions cacheControl stdin".split()
)
_CONTEXT = ("cwd", "gitBranch", "version", "entrypoint")


class _RecordTypes(Struct):
    """Record types and fields of versions 1.0.128 to 2.1.325, names separated by spaces.

    Those that tests/recordings or public transcripts hold, and the client's own lists of what it
    writes. All others are counted and shown as unknown, so that a change of the format is noticed.
    `unread` is bookkeeping that tests/recordings do not hold: known by type, with any fields.
    """

    common: str
    fields: dict[str, str]
    unread: str
    system: str
    attachment: str


_TYPES = msgspec.json.decode(
    pkgutil.get_data(__package__, "record_types.json") or b"", type=_RecordTypes
)
FIELDS = {kind: {*_TYPES.common.split(), *names.split()} for kind, names in _TYPES.fields.items()}
UNREAD_KINDS = frozenset(_TYPES.unread.split())
SYSTEM_KINDS = frozenset(_TYPES.system.split())
ATTACHMENT_KINDS = frozenset(_TYPES.attachment.split())
_HOOK_ERRORS = frozenset({"hook_non_blocking_error", "hook_error_during_execution"})
# Subtypes whose words the client shows the person; those of clients of 1.0 have no name.
_REMARKS = frozenset(
    {"", "local_command", "informational", "away_summary", "permission_retry"}
    | {"scheduled_task_fire", "model_fallback", "model_consent_fallback"}
    | {"model_refusal_fallback", "model_refusal_no_fallback"}
)

# Old versions summarized a session that failed at once by the message it failed with.
_CLIENT_MESSAGES = tuple(
    """
Invalid API key
API Error
Not logged in
Please run /login
Request timed out
Credit balance is too low
Claude AI usage limit reached
You've hit your
""".strip().splitlines()
)


def decode_record(line: bytes) -> list[entries.Entry] | None:
    """Return the entries of `line`, or None if it is not a record.

    One record gives one entry, except a user record with several tool results.
    """
    record = parse_object(line)
    if record is None or not isinstance(record.get("type"), str):
        return None
    base = _make_entry(record)
    key = base.uuid or hashlib.blake2b(line.strip(), digest_size=12).hexdigest()
    events = enumerate(_decode_events(record))
    return [replace(base, event=event, key=f"{key}:{index}") for index, event in events]


def _make_entry(record: dict[str, Any]) -> entries.Entry:
    kind = text_field(record, "type")
    agent = text_field(record, "agentId")
    sidechain = record.get("isSidechain") is True
    unknown = record.keys() - FIELDS[kind] if kind in FIELDS else ()
    return entries.Entry(
        event=entries.Ignored(kind),
        session=text_field(record, "sessionId"),
        uuid=text_field(record, "uuid"),
        parent_uuid=text_field(record, "parentUuid") or text_field(record, "logicalParentUuid"),
        at_ms=parse_timestamp_ms(text_field(record, "timestamp")),
        subagent=agent if is_safe(agent) else "?" if agent or sidechain else "",
        context=entries.RecordContext(*(text_field(record, name) for name in _CONTEXT)),
        extra_fields=tuple(sorted(f"{kind}.{name}" for name in unknown)),
    )


def _decode_events(record: dict[str, Any]) -> list[entries.Event]:
    kind = text_field(record, "type")
    match kind:
        case "user":
            return user_events(record)
        case "assistant":
            return [_decode_reply(record)]
        case "system":
            return [_decode_system(record)]
        case "attachment":
            return [_decode_attachment(record)]
        case _ if kind in FIELDS or kind in UNREAD_KINDS:
            return [_decode_bookkeeping(kind, record)]
        case _:
            return [entries.UnknownRecord(kind, tuple(sorted(record)))]


def _decode_reply(record: dict[str, Any]) -> entries.AssistantReply:
    message = object_field(record, "message")
    error = text_field(record, "error") or text_field(record, "apiErrorType") or "error"
    return entries.AssistantReply(
        message_id=text_field(message, "id"),
        model=text_field(message, "model"),
        content=decode_blocks(message.get("content")),
        **asdict(decode_usage(message.get("usage"))),
        stop_reason=text_field(message, "stop_reason"),
        request_id=text_field(record, "requestId"),
        request_ref=text_field(record, "requestRef"),
        block_index=int_field(record, "apiBlockIndex"),
        is_aborted=record.get("isAbortedMidStream") is True,
        is_synthetic=text_field(message, "model") == SYNTHETIC_MODEL,
        error=error if record.get("isApiErrorMessage") is True else "",
        effort=text_field(record, "effort"),
        quality=recorded_quality(record),
    )


def _decode_system(record: dict[str, Any]) -> entries.Event:
    kind = text_field(record, "subtype")
    match kind:
        case "compact_boundary":
            counts = object_field(record, "compactMetadata")
            before, after = (int_field(counts, name) for name in ("preTokens", "postTokens"))
            preserved = object_field(counts, "preservedSegment")
            segment = (text_field(preserved, name) for name in ("anchorUuid", "tailUuid"))
            return entries.ContextCompacted(text_field(counts, "trigger"), before, after, *segment)
        case "api_error":
            return _decode_api_error(record)
        case "stop_hook_summary":
            errors = [error for error in list_field(record, "hookErrors") if isinstance(error, str)]
            ignored = entries.Ignored(f"system/{kind}", is_activity=True)
            return entries.ClientNote("hook", "; ".join(errors)) if errors else ignored
        case _ if kind in _REMARKS:
            return _decode_remark(kind, record)
        case _ if kind in SYSTEM_KINDS:
            return entries.Ignored(f"system/{kind}", is_activity=True)
        case _:
            return entries.UnknownRecord(f"system/{kind}", tuple(sorted(record)))


def _decode_remark(kind: str, record: dict[str, Any]) -> entries.ClientNote | entries.Ignored:
    """Return a note of the client."""
    text = text_field(record, "content")
    words = typed_command(text) if text.startswith("<command-name>") else cut_output_tags(text)
    # Clients of 1.0 also noted each hook that began or succeeded.
    is_about_a_hook = not kind and text_field(record, "level") == "info"
    if is_about_a_hook or not words.strip():
        return entries.Ignored(f"system/{kind}", is_activity=True)
    return entries.ClientNote(kind or "informational", words)


def _decode_api_error(record: dict[str, Any]) -> entries.ApiError:
    error = object_field(record, "error")
    cut = text_field(object_field(error, "connection"), "code") == "StreamTruncated"
    answer = object_field(object_field(error, "error"), "error")  # of the API, up to 2.1.58
    cause = object_field(error, "cause")
    reasons = [text_field(error, "formatted"), text_field(error, "message")]
    reasons += [
        text_field(answer, "message"),
        text_field(cause, "code"),
        text_field(record, "error"),
    ]
    message = next(filter(None, reasons), "")
    status, attempt = int_field(error, "status"), int_field(record, "retryAttempt")
    return entries.ApiError(message, status, attempt, cut)


def _decode_attachment(record: dict[str, Any]) -> entries.Event:
    attached = object_field(record, "attachment")
    kind = text_field(attached, "type")
    rewritten = _rewritten_input(attached) if kind == "hook_success" else None
    if rewritten is not None:
        return entries.ToolInputRewritten(text_field(attached, "toolUseID"), rewritten)
    if kind == "hook_blocking_error":
        reason = text_field(object_field(attached, "blockingError"), "blockingError")
        return entries.ClientNote("hook", reason or text_field(attached, "content"))
    if kind in _HOOK_ERRORS:
        return entries.ClientNote(
            "hook", text_field(attached, "stderr") or text_field(attached, "content")
        )
    if kind == "queued_command":
        return decode_queued(attached, attached.get("prompt"))
    if kind not in ATTACHMENT_KINDS:
        return entries.UnknownRecord(f"attachment/{kind}", tuple(sorted(attached)))
    parts = (part for part in list_field(record, "rendered") if isinstance(part, dict))
    rendered = [text_field(part, "content") for part in parts]
    return entries.ContextInjected(kind, "\n".join(rendered), _memory_files(kind, attached))


def _memory_files(kind: str, attached: dict[str, Any]) -> dict[str, int]:
    files = objects_field(attached, "files") if kind == "instructions" else []
    if kind == "nested_memory":
        files = [object_field(attached, "content")]
    return {text_field(file, "path"): len(text_field(file, "content")) for file in files}


def _rewritten_input(attached: dict[str, Any]) -> dict[str, Any] | None:
    output = parse_object(text_field(attached, "stdout").encode("utf-8", "replace")) or {}
    updated = object_field(output, "hookSpecificOutput").get("updatedInput")
    return updated if isinstance(updated, dict) else None


def _decode_bookkeeping(kind: str, record: dict[str, Any]) -> entries.Event:
    match kind:
        case "cost-state":
            return entries.ClientTotalReported(client_totals(record))
        case "summary":
            title = _title_text(text_field(record, "summary"))
            return entries.SessionSummarized(text_field(record, "leafUuid"), title)
        case "ai-title" | "custom-title":
            names = ("title", "aiTitle", "customTitle")
            title = next(filter(None, (text_field(record, name) for name in names)), "")
            # A fork is named after its first record, which may be the client's own.
            is_title = prompt_kind({}, title) is entries.PromptKind.HUMAN
            return entries.SessionTitled(title * is_title, is_user_title=kind == "custom-title")
        case "api-request":
            return entries.RequestLogged(text_field(record, "id"))
        case "queue-operation":
            return _decode_queue_operation(record)
        case _:
            return entries.Ignored(kind, is_activity=kind == "progress")


def _decode_queue_operation(record: dict[str, Any]) -> entries.Event:
    operation = text_field(record, "operation")
    prompt = decode_queued(record, record.get("content"))
    is_prompt = operation == "enqueue" and prompt.content
    if is_prompt and not is_task_start(text_field(record, "content")):
        return entries.PromptQueued(prompt.kind, prompt.content)
    if operation == "popAll":
        return entries.QueueTakenBack()
    return entries.Ignored("queue-operation", is_activity=True)


def _title_text(summary: str) -> str:
    # Some versions write the title as a JSON object.
    fields = parse_object(summary.encode("utf-8", "replace")) if summary.startswith("{") else None
    title = text_field(fields or {}, "title") or summary
    return "" if title.startswith(_CLIENT_MESSAGES) else title
