"""What dialects of the scripted model share: ids, token counts, the parts of a request.

Ids are derived from a digest of the request, so the same request gets the same bytes; token counts
are derived from its size, as a warm prompt cache would report them.
"""

import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from flightlog.agents.scripted.scenario import Failure, Reply, ScriptedRequest

CREATED_S = 1_767_225_600  # 2026-01-01: a constant, so that a repeated request gets the same bytes
CHARS_PER_TOKEN = 4  # a usual estimate for English text
# The counts that a script gives in our own words; each API sends them in its own.
_COUNTS = ("input", "output", "cache_read", "cache_write", "reasoning")
# How each client starts the instruction by which it asks for a summary of the conversation.
_COMPACTION = (
    "CRITICAL: Respond with TEXT ONLY",  # Claude Code
    "You are performing a CONTEXT CHECKPOINT COMPACTION",  # Codex
    "Here is the conversation so far:",  # OpenCode
    "Please create a detailed summary of the conversation so far.",  # Copilot CLI
    "First, reason in your scratchpad.",  # Qwen Code
    "First, reason in your <analysis> block.",  # Qwen Code
    "You are the component that summarizes a conversation",  # Qwen Code, with the cache of the session
    "Generate a new <state_snapshot>",  # Gemini CLI
    "A previous <state_snapshot> exists",  # Gemini CLI
    "Critically evaluate the <state_snapshot>",  # Gemini CLI, its second call
)
# How the texts start that a client puts beside the prompts.
_CONTEXT = (
    *"<system-reminder> <environment_context> <session_context> <user_instructions>".split(),
    "# AGENTS.md instructions",
    "This is the Qwen Code.",
    "This is the Gemini CLI.",
)


class ApiDialect(Protocol):
    """One API as the scripted model speaks it; a module can implement it."""

    def decode_request(
        self, path: str, headers: Mapping[str, str], body: Mapping[str, Any]
    ) -> ScriptedRequest:
        """Return the parts of a request that rules test; `headers` has lower-case names."""

    def build_response(
        self, reply: Reply, model: str, body: Mapping[str, Any], name: str
    ) -> dict[str, Any]:
        """Return the reply as one JSON object; `name` is the digest of the request."""

    def iter_events(self, response: Mapping[str, Any], chunk_chars: int) -> Iterator[bytes]:
        """Yield a response as the events of a stream."""

    def response_usage(self, response: Mapping[str, Any]) -> dict[str, Any]:
        """Return the token counts of a response, as they are sent."""

    def error_body(self, failure: Failure, request_id: str) -> dict[str, Any]:
        """Return the response body of a failed request."""


class ScriptedTurn(NamedTuple):
    """One message of a request in any dialect: who wrote it, and its texts."""

    role: str
    texts: Sequence[str] = ()


def describe_request(
    path: str, model: str, system: str, turns: Sequence[ScriptedTurn]
) -> ScriptedRequest:
    """Return what rules test of a conversation; the caller adds what its client says of itself.

    The model's messages without an input between them are one reply. Those before the first prompt
    are none: some clients open with an exchange that no model wrote.
    """
    inputs = [
        (at, [text for text in turn.texts if not text.lstrip().startswith(_CONTEXT)])
        for at, turn in enumerate(turns)
        if turn.role == "user"
    ]
    prompts = tuple((at, "\n".join(texts)) for at, texts in inputs if texts)
    start = prompts[0][0] if prompts else -1
    roles = ["", *(turn.role for turn in turns)]
    replied = tuple(
        at
        for at, (before, role) in enumerate(itertools.pairwise(roles))
        if role == "assistant" and before != "assistant" and at > start
    )
    return ScriptedRequest(
        model=model,
        path=path,
        system=system,
        prompts=prompts,
        replied=replied,
        compaction=bool(inputs) and any(text.startswith(_COMPACTION) for text in inputs[-1][1]),
    )


def wire_overrides(reply: Reply) -> dict[str, int]:
    """Return the counts of a script that have the names of an API, to be sent as they are."""
    return {name: count for name, count in reply.usage.items() if name not in _COUNTS}


def fill_results(reply: Reply, body: Mapping[str, Any]) -> Reply:
    """Return the reply with the ids that its tool calls take from the results of earlier ones.

    `{from_result: REGEX}` in an input is the first group of the pattern's last match in the request.
    """
    if not any("from_result" in str(block.input) for block in reply.blocks):
        return reply
    given = {key: body[key] for key in ("messages", "input", "contents") if key in body}
    text = json.dumps(given).replace('\\"', '"')
    blocks = [
        msgspec.structs.replace(block, input=_fill_value(block.input, text))
        for block in reply.blocks
    ]
    return msgspec.structs.replace(reply, blocks=tuple(blocks))


def _fill_value(value: Any, text: str) -> Any:
    if isinstance(value, list):
        return [_fill_value(item, text) for item in value]
    if not isinstance(value, dict):
        return value
    if "from_result" in value:
        return (re.findall(value["from_result"], text) or [""])[-1]
    return {name: _fill_value(item, text) for name, item in value.items()}


def estimate_tokens(value: object) -> int:
    """Return about how many tokens `value` has; at least one."""
    return max(1, len(json.dumps(value)) // CHARS_PER_TOKEN)


def hash_request(body: Mapping[str, Any], attempt: int) -> str:
    """Return a digest of a request's content and of how often the same content came before."""
    text = json.dumps([body, attempt], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def derive_id(prefix: str, name: str) -> str:
    """Return an id that follows from `name`."""
    return prefix + hashlib.sha256(f"{prefix}{name}".encode()).hexdigest()[:24]


def request_id(name: str) -> str:
    """Return the value of the `request-id` header, which agents write into their transcripts."""
    return derive_id("req_", name)


def encode_event(data: Mapping[str, Any] | str, event: str = "") -> bytes:
    """Return one event as the bytes of a stream."""
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()


def split_text(text: str, size: int) -> Iterator[str]:
    """Yield a text in pieces of `size` characters."""
    return (text[at : at + size] for at in range(0, len(text), size))


def content_texts(content: object) -> list[str]:
    """Return the texts of a message's content: a string, or a list of blocks with `text`."""
    if isinstance(content, str):
        return [content]
    blocks = content if isinstance(content, list) else []
    texts = [block.get("text") for block in blocks if isinstance(block, dict)]
    return [text for text in texts if isinstance(text, str)]


def list_objects(value: object) -> list[dict[str, Any]]:
    """Return the objects of a list, without anything else in it."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
