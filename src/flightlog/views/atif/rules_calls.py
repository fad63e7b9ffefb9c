"""Rules about tool calls, their results and the definitions of tools."""

from collections.abc import Generator, Iterator
from typing import Any

from flightlog.views.atif.findings import LintFinding
from flightlog.views.atif.values import dict_field, iter_dicts, iter_results


def call_rules(document: dict[str, Any]) -> Iterator[LintFinding]:
    """Yield what is wrong with calls and what answers them."""
    seen: set[str] = set()
    defined = yield from _check_definitions(document)
    for place, step in iter_dicts(document, "steps"):
        where = f"steps[{place}]"
        own: set[str] = set()
        for number, call in iter_dicts(step, "tool_calls"):
            yield from _check_call(call, f"{where}.tool_calls[{number}]", seen, defined)
            if isinstance(call.get("tool_call_id"), str):
                own.add(call["tool_call_id"])
        yield from _check_answers(step, where, own)


def _check_definitions(document: dict[str, Any]) -> Generator[LintFinding, None, set[str] | None]:
    """Yield odd definitions; return the names that are defined, None when nothing can be said."""
    agent = dict_field(document, "agent")
    if not isinstance(agent.get("tool_definitions"), list) or not agent["tool_definitions"]:
        return None
    names: set[str] | None = set()
    for place, tool in iter_dicts(agent, "tool_definitions"):
        function = tool.get("function") if tool.get("type") == "function" else None
        name = function.get("name") if isinstance(function, dict) else None
        if isinstance(name, str) and names is not None:
            names.add(name)
        elif isinstance(tool.get("type"), str) and isinstance(tool.get("name"), str) and names is not None:
            names.add(tool["name"])  # a tool of the model's own side, defined by its type
        else:
            names = None
            yield LintFinding(
                "tool-definition", f"agent.tool_definitions[{place}]", "not {type: function, function: …}"
            )
    return names


def _check_call(call: dict[str, Any], where: str, seen: set[str], defined: set[str] | None) -> Iterator[LintFinding]:
    name = call.get("tool_call_id")
    if name == "":
        yield LintFinding("empty-id", f"{where}.tool_call_id", "empty")
    elif isinstance(name, str):
        if name in seen:
            yield LintFinding("repeated-call", f"{where}.tool_call_id", f"{name[:60]!r} was used before")
        seen.add(name)
    function = call.get("function_name")
    if defined is not None and isinstance(function, str) and function not in defined:
        yield LintFinding("undefined-tool", f"{where}.function_name", f"{function[:60]!r} is not defined")


def _check_answers(step: dict[str, Any], where: str, own: set[str]) -> Iterator[LintFinding]:
    answered: set[str] = set()
    for place, result in iter_results(step):
        source = result.get("source_call_id")
        at = f"{where}.observation.results[{place}].source_call_id"
        if not isinstance(source, str):
            continue
        if source not in own:
            yield LintFinding("unknown-call", at, f"{source[:60]!r} is no call of this step")
        if source in answered:
            yield LintFinding("repeated-result", at, f"{source[:60]!r} has a result already")
        answered.add(source)
    told = dict_field(step, "extra").get("unanswered")
    explained = {each for each in told if isinstance(each, str)} if isinstance(told, list) else set()
    for name in sorted(own - answered - explained):
        yield LintFinding("unanswered-call", f"{where}.tool_calls", f"{name[:60]!r} has no result")
