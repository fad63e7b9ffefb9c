"""What a script holds: rules, each with the replies the model gives one after the other.

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
"""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from ruamel.yaml.error import YAMLError

from flightlog.model.damage import read_yaml
from flightlog.model.errors import Invalid, NotFound
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
