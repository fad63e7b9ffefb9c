"""What a request says about itself: who asks, in which session, and whether it compacts.

Told from headers and body alone, never from counts or order: a subagent names itself in a
header (older clients only by offering fewer tools under another prompt), a compaction by its
instruction. Pure, but for the one thing `Recogniser` remembers: the main thread's prompt.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from flightlog.model.damage import UNREADABLE
from flightlog.model.exchange import RequestOrigin

AGENT_ID = "x-claude-code-agent-id"
SESSION_ID = "x-claude-code-session-id"
REQUEST_HEADERS = (
    *("accept", "accept-encoding", "content-encoding", "content-length", "content-type", "user-agent"),
    *("anthropic-beta", "anthropic-version", "anthropic-dangerous-direct-browser-access"),
    *("x-app", "x-client-request-id", AGENT_ID, SESSION_ID),
)
RESPONSE_HEADERS = (
    *("content-encoding", "content-length", "content-type", "date", "request-id", "retry-after", "x-should-retry"),
    *("transfer-encoding",),
)
_PREFIXES = ("x-stainless-", "anthropic-ratelimit-")
_BILLING = "x-anthropic-billing-header"
_IS_SUBAGENT = "cc_is_subagent=true"
_COMPACTION = (
    "CRITICAL: Respond with TEXT ONLY",
    "Your task is to create a detailed summary of the conversation so far",
)
_SHORT_TOKENS = 1024
_DELEGATES = frozenset({"Agent", "Task"})


class RequestInfo(Struct, frozen=True):
    """What a request says about itself."""

    context: RequestOrigin
    agent_id: str = ""
    session_id: str = ""
    model: str = ""
    messages: int = 0
    is_compaction: bool = False


class _Tool(Struct):
    name: str = ""


class _Format(Struct):
    format: msgspec.Raw | None = None


class _Body(Struct):
    model: str = ""
    messages: list[msgspec.Raw] = []
    system: msgspec.Raw = msgspec.Raw(b"null")
    tools: list[_Tool] = []
    output_config: _Format | None = None
    max_tokens: int = 0


# Made while only one thread imports: the first use of a type by two threads at once ends the process.
_read = msgspec.json.Decoder(_Body).decode


class RequestClassifier:
    """Tells the requests of one session apart."""

    def __init__(self) -> None:
        """Begin without having seen anything."""
        self._main = ""
        self._delegates = False

    def classify_request(self, headers: Mapping[str, str], data: bytes) -> RequestInfo:
        """Say what one request is; `headers` have lower-case names."""
        agent, session = headers.get(AGENT_ID, ""), headers.get(SESSION_ID, "")
        try:
            body = _read(data)
        except UNREADABLE:
            return RequestInfo(RequestOrigin.SUBAGENT if agent else RequestOrigin.SIDE, agent, session)
        system = _system_text(body.system)
        last = _last_text(body.messages)
        compacts = any(last.startswith(start) for start in _COMPACTION)
        context = (
            RequestOrigin.SUBAGENT
            if agent or _IS_SUBAGENT in system[:1000]
            else self._classify_context(body, system, last)
        )
        if compacts and context is RequestOrigin.SIDE:
            context = RequestOrigin.MAIN
        return RequestInfo(context, agent, session, body.model, len(body.messages), compacts)

    def _classify_context(self, body: _Body, system: str, last: str) -> RequestOrigin:
        if not body.tools:
            aside = body.output_config is not None and body.output_config.format is not None
            aside = aside or 0 < body.max_tokens <= _SHORT_TOKENS or last == "Warmup"
            cached = b'"cache_control"' in bytes(body.system)
            return RequestOrigin.SIDE if aside or not cached else RequestOrigin.MAIN
        digest = hashlib.sha256(_without_billing(system).encode("utf-8", "replace")).hexdigest()
        delegates = any(tool.name in _DELEGATES for tool in body.tools)
        if not self._main:
            self._main, self._delegates = digest, delegates
        # Clients that do not name their subagents: another prompt, and no tool to delegate further.
        elif digest != self._main and self._delegates and not delegates:
            return RequestOrigin.SUBAGENT
        return RequestOrigin.MAIN


def filter_headers(headers: Mapping[str, str], allowed: tuple[str, ...]) -> dict[str, str]:
    """Return the headers that may be recorded, by lower-case name; what is not on the list is not kept."""
    lower = ((name.lower(), value) for name, value in headers.items())
    return {name: value for name, value in lower if name in allowed or name.startswith(_PREFIXES)}


def _system_text(raw: msgspec.Raw) -> str:
    said = msgspec.json.decode(raw)
    if isinstance(said, str):
        return said
    return "\n".join(_block_text(block) for block in said) if isinstance(said, list) else ""


def _without_billing(system: str) -> str:
    return system.partition("\n")[2] if system.startswith(_BILLING) else system


def _last_text(messages: list[msgspec.Raw]) -> str:
    """The last text of the last message."""
    said = msgspec.json.decode(messages[-1]) if messages else {}
    content = said.get("content") if isinstance(said, dict) else ""
    if isinstance(content, str):
        return content
    return _block_text(content[-1]) if isinstance(content, list) and content else ""


def _block_text(block: Any) -> str:
    text = block.get("text") if isinstance(block, dict) else ""
    return text if isinstance(text, str) else ""
