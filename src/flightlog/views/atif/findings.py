"""Findings.

An error makes a document say something false or impossible; a warning is a doubt a reader
should have. The list is the reference: `docs/reference/trajectory-lint.md` is held to it.
"""

import enum
from collections.abc import Iterator
from typing import Any

from msgspec import Struct


class Severity(enum.Enum):
    """How bad a finding is."""

    ERROR = "error"
    WARNING = "warning"


class LintFinding(Struct, frozen=True):
    """One thing that is wrong, and where."""

    rule: str
    where: str
    text: str

    @property
    def severity(self) -> Severity:
        """How bad it is, by its rule."""
        return RULES[self.rule][0]


_ERROR, _WARNING = Severity.ERROR, Severity.WARNING

RULES: dict[str, tuple[Severity, str]] = {
    "not-json": (_ERROR, "The file cannot be read as JSON."),
    "version": (_ERROR, "The version is missing, or none that exists."),
    "newer-feature": (_ERROR, "A field or form is used that the stated version does not have."),
    "unknown-field": (_ERROR, "An object carries a field the format does not have; free data belongs in extra."),
    "missing": (_ERROR, "A required field is absent."),
    "type": (_ERROR, "A value is of another type than the format says; numbers written as text count."),
    "value": (_ERROR, "A value is none of those the format allows."),
    "step-order": (_ERROR, "Steps are not numbered 1, 2, 3 and so on, or there are none."),
    "agent-only": (_ERROR, "A field of agent steps stands on another step."),
    "observed-by-user": (_WARNING, "A user step carries an observation; agent and system steps may."),
    "time": (_ERROR, "A time stamp is not ISO 8601."),
    "vague-time": (_WARNING, "A time stamp has no time of day or no zone."),
    "time-backwards": (_WARNING, "A step is older than the one before it."),
    "empty-message": (_WARNING, "A message is an empty list of parts."),
    "empty-id": (_ERROR, "A tool call has an empty id."),
    "repeated-call": (_ERROR, "Two tool calls have the same id."),
    "unknown-call": (_ERROR, "A result names a call that is not in its step."),
    "repeated-result": (_ERROR, "Two results answer the same call."),
    "unanswered-call": (_WARNING, "A call has no result and the step's extra does not list it as unanswered."),
    "undefined-tool": (_WARNING, "A tool is called that the agent's definitions do not name."),
    "tool-definition": (_WARNING, "A tool definition is not of the function form."),
    "agent-first": (_WARNING, "The first step is the agent's: what it answers is missing."),
    "deterministic": (_ERROR, "A step without a model call carries metrics or reasoning."),
    "negative": (_ERROR, "A count or cost is below zero."),
    "not-a-number": (_ERROR, "A figure is not a finite number."),
    "cached-above-prompt": (_ERROR, "More tokens came from the cache than were read at all."),
    "lengths": (_ERROR, "Token ids or log probabilities are not as many as the tokens they belong to."),
    "step-count": (_ERROR, "total_steps is not the number of steps, and the notes do not say why."),
    "totals": (_ERROR, "A total is not the sum over the steps."),
    "total-cost": (_WARNING, "The total cost is not the sum over the steps, and no subagent explains it."),
    "missing-file": (_ERROR, "A picture, sound, subagent or continuation names a file that is not there."),
    "outside": (_ERROR, "A file is named by an absolute path or outside the document's directory."),
    "dangling-id": (_ERROR, "A trajectory id names no embedded trajectory."),
    "unlinked": (_ERROR, "A reference carries neither what its version demands."),
    "repeated-id": (_ERROR, "Two trajectories in one document have the same id."),
    "unreferenced": (_WARNING, "An embedded trajectory is never referred to."),
    "half-character": (_ERROR, "A text holds half of a surrogate pair, which no encoding can carry."),
    "boundary": (_WARNING, "A context boundary is of a kind the convention does not have, or not a system step's."),
    "doubled-text": (_WARNING, "A result says the same text twice."),
    "block-as-text": (_WARNING, "A content block was written into a text as JSON."),
    "picture-as-text": (_WARNING, "The bytes of a picture stand in a text."),
    "synthetic": (_WARNING, "A message the client made up is told as an agent's step."),
}


def iter_dicts(holder: dict[str, Any], name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a list field with their places; anything else is passed over."""
    value = holder.get(name)
    if isinstance(value, list):
        yield from ((place, item) for place, item in enumerate(value) if isinstance(item, dict))


def dict_field(holder: dict[str, Any], name: str) -> dict[str, Any]:
    """Return an object field, or an empty one."""
    value = holder.get(name)
    return value if isinstance(value, dict) else {}


def number_field(holder: dict[str, Any], name: str) -> int | float | None:
    """Return a number field, or None."""
    value = holder.get(name)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def iter_results(step: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield what came back in a step."""
    yield from iter_dicts(dict_field(step, "observation"), "results")


def iter_texts(value: Any, where: str) -> Iterator[tuple[str, str]]:
    """Yield every text in a value, keys included, with its place."""
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from iter_texts(item, f"{where}[{place}]")
    elif isinstance(value, dict):
        for name, item in value.items():
            yield where, name
            yield from iter_texts(item, f"{where}.{name}" if where else name)


def content_texts(content: Any) -> Iterator[str]:
    """Yield the texts of a message or a result."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        yield from (part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str))
