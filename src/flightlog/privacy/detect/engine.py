"""Everything private in a text, once: all detectors over all views, overlaps settled.

Time is linear in the text, memory bounded by a few copies of it. A NUL separates records:
no detector reaches over one, so that many small texts can be searched in one go.
"""

import itertools
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import re2

from flightlog.privacy.detect import contexts, people, specials, tokens, views
from flightlog.privacy.detect.hits import LATIN, PERSON, Hit
from flightlog.privacy.detect.known import Known

# One search tells that none of these is there, as in most texts.
_RARE = re2.compile(specials.PATTERN + b"|" + views.BASE64_TEXT, LATIN)
TAG = re2.compile(rb"<(?:secret|person):[a-z0-9.-]{1,80}:[0-9a-f]{4,64}>", LATIN)


class Found(NamedTuple):
    """Something private, as spans of the original bytes; more than one where a stream split it."""

    spans: tuple[tuple[int, int], ...]
    rule: str
    kind: str
    weight: int
    value: bytes

    @property
    def start(self) -> int:
        """Where it begins."""
        return self.spans[0][0]

    @property
    def end(self) -> int:
        """Where it ends."""
        return self.spans[-1][1]

    def moved(self, by: int) -> "Found":
        """Return the same, `by` bytes further on."""
        return self._replace(spans=tuple((start + by, end + by) for start, end in self.spans))


def find(data: bytes, known: Known | None = None) -> list[Found]:
    """Return what is private in `data`, in order and without overlaps."""
    data = TAG.sub(lambda tag: b"\0" * len(tag.group()), data) if b"<secret:" in data or b"<person:" in data else data
    plain = views.flat(data)
    rare = _RARE.search(plain) is not None
    found = [_found(hit, ((hit.start, hit.end),)) for hit in _hits(plain, data, known, rare=rare)]
    for view in itertools.chain(views.others(data), views.base64_texts(plain) if rare else ()):
        found += [_found(hit, view.spans(hit.start, hit.end)) for hit in _hidden(views.flat(view.data), known)]
    return _settled(found)


def _hits(plain: bytes, data: bytes, known: Known | None, *, rare: bool) -> Iterator[Hit]:
    if known:
        yield from known.find(data)
    yield from tokens.find(plain)
    yield from contexts.find(plain)
    yield from people.find(plain)
    if rare:
        yield from specials.find(plain)


def _hidden(view: bytes, known: Known | None) -> Iterator[Hit]:
    if known:
        yield from known.find(view)
    yield from tokens.find(view)
    yield from contexts.find(view)
    yield from specials.find(view)


def _found(hit: Hit, spans: tuple[tuple[int, int], ...]) -> Found:
    return Found(spans, hit.rule, hit.kind, hit.weight, hit.value)


def _settled(found: Iterable[Found]) -> list[Found]:
    """Keep the surest, then the longest, of those that overlap; a secret outranks a person."""
    kept: list[Found] = []
    ranked = sorted(found, key=lambda one: (one.kind == PERSON, -one.weight, one.start - one.end, one.start))
    taken: list[tuple[int, int]] = []
    for one in ranked:
        if not any(_overlaps(taken, span) for span in one.spans):
            kept.append(one)
            for span in one.spans:
                insort(taken, span)
    return sorted(kept, key=lambda one: one.start)


def _overlaps(taken: list[tuple[int, int]], span: tuple[int, int]) -> bool:
    at = bisect_left(taken, span)
    return (at < len(taken) and taken[at][0] < span[1]) or (at > 0 and taken[at - 1][1] > span[0])
