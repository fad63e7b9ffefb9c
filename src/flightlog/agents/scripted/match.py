"""Which reply a request gets, decided by the request alone.

A rule's place in the conversation is the last prompt its `prompt` pattern matches, or the
start when it has none. The rule whose place is nearest to the end answers, and the number of
assistant messages after that place says which of its replies. No counter is kept, so a resumed,
forked or branched session gets the replies its own history asks for.

Two kinds of request come from the client, not from a conversation, and have answers of their
own: compaction («CRITICAL: Respond with TEXT ONLY») and side calls (titles, topics: no tools).
"""

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from flightlog.agents.scripted.scenario import Reply, RequestCondition, Scenario, ScenarioRule

_COMPACTION = "CRITICAL: Respond with TEXT ONLY"
_ASIDE = "<system-reminder>"
_SUMMARY = Reply(
    text="<analysis>The conversation so far was read.</analysis>\n"
    "<summary>1. Primary request: see the prompts above. 2. Pending: nothing.</summary>"
)
_SIDE = Reply(text='{"title": "Scripted session", "isNewTopic": true}')


class ScriptedRequest(Struct, frozen=True):
    """A request to the Messages API, reduced to what rules ask about."""

    model: str
    path: str
    system: str
    prompts: tuple[tuple[int, str], ...]
    replied: tuple[int, ...]
    subagent: bool
    side: bool
    compaction: bool


class ScriptedReply(Struct, frozen=True):
    """The reply to give, and for the log the rule and place it comes from."""

    rule: str
    index: int
    reply: Reply


def decode_request(path: str, headers: Mapping[str, str], body: Mapping[str, Any]) -> ScriptedRequest:
    """Reduce a request to what rules ask about; `headers` has lower-case names."""
    messages = [message for message in body.get("messages") or () if isinstance(message, dict)]
    said = [(at, _prompt_texts(message)) for at, message in enumerate(messages) if message.get("role") == "user"]
    prompts = tuple((at, "\n".join(words)) for at, words in said if words)
    system = "\n".join(_content_texts(body.get("system")))
    from_client = headers.get("user-agent", "").startswith("claude-cli")
    return ScriptedRequest(
        model=str(body.get("model", "")),
        path=path,
        system=system,
        prompts=prompts,
        replied=tuple(at for at, message in enumerate(messages) if message.get("role") == "assistant"),
        subagent="x-claude-code-agent-id" in headers or "cc_is_subagent=true" in system,
        side=from_client and not body.get("tools"),
        compaction=bool(said) and any(words.startswith(_COMPACTION) for words in said[-1][1]),
    )


def choose_reply(scenario: Scenario, request: ScriptedRequest) -> ScriptedReply | None:
    """Pick the reply, or None when no rule has an answer."""
    places = [(_reply_offset(rule.when, request), -at, rule) for at, rule in enumerate(scenario.rules)]
    found = [(place, order, rule) for place, order, rule in places if place is not None]
    if found:
        place, order, rule = max(found, key=lambda one: one[:2])
        return _nth_reply(rule, rule.name or f"rule {1 - order}", sum(at > place for at in request.replied))
    if request.compaction:
        return ScriptedReply("compaction", 0, _SUMMARY)
    if request.side:
        return ScriptedReply("side call", 0, _SIDE)
    return None


def _nth_reply(rule: ScenarioRule, name: str, index: int) -> ScriptedReply:
    return ScriptedReply(name, index, rule.replies[min(index, len(rule.replies) - 1)])


def _reply_offset(when: RequestCondition, request: ScriptedRequest) -> int | None:
    """The message after which a rule's replies count, -1 for the start, None for no match."""
    if (when.side, when.compaction) != (request.side and not request.compaction, request.compaction):
        return None
    if when.subagent is not None and when.subagent != request.subagent:
        return None
    first = request.prompts[0][1] if request.prompts else ""
    texts = ((when.first, first), (when.system, request.system), (when.model, request.model), (when.path, request.path))
    if not all(_matches_pattern(pattern, text) for pattern, text in texts):
        return None
    if when.prompt is None:
        return -1
    return max((at for at, text in request.prompts if _matches_pattern(when.prompt, text)), default=None)


def _matches_pattern(pattern: str | None, text: str) -> bool:
    return pattern is None or re.search(pattern, text, re.DOTALL) is not None


def _prompt_texts(message: Mapping[str, Any]) -> list[str]:
    """What a person or program said in a message: its texts without the client's reminders."""
    return [text for text in _content_texts(message.get("content")) if not text.lstrip().startswith(_ASIDE)]


def _content_texts(content: object) -> list[str]:
    if isinstance(content, str):
        return [content]
    blocks = content if isinstance(content, list) else []
    return [str(block.get("text", "")) for block in blocks if isinstance(block, dict) and block.get("type") == "text"]
