"""Where to look: three passes over a text, as it stands, find every beginning of something private.

One automaton holds the words for secrets and what points at a person, one the heads of tokens
that need more after them, one the telling heads and the providers' names. Patterns read raw
text, escapes and all; each match is judged in a small window with the escapes blanked out, so
that the cost is that of three searches and of the few judgements, not of the text. What makes
a text be read another way (colours, streams, base64, PEM) is reported as a place.
"""

import functools
import itertools
import re
import string
from collections.abc import Iterator
from typing import Any, NamedTuple

import re2

from flightlog.privacy.detect import assignments, contexts, lazily, people, specials, tokens, views
from flightlog.privacy.detect.hits import LATIN, Hit, search, where
from flightlog.privacy.detect.meter import UNJUDGED, Meter

_BEFORE = 160
_AFTER = 800
_TOKEN_AFTER = 3_200
_LONG = 200
# Up to so many bytes a text is short; after so many of them, everything is made ready.
_SHORT = 32 << 10
_PARTS_MAX = 12
_PLACE_LOOK = 60
# Half of what the engine reads after a place, so that each mark in between has as much read after it.
_WRITTEN_STEP = 600
# Text behind base64 is decoded and searched three times more.
_BASE64_LOOK = 240
_BASE64_MIN = 20
_EVENT = b"data:"
# Events of a stream so far apart are read together.
EVENTS_REACH = 1 << 20
_BASE64 = (string.ascii_letters + string.digits + "+/_-").encode()
# What is found has to be placed, weighed against others, named and replaced.
_FOUND = 60
_KNOWN_LOOK = 40
_REMEMBERED_MAX = 10_000
_MARK = rb"[^A-Za-z0-9\x00]"
_ESCAPED = rb"\\[nt]"
# Text to be read in another way before it is searched.
OTHER_VIEWS = rb"\x1b|1b\[|" + views.TELLING_PERCENT
_WORD_MAX = 11
_WORD_FIRST = frozenset(
    b"".join(word[:1].lower().encode() + word[:1].upper().encode() for word in assignments.WORDS) + b"Aa"
)
_SCHEME = re.compile(rb"://|(?i:bearer|basic|ssws) ")
_INSIDE = re.compile(rb"[@0-9/+(:]|-[hU]")


class Place(NamedTuple):
    """Where a text must be read another way, and what was found there."""

    start: int
    end: int
    text: bytes


class Sighted(NamedTuple):
    """What one look over a text brought: hits, and places for another look."""

    hits: list[Hit]
    places: list[Place]


class _Tables(NamedTuple):
    words: Any
    shapes: Any
    named: Any
    rare: Any


_RARE = rb"|".join((specials.PATTERN, views.BASE64_TEXT, OTHER_VIEWS))


def _tables(data: bytes) -> _Tables:
    """Return what to look for: everything, or for a few short texts what could stand in them, which is made sooner."""
    parts = _parts()
    if len(data) > _SHORT or _whole.cache_info().currsize or len(parts) >= _PARTS_MAX:
        return _whole()
    low = data.lower()
    wanted = assignments.words_in(low), tokens.forms_in(data), contexts.names_in(low)
    needed = frozenset(itertools.chain(*wanted))
    for held, tables in parts:
        if needed <= held:
            return tables
    words, forms, names = wanted
    made = _made(assignments.trigger(words) if words else "", tokens.triggers(forms), contexts.names(names))
    parts.append((needed, made))
    return made


@functools.cache
def _whole() -> _Tables:
    return _made(assignments.trigger(), tokens.triggers(), contexts.names())


@functools.cache
def _parts() -> list[tuple[frozenset[object], _Tables]]:
    """Return what was made ready for short texts: what each looks for, and the patterns."""
    return []


def _made(word: str, heads: tuple[str, str], name: str) -> _Tables:
    plain, counted = (pattern.encode() for pattern in heads)
    words = [rb"(?i:" + word.encode() + rb")"] if word else []
    named = [*([plain] if plain else []), *([rb"(?i:" + name.encode() + rb")"] if name else [])]
    return _Tables(
        _raw(rb"|".join([*words, people.PATTERN])),
        _raw(rb"|".join([*([counted] if counted else []), _RARE])),
        _raw(rb"|".join(named)) if named else None,
        lazily.linear(_rawly(_RARE)),
    )


def _raw(pattern: bytes) -> Any:
    r"""Compile a pattern that finds in raw JSON whatever `pattern` finds where `\n` and `\t` are blanked out."""
    return re2.compile(_rawly(pattern), LATIN)


def _rawly(pattern: bytes) -> bytes:
    raw = pattern.replace(rb"\b", rb"(?:\b|" + _ESCAPED + rb")")
    raw = raw.replace(_MARK, rb"(?:" + _MARK + rb"|" + _ESCAPED + rb")")
    return raw.replace(rb"[ \t]", rb"(?:[ \t]|" + _ESCAPED + rb")")


def sight(data: bytes, meter: Meter, *, another: bool = False, persons: bool = True) -> Sighted:
    """Return what is private in `data` at first sight, and where another look is needed.

    `another` says that it is a text read in another way; `persons`, whether to look for personal details.
    """
    tables = _tables(data)
    looker = _Looker(data, meter, tables)
    places: list[Place] = []
    hits: list[Hit] = []
    for pattern, judge in (
        (tables.words, lambda start, end: looker.word_or_person(start, end, persons=persons)),
        (tables.named, looker.token_or_name),
        (tables.shapes, lambda start, end: looker.token_or_place(start, end, places)),
    ):
        if pattern is None:
            continue
        looker.data = data = _without_unjudged(data, hits)
        meter.begin(another=another)
        hits += _scan(data, pattern, judge)
    places += _events(data)
    if not another:
        places += _written(data)
    return Sighted(hits, places)


def _events(data: bytes) -> Iterator[Place]:
    """Yield where events of a stream begin; those of one record that are read together once."""
    at = where(data, _EVENT, 0)
    while at >= 0:
        text = data[at : at + 7]
        if text.startswith((b"data:{", b"data: {")):
            yield Place(at, at + len(text), text)
            stop = data.find(b"\0", at, at + EVENTS_REACH // 2)
            at = where(data, _EVENT, stop if stop >= 0 else at + EVENTS_REACH // 2)
        else:
            at = where(data, _EVENT, at + len(_EVENT))


def _written(data: bytes) -> Iterator[Place]:
    """Yield where marks are written as JSON or HTML may write them, once for what is read together."""
    for mark in views.WRITTEN_MARKS:
        at = where(data, mark, 0)
        while at >= 0:
            yield Place(at, at + len(mark), mark)
            at = where(data, mark, at + _WRITTEN_STEP)


def _without_unjudged(data: bytes, hits: list[Hit]) -> bytes:
    """Return `data` with what was given up blanked out, so that nobody looks there again."""
    given_up = [hit for hit in hits if hit.rule == UNJUDGED and data[hit.start] != 0]
    if not given_up:
        return data
    blanked = bytearray(data)
    for hit in given_up:
        blanked[hit.start : hit.end] = bytes(hit.end - hit.start)
    return bytes(blanked)


def _scan(data: bytes, pattern: Any, judge: Any) -> Iterator[Hit]:
    at = vain = 0
    while (found := search(pattern, data, at, vain)) is not None:
        start, end = found.span()
        vain = start - at
        after, hit = judge(start, end)
        if end - start > 2 * _LONG:
            # Longer than any name and its value: a run of words. Go on near its end, lest it be read again and again.
            after = max(after, end - _LONG)
        if hit is not None:
            yield hit
        at = after


class _Looker:
    """Judges matches in one text; what repeats, in a transcript or a hostile text, is judged once."""

    def __init__(self, data: bytes, meter: Meter, tables: _Tables) -> None:
        self.data = data
        self._tables = tables
        self._meter = meter
        self._words: dict[tuple[int, int, bytes], tuple[bool, int, bool]] = {}

    def word_or_person(self, start: int, end: int, *, persons: bool) -> tuple[int, Hit | None]:
        start = self._unescaped(start, end)
        word, after, is_worth = self._word(start, end) if self.data[start] in _WORD_FIRST else (False, 0, False)
        if word:
            if not is_worth:
                return after, None
            judged, hit = self._locally(contexts.beside_word, start)
            return (judged if hit else after), hit
        if not persons:
            return end, None
        if not self._meter.affords(start, people.LOOK):
            return self._unjudged(start)
        low = self._low(start)
        hit = people.judge(self.data[start:end], start - low, self.data[low : end + 8])
        # A word for a secret may begin inside.
        text = self.data[start:end]
        lettered = text.lower() != text.upper()
        inside = None
        if lettered and assignments.holds_word(text):
            inside = self._tables.words.search(self.data, start + 1, end + 64)
        return (end if inside is None else max(start + 1, min(end, inside.start()))), _moved(hit, low)

    def _word(self, start: int, end: int) -> tuple[bool, int, bool]:
        """Say whether a word for a secret begins here, where to go on, and whether it is worth a judgement."""
        low = max(0, start - assignments.NAME_MAX)
        key = start - low, end - start, self.data[low : max(start + assignments.WORTH_MAX, end + _WORD_MAX)]
        known = self._words.get(key)
        if known is None:
            known = self._word_anew(start, end)
            if len(self._words) < _REMEMBERED_MAX:
                self._words[key] = known
        return known[0], start + known[1], known[2]

    def _word_anew(self, start: int, end: int) -> tuple[bool, int, bool]:
        word = assignments.word_end(self.data, start)
        if not word:
            return False, 0, False
        # What the match took after the word may begin something else.
        rest = self.data[word : end + _WORD_MAX]
        after = word if _INSIDE.search(rest) or assignments.holds_word(rest) else end
        return True, after - start, assignments.is_worth_judging(self.data, start)

    def token_or_name(self, start: int, end: int) -> tuple[int, Hit | None]:
        start = self._unescaped(start, end)
        name = contexts.name_size(self.data[start:end])
        if name:
            if not contexts.has_value(self.data, start + name):
                return end, None
            return self._locally(contexts.beside_name, start)
        after, hit = self._token(start)
        if hit is None and contexts.name_end(self.data, start):
            return self._locally(contexts.beside_name, start)
        return after, hit

    def token_or_place(self, start: int, end: int, places: list[Place]) -> tuple[int, Hit | None]:
        raw = start
        start = self._unescaped(start, end)
        if tokens.has_head(self.data, start):
            after, hit = self._token(start)
            if hit is not None:
                return after, hit
            rare = self._tables.rare.match(self.data, raw)
            if rare is None:
                return after, None
            end = rare.end()
        marked = end - start < _BASE64_MIN or self.data[start:end].translate(None, _BASE64) != b""
        if not self._meter.affords(start, _PLACE_LOOK if marked else _BASE64_LOOK):
            return self._unjudged(start)
        text = self.data[start : min(end, start + 40)]
        places.append(Place(start, end, text))
        # What follows a scheme may be a token of its own.
        scheme = _SCHEME.match(text)
        return max(start + 1, start + scheme.end() if scheme else end), None

    def _unescaped(self, start: int, end: int) -> int:
        """Return where a match begins without the line end or tab before it, as JSON writes it."""
        return start + 2 if end - start > 2 and self.data[start] == 92 and self.data[start + 1] in b"nt" else start

    def _token(self, start: int) -> tuple[int, Hit | None]:
        if not self._meter.affords(start, tokens.cost(self.data, start)):
            return self._unjudged(start)
        low = self._low(start)
        window = views.flat(self._cut(low, start + _TOKEN_AFTER))
        hit = _moved(tokens.judge(window, start - low), low)
        return (hit.end if hit and hit.end > start else start + 1), hit

    def _locally(self, judge: Any, start: int) -> tuple[int, Hit | None]:
        low = self._low(start)
        window = self._cut(low, start + _AFTER)
        key = judge, start - low, window
        answer = self._meter.remembered(key)
        if not self._meter.affords(start, _KNOWN_LOOK):
            return self._unjudged(start)
        if answer is None:
            answer = judge(views.flat(window), start - low)
            self._meter.spend(answer.cost)
            self._meter.remember(key, answer)
        if answer.hit is not None:
            self._meter.spend(_FOUND)
        return start + max(answer.length, 1), _moved(answer.hit, low)

    def _unjudged(self, start: int) -> tuple[int, Hit]:
        hit = self._meter.unjudged(self.data, start)
        return hit.end, hit

    def _low(self, start: int) -> int:
        low = max(0, start - _BEFORE)
        return max(low, self.data.rfind(b"\0", low, start) + 1)

    def _cut(self, low: int, high: int) -> bytes:
        stop = self.data.find(b"\0", low, high)
        return self.data[low : stop if stop >= 0 else high]


def _moved(hit: Hit | None, by: int) -> Hit | None:
    if hit is None:
        return None
    start, end, rule, value, weight, kind = hit
    return Hit(start + by, end + by, rule, value, weight, kind)
