"""Everything that is wrong with a trajectory, whether or not a validator of the format would mind.

Takes plain JSON values and looks at all of a document, embedded subagents included, however
broken a part of it is. Which files exist is asked of the caller: nothing here reads a disk.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

from flightlog.model.damage import check_depth, check_json_size
from flightlog.views.atif.findings import Finding, Severity
from flightlog.views.atif.rules_calls import call_rules
from flightlog.views.atif.rules_links import Exists, link_rules
from flightlog.views.atif.rules_steps import step_rules
from flightlog.views.atif.rules_sums import sum_rules
from flightlog.views.atif.shape import minor_of, shape
from flightlog.views.atif.values import dicts

_RULES: tuple[Callable[[dict[str, Any]], Iterator[Finding]], ...] = (step_rules, call_rules, sum_rules)


def parsed(data: bytes) -> Any:
    """Read JSON as leniently as validators do: NaN and halves of characters are findings, not failures."""
    check_json_size(data)
    document = json.loads(data.decode("utf-8", "surrogatepass"))
    check_depth(document)
    return document


def lint(data: bytes, exists: Exists) -> list[Finding]:
    """Return what is wrong with a document; `exists` says whether a path beside it leads to a file."""
    try:
        document = parsed(data)
    except (ValueError, RecursionError) as error:
        return [Finding("not-json", "document", str(error)[:200])]
    return list(findings(document, exists))


def findings(document: Any, exists: Exists) -> Iterator[Finding]:
    """Yield what is wrong with a document that is read already."""
    yield from shape(document)
    if isinstance(document, dict):
        yield from _documents(document, "", exists, minor_of(document))


def is_sound(found: list[Finding]) -> bool:
    """Say whether nothing worse than warnings was found."""
    return not any(finding.severity is Severity.ERROR for finding in found)


def is_trajectory(document: Any) -> bool:
    """Say whether a JSON value means to be a trajectory."""
    if not isinstance(document, dict):
        return False
    return str(document.get("schema_version", "")).startswith("ATIF") or document.keys() >= {"agent", "steps"}


def _documents(document: dict[str, Any], where: str, exists: Exists, minor: int) -> Iterator[Finding]:
    for rules in _RULES:
        yield from (_moved(finding, where) for finding in rules(document))
    yield from (_moved(finding, where) for finding in link_rules(document, exists, minor))
    for place, inner in dicts(document, "subagent_trajectories"):
        yield from _documents(inner, f"{where}subagent_trajectories[{place}].", exists, minor)


def _moved(finding: Finding, where: str) -> Finding:
    return Finding(finding.rule, where + finding.where, finding.text)
