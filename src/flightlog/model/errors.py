"""The five error types, Damage and Incident as values, missing extras.

One damaged line must not hide the 4,999 sound ones around it. A document that a person names is refused
instead where it is out of measure: the limits for YAML and JSON are here, so that every reader has the same.

FlightlogError
    ├── NotFound      name something else
    ├── Invalid       correct what was given (Misconfigured: in a configuration file;
    │                 ConsentNeeded: look at it, then allow it)
    ├── Conflict      wait, or take over: somebody else holds it
    ├── Unreadable    run doctor: recorded data is damaged
    └── Unavailable   try again later: a program, network or disk is not there

Faces map a type to an exit code or a status; errors know neither. Damage inside a
recording is not an error but a value (`model.damage`). A message says what, then which;
the hint is the one command to run next.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from msgspec import DecodeError, Struct
from msgspec.structs import force_setattr

DEPTH_MAX = 200  # levels; code that walks over a document uses a few of Python's thousand frames for each
VALUES_MAX = 2_000_000  # of one JSON document; an empty list takes 64 bytes of memory and 3 of the file
YAML_BYTES_MAX = 1 << 20  # ruamel.yaml reads about 1 MB of long texts in a second, and less of short ones
YAML_NODES_MAX = 40_000  # with every alias written out; ruamel.yaml parses about as many in a second
UNREADABLE = (DecodeError, UnicodeDecodeError, RecursionError)
EXTRAS = {
    **dict.fromkeys(("aiohttp", "multidict", "yarl"), "web"),
    "stamina": "lab",
    "numpy": "lab,retro",
    **dict.fromkeys(("scipy", "sklearn"), "retro"),
    **dict.fromkeys(("distributed", "pyarrow"), "scale"),
}


"""What decoding foreign bytes may end in: no JSON, no text, or nested deeper than anybody follows."""


def read_yaml(text: str, kind: Literal["safe", "rt"] = "safe") -> Any:
    """Return the document in `text`; raise `YAMLError` if it is no YAML or exceeds a limit.

    `rt` keeps comments and places. It is parsed twice, because constructing it follows the nesting recursively.
    """
    from ruamel.yaml import YAML  # noqa: PLC0415 - a tenth of a second, and few commands read YAML
    from ruamel.yaml.error import YAMLError  # noqa: PLC0415

    try:
        for _ in iter_yaml_events(text):
            pass
        return YAML(typ=kind, pure=True).load(text)
    except (ValueError, RecursionError) as error:  # a date or a number that Python refuses ends in a ValueError
        raise YAMLError(str(error)) from error


def iter_yaml_events(text: str) -> Iterator[Any]:
    """Yield the parser's events of `text`; raise `ValueError` as soon as a limit is exceeded."""
    from ruamel.yaml import YAML  # noqa: PLC0415 - as above

    if len(text) > YAML_BYTES_MAX:
        raise ValueError(f"longer than {YAML_BYTES_MAX >> 20} MB")
    nodes = 0
    opened: list[tuple[str | None, int]] = []
    sizes: dict[str | None, int] = {}
    for event in YAML(typ="safe", pure=True).parse(text):
        kind = type(event).__name__
        if kind in {"SequenceStartEvent", "MappingStartEvent"}:
            opened.append((event.anchor, nodes))
        elif kind in {"SequenceEndEvent", "MappingEndEvent"}:
            anchor, before = opened.pop()
            sizes[anchor] = nodes - before
        elif kind == "AliasEvent":  # one inside its own anchor has no size yet, because it has no end
            nodes += sizes.get(event.anchor, YAML_NODES_MAX)
        elif kind == "ScalarEvent":
            sizes[event.anchor] = 1
        nodes += kind in {"ScalarEvent", "SequenceStartEvent", "MappingStartEvent"}
        if nodes > YAML_NODES_MAX:
            raise ValueError(f"more than {YAML_NODES_MAX:,} values, aliases written out")
        if len(opened) > DEPTH_MAX:
            raise ValueError(f"nested deeper than {DEPTH_MAX} levels")
        yield event


def check_json_size(data: bytes) -> None:
    """Raise `ValueError` if JSON may hold more values than are read; separators inside texts count as well."""
    if sum(data.count(mark) for mark in (b",", b"[", b"{")) > VALUES_MAX:
        raise ValueError(f"more than {VALUES_MAX:,} values")


def check_depth(document: Any) -> None:
    """Raise `ValueError` if a decoded JSON document is nested deeper than is followed."""
    level = [document]
    for _ in range(DEPTH_MAX + 1):
        containers = [value for value in level if isinstance(value, dict | list)]
        if not containers:
            return
        level = [value for each in containers for value in (each.values() if isinstance(each, dict) else each)]
    raise ValueError(f"nested deeper than {DEPTH_MAX} levels")


class Damage(Struct, frozen=True, order=True):
    """A span of a file that could not be read as records."""

    path: str
    offset: int
    length: int
    why: str


IncidentKind = Literal[
    "breaker trip", "changed", "corrupt state", "damage", "damaged journal", "damaged recording", "failed command",
    "failed gate", "failed run", "failed session", "generation", "id", "ignored", "link", "room cannot be read",
    "schema", "secret", "session health", "size",
]  # fmt: skip
IncidentRoom = Literal["dataset", "lab", "live", "loop", "retro", "store"]
IncidentCount = Literal["bytes", "exit code", "issues", "spans"]
# A path, a session id or a line of a journal. 160 characters hold the longest shard name; a sentence has spaces.
_PLACE = re.compile(r"[A-Za-z0-9._~@:#/+-]{1,160}")


class Incident(Struct, frozen=True):
    """Something a room found wrong: a kind, counts and places. No field can hold text of a file or conversation.

    Incidents become drafts, and drafts become public. A place that does not look like one is replaced by its digest.
    """

    kind: IncidentKind
    at_ms: int
    room: IncidentRoom
    evidence: tuple[str, ...] = ()
    counts: dict[IncidentCount, int] = {}

    def __post_init__(self) -> None:
        """Replace evidence that may be text."""
        force_setattr(self, "evidence", tuple(map(_safe_location, self.evidence)))


def _safe_location(text: str) -> str:
    import hashlib  # noqa: PLC0415 - loads OpenSSL, for which no usage report waits

    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
    return text if _PLACE.fullmatch(text) else f"place-{digest[:12]}"


class FlightlogError(Exception):
    """Something a person can act on."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        """Keep the message for the person and the hint for the next step."""
        super().__init__(message)
        self.message = message
        self.hint = hint


class NotFound(FlightlogError):
    """No such session, step, file or setting."""


class Invalid(FlightlogError):
    """What was given cannot be used as it is."""


class Conflict(FlightlogError):
    """Held by somebody else."""


class Unreadable(FlightlogError):
    """Recorded data is damaged beyond reading."""


class Unavailable(FlightlogError):
    """A program, network or disk that is needed does not answer."""


class Misconfigured(Invalid):
    """A configuration file or variable cannot be used as it is."""


class ConsentNeeded(Misconfigured):
    """A foreign file would make us run, send or write something that no person has allowed yet.

    `effects` is what it would do, by name, to be shown; `subject` is what consent is recorded for.
    """

    def __init__(self, message: str, *, hint: str, subject: str, effects: Mapping[str, object]) -> None:
        """Keep what a person must see before they agree."""
        super().__init__(message, hint=hint)
        self.subject = subject
        self.effects = effects


def missing_extra_error(error: ModuleNotFoundError) -> Unavailable | None:
    """What a person can do about a package that is not there; None where no extra brings it: a bug of ours."""
    name = (error.name or "").partition(".")[0]
    if name not in EXTRAS:
        return None
    return Unavailable(f"this needs {name}, which is not installed", hint=f"pip install 'flightlog[{EXTRAS[name]}]'")


@contextmanager
def optional_import() -> Iterator[None]:
    """Load what an extra brings; where it is not installed, that is said."""
    try:
        yield
    except ModuleNotFoundError as error:
        told = missing_extra_error(error)
        if told is None:
            raise
        raise told from None
