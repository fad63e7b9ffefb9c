"""One line of a Claude Code transcript, turned into an event every part of flightlog understands.

One decoder for all versions: fields are looked for, never required. Knows nothing of files,
sessions or order; `transcript` reads files, `views.session` joins the events.
"""

import hashlib
from typing import Any

from msgspec.structs import replace

from flightlog.model.events import (
    ApiFailed,
    Compacted,
    ContextGiven,
    CostStated,
    Entry,
    Event,
    InputRewritten,
    Kept,
    Noted,
    Replied,
    Requested,
    Scene,
    Summarised,
    Titled,
    Unknown,
)
from flightlog.model.ids import is_safe
from flightlog.sources.api.usage import decode_usage
from flightlog.sources.claude_code.costs import SYNTHETIC_MODEL, client_totals
from flightlog.sources.claude_code.messages import blocks, user_events
from flightlog.sources.claude_code.values import mapping, milliseconds, number, parsed, sequence, text

# Record types and fields met from 1.0.128 to 2.1.325. Anything else is kept, counted and shown as unknown, so
# that a change of the format is noticed the day it appears.
COMMON = frozenset(
    "agentId cwd entrypoint gitBranch isSidechain parentUuid sessionId session_id slug timestamp type userType uuid "
    "version".split()
)

FIELDS: dict[str, frozenset[str]] = {
    kind: COMMON | frozenset(fields.split())
    for kind, fields in {
        "user": "interruptedMessageId isCompactSummary isMeta isVisibleInTranscriptOnly mcpCallNotReadOnly message "
        "origin permissionDecision permissionMode promptId promptSource queueSkipAttachments repeatsCompactSummary "
        "sandboxed sourceToolAssistantUUID summarizedTurnPromptUuids toolDenialKind toolUseResult turnCompanion "
        "turnOrigin turnPosition",
        "assistant": "apiBlockIndex apiErrorStatus apiErrorType attributionAgent attributionMcpServer "
        "attributionMcpTool effort error failedResponseHadNoToolCall isAbortedMidStream isApiErrorMessage madeBy "
        "message perTurnEffort promptCacheRequested requestId requestRef requestedModel thinkingDisplay "
        "thinkingDurationMs toolInputStreamMs",
        "system": "commandRun compactMetadata content durationMs error hasOutput hookAdditionalContext hookCount "
        "hookErrors hookInfos isMeta level logicalParentUuid maxRetries messageCount preventedContinuation "
        "retryAttempt retryInMs source stopReason subtype toolUseID",
        "attachment": "attachment rendered renderedBesideToolResult renderedRole",
        "summary": "leafUuid summary",
        "queue-operation": "content operation",
        "last-prompt": "explicit lastPrompt leafUuid",
        "atis-latch": "atis",
        "api-request-shape": "shape shapeHash",
        "api-request-blob": "hash message",
        "api-request": "base cacheControl id keep params querySource requestDigest shapeHash tail",
        "cost-state": "hasUnknownModelCost modelUsage startTime totalAPIDuration totalAPIDurationWithoutRetries "
        "totalCostUSD totalDuration totalLinesAdded totalLinesRemoved totalToolDuration",
        "mode": "mode",
        "tools-used": "tools",
        "permission-mode": "permissionMode",
        "file-history-snapshot": "isSnapshotUpdate messageId snapshot",
        "file-history-delta": "backup messageId snapshotMessageId trackingPath",
        "ai-title": "aiTitle title",
        "custom-title": "customTitle title",
        "agent-name": "agentName name",
    }.items()
}

SYSTEM_KINDS = frozenset(
    "api_error compact_boundary informational local_command model_refusal_no_fallback stop_hook_summary "
    "turn_duration".split()
)

ATTACHMENT_KINDS = frozenset(
    "agent_listing_delta auto_mode date deferred_tools_delta environment file hook_additional_context "
    "hook_blocking_error hook_success instructions model prompt_snapshot remote_session_change session_context "
    "skill_listing todo_reminder".split()
)


def decode(line: bytes, session: str = "") -> list[Entry] | None:
    """Return what `line` says, or None when it is not a record.

    One record gives one entry, except a user record with several tool results. `session`
    names the session of records that do not say it themselves.
    """
    record = parsed(line)
    if record is None or not isinstance(record.get("type"), str):
        return None
    base = _entry(record, session)
    key = base.uuid or hashlib.blake2b(line.strip(), digest_size=12).hexdigest()
    return [replace(base, event=event, key=f"{key}:{place}") for place, event in enumerate(_events(record))]


def _entry(record: dict[str, Any], session: str) -> Entry:
    kind = text(record, "type")
    agent = text(record, "agentId")
    sidechain = record.get("isSidechain") is True
    return Entry(
        event=Kept(kind),
        session=text(record, "sessionId") or session,
        uuid=text(record, "uuid"),
        parent=text(record, "parentUuid") or text(record, "logicalParentUuid"),
        at_ms=milliseconds(text(record, "timestamp")),
        lane=agent if is_safe(agent) else "?" if agent or sidechain else "",
        scene=Scene(
            text(record, "cwd"), text(record, "gitBranch"), text(record, "version"), text(record, "entrypoint")
        ),
        extra=tuple(sorted(f"{kind}.{name}" for name in record.keys() - FIELDS[kind])) if kind in FIELDS else (),
    )


def _events(record: dict[str, Any]) -> list[Event]:
    kind = text(record, "type")
    match kind:
        case "user":
            return user_events(record)
        case "assistant":
            return [_replied(record)]
        case "system":
            return [_system(record)]
        case "attachment":
            return [_attachment(record)]
        case _ if kind in FIELDS:
            return [_bookkeeping(kind, record)]
        case _:
            return [Unknown(kind, tuple(sorted(record)))]


def _replied(record: dict[str, Any]) -> Replied:
    message = mapping(record, "message")
    error = text(record, "error") or text(record, "apiErrorType") or "error"
    return Replied(
        message_id=text(message, "id"),
        model=text(message, "model"),
        content=blocks(message.get("content")),
        usage=decode_usage(message.get("usage")),
        stop_reason=text(message, "stop_reason"),
        request_id=text(record, "requestId"),
        request_ref=text(record, "requestRef"),
        block_index=number(record, "apiBlockIndex"),
        aborted=record.get("isAbortedMidStream") is True,
        synthetic=text(message, "model") == SYNTHETIC_MODEL,
        error=error if record.get("isApiErrorMessage") is True else "",
        effort=text(record, "effort"),
    )


def _system(record: dict[str, Any]) -> Event:
    kind = text(record, "subtype")
    match kind:
        case "compact_boundary":
            told = mapping(record, "compactMetadata")
            return Compacted(text(told, "trigger"), number(told, "preTokens"), number(told, "postTokens"))
        case "api_error":
            return _api_failed(record)
        case "stop_hook_summary":
            errors = [error for error in sequence(record, "hookErrors") if isinstance(error, str)]
            return Noted("hook", "; ".join(errors)) if errors else Kept("system/stop_hook_summary")
        case "local_command" | "informational" | "model_refusal_no_fallback":
            said = text(record, "content")
            return Noted(kind, said) if _words(said) else Kept(f"system/{kind}")
        case _ if kind in SYSTEM_KINDS:
            return Kept(f"system/{kind}")
        case _:
            return Unknown(f"system/{kind}", tuple(sorted(record)))


def _words(said: str) -> str:
    return said.replace("<local-command-stdout>", "").replace("</local-command-stdout>", "").strip()


def _api_failed(record: dict[str, Any]) -> ApiFailed:
    error = mapping(record, "error")
    cut = text(mapping(error, "connection"), "code") == "StreamTruncated"
    message = text(error, "formatted") or text(error, "message") or text(record, "error")
    return ApiFailed(message, number(error, "status"), number(record, "retryAttempt"), cut)


def _attachment(record: dict[str, Any]) -> Event:
    attached = mapping(record, "attachment")
    kind = text(attached, "type")
    rewritten = _rewritten_input(attached) if kind == "hook_success" else None
    if rewritten is not None:
        return InputRewritten(text(attached, "toolUseID"), rewritten)
    if kind == "hook_blocking_error":
        return Noted("hook", text(mapping(attached, "blockingError"), "blockingError") or text(attached, "content"))
    if kind not in ATTACHMENT_KINDS:
        return Unknown(f"attachment/{kind}", tuple(sorted(attached)))
    rendered = [text(part, "content") for part in sequence(record, "rendered") if isinstance(part, dict)]
    return ContextGiven(kind, "\n".join(rendered))


def _rewritten_input(attached: dict[str, Any]) -> dict[str, Any] | None:
    said = parsed(text(attached, "stdout").encode("utf-8", "replace"))
    if said is None:
        return None
    updated = mapping(said, "hookSpecificOutput").get("updatedInput")
    return updated if isinstance(updated, dict) else None


def _bookkeeping(kind: str, record: dict[str, Any]) -> Event:
    match kind:
        case "cost-state":
            return CostStated(client_totals(record))
        case "summary":
            return Summarised(text(record, "leafUuid"), _title(text(record, "summary")))
        case "ai-title" | "custom-title":
            words = text(record, "title") or text(record, "aiTitle") or text(record, "customTitle")
            return Titled(words, by_person=kind == "custom-title")
        case "api-request":
            return Requested(text(record, "id"))
        case _:
            return Kept(kind)


def _title(summary: str) -> str:
    """Some versions write the title as a JSON object."""
    said = parsed(summary.encode("utf-8", "replace")) if summary.startswith("{") else None
    return text(said or {}, "title") or summary
