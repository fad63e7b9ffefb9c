"""Conversation digests: conversations reduced to what analysis needs.

Pure values. A digest is made once per version of a conversation and stored as a line; analysis
reads digests only, so a gigabyte of exports is read once.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

from msgspec import Struct

from flightlog.analysis.findings.failures import error_signature
from flightlog.analysis.findings.waste import is_rejection
from flightlog.model.text import one_line
from flightlog.sources.chat_exports.conversation import (
    AGENT,
    PERSON,
    Conversation,
    iter_addressed_messages,
)

EXCERPT_CHARS = 200  # enough to recognize a prompt in a list
PROMPTS_MAX = 60  # bounds the size of a digest; topics and questions need no more
SENTENCE_CHARS = 300  # of an instruction; a longer one is quoted by no file
INSTRUCTIONS_MAX = 8  # of one prompt, its last ones; a long prompt is a document
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
    messages: int = 0
    is_deleted: bool = False
    is_own: bool = False
    """Whether it is a session of our own analyst."""
    project: str = ""
    frictions: tuple[DigestMark, ...] = ()
    outcomes: tuple[DigestMark, ...] = ()
    failures: tuple[DigestMark, ...] = ()
    instructions: tuple[DigestMark, ...] = ()
    """Sentences of prompts that demand something; amount 1 if the prompt says more than that."""
    corrections: tuple[DigestMark, ...] = ()
    permissions: tuple[DigestMark, ...] = ()
    """Calls that a person approved or rejected, or settings blocked; the key is an exact rule."""
    fixes: tuple[DigestMark, ...] = ()
    """What ended a failure, or came after it; the key is the failure's."""
    follow_ups: int = 0
    edits: int = 0
    first_edit_ms: int | None = None
    costs: tuple[DigestMark, ...] = ()
    cost_usd: float | None = None
    model_costs: tuple[tuple[str, float], ...] = ()
    is_lower_bound: bool = False
    is_empty: bool = False
    export: str = ""
    member: str = ""
    offset: int = 0


def format_spent(digests: Iterable[ConversationDigest]) -> str:
    """Return what `digests` cost in USD, marked if one of the costs is a lower bound."""
    parts = list(digests)
    return format_part(sum(digest.cost_usd or 0.0 for digest in parts), parts)


def format_part(usd: float, digests: Iterable[ConversationDigest]) -> str:
    """Return a part of what `digests` cost in USD, marked likewise."""
    return f"{'≥ ' * any(digest.is_lower_bound for digest in digests)}{usd:.2f}"


# A person's words that demand something for more than one task.
_MARKED = re.compile(
    r"\b(?:always|never|make sure|be sure|ensure|remember|do(?: not|n'?t) forget|from now on|in (?:the )?future|"
    r"(?:every|each) time|whenever|as (?:always|usual)|reminder|you (?:must|should|have to|need to)|needs? to|"
    r"has to|must (?:not|always|never|be)|before you|when you(?:'re| are) done|instead of|everywhere|throughout)\b"
    r"|^(?:please |and |but |also |just |so )*(?:do not|don'?t|no|not|avoid|prefer|stop|only|keep|without|stick)\b"
    r"|^i (?:always |really |only )?(?:want|prefer|expect|need|like|would like|do not|don'?t|hate|dislike)\b"
    r"|\b(?:please|only|first|always)[.!]?$",
    re.IGNORECASE,
)
_IMPERATIVE = re.compile(
    r"^(?:please |and |but |also |then |just |kindly |so |oh,? )*(?:add|answer|ask|be|call|check|cite|commit|confirm|"
    r"consider|document|do|end|explain|finish|follow|format|give|include|leave|limit|lint|match|mention|name|note|"
    r"preserve|provide|put|reference|reply|respect|respond|return|run|show|skip|speak|spell|start|state|stay|"
    r"summarize|talk|test|think|treat|type|update|use|verify|wait|write)\b",
    re.IGNORECASE,
)
# Where one demand ends and the next begins: sentences, lines, and clauses that begin with a demand.
_BREAK = re.compile(
    r"(?<=[.!?;])\s+|\n+|\s+[\u2013\u2014-]{1,2}\s+|\s*[()]\s*|,?\s+(?:and|but)\s+(?=(?:please\s+)?(?:always|never|"
    r"do not|don'?t|make sure|be sure|ensure|remember|avoid)\b)|,\s+(?=(?:always|never|do not|don'?t|make sure|"
    r"be sure|ensure|remember)\b(?![^.!?;\n]*\b(?:it|them)\b))",
    re.IGNORECASE,
)
_FENCED = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_LINK = re.compile(r"!?\[([^\]\n]{0,200})\]\([^)\s]*\)|<?\b(?:https?://|www\.)\S+", re.IGNORECASE)
_CORRECTION = re.compile(
    r"\b(?:not|n't) (?:\w+ )?what i (?:asked|meant|wanted|said|need)"
    r"|\b(?:that|this|it|you)(?:'s|'re| is| are| was| still)? (?:still |completely |just |all |totally )?"
    r"(?:wrong|incorrect|broken)\b"
    r"|\byou (?:\w+ )?(?:ignored|forgot|missed|skipped|broke|removed|deleted|misread|misunderstood|overlooked|"
    r"left out|didn'?t|did not|haven'?t|have not|kept|keep|still|weren'?t supposed|were supposed|"
    r"should(?:n'?t| not) have)\b"
    r"|\bstill (?:\w+ )?(?:fails?|failing|broken|wrong|not|doesn'?t|does not|gets?|getting|see|seeing|the same|"
    r"crash\w*|errors?)\b"
    r"|\b(?:doesn'?t|does not|didn'?t|did not|isn'?t|is not|won'?t) (?:\w+ )?(?:work|working|compile|build|pass|"
    r"fix|help|right|correct|what|do what)\b"
    r"|\bi (?:already |just |specifically |explicitly |clearly )?(?:said|tol[d] you|asked (?:you |for)|meant)\b"
    r"|\bwhy (?:did|have|would|are) you\b|\b(?:that|this|it) (?:broke|breaks|failed|made it worse)\b"
    r"|\b(?:please )?(?:re-?read|redo)\b|\bagain you\b",
    re.IGNORECASE,
)
_CLAIM = re.compile(
    r"\b(?:done|completed?|finished|fixed|implemented|resolved|successful(?:ly)?|ready|works now|now works|"
    r"all (?:\w+ )?(?:tests|checks) pass(?:ed)?|i(?:'ve| have) (?:added|updated|changed|created|removed|written))\b",
    re.IGNORECASE,
)
_CLAIM_CHARS = 600  # the end of an answer says whether the work is done
_HEAD_CHARS = 300  # a correction begins with what is wrong
_ERROR_LINE = re.compile(r"^.{0,200}\b\w*(?:Error|Exception)\b: .+$", re.MULTILINE)
# Orders for the moment, however often they are given, and rejections.
_ONCE = re.compile(
    r"(?:please |ok,? |now )*(?:revert|undo|redo|try|retry|roll back|go (?:on|back|ahead)|fix|continue|proceed)\b"
    r"|no(?:pe)?\s*[,.!;:]|not (?:quite|what)\b",
    re.IGNORECASE,
)
_POLITE = re.compile(r"(?:can|could|would|will) you\b", re.IGNORECASE)
_SENTENCE_WORDS_MAX = 40  # longer ones describe a task
PROMPT_CHARS_MAX = 20_000  # searched of one prompt; the rest of a longer one is a pasted file
_THANKS = re.compile(r"\b(?:thanks?|thank you|works?|worked|perfect|fixed|great)\b", re.IGNORECASE)


def make_excerpt(text: str) -> str:
    """Return the beginning of `text` on one line."""
    return one_line(text, EXCERPT_CHARS)


def digest_chat(
    chat: Conversation, version: str, export: str = "", location: tuple[str, int] = ("", 0)
) -> ConversationDigest:
    """Return the digest of `chat`, stored at `location` (member, offset) of `export`."""
    prompts: list[DigestPrompt] = []
    frictions: list[DigestMark] = []
    typed: list[tuple[str, str, str]] = []
    answer = ""
    branch_turns: set[str] = set()
    for address, message in iter_addressed_messages(chat):
        if message.role == PERSON and message.text and len(prompts) < PROMPTS_MAX:
            at_ms = message.at_ms or chat.started_ms or 0
            text = make_excerpt(message.text)
            prompts.append(DigestPrompt(address, at_ms, text, len(message.text)))
        if message.subagent and message.subagent not in branch_turns and len(frictions) < MARKS_MAX:
            branch_turns.add(message.subagent)
            kind = "edited prompt" if message.role == PERSON else "regenerated answer"
            frictions.append(DigestMark(kind, address, make_excerpt(message.text)))
        if message.role == PERSON and message.text and not message.subagent:
            typed.append((address, message.text, answer))
        elif message.role == AGENT and not message.subagent:
            answer = message.text
    failures = tuple(_pasted_failures(typed))[:MARKS_MAX]
    return ConversationDigest(
        id=chat.id,
        source=chat.source,
        version=version,
        title=chat.title,
        started_ms=chat.started_ms or 0,
        ended_ms=chat.ended_ms or 0,
        prompts=tuple(prompts),
        messages=len(chat.messages),
        is_deleted=chat.is_deleted,
        frictions=tuple(frictions),
        failures=failures,
        fixes=tuple(_answers_that_worked(typed, failures)),
        export=export,
        member=location[0],
        offset=location[1],
        **read_prompts(typed),
    )


def read_prompts(typed: Iterable[tuple[str, str, str]]) -> dict[str, Any]:
    """Return the fields of a digest that prompts give: instructions, corrections, follow-ups.

    Each prompt is its address, its text, and the last answer before it, "" for the first.
    """
    instructions: list[DigestMark] = []
    corrections: list[DigestMark] = []
    follow_ups = -1
    for address, text, answer in typed:
        follow_ups += 1
        instructions += _find_instructions(address, text)
        if follow_ups and _is_correction(text[:_HEAD_CHARS]):
            is_claimed = _CLAIM.search(answer[-_CLAIM_CHARS:])
            kind = "correction after done" if is_claimed else "correction"
            corrections.append(DigestMark(kind, address, make_excerpt(_correcting_part(text))))
    return {
        "instructions": tuple(instructions[:MARKS_MAX]),
        "corrections": tuple(corrections[:MARKS_MAX]),
        "follow_ups": max(follow_ups, 0),
    }


def _correcting_part(text: str) -> str:
    """Return the first sentence of a prompt that corrects, or the whole prompt."""
    return next(filter(_is_correction, _BREAK.split(text[:_HEAD_CHARS])), text)


def _is_correction(text: str) -> bool:
    return is_rejection(text) or _CORRECTION.search(text) is not None


def _find_instructions(address: str, text: str) -> list[DigestMark]:
    """Return the sentences of a prompt that may be an instruction for every task."""
    plain = _LINK.sub(r"\1", _FENCED.sub("\n", text[:PROMPT_CHARS_MAX]))
    lines = (line for line in plain.splitlines() if not line.lstrip().startswith((">", "|", "/")))
    sentences = [
        sentence
        for part in _BREAK.split("\n".join(lines))
        if (sentence := " ".join(part.split()).lstrip("-*•#0123456789.) "))
    ]
    words = sum(len(sentence.split()) for sentence in sentences)
    demands = [sentence for sentence in sentences if _is_demand(sentence)][-INSTRUCTIONS_MAX:]
    marks = []
    for sentence in demands:
        kind = "marked" if _MARKED.search(sentence) else "imperative"
        amount = float(words - len(sentence.split()) >= 2)
        marks.append(DigestMark(kind, address, sentence, amount=amount))
    return marks


def _is_demand(sentence: str) -> bool:
    is_short = len(sentence) <= SENTENCE_CHARS and 2 <= len(sentence.split()) <= _SENTENCE_WORDS_MAX
    is_demand = _MARKED.search(sentence) or _IMPERATIVE.search(sentence)
    is_once = _ONCE.match(sentence)
    is_question = sentence.endswith("?") and not _POLITE.match(sentence)
    is_other = is_once or is_question or sentence.endswith(":")
    return bool(is_short and is_demand and not is_other)


def _pasted_failures(typed: list[tuple[str, str, str]]) -> Iterator[DigestMark]:
    """Find the error lines that a person pasted into a conversation."""
    for address, text, _ in typed:
        lines = _ERROR_LINE.findall(text[:PROMPT_CHARS_MAX])
        if lines and (key := error_signature(lines[-1])):
            yield DigestMark("failure", address, make_excerpt(lines[-1]), key)


def _answers_that_worked(
    typed: list[tuple[str, str, str]], failures: tuple[DigestMark, ...]
) -> Iterator[DigestMark]:
    """Find the answers to pasted errors after which the person said that it works."""
    keys = {mark.address: mark.key for mark in failures}
    for (address, _, _), (_, text, answer) in pairwise(typed):
        if address in keys and _THANKS.search(text[:_HEAD_CHARS]) and answer:
            yield DigestMark("answer", address, make_excerpt(answer), keys[address])
