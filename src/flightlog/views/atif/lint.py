"""Lint a trajectory: the schema of ATIF documents, and rules that a validator of it does not have.

Checks plain JSON values, embedded subagents included; a document that is wrong in one place is
still checked everywhere else. Reads no files: the caller says which exist.
"""

import json
from collections.abc import Iterator
from itertools import chain
from typing import Any, NamedTuple

from flightlog.model.errors import check_depth, check_json_size
from flightlog.views.atif.document import VERSIONS
from flightlog.views.atif.findings import LintFinding, Severity, iter_dicts
from flightlog.views.atif.rules import Exists, call_rules, link_rules, step_rules, sum_rules


class _Field(NamedTuple):
    kind: str
    required: bool
    since: int


def _parse_fields(fields: str) -> dict[str, _Field]:
    """Parse `name:kind`; `!` means required, `@7` means from version 1.7 on."""
    parsed = {}
    for field in fields.split():
        name, _, rest = field.partition(":")
        kind, _, since = rest.partition("@")
        parsed[name] = _Field(kind.rstrip("!"), kind.endswith("!"), int(since or 0))
    return parsed


# A missing `schema_version` and, up to 1.6, a missing `session_id` have rules of their own.
OBJECTS = {
    "trajectory": _parse_fields(
        "schema_version:str session_id:str trajectory_id:str@7 agent:agent! steps:[step]! notes:str"
        " final_metrics:final continued_trajectory_ref:str extra:object@1 subagent_trajectories:[trajectory]@7"
    ),
    "agent": _parse_fields(
        "name:str! version:str! model_name:str tool_definitions:[object]@5 extra:object"
    ),
    "step": _parse_fields(
        "step_id:int! timestamp:str source:str! model_name:str reasoning_effort:effort message:content!"
        " reasoning_content:str tool_calls:[call] observation:observation metrics:metrics"
        " is_copied_context:bool@5 llm_call_count:int@7 extra:object"
    ),
    "call": _parse_fields("tool_call_id:str! function_name:str! arguments:object! extra:object@7"),
    "observation": _parse_fields("results:[result]!"),
    "result": _parse_fields(
        "source_call_id:str content:content subagent_trajectory_ref:[ref] extra:object@7"
    ),
    "ref": _parse_fields("session_id:str trajectory_id:str@7 trajectory_path:str extra:object"),
    "part": _parse_fields("type:str! text:str source:source"),
    "source": _parse_fields("media_type:str! path:str! duration_sec:number@8"),
    "metrics": _parse_fields(
        "prompt_tokens:int completion_tokens:int cached_tokens:int cost_usd:number prompt_token_ids:[int]@4"
        " completion_token_ids:[int]@3 logprobs:[number] extra:object"
    ),
    "final": _parse_fields(
        "total_prompt_tokens:int total_completion_tokens:int total_cached_tokens:int total_cost_usd:number"
        " total_steps:int extra:object"
    ),
}
_ALLOWED = {
    ("step", "source"): ("system", "user", "agent"),
    ("part", "type"): ("text", "image", "audio"),
}
_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_SCALARS: dict[str, tuple[str, tuple[type, ...]]] = {
    "str": ("a text", (str,)),
    "int": ("a whole number", (int,)),
    "number": ("a number", (int, float)),
    "object": ("an object", (dict,)),
    "bool": ("true or false", (bool,)),
    "effort": ("a text or a number", (str, int, float)),
}


def minor_version(document: Any) -> int:
    """Return the minor version a document states; the newest if it states none that exists."""
    version = document.get("schema_version") if isinstance(document, dict) else None
    return VERSIONS.index(version) if version in VERSIONS else len(VERSIONS) - 1


def check_shape(document: Any) -> Iterator[LintFinding]:
    """Yield where a document does not have the schema of its version."""
    yield from _SchemaWalk(minor_version(document)).check_object("trajectory", document, "")


class _SchemaWalk:
    def __init__(self, minor: int) -> None:
        self._minor = minor

    def check_object(self, kind: str, value: Any, where: str) -> Iterator[LintFinding]:
        if not isinstance(value, dict):
            message = f"an object is expected, not {_describe_value(value)}"
            yield LintFinding("type", where or "document", message)
            return
        fields = OBJECTS[kind]
        for name in value.keys() - fields.keys():
            yield LintFinding("unknown-field", _join_path(where, name), f"{kind} has no such field")
        for name, field in fields.items():
            yield from self._check_field(field, value, name, _join_path(where, name))
            allowed = _ALLOWED.get((kind, name), ())
            if allowed and isinstance(value.get(name), str) and value[name] not in allowed:
                text = f"{value[name][:40]!r} is not one of {', '.join(allowed)}"
                yield LintFinding("value", _join_path(where, name), text)
        if kind == "trajectory":
            yield from self._check_version(value, where)
        if kind == "part":
            yield from self._check_part(value, where)

    def _check_field(
        self, field: _Field, holder: dict[str, Any], name: str, where: str
    ) -> Iterator[LintFinding]:
        value = holder.get(name)
        if value is None:
            if field.required:
                text = "may not be null" if name in holder else "required"
                yield LintFinding("missing", where, text)
            return
        if field.since > self._minor:
            yield self._newer("it", field.since, where)
        yield from self._check_value(field.kind, value, where)

    def _newer(self, what: str, since: int, where: str) -> LintFinding:
        text = f"{what} exists from version 1.{since} on; this is 1.{self._minor}"
        return LintFinding("newer-feature", where, text)

    def _check_value(self, kind: str, value: Any, where: str) -> Iterator[LintFinding]:
        if kind.startswith("["):
            if isinstance(value, list):
                for index, item in enumerate(value):
                    yield from self._check_value(kind[1:-1], item, f"{where}[{index}]")
            else:
                text = f"a list is expected, not {_describe_value(value)}"
                yield LintFinding("type", where, text)
        elif kind == "content":
            yield from self._check_content(value, where)
        elif kind in OBJECTS:
            yield from self.check_object(kind, value, where)
        else:
            expected, types = _SCALARS[kind]
            if not isinstance(value, types) or (isinstance(value, bool) and kind != "bool"):
                text = f"{expected} is expected, not {_describe_value(value)}"
                yield LintFinding("type", where, text)

    def _check_content(self, value: Any, where: str) -> Iterator[LintFinding]:
        if isinstance(value, str):
            return
        if self._minor < 6 and isinstance(value, list):
            yield self._newer("a list of parts", 6, where)
        yield from self._check_value("[part]", value, where)

    def _check_version(self, document: dict[str, Any], where: str) -> Iterator[LintFinding]:
        version = document.get("schema_version")
        if version not in VERSIONS:
            unknown = f"no such version: {_describe_value(version)}"
            text = "not stated" if version is None else unknown
            yield LintFinding("version", _join_path(where, "schema_version"), text)
        if self._minor < 7 and document.get("session_id") is None:
            message = "required up to version 1.6"
            yield LintFinding("missing", _join_path(where, "session_id"), message)

    def _check_part(self, part: dict[str, Any], where: str) -> Iterator[LintFinding]:
        kind, source = part.get("type"), part.get("source")
        if kind == "audio" and self._minor < 8:
            yield self._newer("sound", 8, where)
        wanted, other = ("text", "source") if kind == "text" else ("source", "text")
        if part.get(wanted) is None:
            message = f"a part of type {kind} needs it"
            yield LintFinding("missing", _join_path(where, wanted), message)
        if part.get(other) is not None:
            message = f"a part of type {kind} cannot have it"
            yield LintFinding("value", _join_path(where, other), message)
        media = source.get("media_type") if isinstance(source, dict) else None
        if isinstance(media, str) and kind in {"image", "audio"}:
            is_allowed = media in _IMAGES if kind == "image" else media.startswith("audio/")
            if not is_allowed:
                text = f"no {kind} of type {media[:40]!r} is allowed"
                yield LintFinding("value", _join_path(where, "source.media_type"), text)


def _describe_value(value: Any) -> str:
    """Return what a value is, without its text, which may be long or private."""
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false"}
    names[type(None)] = "null"
    return names.get(type(value)) or f"the number {value}"


def _join_path(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


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
    is_named = str(document.get("schema_version", "")).startswith("ATIF")
    return is_named or document.keys() >= {"agent", "steps"}


def _lint_documents(
    document: dict[str, Any], where: str, exists: Exists, minor: int
) -> Iterator[LintFinding]:
    links = link_rules(document, exists, minor)
    rules = (step_rules(document), call_rules(document), sum_rules(document), links)
    for finding in chain.from_iterable(rules):
        yield LintFinding(finding.rule, where + finding.location, finding.message)
    for index, inner in iter_dicts(document, "subagent_trajectories"):
        yield from _lint_documents(inner, f"{where}subagent_trajectories[{index}].", exists, minor)
