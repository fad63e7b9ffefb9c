"""Rules about tool calls, their results and the definitions of tools."""

from collections.abc import Generator, Iterator
from typing import Any

from flightlog.views.atif.findings import Finding
from flightlog.views.atif.values import dicts, inner, results


def call_rules(document: dict[str, Any]) -> Iterator[Finding]:
    """Yield what is wrong with calls and what answers them."""
    seen: set[str] = set()
    defined = yield from _definitions(document)
    for place, step in dicts(document, "steps"):
        where = f"steps[{place}]"
        own: set[str] = set()
        for number, call in dicts(step, "tool_calls"):
            yield from _call(call, f"{where}.tool_calls[{number}]", seen, defined)
            if isinstance(call.get("tool_call_id"), str):
                own.add(call["tool_call_id"])
        yield from _answers(step, where, own)


def _definitions(document: dict[str, Any]) -> Generator[Finding, None, set[str] | None]:
    """Yield odd definitions; return the names that are defined, None when nothing can be said."""
    agent = inner(document, "agent")
    if not isinstance(agent.get("tool_definitions"), list) or not agent["tool_definitions"]:
        return None
    names: set[str] | None = set()
    for place, tool in dicts(agent, "tool_definitions"):
        function = tool.get("function") if tool.get("type") == "function" else None
        name = function.get("name") if isinstance(function, dict) else None
        if isinstance(name, str) and names is not None:
            names.add(name)
        elif isinstance(tool.get("type"), str) and isinstance(tool.get("name"), str) and names is not None:
            names.add(tool["name"])  # a tool of the model's own side, defined by its type
        else:
            names = None
            yield Finding("tool-definition", f"agent.tool_definitions[{place}]", "not {type: function, function: …}")
    return names


def _call(call: dict[str, Any], where: str, seen: set[str], defined: set[str] | None) -> Iterator[Finding]:
    name = call.get("tool_call_id")
    if name == "":
        yield Finding("empty-id", f"{where}.tool_call_id", "empty")
    elif isinstance(name, str):
        if name in seen:
            yield Finding("repeated-call", f"{where}.tool_call_id", f"{name[:60]!r} was used before")
        seen.add(name)
    function = call.get("function_name")
    if defined is not None and isinstance(function, str) and function not in defined:
        yield Finding("undefined-tool", f"{where}.function_name", f"{function[:60]!r} is not defined")


def _answers(step: dict[str, Any], where: str, own: set[str]) -> Iterator[Finding]:
    answered: set[str] = set()
    for place, result in results(step):
        source = result.get("source_call_id")
        at = f"{where}.observation.results[{place}].source_call_id"
        if not isinstance(source, str):
            continue
        if source not in own:
            yield Finding("unknown-call", at, f"{source[:60]!r} is no call of this step")
        if source in answered:
            yield Finding("repeated-result", at, f"{source[:60]!r} has a result already")
        answered.add(source)
    told = inner(step, "extra").get("unanswered")
    explained = {each for each in told if isinstance(each, str)} if isinstance(told, list) else set()
    for name in sorted(own - answered - explained):
        yield Finding("unanswered-call", f"{where}.tool_calls", f"{name[:60]!r} has no result")
