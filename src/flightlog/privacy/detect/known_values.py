"""Search for known private values in every spelling.

Known are the secrets of the environment and of `.env` files, the names of the person and the
machine, and each value that a detector recognized in the document. A value is found bare,
quoted, as JSON, HTML, URLs and base64 write it, in colors, and where a line end or a prefix of a
line cuts it.

A text is searched for anchors: a few bytes from both ends of each spelling. Tens of thousands
of anchors are one linear search; the text is compared only around an anchor.
"""

import base64
import html
import json
import string
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus

import re2

from flightlog.privacy.detect import decodings, randomness, rules
from flightlog.privacy.detect.candidates import HIGH, LATIN, PERSON, SECRET, Candidate

VALUE_CHARS_MIN = 6  # shorter values occur in ordinary text by chance
_NAME_LETTERS_MIN = 6  # shorter names are also words
# Values shorter than this occur inside longer words by chance, and ordinary words in any text.
_PLAIN_MIN = 8
# Of the values recognized in a document, only the last are remembered: bounds memory and time.
REMEMBERED_MAX = 10_000
# A longer value is a file (a key of 8192 bits has 6,400 characters) and is found by its frame.
_VALUE_BYTES_MAX = 8_192
_RULE = "known-value"
_NAME_RULE = "name"
# Positions of a user, a group or a host: the output of `id`, `whoami` and `ls -l`, a prompt.
_POSITIONS = (
    rb"(?:[0-9]\(|\bwhoami(?:\\r|\\n|\s)+|[rwxsStT-]{9}[+.@]? +[0-9]+ +(?:[^ ]{1,40} +)?)(NAME)(?:[) \\]|\s|$)"
    rb"|(?:^|[^A-Za-z0-9._-]|\\[nt])(NAME)@[A-Za-z0-9._-]+:[~/]|[A-Za-z0-9_\x00-]@(NAME):[~/]"
)
_HARMLESS = frozenset(
    ("true", "false", "none", "null", "localhost", "production", "development", "default")
)
# Six letters or digits are rare in text without the value. An anchor of a short value is at most
# half of it, so that the other half can be cut off.
_ANCHOR_MAX, _ANCHOR_MIN = 6, 4
# Lines are seldom cut shorter than 30 characters: every piece of that length has an anchor.
_ANCHOR_STEP = 24
_ANCHORS_MAX = 32  # anchors in the middle of a long value: bounds the automaton
# A part of the automaton is compiled again with new values while it is at most this much larger.
_MERGE_BELOW = 4
# Anchors that fit into the memory of one automaton; with more, a search takes a hundred times as long.
_PART_ANCHORS_MAX = 40_000
_AUTOMATON = re2.Options()
_AUTOMATON.encoding = re2.Options.Encoding.LATIN1
_AUTOMATON.max_mem = 256 << 20  # for `_PART_ANCHORS_MAX` anchors
# Anchors without their value that are decoded: at least 200, and one per 1,000 bytes. They are rare,
# but a hostile text may pile them up.
_MISSED_MIN, _MISSED_EVERY = 200, 1_000
_MISSED_REACH = 40  # prefixes of lines around an anchor
_ESCAPE_CHARS = 6  # the longest spelling of a character, `\\u0021`
_BASE64_MIN = 8  # a shorter part of base64 occurs in other text by chance
_ALPHANUMERIC = frozenset((string.ascii_letters + string.digits).encode())
_WORD = _ALPHANUMERIC | frozenset(b"_")  # a known name inside a longer word does not count
_BASE64 = _ALPHANUMERIC | frozenset(b"+/_-=")  # both alphabets and padding
# English letter pairs: a value of letters with fewer of them is no word.
_WORD_PAIRS = 0.55
# Escapes that end with a letter or digit but are no part of the word after them.
_ESCAPE_BEFORE = rules.quick_pattern(
    rb"(?:\\[nrtbf]|%[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\[[0-9;]{0,12}m)\Z"
)
_LINE_END = rb"[ \t]*\\?(?:\\{1,4}r)?(?:\\{1,4}n|\r?\n)"  # also escaped up to twice
_TAB = rb"(?:[ \t]|\\{1,4}t)"  # also escaped up to twice
# A prefix of a line: indentation, a line number, a diff sign or a quote mark.
_MARK = rb"(?:[0-9]{1,6}(?:\t|\\{1,4}t|\xe2\x86\x92|\\{1,4}u2192|[:|] ?| {2,})|[+>|-] ?)"
_MARGIN = rb"(?:" + _TAB + rb"*" + _MARK + rb")?" + _TAB + rb"*"
# Colors, and escapes of ASCII characters in JSON, URLs and HTML.
_ESCAPES = (
    rb"(?:(?:\x1b|\\+u001[bB]|\\+x1[bB]|\\+033|\\+e)\[[0-9;:?]*[A-Za-z])+"
    rb"|\\{1,4}u00[2-7][0-9a-fA-F]|%[2-7][0-9a-fA-F]"
    rb"|&(?:quot|apos|amp|lt|gt|#[0-9]{2,3}|#[xX][0-9a-fA-F]{2});|\\{1,7}[\"'/`]"
)
# A value may go on with what looks like a prefix of a line, so both readings are tried.
_REWRITTEN = (
    rules.linear_pattern(_LINE_END + _MARGIN + rb"|" + _ESCAPES),
    rules.linear_pattern(_LINE_END + _TAB + rb"*|" + _ESCAPES),
)


class _KnownValue(NamedTuple):
    """The kind and rule in the tag of a value, and whether it counts only as a whole word."""

    kind: str
    rule: str
    whole_words: bool = False


class _Spelling(NamedTuple):
    """A spelling of a value; in base64, characters around it may encode a part of the value."""

    value: bytes
    before: int = 0
    after: int = 0
    whole_words: bool = False


class _AutomatonPart(NamedTuple):
    """A part of the automaton; `locations` has for each anchor its offsets in spellings of a length."""

    values: tuple[bytes, ...]
    spellings: dict[bytes, _Spelling]
    pattern: Any
    locations: dict[bytes, set[tuple[int, int]]]
    widths: tuple[int, ...]


class KnownSecrets:
    """The known values of one document; more may be added at any time."""

    def __init__(self, values: Iterable[str] = (), names: Iterable[str] = ()) -> None:
        """Start with secret `values` of six characters or more, and the `names` of a person and a machine.

        A name counts anywhere if it has six letters and is no common word. Otherwise it counts
        only at a prompt (`bo@`), in `uid=1000(bo)`, as the owner in `ls -l`, and after `whoami`.
        """
        fixed = [value.encode("utf-8", "surrogatepass") for value in values if is_usable(value)]
        self._values = {
            value: _KnownValue(SECRET, _RULE, requires_whole_word(value) is True) for value in fixed
        }
        all_names = {name.encode("utf-8", "surrogatepass") for name in names}
        distinctive = {name for name in all_names if _is_distinctive_name(name)}
        self._values |= {
            name: _KnownValue(PERSON, _NAME_RULE, whole_words=True) for name in distinctive
        }
        self._fixed = list(self._compile_parts(list(self._values)))
        others = b"|".join(map(_literal_pattern, sorted(all_names - distinctive)))
        pattern = _POSITIONS.replace(b"NAME", others)
        self._positions = re2.compile(pattern, LATIN) if others else None
        self._parts: list[_AutomatonPart] = []
        self._pending: list[bytes] = []
        self.growth = 0

    def __bool__(self) -> bool:
        """Return whether there is a value to search for."""
        return bool(self._values) or self._positions is not None

    def __contains__(self, value: str) -> bool:
        """Return whether `value` is known."""
        return value.encode("utf-8", "surrogatepass") in self._values

    def learn_value(self, value: bytes, kind: str, rule: str) -> tuple[str, str]:
        """Add a recognized value, unless it is an ordinary word; return the kind and rule for its tag."""
        known = self._values.get(value)
        if known is not None:
            return known.kind, known.rule
        whole_words = requires_whole_word(value, kind)
        if whole_words is not None:
            self._values[value] = _KnownValue(kind, rule, whole_words)
            self._pending.append(value)
            self.growth += 1
        return kind, rule

    def forget_learned(self) -> None:
        """Remove the learned values, before another document."""
        self.growth += len(self._values) > sum(len(part.values) for part in self._fixed)
        self._forget_all_but(0)

    def is_in(self, data: bytes) -> bool:
        """Return whether a known value occurs in `data`."""
        return next(self.find_values(data), None) is not None

    def hide_values(self, data: bytes, mark: bytes) -> bytes:
        """Return `data` with `mark` in place of each known value."""
        parts, at = [], 0
        for hit in sorted(self.find_values(data), key=lambda hit: (hit.start, -hit.end)):
            if hit.start >= at:
                parts += [data[at : hit.start], mark]
            at = max(at, hit.end)
        return b"".join([*parts, data[at:]])

    def find_values(self, view: bytes) -> Iterator[Candidate]:
        """Yield every occurrence of a known value; occurrences may overlap."""
        if self._pending:
            self._compile_pending()
        if self._positions is not None:
            for match in self._positions.finditer(view):
                start, end = match.span(match.lastindex)
                yield Candidate(start, end, _NAME_RULE, view[start:end], HIGH, PERSON)
        missed: list[tuple[int, int]] = []
        for part in (*self._fixed, *self._parts):
            yield from self._find_exact(view, part, missed)
        if missed:
            yield from self._find_rewritten(view, missed)

    def _compile_pending(self) -> None:
        """Compile the added values together with small parts, so that there are few parts to search."""
        self._forget_all_but(REMEMBERED_MAX)
        values = self._pending
        self._pending = []
        while self._parts and len(self._parts[-1].values) <= _MERGE_BELOW * len(values):
            if len(self._parts[-1].locations) > _PART_ANCHORS_MAX // 2:
                break
            values = [*self._parts.pop().values, *values]
        self._parts += self._compile_parts(values)

    def _forget_all_but(self, count: int) -> None:
        """Remove the values learned before the last `count`, except those in a part with later ones."""
        left = sum(len(part.values) for part in self._parts) + len(self._pending)
        while self._parts and left - len(self._parts[0].values) >= count:
            oldest = self._parts.pop(0).values
            left -= len(oldest)
            for value in oldest:
                del self._values[value]
        if not self._parts and left > count:
            for value in self._pending[: left - count]:
                del self._values[value]
            self._pending = self._pending[left - count :]

    def _compile_parts(self, values: list[bytes]) -> Iterator[_AutomatonPart]:
        spellings: dict[bytes, _Spelling] = {}
        places: dict[bytes, set[tuple[int, int]]] = {}
        first = 0
        for last, value in enumerate(values, 1):
            whole_words = self._values[value].whole_words
            for text, spelling in _iter_spellings(value, whole_words=whole_words):
                spellings.setdefault(text, spelling)
                for offset, width in _list_anchors(text):
                    places.setdefault(text[offset : offset + width], set()).add((offset, len(text)))
            if len(places) >= _PART_ANCHORS_MAX or last == len(values):
                # Of two anchors that begin alike, the shorter matches; the longer is looked up.
                ordered = sorted(sorted(places), key=len)
                pattern = re2.compile(b"|".join(map(_literal_pattern, ordered)), _AUTOMATON)
                widths = tuple(sorted(set(map(len, ordered))))
                yield _AutomatonPart(tuple(values[first:last]), spellings, pattern, places, widths)
                spellings, places, first = {}, {}, last

    def _find_exact(
        self, view: bytes, part: _AutomatonPart, missed: list[tuple[int, int]]
    ) -> Iterator[Candidate]:
        """Yield the occurrences of spellings; add the other anchors to `missed`."""
        at, search, places = 0, part.pattern.search, part.locations
        while (match := search(view, at)) is not None:
            start = match.start()
            at = start + 1
            longest = 0
            best: Candidate | None = None
            for width in part.widths:
                for offset, size in places.get(view[start : start + width], ()):
                    low = start - offset
                    longest = max(longest, size)
                    spelling = part.spellings.get(view[low : low + size]) if low >= 0 else None
                    if spelling is None:
                        continue
                    if spelling.whole_words and not _is_word(view, low, low + size):
                        continue
                    if best is None or size > best.end - best.start:
                        best = self._make_candidate(view, spelling, low, low + size)
            if best is not None:
                yield best
                at = max(at, best.end)
            else:
                missed.append((start, longest))

    def _make_candidate(self, view: bytes, spelling: _Spelling, start: int, end: int) -> Candidate:
        low, high = max(0, start - spelling.before), min(len(view), end + spelling.after)
        while start > low and view[start - 1] in _BASE64:
            start -= 1
        while end < high and view[end] in _BASE64:
            end += 1
        known = self._values[spelling.value]
        return Candidate(start, end, known.rule, spelling.value, HIGH + 1, known.kind)

    def _find_rewritten(self, view: bytes, missed: list[tuple[int, int]]) -> Iterator[Candidate]:
        """Yield the values around `missed` anchors after decoding escapes and removing line ends."""
        windows: list[tuple[int, int]] = []
        for start, size in sorted(missed)[: _MISSED_MIN + len(view) // _MISSED_EVERY]:
            reach = _ESCAPE_CHARS * size + _MISSED_REACH
            low, high = max(0, start - reach), start + reach
            if windows and low <= windows[-1][1]:
                windows[-1] = windows[-1][0], max(high, windows[-1][1])
            else:
                windows.append((low, high))
        for low, high in windows:
            for pattern in _REWRITTEN:
                decode = decodings.decode_escape
                other = decodings.replace_with_meaning(view[low:high], pattern, decode)
                for part in (*self._fixed, *self._parts):
                    for hit in self._find_exact(other.data, part, []):
                        ((start, end),) = other.source_spans(hit.start, hit.end)
                        yield hit._replace(start=low + start, end=low + end)


def requires_whole_word(value: bytes, kind: str = SECRET) -> bool | None:
    """Return whether a recognized value counts only as a whole word; None if it counts nowhere else.

    A password may be an ordinary word. Removing each `production` from a document because one
    line is `PASSWORD=production` would remove its meaning and hide nothing.
    """
    size = len(value)
    if not VALUE_CHARS_MIN <= size <= _VALUE_BYTES_MAX or b"\0" in value or len(set(value)) < 4:
        return None
    if value.lower() in randomness.COMMON_WORDS:
        return None
    if kind == PERSON:
        return True
    letters = value.translate(None, b"_-. ")
    # Letters alone are words, unless they have capitals where no word has them.
    cased = letters.islower() or letters.isupper() or letters.istitle()
    wordlike = cased or randomness.english_pair_share(value) >= _WORD_PAIRS
    if value.isdigit() or (letters.isalpha() and wordlike):
        # Code such as `config.token` was recognized as a value.
        return None if size < _PLAIN_MIN or randomness.is_code(value) else True
    return size < _PLAIN_MIN


def is_usable(value: str) -> bool:
    """Return whether a value is long enough to be searched for, and not an ordinary setting."""
    return len(value) >= VALUE_CHARS_MIN and value.lower() not in _HARMLESS and not value.isspace()


def _is_distinctive_name(name: bytes) -> bool:
    letters = sum(chr(byte).isalpha() for byte in name)
    is_rare = letters >= _NAME_LETTERS_MIN and name.lower() not in randomness.COMMON_WORDS
    return b"@" in name or is_rare


def _is_word(view: bytes, start: int, end: int) -> bool:
    """Return whether `start`:`end` is a whole word; an escape may come directly before it."""
    if end < len(view) and view[end] in _WORD:
        return False
    if start == 0 or view[start - 1] not in _WORD:
        return True
    return _ESCAPE_BEFORE.search(view, max(0, start - 16), start) is not None


def _list_anchors(spelling: bytes) -> list[tuple[int, int]]:
    """Return the offsets and widths of the anchors of a spelling.

    Anchors are letters and digits, which no format escapes. Both ends have one, so that a value
    that is cut once is found by the other half.
    """
    width = max(_ANCHOR_MIN, min(_ANCHOR_MAX, len(spelling) // 2))
    last, half = len(spelling) - width, max(1, len(spelling) // 2 - width + 1)
    top = min(last - _ANCHOR_STEP, _ANCHOR_STEP * _ANCHORS_MAX)
    middle = range(_ANCHOR_STEP, top, _ANCHOR_STEP)
    inner = (range(low, low + _ANCHOR_STEP) for low in middle)
    stretches = [range(half), range(last, last - half, -1), *inner]
    offsets = {_choose_anchor(spelling, stretch, width) for stretch in stretches}
    return [(offset, width) for offset in offsets]


def _choose_anchor(spelling: bytes, offsets: range, width: int) -> int:
    plain = -1
    for offset in offsets:
        text = spelling[offset : offset + width]
        if text.isalnum():
            if _is_distinctive(text):
                return offset
            plain = offset if plain < 0 else plain
    return plain if plain >= 0 else offsets[0]


def _is_distinctive(text: bytes) -> bool:
    # A word such as `github` is an anchor in many lines, a repetition at each byte of a hostile text.
    word = text.isalpha() and (text.islower() or text[1:].islower() or text.isupper())
    return not word and not text.isdigit() and len(set(text)) > 3


def _literal_pattern(text: bytes) -> bytes:
    return b"".join(bytes((byte,)) if byte in _ALPHANUMERIC else b"\\x%02x" % byte for byte in text)


def _iter_spellings(value: bytes, *, whole_words: bool) -> Iterator[tuple[bytes, _Spelling]]:
    """Yield the spellings of `value` in plain text, JSON, HTML, URLs and base64."""
    plain = _Spelling(value, whole_words=whole_words)
    yield value, plain
    if not value.isalnum():
        text = value.decode("utf-8", "surrogateescape")
        once, escaped = json.dumps(text, ensure_ascii=False)[1:-1], json.dumps(text)[1:-1]
        twice = json.dumps(once, ensure_ascii=False)[1:-1]
        for spelling in {once, twice, escaped, json.dumps(escaped)[1:-1], html.escape(text)}:
            yield spelling.encode("utf-8", "surrogateescape"), plain
        for spelling in {quote(value, safe=""), quote(value), quote_plus(value)}:
            yield spelling.encode(), plain
    # The part of base64 that does not depend on the text around, at each alignment.
    for lead in range(3):
        whole = base64.b64encode(b"\0" * lead + value)
        first = (0, 2, 3)[lead]
        rest = (0, 4, 4)[(lead + len(value)) % 3]
        core = whole[first : len(whole) - rest]
        if len(core) >= _BASE64_MIN:
            for encoded in {core, core.replace(b"+", b"-").replace(b"/", b"_")}:
                yield encoded, _Spelling(value, first, rest)
