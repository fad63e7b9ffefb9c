"""Conversation digests: conversations reduced to what analysis needs.

Pure values. A digest is made once per version of a conversation and stored as a line; analysis
reads digests only, so a gigabyte of exports is read once.
"""

import re

from msgspec import Struct

from flightlog.model.text import one_line
from flightlog.sources.chat_exports.conversation import (
    AGENT,
    PERSON,
    Conversation,
    iter_addressed_messages,
)

EXCERPT_CHARS = 200  # enough to recognize a prompt in a list
PROMPTS_MAX = 60  # bounds the size of a digest; topics and questions need no more
TOPIC_CONVERSATIONS_MIN = 6  # fewer conversations have no topics
MARKS_MAX = 200  # bounds the size of a digest of a long session


class DigestPrompt(Struct, frozen=True, array_like=True, gc=False):
    """A person's prompt, shortened, with its address."""

    address: str
    at_ms: int
    text: str
    chars: int = 0


class DigestMark(Struct, frozen=True, array_like=True, gc=False):
    """An observation at an address: a friction, an outcome, a failure or a cost."""

    kind: str
    address: str
    text: str = ""
    key: str = ""
    amount: float = 0.0


class ConversationDigest(Struct, frozen=True, omit_defaults=True, gc=False):
    """One conversation or session, reduced to what analysis needs."""

    id: str
    source: str
    version: str
    title: str = ""
    started_ms: int = 0
    ended_ms: int = 0
    prompts: tuple[DigestPrompt, ...] = ()
    turns: int = 0
    messages: int = 0
    chars: int = 0
    branches: int = 0
    files: int = 0
    canvases: int = 0
    is_deleted: bool = False
    is_own: bool = False
    """Whether it is a session of our own analyst."""
    project: str = ""
    models: tuple[str, ...] = ()
    frictions: tuple[DigestMark, ...] = ()
    outcomes: tuple[DigestMark, ...] = ()
    failures: tuple[DigestMark, ...] = ()
    costs: tuple[DigestMark, ...] = ()
    cost_usd: float | None = None
    model_costs: tuple[tuple[str, float], ...] = ()
    is_lower_bound: bool = False
    total_tokens: int = 0
    export: str = ""
    member: str = ""
    offset: int = 0


# Replaced in order; what is left of a message is the same each time the failure happens.
_NOISE = (
    (re.compile(r"0x[0-9a-f]+|\b[0-9a-f]{7,40}\b", re.IGNORECASE), "#"),
    (re.compile(r"(?:[A-Za-z]:)?(?:[\w.@~-]*[/\\])+([\w.@-]+)"), r"\1"),
    (re.compile(r"\d+(?:[.:]\d+)*"), "#"),
    (re.compile(r"[\"'`\u2018\u2019\u201c\u201d]"), ""),
    (re.compile(r"\s+"), " "),
)
_FAILING = re.compile(
    r"\b\w*(?:error|exception|failed|failure|fatal|panic|denied|not found|no such|timed? ?out)\b",
    re.IGNORECASE,
)


def make_excerpt(text: str) -> str:
    """Return the beginning of `text` on one line."""
    return one_line(text, EXCERPT_CHARS)


def error_signature(text: str) -> str:
    """Return the part of a failure text that is the same each time it happens.

    Numbers, directories, quotes and memory addresses are removed.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    failing = [line for line in lines if _FAILING.search(line)]
    # A traceback names the error in its last line, other output in its first.
    line = failing[-1] if "Traceback" in text and failing else next(iter(failing or lines), "")
    line = line[:400]  # bounds the work of the patterns on minified output
    for pattern, replacement in _NOISE:
        line = pattern.sub(replacement, line)
    return line.strip().lower()[:160]


def digest_chat(
    chat: Conversation, version: str, export: str = "", location: tuple[str, int] = ("", 0)
) -> ConversationDigest:
    """Return the digest of `chat`, stored at `location` (member, offset) of `export`."""
    prompts: list[DigestPrompt] = []
    frictions: list[DigestMark] = []
    chars = 0
    branch_turns: set[str] = set()
    for address, message in iter_addressed_messages(chat):
        chars += len(message.text)
        if message.role == PERSON and message.text and len(prompts) < PROMPTS_MAX:
            at_ms = message.at_ms or chat.started_ms or 0
            prompts.append(
                DigestPrompt(address, at_ms, make_excerpt(message.text), len(message.text))
            )
        if message.subagent and message.subagent not in branch_turns and len(frictions) < MARKS_MAX:
            branch_turns.add(message.subagent)
            kind = "edited prompt" if message.role == PERSON else "regenerated answer"
            frictions.append(DigestMark(kind, address, make_excerpt(message.text)))
    return ConversationDigest(
        id=chat.id,
        source=chat.source,
        version=version,
        title=chat.title,
        started_ms=chat.started_ms or 0,
        ended_ms=chat.ended_ms or 0,
        prompts=tuple(prompts),
        turns=sum(message.role == PERSON and not message.subagent for message in chat.messages),
        messages=len(chat.messages),
        chars=chars,
        branches=chat.branches,
        files=sum(len(message.files) for message in chat.messages),
        canvases=sum(bool(message.canvas) for message in chat.messages),
        is_deleted=chat.is_deleted,
        models=tuple(
            sorted(
                {
                    message.model
                    for message in chat.messages
                    if message.role == AGENT and message.model
                }
            )
        ),
        frictions=tuple(frictions),
        export=export,
        member=location[0],
        offset=location[1],
    )
