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

from flightlog.privacy.detect import (
    assignments,
    decodings,
    named_values,
    personal_data,
    provider_tokens,
    rules,
    structured,
)
from flightlog.privacy.detect.candidates import LATIN, UNJUDGED, Candidate, WorkBudget, search_in_stretches, where

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
OTHER_VIEWS = rb"\x1b|1b\[|" + decodings.TELLING_PERCENT
_WORD_MAX = 11
_WORD_FIRST = frozenset(
    b"".join(word[:1].lower().encode() + word[:1].upper().encode() for word in assignments.WORDS) + b"Aa"
)
_SCHEME = re.compile(rb"://|(?i:bearer|basic|ssws) ")
_INSIDE = re.compile(rb"[@0-9/+(:]|-[hU]")


class DecodedRegion(NamedTuple):
    """Where a text must be read another way, and what was found there."""

    start: int
    end: int
    text: bytes


class TriggerMatches(NamedTuple):
    """What one look over a text brought: hits, and places for another look."""

    hits: list[Candidate]
    places: list[DecodedRegion]


class _Tables(NamedTuple):
    words: Any
    shapes: Any
    named: Any
    rare: Any


_RARE = rb"|".join((structured.SPECIAL_PATTERN, decodings.BASE64_TEXT, OTHER_VIEWS))


def _choose_tables(data: bytes) -> _Tables:
    """Return what to look for: everything, or for a few short texts what could stand in them, which is made sooner."""
    parts = _short_text_tables()
    if len(data) > _SHORT or _full_tables.cache_info().currsize or len(parts) >= _PARTS_MAX:
        return _full_tables()
    low = data.lower()
    wanted = assignments.find_words(low), provider_tokens.find_forms(data), named_values.find_names(low)
    needed = frozenset(itertools.chain(*wanted))
    for held, tables in parts:
        if needed <= held:
            return tables
    words, forms, names = wanted
    made = _compile_tables(
        assignments.assignment_pattern(words) if words else "",
        provider_tokens.token_head_patterns(forms),
        named_values.provider_name_pattern(names),
    )
    parts.append((needed, made))
    return made


@functools.cache
def _full_tables() -> _Tables:
    return _compile_tables(
        assignments.assignment_pattern(), provider_tokens.token_head_patterns(), named_values.provider_name_pattern()
    )


@functools.cache
def _short_text_tables() -> list[tuple[frozenset[object], _Tables]]:
    """Return what was made ready for short texts: what each looks for, and the patterns."""
    return []


def _compile_tables(word: str, heads: tuple[str, str], name: str) -> _Tables:
    plain, counted = (pattern.encode() for pattern in heads)
    words = [rb"(?i:" + word.encode() + rb")"] if word else []
    named = [*([plain] if plain else []), *([rb"(?i:" + name.encode() + rb")"] if name else [])]
    return _Tables(
        _compile_for_raw_json(rb"|".join([*words, personal_data.PATTERN])),
        _compile_for_raw_json(rb"|".join([*([counted] if counted else []), _RARE])),
        _compile_for_raw_json(rb"|".join(named)) if named else None,
        rules.linear_pattern(_escape_tolerant_pattern(_RARE)),
    )


def _compile_for_raw_json(pattern: bytes) -> Any:
    r"""Compile a pattern that finds in raw JSON whatever `pattern` finds where `\n` and `\t` are blanked out."""
    return re2.compile(_escape_tolerant_pattern(pattern), LATIN)


def _escape_tolerant_pattern(pattern: bytes) -> bytes:
    raw = pattern.replace(rb"\b", rb"(?:\b|" + _ESCAPED + rb")")
    raw = raw.replace(_MARK, rb"(?:" + _MARK + rb"|" + _ESCAPED + rb")")
    return raw.replace(rb"[ \t]", rb"(?:[ \t]|" + _ESCAPED + rb")")


def scan_triggers(data: bytes, meter: WorkBudget, *, another: bool = False, persons: bool = True) -> TriggerMatches:
    """Return what is private in `data` at first sight, and where another look is needed.

    `another` says that it is a text read in another way; `persons`, whether to look for personal details.
    """
    tables = _choose_tables(data)
    looker = _MatchJudge(data, meter, tables)
    places: list[DecodedRegion] = []
    hits: list[Candidate] = []
    for pattern, judge in (
        (tables.words, lambda start, end: looker.judge_word_or_person(start, end, persons=persons)),
        (tables.named, looker.judge_token_or_name),
        (tables.shapes, lambda start, end: looker.judge_token_or_location(start, end, places)),
    ):
        if pattern is None:
            continue
        looker.data = data = _blank_unjudged(data, hits)
        meter.reset(another=another)
        hits += _scan_pattern(data, pattern, judge)
    places += _iter_stream_events(data)
    if not another:
        places += _iter_escaped_marks(data)
    return TriggerMatches(hits, places)


def _iter_stream_events(data: bytes) -> Iterator[DecodedRegion]:
    """Yield where events of a stream begin; those of one record that are read together once."""
    at = where(data, _EVENT, 0)
    while at >= 0:
        text = data[at : at + 7]
        if text.startswith((b"data:{", b"data: {")):
            yield DecodedRegion(at, at + len(text), text)
            stop = data.find(b"\0", at, at + EVENTS_REACH // 2)
            at = where(data, _EVENT, stop if stop >= 0 else at + EVENTS_REACH // 2)
        else:
            at = where(data, _EVENT, at + len(_EVENT))


def _iter_escaped_marks(data: bytes) -> Iterator[DecodedRegion]:
    """Yield where marks are written as JSON or HTML may write them, once for what is read together."""
    for mark in decodings.WRITTEN_MARKS:
        at = where(data, mark, 0)
        while at >= 0:
            yield DecodedRegion(at, at + len(mark), mark)
            at = where(data, mark, at + _WRITTEN_STEP)


def _blank_unjudged(data: bytes, hits: list[Candidate]) -> bytes:
    """Return `data` with what was given up blanked out, so that nobody looks there again."""
    given_up = [hit for hit in hits if hit.rule == UNJUDGED and data[hit.start] != 0]
    if not given_up:
        return data
    blanked = bytearray(data)
    for hit in given_up:
        blanked[hit.start : hit.end] = bytes(hit.end - hit.start)
    return bytes(blanked)


def _scan_pattern(data: bytes, pattern: Any, judge: Any) -> Iterator[Candidate]:
    at = vain = 0
    while (found := search_in_stretches(pattern, data, at, vain)) is not None:
        start, end = found.span()
        vain = start - at
        after, hit = judge(start, end)
        if end - start > 2 * _LONG:
            # Longer than any name and its value: a run of words. Go on near its end, lest it be read again and again.
            after = max(after, end - _LONG)
        if hit is not None:
            yield hit
        at = after


class _MatchJudge:
    """Judges matches in one text; what repeats, in a transcript or a hostile text, is judged once."""

    def __init__(self, data: bytes, meter: WorkBudget, tables: _Tables) -> None:
        self.data = data
        self._tables = tables
        self._meter = meter
        self._words: dict[tuple[int, int, bytes], tuple[bool, int, bool]] = {}

    def judge_word_or_person(self, start: int, end: int, *, persons: bool) -> tuple[int, Candidate | None]:
        start = self._skip_escape(start, end)
        word, after, is_worth = (
            self._classify_word(start, end) if self.data[start] in _WORD_FIRST else (False, 0, False)
        )
        if word:
            if not is_worth:
                return after, None
            judged, hit = self._judge_window(named_values.judge_beside_word, start)
            return (judged if hit else after), hit
        if not persons:
            return end, None
        if not self._meter.try_spend(start, personal_data.LOOK):
            return self._give_up_record(start)
        low = self._window_start(start)
        hit = personal_data.judge_personal_value(self.data[start:end], start - low, self.data[low : end + 8])
        # A word for a secret may begin inside.
        text = self.data[start:end]
        lettered = text.lower() != text.upper()
        inside = None
        if lettered and assignments.contains_word(text):
            inside = self._tables.words.search(self.data, start + 1, end + 64)
        return (end if inside is None else max(start + 1, min(end, inside.start()))), _shift_candidate(hit, low)

    def _classify_word(self, start: int, end: int) -> tuple[bool, int, bool]:
        """Say whether a word for a secret begins here, where to go on, and whether it is worth a judgement."""
        low = max(0, start - assignments.NAME_MAX)
        key = start - low, end - start, self.data[low : max(start + assignments.WORTH_MAX, end + _WORD_MAX)]
        known = self._words.get(key)
        if known is None:
            known = self._classify_new_word(start, end)
            if len(self._words) < _REMEMBERED_MAX:
                self._words[key] = known
        return known[0], start + known[1], known[2]

    def _classify_new_word(self, start: int, end: int) -> tuple[bool, int, bool]:
        word = assignments.word_end(self.data, start)
        if not word:
            return False, 0, False
        # What the match took after the word may begin something else.
        rest = self.data[word : end + _WORD_MAX]
        after = word if _INSIDE.search(rest) or assignments.contains_word(rest) else end
        return True, after - start, assignments.is_worth_judging(self.data, start)

    def judge_token_or_name(self, start: int, end: int) -> tuple[int, Candidate | None]:
        start = self._skip_escape(start, end)
        name = named_values.name_size(self.data[start:end])
        if name:
            if not named_values.has_value(self.data, start + name):
                return end, None
            return self._judge_window(named_values.judge_beside_name, start)
        after, hit = self._judge_token_at(start)
        if hit is None and named_values.name_end(self.data, start):
            return self._judge_window(named_values.judge_beside_name, start)
        return after, hit

    def judge_token_or_location(
        self, start: int, end: int, places: list[DecodedRegion]
    ) -> tuple[int, Candidate | None]:
        raw = start
        start = self._skip_escape(start, end)
        if provider_tokens.has_head(self.data, start):
            after, hit = self._judge_token_at(start)
            if hit is not None:
                return after, hit
            rare = self._tables.rare.match(self.data, raw)
            if rare is None:
                return after, None
            end = rare.end()
        marked = end - start < _BASE64_MIN or self.data[start:end].translate(None, _BASE64) != b""
        if not self._meter.try_spend(start, _PLACE_LOOK if marked else _BASE64_LOOK):
            return self._give_up_record(start)
        text = self.data[start : min(end, start + 40)]
        places.append(DecodedRegion(start, end, text))
        # What follows a scheme may be a token of its own.
        scheme = _SCHEME.match(text)
        return max(start + 1, start + scheme.end() if scheme else end), None

    def _skip_escape(self, start: int, end: int) -> int:
        """Return where a match begins without the line end or tab before it, as JSON writes it."""
        return start + 2 if end - start > 2 and self.data[start] == 92 and self.data[start + 1] in b"nt" else start

    def _judge_token_at(self, start: int) -> tuple[int, Candidate | None]:
        if not self._meter.try_spend(start, provider_tokens.judgment_cost(self.data, start)):
            return self._give_up_record(start)
        low = self._window_start(start)
        window = decodings.blank_json_escapes(self._slice(low, start + _TOKEN_AFTER))
        hit = _shift_candidate(provider_tokens.judge_token(window, start - low), low)
        return (hit.end if hit and hit.end > start else start + 1), hit

    def _judge_window(self, judge: Any, start: int) -> tuple[int, Candidate | None]:
        low = self._window_start(start)
        window = self._slice(low, start + _AFTER)
        key = judge, start - low, window
        answer = self._meter.recall_judgment(key)
        if not self._meter.try_spend(start, _KNOWN_LOOK):
            return self._give_up_record(start)
        if answer is None:
            answer = judge(decodings.blank_json_escapes(window), start - low)
            self._meter.spend(answer.cost)
            self._meter.store_judgment(key, answer)
        if answer.hit is not None:
            self._meter.spend(_FOUND)
        return start + max(answer.length, 1), _shift_candidate(answer.hit, low)

    def _give_up_record(self, start: int) -> tuple[int, Candidate]:
        hit = self._meter.unjudged_rest(self.data, start)
        return hit.end, hit

    def _window_start(self, start: int) -> int:
        low = max(0, start - _BEFORE)
        return max(low, self.data.rfind(b"\0", low, start) + 1)

    def _slice(self, low: int, high: int) -> bytes:
        stop = self.data.find(b"\0", low, high)
        return self.data[low : stop if stop >= 0 else high]


def _shift_candidate(hit: Candidate | None, by: int) -> Candidate | None:
    if hit is None:
        return None
    start, end, rule, value, weight, kind = hit
    return Candidate(start + by, end + by, rule, value, weight, kind)
