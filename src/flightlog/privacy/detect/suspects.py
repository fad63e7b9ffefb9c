"""Which records are worth a look: three passes over raw lines, at the speed of a plain search.

Reads lines as they stand in a file, escapes and all, so that most are never decoded. A line
that is not named here holds nothing that the detectors would find: every trigger of theirs
is looked for in a form that an escaped line end before it cannot hide, and whatever makes
them read a text another way (colours, percent signs, streams, base64) names the line too.
"""

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import re2

from flightlog.privacy.detect import assignments, contexts, people, specials, tokens, views
from flightlog.privacy.detect.hits import LATIN
from flightlog.privacy.detect.known import Known

# What no raw line hides: text to be read in another way before it is searched.
_DEEP = re2.compile(rb"\\u00[0-7]|\x1b|1b\[|data: ?\{", LATIN)
_OTHER_VIEWS = rb"\\u00[2-7]|\x1b|1b\[|&quot;|data: ?\{|" + views.TELLING_PERCENT
_MARK = rb"[^A-Za-z0-9\x00]"
_ESCAPED = rb"\\[nt]"


def lines_in(data: bytes, known: Known) -> list[int]:
    """Return where the lines of `data` begin that may hold something private, in order."""
    tables = _tables()
    begins = {begin for pattern in tables.telling for begin in _begins(data, pattern, b"\n")}
    begins |= set(_named(data, tables.named))
    if known:
        begins |= set(_begins(data, known.pattern, b"\n"))
    return sorted(begins)


def _named(data: bytes, pattern: Any) -> Iterator[int]:
    """Yield where lines begin that hold the head of a token, or a provider's name and something long after it."""
    at = 0
    while (found := pattern.search(data, at)) is not None:
        start, at = found.span()
        text = data[start + 2 : at] if data[start : start + 1] == b"\\" else data[start:at]
        if not contexts.is_name(text) or contexts.has_value(data, at):
            yield data.rfind(b"\n", 0, start) + 1
            at = data.find(b"\n", start) + 1
            if not at:
                break


def deep_lines_in(records: bytes) -> Iterator[int]:
    """Yield where the records, a NUL between them, begin that must be read string by string."""
    return _begins(records, _DEEP, b"\0")


def is_deep(record: bytes) -> bool:
    """Say whether one record must be read string by string."""
    return _DEEP.search(record) is not None


def _begins(data: bytes, pattern: Any, end: bytes) -> Iterator[int]:
    at = 0
    while (found := pattern.search(data, at)) is not None:
        yield data.rfind(end, 0, found.start()) + 1
        at = data.find(end, found.start()) + 1
        if not at:
            break


class _Tables(NamedTuple):
    telling: tuple[Any, ...]  # a match is enough
    named: Any  # a match may be a name alone


@functools.cache
def _tables() -> _Tables:
    plain, counted = (pattern.encode() for pattern in tokens.triggers())
    words = rb"(?i:" + assignments.trigger().encode() + rb")|" + people.PATTERN
    shapes = rb"|".join((counted, specials.PATTERN, views.BASE64_TEXT, _OTHER_VIEWS))
    named = plain + rb"|(?i:" + contexts.names().encode() + rb")"
    return _Tables((_raw(words), _raw(shapes)), _raw(named))


def _raw(pattern: bytes) -> Any:
    r"""Compile a pattern that finds in raw JSON whatever `pattern` finds where `\n` and `\t` are blanked out."""
    raw = pattern.replace(rb"\b", rb"(?:\b|" + _ESCAPED + rb")")
    raw = raw.replace(_MARK, rb"(?:" + _MARK + rb"|" + _ESCAPED + rb")")
    return re2.compile(raw.replace(rb"[ \t]", rb"(?:[ \t]|" + _ESCAPED + rb")"), LATIN)
