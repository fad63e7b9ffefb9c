"""The record types and fields of Claude Code transcripts that this version has met (1.0.128 to 2.1.325).

Data, not behaviour: what is not listed here is kept, counted and shown as unknown, so that
a change of the format is noticed the day it appears.
"""

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
