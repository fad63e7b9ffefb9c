"""Everything that is wrong with a trajectory, whether or not a validator of the format would mind.

Takes plain JSON values and looks at all of a document, embedded subagents included, however
broken a part of it is. Which files exist is asked of the caller: nothing here reads a disk.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

from flightlog.model.errors import check_depth, check_json_size
from flightlog.views.atif.findings import LintFinding, Severity, iter_dicts
from flightlog.views.atif.rules import Exists, call_rules, link_rules, step_rules, sum_rules
from flightlog.views.atif.schema import check_shape, minor_version

_RULES: tuple[Callable[[dict[str, Any]], Iterator[LintFinding]], ...] = (step_rules, call_rules, sum_rules)


def parse_json(data: bytes) -> Any:
    """Read JSON as leniently as validators do: NaN and halves of characters are findings, not failures."""
    check_json_size(data)
    document = json.loads(data.decode("utf-8", "surrogatepass"))
    check_depth(document)
    return document


def lint_trajectory(data: bytes, exists: Exists) -> list[LintFinding]:
    """Return what is wrong with a document; `exists` says whether a path beside it leads to a file."""
    try:
        document = parse_json(data)
    except (ValueError, RecursionError) as error:
        return [LintFinding("not-json", "document", str(error)[:200])]
    return list(iter_findings(document, exists))


def iter_findings(document: Any, exists: Exists) -> Iterator[LintFinding]:
    """Yield what is wrong with a document that is read already."""
    yield from check_shape(document)
    if isinstance(document, dict):
        yield from _lint_documents(document, "", exists, minor_version(document))


def is_sound(found: list[LintFinding]) -> bool:
    """Say whether nothing worse than warnings was found."""
    return not any(finding.severity is Severity.ERROR for finding in found)


def is_trajectory(document: Any) -> bool:
    """Say whether a JSON value means to be a trajectory."""
    if not isinstance(document, dict):
        return False
    return str(document.get("schema_version", "")).startswith("ATIF") or document.keys() >= {"agent", "steps"}


def _lint_documents(document: dict[str, Any], where: str, exists: Exists, minor: int) -> Iterator[LintFinding]:
    for rules in _RULES:
        yield from (_shift_finding(finding, where) for finding in rules(document))
    yield from (_shift_finding(finding, where) for finding in link_rules(document, exists, minor))
    for place, inner in iter_dicts(document, "subagent_trajectories"):
        yield from _lint_documents(inner, f"{where}subagent_trajectories[{place}].", exists, minor)


def _shift_finding(finding: LintFinding, where: str) -> LintFinding:
    return LintFinding(finding.rule, where + finding.where, finding.text)
