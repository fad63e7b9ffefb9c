"""The shape of ATIF documents: which object has which fields, of what type, from which version on.

Works on plain JSON values, so that a document that is wrong in one place is still looked at
everywhere else, and goes through subagents that are embedded.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from flightlog.views.atif.document import VERSIONS
from flightlog.views.atif.findings import LintFinding


class _Field(NamedTuple):
    kind: str
    since: int = 0
    required: bool = False
    allowed: tuple[str, ...] = ()


_TEXT, _WHOLE, _FIGURE, _FREE = _Field("str"), _Field("int"), _Field("number"), _Field("object")
_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")

OBJECTS: dict[str, dict[str, _Field]] = {
    "trajectory": {
        "schema_version": _TEXT,
        "session_id": _TEXT,
        "trajectory_id": _Field("str", 7),
        "agent": _Field("agent", required=True),
        "steps": _Field("[step]", required=True),
        "notes": _TEXT,
        "final_metrics": _Field("final"),
        "continued_trajectory_ref": _TEXT,
        "extra": _Field("object", 1),
        "subagent_trajectories": _Field("[trajectory]", 7),
    },
    "agent": {
        "name": _Field("str", required=True),
        "version": _Field("str", required=True),
        "model_name": _TEXT,
        "tool_definitions": _Field("[object]", 5),
        "extra": _FREE,
    },
    "step": {
        "step_id": _Field("int", required=True),
        "timestamp": _TEXT,
        "source": _Field("str", required=True, allowed=("system", "user", "agent")),
        "model_name": _TEXT,
        "reasoning_effort": _Field("effort"),
        "message": _Field("content", required=True),
        "reasoning_content": _TEXT,
        "tool_calls": _Field("[call]"),
        "observation": _Field("observation"),
        "metrics": _Field("metrics"),
        "is_copied_context": _Field("bool", 5),
        "llm_call_count": _Field("int", 7),
        "extra": _FREE,
    },
    "call": {
        "tool_call_id": _Field("str", required=True),
        "function_name": _Field("str", required=True),
        "arguments": _Field("object", required=True),
        "extra": _Field("object", 7),
    },
    "observation": {"results": _Field("[result]", required=True)},
    "result": {
        "source_call_id": _TEXT,
        "content": _Field("content"),
        "subagent_trajectory_ref": _Field("[ref]"),
        "extra": _Field("object", 7),
    },
    "ref": {
        "session_id": _TEXT,
        "trajectory_id": _Field("str", 7),
        "trajectory_path": _TEXT,
        "extra": _FREE,
    },
    "part": {
        "type": _Field("str", required=True, allowed=("text", "image", "audio")),
        "text": _TEXT,
        "source": _Field("source"),
    },
    "source": {
        "media_type": _Field("str", required=True),
        "path": _Field("str", required=True),
        "duration_sec": _Field("number", 8),
    },
    "metrics": {
        "prompt_tokens": _WHOLE,
        "completion_tokens": _WHOLE,
        "cached_tokens": _WHOLE,
        "cost_usd": _FIGURE,
        "prompt_token_ids": _Field("[int]", 4),
        "completion_token_ids": _Field("[int]", 3),
        "logprobs": _Field("[number]"),
        "extra": _FREE,
    },
    "final": {
        "total_prompt_tokens": _WHOLE,
        "total_completion_tokens": _WHOLE,
        "total_cached_tokens": _WHOLE,
        "total_cost_usd": _FIGURE,
        "total_steps": _WHOLE,
        "extra": _FREE,
    },
}


def minor_version(document: Any) -> int:
    """Return the minor version a document states; the newest when it states none that exists."""
    said = document.get("schema_version") if isinstance(document, dict) else None
    return VERSIONS.index(said) if said in VERSIONS else len(VERSIONS) - 1


def check_shape(document: Any) -> Iterator[LintFinding]:
    """Yield where a document has not the shape of its version."""
    yield from _SchemaWalk(minor_version(document)).check_object("trajectory", document, "")


class _SchemaWalk:
    def __init__(self, minor: int) -> None:
        self._minor = minor

    def check_object(self, kind: str, value: Any, where: str) -> Iterator[LintFinding]:
        if not isinstance(value, dict):
            yield LintFinding("type", where or "document", f"an object is expected, not {_describe_value(value)}")
            return
        fields = OBJECTS[kind]
        for name in value.keys() - fields.keys():
            yield LintFinding("unknown-field", _join_path(where, name), f"{kind} has no such field")
        for name, field in fields.items():
            yield from self._check_field(field, value, name, _join_path(where, name))
        if kind == "trajectory":
            yield from self._check_version(value, where)
        if kind == "part":
            yield from self._check_part(value, where)

    def _check_field(self, field: _Field, holder: dict[str, Any], name: str, where: str) -> Iterator[LintFinding]:
        value = holder.get(name)
        if value is None:
            if field.required:
                yield LintFinding(
                    "missing", where, "required, and not there" if name not in holder else "may not be null"
                )
            return
        if field.since > self._minor:
            yield LintFinding(
                "newer-feature", where, f"exists from version 1.{field.since} on, this is 1.{self._minor}"
            )
        yield from self._check_value(field.kind, value, where)
        if field.allowed and isinstance(value, str) and value not in field.allowed:
            yield LintFinding("value", where, f"{value[:40]!r} is not one of {', '.join(field.allowed)}")

    def _check_value(self, kind: str, value: Any, where: str) -> Iterator[LintFinding]:
        if kind.startswith("["):
            if isinstance(value, list):
                for place, item in enumerate(value):
                    yield from self._check_value(kind[1:-1], item, f"{where}[{place}]")
            else:
                yield LintFinding("type", where, f"a list is expected, not {_describe_value(value)}")
        elif kind == "content":
            yield from self._check_content(value, where)
        elif kind in OBJECTS:
            yield from self.check_object(kind, value, where)
        elif not _is_kind(kind, value):
            yield LintFinding("type", where, f"{_NAMES[kind]} is expected, not {_describe_value(value)}")

    def _check_content(self, value: Any, where: str) -> Iterator[LintFinding]:
        if isinstance(value, str):
            return
        if self._minor < 6 and isinstance(value, list):
            yield LintFinding(
                "newer-feature", where, f"a list of parts exists from version 1.6 on, this is 1.{self._minor}"
            )
        yield from self._check_value("[part]", value, where)

    def _check_version(self, document: dict[str, Any], where: str) -> Iterator[LintFinding]:
        said = document.get("schema_version")
        if said is None:
            yield LintFinding("version", _join_path(where, "schema_version"), "not stated")
        elif said not in VERSIONS:
            yield LintFinding(
                "version", _join_path(where, "schema_version"), f"no such version: {_describe_value(said)}"
            )
        if self._minor < 7 and document.get("session_id") is None:
            yield LintFinding("missing", _join_path(where, "session_id"), "required up to version 1.6")

    def _check_part(self, part: dict[str, Any], where: str) -> Iterator[LintFinding]:
        kind, source = part.get("type"), part.get("source")
        if kind == "audio" and self._minor < 8:
            yield LintFinding("newer-feature", where, f"sound exists from version 1.8 on, this is 1.{self._minor}")
        wanted, other = ("text", "source") if kind == "text" else ("source", "text")
        if part.get(wanted) is None:
            yield LintFinding("missing", _join_path(where, wanted), f"a part of type {kind} needs it")
        if part.get(other) is not None:
            yield LintFinding("value", _join_path(where, other), f"a part of type {kind} cannot have it")
        media = source.get("media_type") if isinstance(source, dict) else None
        if isinstance(media, str) and kind in {"image", "audio"}:
            known = media in _IMAGES if kind == "image" else media.startswith("audio/")
            if not known:
                yield LintFinding(
                    "value", _join_path(where, "source.media_type"), f"no {kind} of type {media[:40]!r} is allowed"
                )


_NAMES = {
    "str": "a text",
    "int": "a whole number",
    "number": "a number",
    "object": "an object",
    "bool": "true or false",
    "effort": "a text or a number",
}


def _is_kind(kind: str, value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    match kind:
        case "str":
            return isinstance(value, str)
        case "int":
            return isinstance(value, int) and number
        case "number":
            return number
        case "object":
            return isinstance(value, dict)
        case "bool":
            return isinstance(value, bool)
        case _:
            return number or isinstance(value, str)


def _describe_value(value: Any) -> str:
    """Name a value without repeating what may be long or private."""
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value)) or f"the number {value}"


def _join_path(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name
