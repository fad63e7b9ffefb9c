"""Lint a trajectory, including what a validator of the format accepts.

Checks plain JSON values, embedded subagents included; one broken part does not stop the checks
of the others. Reads no files: the caller says which exist.
"""

import json
from collections.abc import Iterator
from itertools import chain
from typing import Any

from flightlog.model.errors import check_depth, check_json_size
from flightlog.views.atif.findings import LintFinding, Severity, iter_dicts
from flightlog.views.atif.rules import Exists, call_rules, link_rules, step_rules, sum_rules
from flightlog.views.atif.schema import check_shape, minor_version


def parse_json(data: bytes) -> Any:
    """Return parsed JSON; NaN and lone surrogates are accepted here and reported as findings."""
    check_json_size(data)
    document = json.loads(data.decode("utf-8", "surrogatepass"))
    check_depth(document)
    return document


def lint_trajectory(data: bytes, exists: Exists) -> list[LintFinding]:
    """Return the findings on a document; `exists` says whether a path relative to it is a file."""
    try:
        document = parse_json(data)
    except (ValueError, RecursionError) as error:
        return [LintFinding("not-json", "document", str(error)[:200])]
    return list(iter_findings(document, exists))


def iter_findings(document: Any, exists: Exists) -> Iterator[LintFinding]:
    """Yield the findings on a parsed document."""
    yield from check_shape(document)
    if isinstance(document, dict):
        yield from _lint_documents(document, "", exists, minor_version(document))


def is_sound(findings: list[LintFinding]) -> bool:
    """Return whether no finding is an error."""
    return not any(finding.severity is Severity.ERROR for finding in findings)


def is_trajectory(document: Any) -> bool:
    """Return whether a JSON value looks like a trajectory."""
    if not isinstance(document, dict):
        return False
    return str(document.get("schema_version", "")).startswith("ATIF") or document.keys() >= {
        "agent",
        "steps",
    }


def _lint_documents(
    document: dict[str, Any], where: str, exists: Exists, minor: int
) -> Iterator[LintFinding]:
    rules = (
        step_rules(document),
        call_rules(document),
        sum_rules(document),
        link_rules(document, exists, minor),
    )
    for finding in chain.from_iterable(rules):
        yield LintFinding(finding.rule, where + finding.location, finding.message)
    for index, inner in iter_dicts(document, "subagent_trajectories"):
        yield from _lint_documents(inner, f"{where}subagent_trajectories[{index}].", exists, minor)
