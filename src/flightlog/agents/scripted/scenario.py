"""Parse scenario files and choose replies.

    rules:
      - when: {prompt: "greeting"}        # a regex; see `RequestCondition` for other conditions
        replies:
          - blocks:
              - thinking: Look at the directory first.
              - text: I'll look.
              - {tool: Bash, input: {command: ls}}
          - text: Done.                   # short for one text block

A rule starts at the last prompt that its `prompt` pattern matches, or at the first message if it
has none. The rule that starts last answers; its n-th reply answers the request with n assistant
messages after the start. Past the end the last reply repeats, so a single tool reply is an endless
loop. There is no counter, so a resumed, forked or branched session gets the replies that fit its
own history. A reply with `errors` fails that many times first; one with only errors never succeeds.

Two kinds of request are the client's own and have default answers: compaction, known by the
client's instruction, and side calls (titles, topics: no tools).

The same script answers every API. `usage` of a reply takes `input`, `output`, `cache_read`,
`cache_write` and `reasoning` (a part of `output`), which each API reports in its own way; any other
name is sent as it is. `stop_reason: max_tokens` is translated as well. In the input of a tool call
`{from_result: REGEX}` is an id that an earlier result named.
"""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from yaml import YAMLError

from flightlog.model.errors import Invalid, NotFound, read_yaml
from flightlog.model.text import suggest_name


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
        """Reject a block that has several kinds, or none."""
        given = (self.text, self.thinking, self.redacted, self.tool)
        if sum(kind is not None for kind in given) != 1:
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
    """One reply of the model; `chunk_chars` is the length of the chunks of a stream."""

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
        """Reject an empty reply and a chunk size that would never end."""
        if not (self.content or self.errors):
            raise ValueError("a reply needs text, blocks or errors")
        if self.chunk_chars < 1:
            raise ValueError("chunk_chars is at least 1")

    @property
    def content(self) -> tuple[ScriptedBlock, ...]:
        """The blocks, including that of the short form `text`."""
        return self.blocks if self.text is None else (*self.blocks, ScriptedBlock(text=self.text))


class RequestCondition(Struct, frozen=True, forbid_unknown_fields=True):
    """Conditions on a request, all of which must hold; strings are regular expressions.

    `prompt` is matched with every prompt of the conversation, `first` with the first one. `side` and
    `compaction` select the client's own calls, which other rules never answer.
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
        """Reject an invalid pattern when the file is read, not in the middle of a session."""
        for pattern in (self.prompt, self.first, self.system, self.model, self.path):
            try:
                re.compile(pattern or "")
            except re.error as error:
                raise ValueError(f"not a regular expression: {pattern!r}: {error}") from error


class ScenarioRule(Struct, frozen=True, forbid_unknown_fields=True):
    """A condition, and the replies to requests that meet it."""

    replies: tuple[Reply, ...]
    when: RequestCondition = RequestCondition()
    name: str = ""

    def __post_init__(self) -> None:
        """Reject a rule without replies."""
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
        hint = "correct the line it names"
        raise Invalid(f"the scenario cannot be read: {error}", hint=hint) from error
    return parse_scenario(data)


def parse_scenario(data: object) -> Scenario:
    """Return a scenario from plain dictionaries, or raise `Invalid` naming the wrong field."""
    try:
        return msgspec.convert(data, Scenario)
    except msgspec.ValidationError as error:
        hint = _nearest_field(str(error))
        raise Invalid(f"the scenario cannot be used: {error}", hint=hint) from error


def _nearest_field(message: str) -> str:
    unknown = re.search(r"unknown field `(.+?)`", message)
    if unknown is None:
        return ""
    kinds = (Scenario, ScenarioRule, RequestCondition, Reply, Failure, ScriptedBlock)
    fields = {name for kind in kinds for name in kind.__struct_fields__}
    return suggest_name(unknown[1], sorted(fields))


_SUMMARY = Reply(
    text="<analysis>The conversation so far was read.</analysis>\n"
    "<summary>1. Primary request: see the prompts above. 2. Pending: nothing.</summary>"
)
_SIDE = Reply(text='{"title": "Scripted session", "isNewTopic": true}')


class ScriptedRequest(Struct, frozen=True):
    """The parts of a request that rules test, the same for every API."""

    model: str
    path: str
    system: str
    prompts: tuple[tuple[int, str], ...]
    replied: tuple[int, ...]
    compaction: bool
    subagent: bool = False
    side: bool = False


class ScriptedReply(Struct, frozen=True):
    """The reply to give, and for the log its rule and index."""

    rule: str
    index: int
    reply: Reply


def choose_reply(scenario: Scenario, request: ScriptedRequest) -> ScriptedReply | None:
    """Return the reply, or None if no rule matches."""
    rules = enumerate(scenario.rules)
    starts = [(_rule_start(rule.when, request), -at, rule) for at, rule in rules]
    matches = [(start, order, rule) for start, order, rule in starts if start is not None]
    if matches:
        start, order, rule = max(matches, key=lambda match: match[:2])
        index = sum(at > start for at in request.replied)
        reply = rule.replies[min(index, len(rule.replies) - 1)]
        return ScriptedReply(rule.name or f"rule {1 - order}", index, reply)
    if request.compaction:
        return ScriptedReply("compaction", 0, _SUMMARY)
    if request.side:
        return ScriptedReply("side call", 0, _SIDE)
    return None


def _rule_start(when: RequestCondition, request: ScriptedRequest) -> int | None:
    """Return the index of the message at which a rule starts, -1 before all, None for no match."""
    is_side = request.side and not request.compaction
    if (when.side, when.compaction) != (is_side, request.compaction):
        return None
    if when.subagent is not None and when.subagent != request.subagent:
        return None
    first = request.prompts[0][1] if request.prompts else ""
    texts = (
        (when.first, first),
        (when.system, request.system),
        (when.model, request.model),
        (when.path, request.path),
    )
    if not all(_matches_pattern(pattern, text) for pattern, text in texts):
        return None
    if when.prompt is None:
        return -1
    matching = (at for at, text in request.prompts if _matches_pattern(when.prompt, text))
    return max(matching, default=None)


def _matches_pattern(pattern: str | None, text: str) -> bool:
    return pattern is None or re.search(pattern, text, re.DOTALL) is not None
