"""The five error types, Damage and Incident as values, missing extras.

FlightlogError
    ├── NotFound      name something else
    ├── Invalid       correct what was given (Misconfigured: in a configuration file;
    │                 ConsentNeeded: look at it, then allow it)
    ├── Conflict      wait, or take over: another process holds it
    ├── Unreadable    run doctor: recorded data is damaged
    └── Unavailable   try again later: a program, network or disk does not answer

Interfaces map a type to an exit code or a status. A message says what is wrong, then where;
the hint is the one command to run next.

Damage inside a recording is a value, not an error, so that one damaged line does not hide the
4,999 sound ones around it. A document that a person names is refused instead if it exceeds the
limits for YAML and JSON below, which every reader shares.
"""

import re
import sys
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from msgspec import DecodeError, Struct
from msgspec.structs import force_setattr

DEPTH_MAX = 200  # levels; walking one takes a few of Python's thousand frames
VALUES_MAX = 2_000_000  # of one JSON document; an empty list takes 64 bytes of memory and 3 on disk
YAML_BYTES_MAX = 8 << 20  # a plan of ten thousand tasks has about 3 MB
YAML_NODES_MAX = 400_000  # with every alias expanded; libyaml and `read_yaml` take a second
# libyaml rejects halves of characters, as JSON escapes an emoji, and does not count a byte order
# mark. Texts with either are read by the parser in Python, which takes a second for so much.
_SLOW_YAML = re.compile(r"^\ufeff|\\u[dD][89a-fA-F]")
_SLOW_FACTOR = 10
_TAGS_MAX = 100  # libyaml compares each %TAG with all before: a million of them take minutes
_TAGS = {None, "!", *(f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map"))}
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
# What decoding foreign bytes may raise: not JSON, not text, or nested too deeply.
UNREADABLE = (DecodeError, UnicodeDecodeError, RecursionError)
# Which extra brings a package that the base installation lacks.
EXTRAS = {
    "pyarrow": "tables",
    "duckdb": "sql",
    **dict.fromkeys(("dask", "distributed"), "scale"),
    "inspect_ai": "inspect",
}


def read_yaml(text: str, verbatim: Container[str] = ()) -> Any:
    """Return the document in `text`; raise `YAMLError` if it is not YAML or exceeds a limit.

    Keys are text. So are the values of the keys in `verbatim`, as written: `001` keeps its zeros.
    """
    from yaml import YAMLError  # noqa: PLC0415 - as below

    try:
        events = iter_yaml_events(text)
        first = next(events, None)
        document = _YamlBuilder(events, verbatim).build_value(first, "") if first else None
        next(events, None)  # raises for a second document
    except ValueError as error:
        raise YAMLError(str(error)) from error
    return document


def resolve_scalar(text: str) -> Any:
    """Return the value of a plain scalar in YAML 1.2: `13:00` and `no` are strings."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text, 0) if text[:2] in {"0o", "0x"} else int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


def iter_yaml_events(text: str) -> Iterator[Any]:  # noqa: C901 - a branch for each kind
    """Yield the parser's events of the values in `text`, which is one document or empty.

    Raise `ValueError` as soon as a limit is exceeded.
    """
    import yaml  # noqa: PLC0415 - takes 20 ms, and few commands read YAML

    is_slow = _SLOW_YAML.search(text) is not None
    factor = _SLOW_FACTOR if is_slow else 1
    if len(text) > YAML_BYTES_MAX // factor:
        raise ValueError(f"longer than {YAML_BYTES_MAX // factor / 1e6:.1f} MB")
    if text.count("%TAG") > _TAGS_MAX:
        raise ValueError(f"more than {_TAGS_MAX} tag directives")
    nodes, nodes_max = 0, YAML_NODES_MAX // factor
    opened: list[tuple[str | None, int]] = []
    sizes: dict[str | None, int] = {}
    for event in yaml.parse(text, Loader=yaml.SafeLoader if is_slow else yaml.CSafeLoader):
        kind = type(event).__name__
        if kind.startswith(("Stream", "Document")):
            if kind == "DocumentStartEvent" and nodes:
                raise ValueError("one document is expected")
            continue
        if kind == "ScalarEvent":
            sizes[event.anchor] = 1
            nodes += 1
        elif kind in {"SequenceStartEvent", "MappingStartEvent"}:
            opened.append((event.anchor, nodes))
            nodes += 1
        elif kind in {"SequenceEndEvent", "MappingEndEvent"}:
            anchor, before = opened.pop()
            sizes[anchor] = nodes - before
        elif kind == "AliasEvent":  # an alias inside its own anchor expands without end
            nodes += sizes.get(event.anchor, nodes_max)
        if nodes > nodes_max:
            raise ValueError(f"more than {nodes_max:,} values with aliases expanded")
        if len(opened) > DEPTH_MAX:
            raise ValueError(f"nested deeper than {DEPTH_MAX} levels")
        yield event


def _yaml_error(problem: str, event: Any) -> Any:
    from yaml import MarkedYAMLError  # noqa: PLC0415 - as above

    return MarkedYAMLError(problem=problem, problem_mark=event.start_mark)


class _YamlBuilder:
    """Builds plain values from the parser's events."""

    def __init__(self, events: Iterator[Any], verbatim: Container[str]) -> None:
        self._events = events
        self._verbatim = verbatim
        self._anchors: dict[str, Any] = {}

    def build_value(self, event: Any, key: str) -> Any:
        """Return the value that begins with `event` and belongs to `key`."""
        kind = type(event).__name__
        if kind == "AliasEvent":
            return self._anchors[event.anchor]
        if event.tag not in _TAGS:
            raise _yaml_error(f"there is no tag {event.tag}", event)
        if kind == "ScalarEvent":
            is_plain = not event.style and event.tag is None
            value = resolve_scalar(event.value) if is_plain else event.value
            value = event.value if key in self._verbatim and value is not None else value
        elif kind == "SequenceStartEvent":
            value = []
            while type(item := next(self._events)).__name__ != "SequenceEndEvent":
                value.append(self.build_value(item, key))
        else:
            value = self._build_mapping()
        if event.anchor:
            self._anchors[event.anchor] = value
        return value

    def _build_mapping(self) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        merged: list[Any] = []
        while type(event := next(self._events)).__name__ != "MappingEndEvent":
            if type(event).__name__ != "ScalarEvent":
                raise _yaml_error("a key is a word, not a list, a map or an alias", event)
            name = event.value
            if event.anchor:
                self._anchors[event.anchor] = name
            value = self.build_value(next(self._events), name)
            if name == "<<" and not event.style:
                merged += value if isinstance(value, list) else [value]
                if not all(isinstance(base, dict) for base in merged):
                    raise _yaml_error("only maps can be merged", event)
            elif name in mapping:
                raise _yaml_error(f"duplicate key {name[:40]!r}", event)
            else:
                mapping[name] = value
        for base in merged:  # own keys, and those of an earlier base, come first
            mapping = {**base, **mapping}
        return mapping


def check_json_size(data: bytes) -> None:
    """Raise `ValueError` if JSON may hold too many values; separators inside strings count too."""
    if sum(data.count(separator) for separator in (b",", b"[", b"{")) > VALUES_MAX:
        raise ValueError(f"more than {VALUES_MAX:,} values")


def check_depth(document: Any) -> None:
    """Raise `ValueError` if a decoded JSON document is nested too deeply."""
    level = [document]
    for _ in range(DEPTH_MAX + 1):
        containers = [item for item in level if isinstance(item, dict | list)]
        if not containers:
            return
        parts = (item.values() if isinstance(item, dict) else item for item in containers)
        level = [value for part in parts for value in part]
    raise ValueError(f"nested deeper than {DEPTH_MAX} levels")


class Damage(Struct, frozen=True, order=True):
    """A span of a file that could not be read as records."""

    path: str
    offset: int
    length: int
    reason: str


IncidentKind = Literal[
    "breaker trip", "changed", "corrupt state", "damage", "damaged journal", "damaged recording", "failed command",
    "failed gate", "failed run", "failed session", "generation", "id", "ignored", "link", "room cannot be read",
    "schema", "secret", "session health", "size",
]  # fmt: skip
IncidentFeature = Literal["dataset", "lab", "live", "loop", "retro", "store"]
IncidentCount = Literal["bytes", "exit code", "issues", "spans"]
# A path, a session id or a line of a journal; the longest shard name has 160 characters.
_LOCATION = re.compile(r"[A-Za-z0-9._~@:#/+-]{1,160}")


class Incident(Struct, frozen=True):
    """A problem that a feature found: a kind, counts and locations.

    `subject` is what it concerns, such as a task of a loop; incidents of one kind about different
    subjects are different problems. Incidents become drafts, and drafts become public, so no field
    can hold text of a file or a conversation: what does not look like a location is replaced by its
    digest.
    """

    kind: IncidentKind
    at_ms: int
    feature: IncidentFeature
    evidence: tuple[str, ...] = ()
    counts: dict[IncidentCount, int] = {}
    subject: str = ""

    def __post_init__(self) -> None:
        """Replace evidence and a subject that may be text."""
        force_setattr(self, "evidence", tuple(map(_safe_location, self.evidence)))
        if self.subject:
            force_setattr(self, "subject", _safe_location(self.subject))


def _safe_location(text: str) -> str:
    import hashlib  # noqa: PLC0415 - loads OpenSSL, which a usage report does not need

    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
    return text if _LOCATION.fullmatch(text) else f"place-{digest[:12]}"


class FlightlogError(Exception):
    """A problem that a person can act on; `hint` is the next step."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class NotFound(FlightlogError):
    """The session, step, file or setting does not exist."""


class Invalid(FlightlogError):
    """The given value cannot be used."""


class Conflict(FlightlogError):
    """Another process holds it, or changed it."""


class Unreadable(FlightlogError):
    """Recorded data is too damaged to read."""


class Unavailable(FlightlogError):
    """A program, network or disk does not answer."""


class Misconfigured(Invalid):
    """A configuration file or variable cannot be used."""


class ConsentNeeded(Misconfigured):
    """A foreign file would make us run, send or write something that no person has allowed yet.

    `effects` is what it would do, by name, to be shown; `subject` is what consent is recorded for.
    """

    def __init__(
        self, message: str, *, hint: str, subject: str, effects: Mapping[str, object]
    ) -> None:
        super().__init__(message, hint=hint)
        self.subject = subject
        self.effects = effects


def missing_extra_error(error: ModuleNotFoundError) -> Unavailable | None:
    """Return which extra to install for a missing package; None if no extra provides it."""
    name = (error.name or "").partition(".")[0]
    if name not in EXTRAS:
        return None
    hint = install_line(EXTRAS[name], sys.executable, __file__)
    return Unavailable(f"this needs {name}, which is not installed", hint=hint)


def install_line(extra: str, python: str, source: str) -> str:
    """Return the command that adds `extra` to the flightlog that this `python` runs.

    `source` is a file of the package: outside site-packages it belongs to a clone.
    """
    clone, found, _ = source.partition("/src/flightlog/")
    if found and "/site-packages/" not in source:
        return f"'{python}' -m pip install --editable '{clone}[{extra}]'"
    wanted = f"'flightlog[{extra}]'"
    if "/uv/archive-v" in python:  # `uvx` runs from uv's cache
        return f"uvx --from {wanted} flightlog"
    if "/uv/tools/" in python:
        return f"uv tool install {wanted}"
    if "/pipx/venvs/" in python:
        return f"pipx install --force {wanted}"
    return f"'{python}' -m pip install {wanted}"  # another `pip` may be first on the path


@contextmanager
def optional_import() -> Iterator[None]:
    """Raise `Unavailable` if an import in the block needs an extra that is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (unavailable := missing_extra_error(error)) is None:
            raise
        raise unavailable from None
