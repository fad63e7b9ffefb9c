"""Find every beginning of a private value in three passes over the raw text.

One automaton has the words for secrets and personal data, one the heads of tokens that need
more after them, one the distinctive heads and the providers' names. The patterns match raw text
with its escapes; each match is judged in a small window with the escapes blanked out. So the
cost is three searches and a few judgements. A match that needs decoding (colors, streams,
base64, PEM) is reported as a region.
"""

import functools
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
from flightlog.privacy.detect.candidates import (
    LATIN,
    UNJUDGED,
    Candidate,
    TextForm,
    WorkBudget,
    search_in_stretches,
    where,
)

# Bytes of a window before and after a match: a name and its value, wrapped lines included. Tokens
# are longer (JSON web tokens).
_BEFORE, _AFTER, _TOKEN_AFTER = 160, 800, 3_200
_LONG = 200  # no name with its value matches more; a longer match is a run of words
# Up to this many bytes a text is short. After a few short texts with different needs it is faster
# to compile all patterns once.
_SHORT, _SHORT_TABLES_MAX = 32 << 10, 12
_REGION_COST = 60  # of a decoded region, in bytes examined
# Half of what the engine reads after a region, so that each mark in between has as much read after it.
_ESCAPE_STEP = 600
_BASE64_COST = 240  # base64 is decoded and searched three more times
_BASE64_MIN = 20  # the shortest match of `decodings.BASE64_TEXT`
_EVENT = b"data:"
EVENTS_REACH = 1 << 20  # stream events that are at most this far apart are joined
_BASE64 = (string.ascii_letters + string.digits + "+/_-").encode()
_HIT_COST = 60  # a hit is placed, weighed against others, tagged and replaced
_CACHED_COST = 40  # of a cached judgement
_CACHED_MAX = 10_000  # classified words; bounds the memory of one text
# As the patterns of all detectors write "any mark", and the escapes of JSON that are marks, too.
_MARK = rb"[^A-Za-z0-9\x00]"
_ESCAPED = rb"\\[nt]"  # a line end and a tab
# Text that must be decoded before it is searched: colors and percent codes.
_ENCODED = rb"\x1b|1b\[|" + decodings.TELLING_PERCENT
_WORD_MAX = 11  # the longest word for a secret that can begin at the end of a match
# First letters of the words for secrets, and of `authorization`.
_WORD_FIRST = frozenset(
    b"".join(word[:1].lower().encode() + word[:1].upper().encode() for word in assignments.WORDS)
    + b"Aa"
)
_SCHEME = re.compile(rb"://|(?i:bearer|basic|ssws) ")  # a token may follow at once
_INSIDE = re.compile(
    rb"[@0-9/+(:]|-[hU]"
)  # personal data may begin here: addresses, numbers, paths


class DecodedRegion(NamedTuple):
    """A stretch of text that must be decoded, and the text that matched."""

    start: int
    end: int
    text: bytes


class TriggerMatches(NamedTuple):
    """The result of one scan: candidates, and regions to decode and search again."""

    hits: list[Candidate]
    regions: list[DecodedRegion]


class _Tables(NamedTuple):
    words: Any
    shapes: Any
    named: Any
    rare: Any


# Syntax of its own and encoded text: rare, so one alternation reports where to decode.
_RARE = rb"|".join((structured.SPECIAL_PATTERN, decodings.BASE64_TEXT, _ENCODED))


def _choose_tables(data: bytes) -> _Tables:
    """Return all patterns, or for a few short texts only those that can match: they compile faster."""
    tables_by_need = _short_text_tables()
    is_enough = _full_tables.cache_info().currsize or len(tables_by_need) >= _SHORT_TABLES_MAX
    if is_enough or len(data) > _SHORT:
        return _full_tables()
    low = data.lower()
    words, names = assignments.find_words(low), named_values.find_names(low)
    forms = provider_tokens.find_forms(data)
    needed: frozenset[object] = frozenset((*words, *forms, *names))
    for covered, tables in tables_by_need:
        if needed <= covered:
            return tables
    tables = _compile_tables(
        assignments.assignment_pattern(words) if words else "",
        provider_tokens.token_head_patterns(forms),
        named_values.provider_name_pattern(names),
    )
    tables_by_need.append((needed, tables))
    return tables


@functools.cache
def _full_tables() -> _Tables:
    return _compile_tables(
        assignments.assignment_pattern(),
        provider_tokens.token_head_patterns(),
        named_values.provider_name_pattern(),
    )


@functools.cache
def _short_text_tables() -> list[tuple[frozenset[object], _Tables]]:
    """Return the cached patterns for short texts, each with the words, forms and names it covers."""
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
    r"""Compile `pattern` so that it matches raw JSON as it matches text with `\n` and `\t` blanked out."""
    return re2.compile(_escape_tolerant_pattern(pattern), LATIN)


def _escape_tolerant_pattern(pattern: bytes) -> bytes:
    raw = pattern.replace(rb"\b", rb"(?:\b|" + _ESCAPED + rb")")
    raw = raw.replace(_MARK, rb"(?:" + _MARK + rb"|" + _ESCAPED + rb")")
    return raw.replace(rb"[ \t]", rb"(?:[ \t]|" + _ESCAPED + rb")")


def scan_triggers(data: bytes, meter: WorkBudget, form: TextForm = TextForm.RAW) -> TriggerMatches:
    """Return the candidates in `data`, and the regions that must be decoded."""
    tables = _choose_tables(data)
    match_judge = _MatchJudge(data, meter, tables)
    persons = form is not TextForm.DECODED
    places: list[DecodedRegion] = []
    hits: list[Candidate] = []
    for pattern, judge in (
        (
            tables.words,
            lambda start, end: match_judge.judge_word_or_person(start, end, persons=persons),
        ),
        (tables.named, match_judge.judge_token_or_name),
        (tables.shapes, lambda start, end: match_judge.judge_token_or_location(start, end, places)),
    ):
        if pattern is None:
            continue
        match_judge.data = data = _blank_unjudged(data, hits)
        meter.reset(form)
        hits += _scan_pattern(data, pattern, judge)
    places += _iter_stream_events(data)
    if form is TextForm.RAW:
        places += _iter_escaped_marks(data)
    return TriggerMatches(hits, places)


def _iter_stream_events(data: bytes) -> Iterator[DecodedRegion]:
    """Yield where stream events begin: one region for events of a record that are joined."""
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
    """Yield where JSON or HTML escapes marks: one region for marks that are decoded together."""
    for mark in decodings.ESCAPE_MARKS:
        at = where(data, mark, 0)
        while at >= 0:
            yield DecodedRegion(at, at + len(mark), mark)
            at = where(data, mark, at + _ESCAPE_STEP)


def _blank_unjudged(data: bytes, hits: list[Candidate]) -> bytes:
    """Blank out the unjudged parts of `data`, so that the next passes skip them."""
    unjudged = [hit for hit in hits if hit.rule == UNJUDGED and data[hit.start] != 0]
    if not unjudged:
        return data
    blanked = bytearray(data)
    for hit in unjudged:
        blanked[hit.start : hit.end] = bytes(hit.end - hit.start)
    return bytes(blanked)


def _scan_pattern(data: bytes, pattern: Any, judge: Any) -> Iterator[Candidate]:
    at = vain = 0
    while (match := search_in_stretches(pattern, data, at, vain)) is not None:
        start, end = match.span()
        vain = start - at
        after, hit = judge(start, end)
        if end - start > 2 * _LONG:
            # A run of words: go on near its end, to not read it again from each of them.
            after = max(after, end - _LONG)
        if hit is not None:
            yield hit
        at = after


class _MatchJudge:
    """Judges the matches in one text; repeated words are judged once."""

    def __init__(self, data: bytes, meter: WorkBudget, tables: _Tables) -> None:
        self.data = data
        self._tables = tables
        self._meter = meter
        self._words: dict[tuple[int, int, bytes], tuple[bool, int, bool]] = {}

    def judge_word_or_person(
        self, start: int, end: int, *, persons: bool
    ) -> tuple[int, Candidate | None]:
        start = self._skip_escape(start, end)
        word, after, is_worth = False, 0, False
        if self.data[start] in _WORD_FIRST:
            word, after, is_worth = self._classify_word(start, end)
        if word:
            if not is_worth:
                return after, None
            judged, hit = self._judge_window(named_values.judge_beside_word, start)
            return (judged if hit else after), hit
        if not persons:
            return end, None
        if not self._meter.try_spend(start, personal_data.LOOK_COST):
            return self._give_up_record(start)
        low = self._window_start(start)
        text = self.data[start:end]
        hit = personal_data.judge_personal_value(text, start - low, self.data[low : end + 8])
        # A word for a secret may begin inside.
        inside = None
        if text.lower() != text.upper() and assignments.contains_word(text):
            inside = self._tables.words.search(self.data, start + 1, end + 64)
        after = end if inside is None else max(start + 1, min(end, inside.start()))
        return after, _shift_candidate(hit, low)

    def _classify_word(self, start: int, end: int) -> tuple[bool, int, bool]:
        """Return whether a word for a secret begins here, where to go on, and whether to judge it."""
        low = max(0, start - assignments.NAME_MAX)
        high = max(start + assignments.WORTH_MAX, end + _WORD_MAX)
        key = (start - low, end - start, self.data[low:high])
        cached = self._words.get(key)
        if cached is None:
            cached = self._classify_new_word(start, end)
            if len(self._words) < _CACHED_MAX:
                self._words[key] = cached
        return cached[0], start + cached[1], cached[2]

    def _classify_new_word(self, start: int, end: int) -> tuple[bool, int, bool]:
        word = assignments.word_end(self.data, start)
        if not word:
            return False, 0, False
        # Another private value may begin in the rest of the match.
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
        if not self._meter.try_spend(start, _REGION_COST if marked else _BASE64_COST):
            return self._give_up_record(start)
        text = self.data[start : min(end, start + 40)]
        places.append(DecodedRegion(start, end, text))
        scheme = _SCHEME.match(text)
        return max(start + 1, start + scheme.end() if scheme else end), None

    def _skip_escape(self, start: int, end: int) -> int:
        r"""Return where a match begins without the `\n` or `\t` of JSON before it."""
        if end - start > 2 and self.data[start] == 92 and self.data[start + 1] in b"nt":
            return start + 2
        return start

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
        judgement = self._meter.recall_judgment(key)
        if not self._meter.try_spend(start, _CACHED_COST):
            return self._give_up_record(start)
        if judgement is None:
            judgement = judge(decodings.blank_json_escapes(window), start - low)
            self._meter.spend(judgement.cost)
            self._meter.store_judgment(key, judgement)
        if judgement.hit is not None:
            self._meter.spend(_HIT_COST)
        return start + max(judgement.length, 1), _shift_candidate(judgement.hit, low)

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
