"""Scenario file, rules and matching.

rules:
      - when: {prompt: "greeting"}        # a regex; see `When` for the other conditions
        replies:
          - blocks:
              - thinking: Look at the directory first.
              - text: I'll look.
              - {tool: Bash, input: {command: ls}}
          - text: Done.                   # short for one text block

The n-th reply answers the request that has n assistant messages after the rule's prompt
(`match`); past the end the last one repeats, so a single tool reply is an endless loop. A
reply with `errors` fails that many times first; one that has nothing but errors never succeeds.
This module knows neither HTTP nor agents.

A rule's place in the conversation is the last prompt its `prompt` pattern matches, or the
start when it has none. The rule whose place is nearest to the end answers, and the number of
assistant messages after that place says which of its replies. No counter is kept, so a resumed,
forked or branched session gets the replies its own history asks for.

Two kinds of request come from the client, not from a conversation, and have answers of their
own: compaction («CRITICAL: Respond with TEXT ONLY») and side calls (titles, topics: no tools).
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from ruamel.yaml.error import YAMLError

from flightlog.model.errors import Invalid, NotFound, read_yaml
from flightlog.model.text import suggest_name

_COMPACTION = "CRITICAL: Respond with TEXT ONLY"
_ASIDE = "<system-reminder>"


class ScriptedBlock(Struct, frozen=True, forbid_unknown_fields=True):
    """One content block: text, thinking, redacted thinking or a tool call."""

    text: str | None = None
    thinking: str | None = None
    signature: str = ""
    redacted: str | None = None
    tool: str | None = None
    input: dict[str, Any] = {}
    id: str = ""

    def __post_init__(self) -> None:
        """Refuse a block that is two things at once, or none."""
        kinds = [kind for kind in (self.text, self.thinking, self.redacted, self.tool) if kind is not None]
        if len(kinds) != 1:
            raise ValueError("a block is one of text, thinking, redacted, tool")


class Failure(Struct, frozen=True, forbid_unknown_fields=True):
    """One failed attempt: an error status, or a stream cut after some events."""

    status: int = 529
    type: str = ""
    message: str = ""
    retry_after_s: float | None = None
    headers: dict[str, str] = {}
    cut_after: int | None = None


class Reply(Struct, frozen=True, forbid_unknown_fields=True):
    """One answer of the model; times are in seconds, `chunk_chars` is how finely the stream is cut."""

    text: str | None = None
    blocks: tuple[ScriptedBlock, ...] = ()
    errors: tuple[Failure, ...] = ()
    usage: dict[str, int] = {}
    stop_reason: str = ""
    headers: dict[str, str] = {}
    delay_s: float = 0
    chunk_delay_s: float = 0
    chunk_chars: int = 24

    def __post_init__(self) -> None:
        """Refuse a reply that says nothing and a chunk size that never ends."""
        if not (self.content or self.errors):
            raise ValueError("a reply needs text, blocks or errors")
        if self.chunk_chars < 1:
            raise ValueError("chunk_chars is at least 1")

    @property
    def content(self) -> tuple[ScriptedBlock, ...]:
        """The blocks, the short form `text` included."""
        return self.blocks if self.text is None else (*self.blocks, ScriptedBlock(text=self.text))


class RequestCondition(Struct, frozen=True, forbid_unknown_fields=True):
    """Conditions on a request, all of which must hold; words are regular expressions.

    `prompt` looks at every prompt of the conversation, `first` at the first one. `side` and
    `compaction` ask for the client's own calls, which a rule without them never answers.
    """

    prompt: str | None = None
    first: str | None = None
    system: str | None = None
    model: str | None = None
    path: str | None = None
    subagent: bool | None = None
    side: bool = False
    compaction: bool = False

    def __post_init__(self) -> None:
        """Refuse a pattern that does not compile, here rather than in the middle of a session."""
        for pattern in (self.prompt, self.first, self.system, self.model, self.path):
            try:
                re.compile(pattern or "")
            except re.error as error:
                raise ValueError(f"not a regular expression: {pattern!r}: {error}") from error


class ScenarioRule(Struct, frozen=True, forbid_unknown_fields=True):
    """Which requests, and what they get."""

    replies: tuple[Reply, ...]
    when: RequestCondition = RequestCondition()
    name: str = ""

    def __post_init__(self) -> None:
        """Refuse a rule that cannot answer."""
        if not self.replies:
            raise ValueError("a rule needs at least one reply")


class Scenario(Struct, frozen=True, forbid_unknown_fields=True):
    """A whole script."""

    rules: tuple[ScenarioRule, ...]
    note: str = ""


def load_scenario(path: Path) -> Scenario:
    """Read a scenario from a YAML or JSON file."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise NotFound(f"no such scenario: {path}", hint="name a YAML or JSON file") from error
    try:
        data = json.loads(text) if path.suffix == ".json" else read_yaml(text)
    except (ValueError, RecursionError, YAMLError) as error:
        raise Invalid(f"the scenario cannot be read: {error}", hint="correct the line it names") from error
    return parse_scenario(data)


def parse_scenario(data: object) -> Scenario:
    """Make a scenario of plain dictionaries, or say what is wrong and where."""
    try:
        return msgspec.convert(data, Scenario)
    except msgspec.ValidationError as error:
        raise Invalid(f"the scenario cannot be used: {error}", hint=_nearest_field(str(error))) from error


def _nearest_field(message: str) -> str:
    found = re.search(r"unknown field `(.+?)`", message)
    if found is None:
        return ""
    known = sorted(
        {
            name
            for kind in (Scenario, ScenarioRule, RequestCondition, Reply, Failure, ScriptedBlock)
            for name in kind.__struct_fields__
        }
    )
    return suggest_name(found[1], known)


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
