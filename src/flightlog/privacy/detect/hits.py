"""A hit: a span of bytes and why it is thought private. Detectors make them, the engine weighs them."""

from typing import NamedTuple

import re2

SECRET = "secret"  # noqa: S105 - a kind, not a password
PERSON = "person"
HIGH, MEDIUM, LOW = 3, 2, 1

# Detectors read bytes: one byte, one offset. The bound on memory bounds the automaton's cache.
LATIN = re2.Options()
LATIN.encoding = re2.Options.Encoding.LATIN1
LATIN.max_mem = 64 << 20


class Hit(NamedTuple):
    """One suspected value in a view, `value` as it reads there."""

    start: int
    end: int
    rule: str
    value: bytes
    weight: int = HIGH
    kind: str = SECRET
