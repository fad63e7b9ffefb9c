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
from flightlog.privacy.detect.hits import LATIN, PERSON, SECRET, Hit
from flightlog.privacy.detect.known import Known
from flightlog.privacy.detect.meter import UNJUDGED, Meter

# One search tells that none of these is there, as in most texts.
_RARE = re2.compile(specials.PATTERN + b"|" + views.BASE64_TEXT, LATIN)
TAG = re2.compile(rb"<(?:secret|person):[a-z0-9.-]{1,80}:[0-9a-f]{4,64}>", LATIN)


class Looking(NamedTuple):
    """What is known before, and how much may still be examined."""

    known: Known | None
    meter: Meter


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


def find(data: bytes, known: Known | None = None, meter: Meter | None = None) -> list[Found]:
    """Return what is private in `data`, in order and without overlaps."""
    meter = meter or Meter()
    data = TAG.sub(lambda tag: b"\0" * len(tag.group()), data) if b"<secret:" in data or b"<person:" in data else data
    plain = views.flat(data)
    rare = _RARE.search(plain) is not None
    found = [_found(hit, ((hit.start, hit.end),)) for hit in _hits(plain, data, Looking(known, meter), rare=rare)]
    for view in itertools.chain(views.others(data), views.base64_texts(plain) if rare else ()):
        hidden = _hidden(views.flat(view.data), Looking(known, meter))
        found += [_found(hit, view.spans(hit.start, hit.end)) for hit in hidden]
    return _settled(found)


def _hits(plain: bytes, data: bytes, looking: Looking, *, rare: bool) -> Iterator[Hit]:
    if looking.known:
        yield from looking.known.find(data)
    yield from tokens.find(plain, looking.meter)
    yield from contexts.find(plain, looking.meter)
    yield from people.find(plain, looking.meter)
    if rare:
        yield from specials.find(plain, looking.meter)


def _hidden(view: bytes, looking: Looking) -> Iterator[Hit]:
    if looking.known:
        yield from looking.known.find(view)
    yield from tokens.find(view, looking.meter)
    yield from contexts.find(view, looking.meter)
    yield from specials.find(view, looking.meter)


def _found(hit: Hit, spans: tuple[tuple[int, int], ...]) -> Found:
    return Found(spans, hit.rule, hit.kind, hit.weight, hit.value)


def _settled(found: Iterable[Found]) -> list[Found]:
    """Keep the surest, then the longest, of those that overlap; a secret outranks a person."""
    kept: list[Found] = []
    cluster: list[Found] = []
    reach = 0
    for one in sorted(found, key=lambda one: one.start):
        if cluster and one.start >= reach:
            kept += _best(cluster)
            cluster = []
        cluster.append(one)
        reach = max(reach, one.end) if len(cluster) > 1 else one.end
    return sorted(kept + _best(cluster), key=lambda one: one.start)


def _best(cluster: list[Found]) -> list[Found]:
    if len(cluster) < 2:
        return cluster
    if any(one.rule == UNJUDGED for one in cluster):
        whole = cluster[0].start, max(one.end for one in cluster)
        value = b"".join(one.value for one in cluster)
        return [Found((whole,), UNJUDGED, SECRET, max(one.weight for one in cluster), value)]
    kept: list[Found] = []
    taken: list[tuple[int, int]] = []
    for one in sorted(cluster, key=lambda one: (one.kind == PERSON, -one.weight, one.start - one.end, one.start)):
        if not any(_overlaps(taken, span) for span in one.spans):
            kept.append(one)
            for span in one.spans:
                insort(taken, span)
    return kept


def _overlaps(taken: list[tuple[int, int]], span: tuple[int, int]) -> bool:
    at = bisect_left(taken, span)
    return (at < len(taken) and taken[at][0] < span[1]) or (at > 0 and taken[at - 1][1] > span[0])
