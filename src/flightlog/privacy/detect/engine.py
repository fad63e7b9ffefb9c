"""All detectors over all decodings, overlaps resolved; batch prefilter.

Time is linear in the text, memory bounded by a few copies of it. A NUL separates records:
no detector reaches over one, so that many small texts can be searched in one go.

Reads lines as they stand in a file, escapes and all, so that most are never decoded.
"""

import itertools
import re
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from operator import add, itemgetter
from typing import Any, NamedTuple

from flightlog.privacy.detect import decodings, rules, structured, triggers
from flightlog.privacy.detect.candidates import HIGH, PERSON, SECRET, UNJUDGED, Candidate, WorkBudget, contains_needle
from flightlog.privacy.detect.known_values import KnownSecrets

# How far what begins here may reach, before and after.
_REACH = {
    b"----": (100, 20_100),
    b"Priv": (100, 4_100),
    b"kind": (2_100, 2_100),
    b"data": (triggers.EVENTS_REACH, triggers.EVENTS_REACH),
}
_REACH_ELSE = (600, 1_200)
# Stretches up to so many bytes are put together, up to so many.
_SMALL = 4 << 10
_GROUP = 64 << 10
# What raw JSON writes in another way than the string it stands for.
_HIDING = (b"\x1b", b"1b[", b"data:", b"\\u00")
# No character of a tag can be read two ways, so that the standard library is linear here, and far quicker to call.
TAG = re.compile(rb"<(?:secret|person):[a-z0-9.-]{1,80}:[0-9a-f]{4,64}>")
# What no raw line hides: text to be read in another way before it is searched.
_DEEP = rules.linear_pattern(rb"\\u[0-9a-fA-F]{4}|\x1b|1b\[|data: ?\{")


class SearchState(NamedTuple):
    """What is known before, and how much may still be examined."""

    known: KnownSecrets | None
    meter: WorkBudget


class SearchOutcome(NamedTuple):
    """What was found, and where something is that only decoding shows for sure."""

    found: "list[Detection]"
    hiding: list[int]


class Detection(NamedTuple):
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

    def shift_by(self, by: int) -> "Detection":
        """Return the same, `by` bytes further on."""
        spans, rule, kind, weight, value = self
        if len(spans) == 1:
            ((start, end),) = spans
            return Detection(((start + by, end + by),), rule, kind, weight, value)
        return Detection(tuple((start + by, end + by) for start, end in spans), rule, kind, weight, value)


def find_private_values(
    data: bytes, known: KnownSecrets | None = None, meter: WorkBudget | None = None
) -> list[Detection]:
    """Return what is private in `data`, in order and without overlaps."""
    return search_text(data, known, meter).found


def search_text(data: bytes, known: KnownSecrets | None = None, meter: WorkBudget | None = None) -> SearchOutcome:
    """Return what is private in `data`, and where it must be decoded to be sure."""
    looking = SearchState(known, meter or WorkBudget())
    data = without_tags(data)
    known_hits = looking.known.find_values(data) if looking.known else ()
    data = decodings.decode_escapes_in_place(data)
    sighted = triggers.scan_triggers(data, looking.meter)
    hits = [*known_hits, *sighted.hits]
    found = [_make_detection(hit, ((hit.start, hit.end),)) for hit in hits]
    for group in _group_windows(data, _merge_windows(data, sighted.places)):
        starts = list(itertools.accumulate((high - low + 1 for low, high in group), initial=0))
        for one in _search_window(b"\0".join(data[low:high] for low, high in group), looking):
            at = bisect_right(starts, one.start) - 1
            found.append(one.shift_by(group[at][0] - starts[at]))
    found = [one if one.kind == PERSON else _align_to_characters(data, one) for one in found]
    return SearchOutcome(
        _resolve_overlaps(found), [place.start for place in sighted.places if place.text.startswith(_HIDING)]
    )


def without_tags(data: bytes) -> bytes:
    """Return `data` with tags blanked out, each offset kept: what stands for a value holds none."""
    return (
        TAG.sub(_blank_tag, data) if contains_needle(data, b"<secret:") or contains_needle(data, b"<person:") else data
    )


def _blank_tag(tag: re.Match[bytes]) -> bytes:
    return bytes(tag.end() - tag.start())


def _merge_windows(data: bytes, places: Iterable[triggers.DecodedRegion]) -> list[tuple[int, int]]:
    """Return the stretches around `places` to be read again, each inside one record."""
    made: list[tuple[int, int]] = []
    for place in sorted(places):
        before, after = _REACH.get(place.text[:4], _REACH_ELSE)
        if made and place.end + min(after, _REACH_ELSE[1]) <= made[-1][1]:
            continue
        low = max(0, place.start - before, made[-1][1] if made and place.start < made[-1][1] else 0)
        low = max(low, data.rfind(b"\0", low, place.start) + 1)
        stop = data.find(b"\0", place.end, place.end + after)
        high = stop if stop >= 0 else min(len(data), place.end + after)
        if made and low <= made[-1][1]:
            made[-1] = made[-1][0], max(high, made[-1][1])
        else:
            made.append((low, high))
    return made


def _group_windows(data: bytes, windows: Iterable[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Put small stretches together, to be read again in one go; those with events of a stream stay apart."""
    group: list[tuple[int, int]] = []
    size = 0
    for low, high in windows:
        if high - low > _SMALL or data.find(b"data:", low, high) >= 0:
            yield [(low, high)]
            continue
        group.append((low, high))
        size += high - low
        if size > _GROUP:
            yield group
            group, size = [], 0
    if group:
        yield group


def _search_window(window: bytes, looking: SearchState) -> Iterator[Detection]:
    """Yield what has a syntax of its own, and what shows when the window is read another way."""
    plain = decodings.blank_json_escapes(window)
    for hit in structured.find_structured_secrets(plain, looking.meter):
        yield _make_detection(hit, ((hit.start, hit.end),))
    for view in itertools.chain(decodings.iter_other_views(window), decodings.iter_base64_views(plain)):
        hidden = decodings.blank_json_escapes(view.data)
        if looking.known:
            yield from (
                _make_detection(hit, view.source_spans(hit.start, hit.end)) for hit in looking.known.find_values(hidden)
            )
        sighted = triggers.scan_triggers(hidden, looking.meter, another=True, persons=view.persons)
        more = structured.find_structured_secrets(hidden, looking.meter, another=True) if sighted.places else ()
        for hit in itertools.chain(sighted.hits, more):
            yield _make_detection(hit, view.source_spans(hit.start, hit.end))


def _align_to_characters(data: bytes, one: Detection) -> Detection:
    """Return the same with whole characters: a reach counts bytes, and may end inside one."""
    spans = tuple((_character_boundary(data, start, -1), _character_boundary(data, end, 1)) for start, end in one.spans)
    return (
        one if spans == one.spans else one._replace(spans=spans, value=b"".join(data[low:high] for low, high in spans))
    )


def _character_boundary(data: bytes, at: int, step: int) -> int:
    for _ in range(3):  # so many bytes continue a character of UTF-8 at most
        if 0 < at < len(data) and 0x80 <= data[at] < 0xC0:
            at += step
    return at


def _make_detection(hit: Candidate, spans: tuple[tuple[int, int], ...]) -> Detection:
    return Detection(spans, hit.rule, hit.kind, hit.weight, hit.value)


def _resolve_overlaps(found: Iterable[Detection]) -> list[Detection]:
    """Keep the surest, then the longest, of those that overlap; a secret outranks a person."""
    kept: list[Detection] = []
    cluster: list[Detection] = []
    reach = 0
    for one in sorted(found, key=lambda one: one.start):
        if cluster and one.start >= reach:
            kept += _choose_best(cluster)
            cluster = []
        cluster.append(one)
        reach = max(reach, one.end) if len(cluster) > 1 else one.end
    return sorted(kept + _choose_best(cluster), key=lambda one: one.start)


def _choose_best(cluster: list[Detection]) -> list[Detection]:
    if len(cluster) < 2:
        return cluster
    if any(one.rule == UNJUDGED for one in cluster):
        whole = cluster[0].start, max(one.end for one in cluster)
        value = b"".join(one.value for one in cluster)
        return [Detection((whole,), UNJUDGED, SECRET, max(one.weight for one in cluster), value)]
    kept: list[Detection] = []
    taken: list[tuple[int, int]] = []
    for one in sorted(cluster, key=_rank_key):
        if not any(_overlaps_any(taken, span) for span in one.spans):
            kept.append(one)
            for span in one.spans:
                insort(taken, span)
    return kept


def _rank_key(one: Detection) -> tuple[bool, int, int, int]:
    # A known value may be a part of a longer secret: what is sure is weighed by its length.
    return one.kind == PERSON, -min(one.weight, HIGH), one.start - one.end, one.start


def _overlaps_any(taken: list[tuple[int, int]], span: tuple[int, int]) -> bool:
    at = bisect_left(taken, span)
    return (at < len(taken) and taken[at][0] < span[1]) or (at > 0 and taken[at - 1][1] > span[0])


class SuspectLine(NamedTuple):
    """Where a line begins that holds something private or hides something, and what was found in it."""

    begin: int
    found: list[Detection]


def find_suspect_lines(data: bytes, known: KnownSecrets, meter: WorkBudget | None = None) -> list[SuspectLine]:
    """Return the lines of `data` that need a closer look, in order; what was found counts from their beginning."""
    return find_suspect_records(data.replace(b"\n", b"\0"), known, meter)


def find_suspect_records(records: bytes, known: KnownSecrets, meter: WorkBudget | None = None) -> list[SuspectLine]:
    """Return the same of records with a NUL between them."""
    looked = search_text(records, known, meter)
    suspects: list[SuspectLine] = []
    end = -1
    marks: list[tuple[int, Detection | None]] = [(one.start, one) for one in looked.found]
    marks += [(place, None) for place in looked.hiding]
    for place, one in sorted(marks, key=itemgetter(0)):
        if place > end:
            suspects.append(SuspectLine(records.rfind(b"\0", 0, place) + 1, []))
            end = records.find(b"\0", place)
            end = end if end >= 0 else len(records)
        if one is not None:
            suspects[-1].found.append(one.shift_by(-suspects[-1].begin))
    return suspects


def lines_with_known_values(lines: list[bytes], known: KnownSecrets) -> list[int]:
    """Return which lines hold a known value, in order."""
    joined = without_tags(b"\0".join(line.replace(b"\0", b"\n") for line in lines))
    starts = line_starts(lines)
    return sorted({bisect_right(starts, hit.start) - 1 for hit in known.find_values(joined)})


def line_starts(lines: list[bytes]) -> list[int]:
    """Return where each line begins when they are joined by one byte."""
    return list(map(add, itertools.accumulate(map(len, lines), initial=0), itertools.count()))


def iter_deep_records(records: bytes) -> Iterator[int]:
    """Yield where the records, a NUL between them, begin that must be read string by string."""
    return _iter_line_starts(records, _DEEP, b"\0")


def is_deep(record: bytes) -> bool:
    """Say whether one record must be read string by string."""
    return _DEEP.search(record) is not None


def _iter_line_starts(data: bytes, pattern: Any, end: bytes) -> Iterator[int]:
    at = 0
    while (found := pattern.search(data, at)) is not None:
        yield data.rfind(end, 0, found.start()) + 1
        at = data.find(end, found.start()) + 1
        if not at:
            break
