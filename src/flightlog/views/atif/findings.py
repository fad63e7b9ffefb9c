"""The rules of the trajectory lint, their findings, and access to unchecked JSON.

An error means that a document says something false or impossible; a warning, that a reader
should doubt it. A test compares `docs/reference/trajectory-lint.md` with `RULES`.
"""

import enum
import pkgutil
from collections.abc import Iterator
from typing import Any

import msgspec
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


# Severity and meaning of each rule.
RULES = msgspec.json.decode(
    pkgutil.get_data(__package__, "lint_rules.json") or b"", type=dict[str, tuple[Severity, str]]
)


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
        parts = (part for part in content if isinstance(part, dict))
        yield from (part["text"] for part in parts if isinstance(part.get("text"), str))


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
