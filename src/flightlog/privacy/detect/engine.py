"""Run all detectors over all decodings of a text and resolve overlaps; find the lines to redact.

Time is linear in the text, and memory is bounded by a few copies of it. A NUL separates
records: no detector crosses one, so that many small texts can be searched at once. Raw lines are
searched with their escapes, so that most are never decoded.
"""

import itertools
import re
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from operator import add, itemgetter
from typing import NamedTuple

from flightlog.model.text import REDACTION_TAG
from flightlog.privacy.detect import decodings, rules, structured, triggers
from flightlog.privacy.detect.candidates import (
    HIGH,
    PERSON,
    SECRET,
    UNJUDGED,
    Candidate,
    WorkBudget,
    contains_needle,
)
from flightlog.privacy.detect.known_values import KnownSecrets

# Bytes before and after a region that are decoded with it, by its first characters: PEM blocks are
# the longest, a Kubernetes manifest may say `kind` last.
_REACH = {
    b"----": (100, 20_100),
    b"Priv": (100, 4_100),
    b"kind": (2_100, 2_100),
    b"data": (triggers.EVENTS_REACH, triggers.EVENTS_REACH),
}
_REACH_ELSE = (600, 1_200)  # a header, a flag or a URL with its value, twice over
# Windows of at most this many bytes are searched together, up to this many: a search has a fixed cost.
_SMALL, _GROUP = 4 << 10, 64 << 10
# Beginnings of regions whose raw JSON differs from the string it encodes.
_HIDING = (b"\x1b", b"1b[", b"data:", b"\\u00")
# The parts of a tag cannot match in two ways, so the standard library is linear here, and its call
# is far faster.
_TAG = re.compile(REDACTION_TAG.pattern.encode())
# A line with one of these must be decoded before it is searched.
_DEEP = rules.linear_pattern(rb"\\u[0-9a-fA-F]{4}|\x1b|1b\[|data: ?\{")
_CONTINUATIONS_MAX = 3  # continuation bytes of a character in UTF-8


class SearchState(NamedTuple):
    """The known values, and how much may still be examined."""

    known_secrets: KnownSecrets | None
    meter: WorkBudget


class SearchOutcome(NamedTuple):
    """What was found, and where the text must be decoded to be sure."""

    detections: "list[Detection]"
    hiding: list[int]


class Detection(NamedTuple):
    """A private value, as spans of the original bytes: several where a stream split it."""

    spans: tuple[tuple[int, int], ...]
    rule: str
    kind: str
    weight: int
    value: bytes

    @property
    def start(self) -> int:
        """Offset of the first byte."""
        return self.spans[0][0]

    @property
    def end(self) -> int:
        """Offset after the last byte."""
        return self.spans[-1][1]

    def shift_by(self, by: int) -> "Detection":
        """Return this detection with all spans moved by `by` bytes."""
        spans, rule, kind, weight, value = self
        if len(spans) == 1:
            ((start, end),) = spans
            return Detection(((start + by, end + by),), rule, kind, weight, value)
        shifted = tuple((start + by, end + by) for start, end in spans)
        return Detection(shifted, rule, kind, weight, value)

    def is_in_one_string(self, data: bytes) -> bool:
        """Return whether a tag can replace it in raw JSON without cutting a string or an escape."""
        start, end = self.start, self.end
        if len(self.spans) > 1 or data[start - 1 : start] == b"\\":
            return False
        text = data[start:end]
        if b'"' in text or text.endswith(b"\\"):
            return False
        return b"\\" not in text or self.rule == "private-key"


def find_private_values(
    data: bytes, known: KnownSecrets | None = None, meter: WorkBudget | None = None
) -> list[Detection]:
    """Return the private values in `data`, in order and without overlaps."""
    return search_text(data, known, meter).detections


def search_text(
    data: bytes, known: KnownSecrets | None = None, meter: WorkBudget | None = None
) -> SearchOutcome:
    """Return the private values in `data`, and where it must be decoded to be sure."""
    state = SearchState(known, meter or WorkBudget())
    data = without_tags(data)
    known_hits = state.known_secrets.find_values(data) if state.known_secrets else ()
    data = decodings.decode_escapes_in_place(data)
    matches = triggers.scan_triggers(data, state.meter)
    hits = (*known_hits, *matches.hits)
    detections = [_make_detection(hit, ((hit.start, hit.end),)) for hit in hits]
    for group in _group_windows(data, _merge_windows(data, matches.regions)):
        starts = list(itertools.accumulate((high - low + 1 for low, high in group), initial=0))
        for detection in _search_window(b"\0".join(data[low:high] for low, high in group), state):
            at = bisect_right(starts, detection.start) - 1
            detections.append(detection.shift_by(group[at][0] - starts[at]))
    detections = [
        detection if detection.kind == PERSON else _align_to_characters(data, detection)
        for detection in detections
    ]
    hiding = [region.start for region in matches.regions if region.text.startswith(_HIDING)]
    return SearchOutcome(_resolve_overlaps(detections), hiding)


def without_tags(data: bytes) -> bytes:
    """Return `data` with redaction tags blanked out, keeping every offset."""
    if contains_needle(data, b"<secret:") or contains_needle(data, b"<person:"):
        return _TAG.sub(lambda tag: bytes(tag.end() - tag.start()), data)
    return data


def _merge_windows(data: bytes, places: Iterable[triggers.DecodedRegion]) -> list[tuple[int, int]]:
    """Return the windows around `places` to be decoded, each inside one record."""
    windows: list[tuple[int, int]] = []
    for place in sorted(places):
        before, after = _REACH.get(place.text[:4], _REACH_ELSE)
        last = windows[-1][1] if windows else -1
        if place.end + min(after, _REACH_ELSE[1]) <= last:
            continue
        low = max(0, place.start - before, last if place.start < last else 0)
        low = max(low, data.rfind(b"\0", low, place.start) + 1)
        stop = data.find(b"\0", place.end, place.end + after)
        high = stop if stop >= 0 else min(len(data), place.end + after)
        if low <= last:
            windows[-1] = windows[-1][0], max(high, last)
        else:
            windows.append((low, high))
    return windows


def _group_windows(
    data: bytes, windows: Iterable[tuple[int, int]]
) -> Iterator[list[tuple[int, int]]]:
    """Yield groups of windows to be searched at once; a window with stream events stays alone."""
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


def _search_window(window: bytes, state: SearchState) -> Iterator[Detection]:
    """Yield the secrets with a syntax of their own, and the values in decodings of the window."""
    plain = decodings.blank_json_escapes(window)
    for hit in structured.find_structured_secrets(plain, state.meter):
        yield _make_detection(hit, ((hit.start, hit.end),))
    others = decodings.iter_other_views(window)
    for view in itertools.chain(others, decodings.iter_base64_views(plain)):
        text = decodings.blank_json_escapes(view.data)
        if state.known_secrets:
            for hit in state.known_secrets.find_values(text):
                yield _make_detection(hit, view.source_spans(hit.start, hit.end))
        matches = triggers.scan_triggers(text, state.meter, view.form)
        find = structured.find_structured_secrets
        more = find(text, state.meter, view.form) if matches.regions else ()
        for hit in itertools.chain(matches.hits, more):
            yield _make_detection(hit, view.source_spans(hit.start, hit.end))


def _align_to_characters(data: bytes, detection: Detection) -> Detection:
    """Extend the spans to whole characters: detectors count bytes and may end inside one."""
    spans = tuple(
        (_character_boundary(data, start, -1), _character_boundary(data, end, 1))
        for start, end in detection.spans
    )
    if spans == detection.spans:
        return detection
    return detection._replace(spans=spans, value=b"".join(data[low:high] for low, high in spans))


def _character_boundary(data: bytes, at: int, step: int) -> int:
    for _ in range(_CONTINUATIONS_MAX):
        if 0 < at < len(data) and 0x80 <= data[at] < 0xC0:
            at += step
    return at


def _make_detection(hit: Candidate, spans: tuple[tuple[int, int], ...]) -> Detection:
    return Detection(spans, hit.rule, hit.kind, hit.weight, hit.value)


def _resolve_overlaps(detections: Iterable[Detection]) -> list[Detection]:
    """Of those that overlap, return the surest, then the longest; a secret outranks a person."""
    resolved: list[Detection] = []
    cluster: list[Detection] = []
    reach = 0
    for detection in sorted(detections, key=lambda detection: detection.start):
        if cluster and detection.start >= reach:
            resolved += _choose_best(cluster)
            cluster = []
        cluster.append(detection)
        reach = max(reach, detection.end) if len(cluster) > 1 else detection.end
    return sorted(resolved + _choose_best(cluster), key=lambda detection: detection.start)


def _choose_best(cluster: list[Detection]) -> list[Detection]:
    if len(cluster) < 2:
        return cluster
    if any(detection.rule == UNJUDGED for detection in cluster):
        whole = cluster[0].start, max(detection.end for detection in cluster)
        value = b"".join(detection.value for detection in cluster)
        weight = max(detection.weight for detection in cluster)
        return [Detection((whole,), UNJUDGED, SECRET, weight, value)]
    best: list[Detection] = []
    occupied: list[tuple[int, int]] = []
    for detection in sorted(cluster, key=_rank_key):
        if not any(_overlaps_any(occupied, span) for span in detection.spans):
            best.append(detection)
            for span in detection.spans:
                insort(occupied, span)
    return best


def _rank_key(detection: Detection) -> tuple[bool, int, int, int]:
    # A known value may be a part of a longer secret, so it weighs no more than other sure ones.
    weight = min(detection.weight, HIGH)
    return detection.kind == PERSON, -weight, detection.start - detection.end, detection.start


def _overlaps_any(occupied: list[tuple[int, int]], span: tuple[int, int]) -> bool:
    at = bisect_left(occupied, span)
    is_before = at < len(occupied) and occupied[at][0] < span[1]
    return is_before or (at > 0 and occupied[at - 1][1] > span[0])


class SuspectLine(NamedTuple):
    """Where a line begins that has private values or must be decoded, and the detections in it."""

    begin: int
    detections: list[Detection]


def find_suspect_lines(data: bytes, known: KnownSecrets) -> list[SuspectLine]:
    """Return the lines of `data` to redact, in order; detections count from the start of the line."""
    return find_suspect_records(data.replace(b"\n", b"\0"), known)


def find_suspect_records(
    records: bytes, known: KnownSecrets, meter: WorkBudget | None = None
) -> list[SuspectLine]:
    """Return the records to redact of those in `records`, with NULs between them."""
    outcome = search_text(records, known, meter)
    suspects: list[SuspectLine] = []
    end = -1
    marks: list[tuple[int, Detection | None]] = [
        (detection.start, detection) for detection in outcome.detections
    ]
    marks += [(offset, None) for offset in outcome.hiding]
    for offset, detection in sorted(marks, key=itemgetter(0)):
        if offset > end:
            suspects.append(SuspectLine(records.rfind(b"\0", 0, offset) + 1, []))
            end = records.find(b"\0", offset)
            end = end if end >= 0 else len(records)
        if detection is not None:
            suspects[-1].detections.append(detection.shift_by(-suspects[-1].begin))
    return suspects


def lines_with_known_values(lines: list[bytes], known: KnownSecrets) -> list[int]:
    """Return the numbers of the lines that contain a known value, in order."""
    joined = without_tags(b"\0".join(line.replace(b"\0", b"\n") for line in lines))
    starts = line_starts(lines)
    return sorted({bisect_right(starts, hit.start) - 1 for hit in known.find_values(joined)})


def line_starts(lines: list[bytes]) -> list[int]:
    """Return where each line begins when they are joined by one byte."""
    return list(map(add, itertools.accumulate(map(len, lines), initial=0), itertools.count()))


def iter_deep_records(records: bytes) -> Iterator[int]:
    """Yield where the records begin, of those with NULs between them, that must be decoded."""
    at = 0
    while (match := _DEEP.search(records, at)) is not None:
        yield records.rfind(b"\0", 0, match.start()) + 1
        at = records.find(b"\0", match.start()) + 1
        if not at:
            break


def is_deep(record: bytes) -> bool:
    """Return whether a record must be decoded before it is searched."""
    return _DEEP.search(record) is not None
