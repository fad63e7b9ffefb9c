"""Conversation reduced to what analysis needs.

Pure values. A digest is made once for each version of a conversation and kept as a line; analysis
reads digests only, so a gigabyte is read once.
"""

import re

from msgspec import Struct

from flightlog.model.text import one_line
from flightlog.sources.chat_exports.conversation import AGENT, PERSON, Conversation, iter_addressed_messages

EXCERPT_CHARS = 200
PROMPTS_MAX = 60
MARKS_MAX = 200


class DigestPrompt(Struct, frozen=True, array_like=True, gc=False):
    """Words of a person, shortened, with the address that opens them."""

    address: str
    at_ms: int
    text: str
    chars: int = 0


class DigestMark(Struct, frozen=True, array_like=True, gc=False):
    """Something noticed at a place: a friction, an outcome, a failure, a cost."""

    kind: str
    address: str
    text: str = ""
    key: str = ""
    amount: float = 0.0


class ConversationDigest(Struct, frozen=True, omit_defaults=True, gc=False):
    """One conversation, reduced."""

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
    deleted: bool = False
    project: str = ""
    models: tuple[str, ...] = ()
    frictions: tuple[DigestMark, ...] = ()
    outcomes: tuple[DigestMark, ...] = ()
    failures: tuple[DigestMark, ...] = ()
    costs: tuple[DigestMark, ...] = ()
    usd: float | None = None
    tokens: int = 0
    export: str = ""
    member: str = ""
    offset: int = 0


_NOISE = (
    (re.compile(r"0x[0-9a-f]+|\b[0-9a-f]{7,40}\b", re.IGNORECASE), "#"),
    (re.compile(r"(?:[A-Za-z]:)?(?:[\w.@~-]*[/\\])+([\w.@-]+)"), r"\1"),
    (re.compile(r"\d+(?:[.:]\d+)*"), "#"),
    (re.compile(r"[\"'`\u2018\u2019\u201c\u201d]"), ""),
    (re.compile(r"\s+"), " "),
)
_FAILING = re.compile(
    r"\b\w*(?:error|exception|failed|failure|fatal|panic|denied|not found|no such|timed? ?out)\b", re.IGNORECASE
)


def make_excerpt(text: str) -> str:
    """Return the beginning of `text` on one line."""
    return one_line(text, EXCERPT_CHARS)


def error_signature(text: str) -> str:
    """Reduce a failure to what is the same each time it happens: no numbers, directories, quotes or addresses."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if _FAILING.search(line)]
    # The last line of a traceback says what went wrong; the first of anything else does.
    chosen = telling[-1] if "Traceback" in text and telling else next(iter(telling or lines), "")
    chosen = chosen[:400]
    for pattern, stand_in in _NOISE:
        chosen = pattern.sub(stand_in, chosen)
    return chosen.strip().lower()[:160]


def digest_chat(
    chat: Conversation, version: str, export: str = "", place: tuple[str, int] = ("", 0)
) -> ConversationDigest:
    """Reduce `chat`, found at `place` of `export`."""
    prompts: list[DigestPrompt] = []
    frictions: list[DigestMark] = []
    chars = 0
    branch_turns: set[str] = set()
    for address, said in iter_addressed_messages(chat):
        chars += len(said.text)
        if said.role == PERSON and said.text and len(prompts) < PROMPTS_MAX:
            prompts.append(
                DigestPrompt(address, said.at_ms or chat.started_ms or 0, make_excerpt(said.text), len(said.text))
            )
        if said.lane and said.lane not in branch_turns and len(frictions) < MARKS_MAX:
            branch_turns.add(said.lane)
            kind = "asked anew" if said.role == PERSON else "answered anew"
            frictions.append(DigestMark(kind, address, make_excerpt(said.text)))
    return ConversationDigest(
        id=chat.id,
        source=chat.source,
        version=version,
        title=chat.title,
        started_ms=chat.started_ms or 0,
        ended_ms=chat.ended_ms or 0,
        prompts=tuple(prompts),
        turns=sum(said.role == PERSON and not said.lane for said in chat.said),
        messages=len(chat.said),
        chars=chars,
        branches=chat.branches,
        files=sum(len(said.files) for said in chat.said),
        canvases=sum(bool(said.canvas) for said in chat.said),
        deleted=chat.deleted,
        models=tuple(sorted({said.model for said in chat.said if said.role == AGENT and said.model})),
        frictions=tuple(frictions),
        export=export,
        member=place[0],
        offset=place[1],
    )
