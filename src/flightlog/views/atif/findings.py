"""The rules of the trajectory lint, their findings, and access to unchecked JSON.

An error means that a document says something false or impossible; a warning, that a reader
should doubt it. A test compares `docs/reference/trajectory-lint.md` with `RULES`.
"""

import enum
from collections.abc import Iterator
from typing import Any

from msgspec import Struct


class Severity(enum.Enum):
    """How serious a finding is."""

    ERROR = "error"
    WARNING = "warning"


class LintFinding(Struct, frozen=True):
    """A broken rule, the path of the value, and the reason."""

    rule: str
    location: str
    message: str

    @property
    def severity(self) -> Severity:
        """The severity of the rule."""
        return RULES[self.rule][0]


_ERROR, _WARNING = Severity.ERROR, Severity.WARNING

RULES: dict[str, tuple[Severity, str]] = {
    "not-json": (_ERROR, "The file cannot be read as JSON."),
    "version": (_ERROR, "The version is missing or does not exist."),
    "newer-feature": (_ERROR, "A field or form is used that the stated version does not have."),
    "unknown-field": (
        _ERROR,
        "An object has a field that the format does not have; free data belongs in extra.",
    ),
    "missing": (_ERROR, "A required field is absent."),
    "type": (_ERROR, "A value has the wrong type, for example a number written as text."),
    "value": (_ERROR, "A value is not one that the format allows."),
    "step-order": (_ERROR, "Steps are not numbered 1, 2, 3 and so on, or there are none."),
    "agent-only": (_ERROR, "A field of agent steps is on another step."),
    "observed-by-user": (
        _WARNING,
        "A user step has an observation; only agent and system steps may have one.",
    ),
    "time": (_ERROR, "A timestamp is not ISO 8601."),
    "vague-time": (_WARNING, "A timestamp has no time of day or no zone."),
    "time-backwards": (_WARNING, "A step is older than the one before it."),
    "empty-message": (_WARNING, "A message is an empty list of parts."),
    "empty-id": (_ERROR, "A tool call has an empty id."),
    "repeated-call": (_ERROR, "Two tool calls have the same id."),
    "unknown-call": (_ERROR, "A result names a call that is not in its step."),
    "repeated-result": (_ERROR, "Two results answer the same call."),
    "unanswered-call": (
        _WARNING,
        "A call has no result and the step's extra does not list it as unanswered.",
    ),
    "undefined-tool": (_WARNING, "A tool is called that the agent's definitions do not name."),
    "tool-definition": (_WARNING, "A tool definition is not of the function form."),
    "agent-first": (_WARNING, "The first step is the agent's: the prompt is missing."),
    "deterministic": (_ERROR, "A step without a model call has metrics or reasoning."),
    "negative": (_ERROR, "A count or cost is below zero."),
    "not-a-number": (_ERROR, "A figure is not a finite number."),
    "cached-above-prompt": (_ERROR, "More tokens came from the cache than the prompt has."),
    "lengths": (
        _ERROR,
        "The number of token ids or log probabilities is not the number of tokens.",
    ),
    "step-count": (_ERROR, "total_steps is not the number of steps, and the notes do not say why."),
    "totals": (_ERROR, "A total is not the sum over the steps."),
    "total-cost": (
        _WARNING,
        "The total cost is not the sum over the steps, and no subagent explains it.",
    ),
    "missing-file": (
        _ERROR,
        "The file of a picture, sound, subagent or continuation does not exist.",
    ),
    "outside": (_ERROR, "The path of a file is absolute or leaves the document's directory."),
    "dangling-id": (_ERROR, "A trajectory id names no embedded trajectory."),
    "unlinked": (_ERROR, "A reference lacks the id or path that its version requires."),
    "repeated-id": (_ERROR, "Two trajectories in one document have the same id."),
    "unreferenced": (_WARNING, "An embedded trajectory is not referenced."),
    "half-character": (_ERROR, "A text has half of a surrogate pair, which cannot be encoded."),
    "boundary": (_WARNING, "A context boundary has an unknown kind, or is not on a system step."),
    "doubled-text": (_WARNING, "A result has the same text twice."),
    "block-as-text": (_WARNING, "A content block was written into a text as JSON."),
    "picture-as-text": (_WARNING, "A text contains the bytes of a picture."),
    "synthetic": (_WARNING, "A message made by the client is an agent step."),
}


def iter_dicts(holder: dict[str, Any], name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a list field with their index; other values are skipped."""
    value = holder.get(name)
    if isinstance(value, list):
        yield from ((index, item) for index, item in enumerate(value) if isinstance(item, dict))


def dict_field(holder: dict[str, Any], name: str) -> dict[str, Any]:
    """Return an object field, or an empty one."""
    value = holder.get(name)
    return value if isinstance(value, dict) else {}


def number_field(holder: dict[str, Any], name: str) -> int | float | None:
    """Return a number field, or None."""
    value = holder.get(name)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def iter_results(step: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the results of a step with their index."""
    yield from iter_dicts(dict_field(step, "observation"), "results")


def iter_texts(value: Any, where: str) -> Iterator[tuple[str, str]]:
    """Yield every text in a value, keys included, with its path."""
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from iter_texts(item, f"{where}[{index}]")
    elif isinstance(value, dict):
        for name, item in value.items():
            yield where, name
            yield from iter_texts(item, f"{where}.{name}" if where else name)


def content_texts(content: Any) -> Iterator[str]:
    """Yield the texts of a message or a result."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        yield from (
            part["text"]
            for part in content
            if isinstance(part, dict) and isinstance(part.get("text"), str)
        )


def agent_steps(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the document's own steps that called a model."""
    for step in _own_steps(document):
        if step.get("source") == "agent" and step.get("llm_call_count") != 0:
            yield step


def states_metric(document: dict[str, Any], name: str) -> bool:
    """Return whether any step has the metric."""
    return any(step_metric(step, name) is not None for _, step in iter_dicts(document, "steps"))


def step_metric(step: dict[str, Any], name: str) -> int | float | None:
    """Return a metric of a step, or None."""
    return number_field(dict_field(step, "metrics"), name)


def sum_steps(document: dict[str, Any], name: str) -> int | float:
    """Return the sum over the document's own steps; copied ones count in the original session."""
    return sum(step_metric(step, name) or 0 for step in _own_steps(document))


def _own_steps(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for _, step in iter_dicts(document, "steps"):
        if step.get("is_copied_context") is not True:
            yield step
