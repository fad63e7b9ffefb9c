"""Private values that are known: searched everywhere, in every way they may be written.

Known are the secrets of the environment and of `.env` files, the names of this machine, and
each value a detector recognized in the document. A value is found bare, quoted, as JSON, HTML,
addresses and base64 write it, in colors, and where a line end or a margin cuts it.

A text is searched for anchors: a few bytes from both ends of each way of writing. Tens of
thousands of them are one linear search, and only around an anchor is the text compared.
"""

import base64
import html
import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus

import re2

from flightlog.privacy.detect import decodings, randomness, rules
from flightlog.privacy.detect.candidates import HIGH, LATIN, PERSON, SECRET, Candidate

VALUE_CHARS_MIN = 6
_NAME_LETTERS_MIN = 6
# Shorter values are found in longer words by chance, and shorter words in any text.
_PLAIN_MIN = 8
# Memory and time are bounded: of the values recognized in a document, the last so many are remembered.
REMEMBERED_MAX = 10_000
# A longer value is a file of its own (a key of 8192 bits has 6,400 characters), found by its frame.
_VALUE_BYTES_MAX = 8_192
_RULE = "known-value"
_NAME_RULE = "name"
# Where a user, a group or a host is written: the output of `id`, `whoami` and `ls -l`, a prompt.
_POSITIONS = (
    rb"(?:[0-9]\(|\bwhoami(?:\\r|\\n|\s)+|[rwxsStT-]{9}[+.@]? +[0-9]+ +(?:[^ ]{1,40} +)?)(NAME)(?:[) \\]|\s|$)"
    rb"|(?:^|[^A-Za-z0-9._-]|\\[nt])(NAME)@[A-Za-z0-9._-]+:[~/]|[A-Za-z0-9_\x00-]@(NAME):[~/]"
)
_HARMLESS = frozenset(("true", "false", "none", "null", "localhost", "production", "development", "default"))
# Six letters or digits are rare in text that does not hold the value; half of a short value may be cut off.
_ANCHOR_MAX, _ANCHOR_MIN = 6, 4
# Lines are seldom cut shorter than 30 characters: a piece that long holds an anchor.
_ANCHOR_STEP = 24
_ANCHORS_MAX = 32
# A part of the automaton is compiled again with a new one while it is at most so many times as large.
_MERGE_BELOW = 4
# Within its bound on memory an automaton takes so many anchors; beyond, a search takes a hundred times as long.
_PART_ANCHORS_MAX = 40_000
_AUTOMATON = re2.Options()
_AUTOMATON.encoding = re2.Options.Encoding.LATIN1
_AUTOMATON.max_mem = 256 << 20
# An anchor without its value is rare; so many are looked into. A hostile text may pile them up.
_MISSED_MIN, _MISSED_EVERY = 200, 1_000
_BASE64_MIN = 8
_BASE64 = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/_-=")
_WORD = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_")
# What ends with a letter or digit and yet is no part of the word after it.
_ESCAPE_BEFORE = rules.quick_pattern(rb"(?:\\[nrtbf]|%[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\[[0-9;]{0,12}m)\Z")
_LINE_END = rb"[ \t]*\\?(?:\\{1,4}r)?(?:\\{1,4}n|\r?\n)"
_TAB = rb"(?:[ \t]|\\{1,4}t)"
_MARGIN = (
    rb"(?:" + _TAB + rb"*(?:[0-9]{1,6}(?:\t|\\{1,4}t|\xe2\x86\x92|\\{1,4}u2192|[:|] ?| {2,})|[+>|-] ?))?" + _TAB + rb"*"
)
_ESCAPES = (
    rb"(?:(?:\x1b|\\+u001[bB]|\\+x1[bB]|\\+033|\\+e)\[[0-9;:?]*[A-Za-z])+"
    rb"|\\{1,4}u00[2-7][0-9a-fA-F]|%[2-7][0-9a-fA-F]|&(?:quot|apos|amp|lt|gt|#[0-9]{2,3}|#[xX][0-9a-fA-F]{2});"
    rb"|\\{1,7}[\"'/`]"
)
# A margin is no part of a value, unless the value goes on with what looks like one: both are tried.
_REWRITTEN = (
    rules.linear_pattern(_LINE_END + _MARGIN + rb"|" + _ESCAPES),
    rules.linear_pattern(_LINE_END + _TAB + rb"*|" + _ESCAPES),
)


class _KnownValue(NamedTuple):
    """What a tag says of a value, as first recognized, and whether it counts as a whole word only."""

    kind: str
    rule: str
    whole_words: bool = False


class _Spelling(NamedTuple):
    """One way a value is written; base64 has characters around it that hold a part of the value."""

    value: bytes
    before: int = 0
    after: int = 0
    whole_words: bool = False


class _AutomatonPart(NamedTuple):
    """A part of the automaton: for each anchor, where in which length of text it lies."""

    values: tuple[bytes, ...]
    ways: dict[bytes, _Spelling]
    pattern: Any
    places: dict[bytes, set[tuple[int, int]]]
    widths: tuple[int, ...]


class KnownSecrets:
    """The known values of one document, ready to be searched; more may be added at any time."""

    def __init__(self, values: Iterable[str] = (), names: Iterable[str] = ()) -> None:
        """Keep each secret value of six characters or more, and the names of a person and a machine.

        A name counts anywhere if it has six letters and is no common word, else only in
        identity positions: `bo@` at a prompt, `uid=1000(bo)`, the owner in `ls -l`, after `whoami`.
        """
        fixed = [value.encode("utf-8", "surrogatepass") for value in values if is_usable(value)]
        self._values = {value: _KnownValue(SECRET, _RULE, requires_whole_word(value) is True) for value in fixed}
        named = {name.encode("utf-8", "surrogatepass") for name in names}
        telling = {name for name in named if _is_distinctive_name(name)}
        self._values |= {name: _KnownValue(PERSON, _NAME_RULE, whole_words=True) for name in telling}
        self._fixed = list(self._compile_parts(list(self._values)))
        others = b"|".join(map(_literal_pattern, sorted(named - telling)))
        self._positions = re2.compile(_POSITIONS.replace(b"NAME", others), LATIN) if others else None
        self._parts: list[_AutomatonPart] = []
        self._pending: list[bytes] = []
        self.growth = 0

    def __bool__(self) -> bool:
        """Say whether there is anything to look for."""
        return bool(self._values) or self._positions is not None

    def __contains__(self, value: str) -> bool:
        """Say whether `value` is one of those."""
        return value.encode("utf-8", "surrogatepass") in self._values

    def learn_value(self, value: bytes, kind: str, rule: str) -> tuple[str, str]:
        """Remember a value recognized in the document, unless it is an ordinary word; return what its tag says."""
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
        """Forget the values that were learned: another document begins."""
        self.growth += len(self._values) > sum(len(part.values) for part in self._fixed)
        self._keep_last(0)

    def is_in(self, data: bytes) -> bool:
        """Say whether a known value stands in `data`."""
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
        """Yield each place where a known value stands; places may overlap."""
        if self._pending:
            self._compile_pending()
        if self._positions is not None:
            for found in self._positions.finditer(view):
                start, end = found.span(found.lastindex)
                yield Candidate(start, end, _NAME_RULE, view[start:end], HIGH, PERSON)
        missed: list[tuple[int, int]] = []
        for part in (*self._fixed, *self._parts):
            yield from self._find_exact(view, part, missed)
        if missed:
            yield from self._find_rewritten(view, missed)

    def _compile_pending(self) -> None:
        """Compile what was added; small parts are put together, so that few are searched and few compiled often."""
        self._keep_last(REMEMBERED_MAX)
        values = self._pending
        self._pending = []
        while self._parts and len(self._parts[-1].values) <= _MERGE_BELOW * len(values):
            if len(self._parts[-1].places) > _PART_ANCHORS_MAX // 2:
                break
            values = [*self._parts.pop().values, *values]
        self._parts += self._compile_parts(values)

    def _keep_last(self, count: int) -> None:
        """Forget what was learned before the last `count` values, but for a part of the automaton that has both."""
        left = sum(len(part.values) for part in self._parts) + len(self._pending)
        while self._parts and left - len(self._parts[0].values) >= count:
            forgotten = self._parts.pop(0).values
            left -= len(forgotten)
            for value in forgotten:
                del self._values[value]
        if not self._parts and left > count:
            for value in self._pending[: left - count]:
                del self._values[value]
            self._pending = self._pending[left - count :]

    def _compile_parts(self, values: list[bytes]) -> Iterator[_AutomatonPart]:
        ways: dict[bytes, _Spelling] = {}
        places: dict[bytes, set[tuple[int, int]]] = {}
        first = 0
        for last, value in enumerate(values, 1):
            for way, meaning in _iter_spellings(value, whole_words=self._values[value].whole_words):
                ways.setdefault(way, meaning)
                for offset, width in _list_anchors(way):
                    places.setdefault(way[offset : offset + width], set()).add((offset, len(way)))
            if len(places) >= _PART_ANCHORS_MAX or last == len(values):
                # The shorter of two anchors that begin alike is found, and the longer looked up.
                ordered = sorted(sorted(places), key=len)
                pattern = re2.compile(b"|".join(map(_literal_pattern, ordered)), _AUTOMATON)
                yield _AutomatonPart(
                    tuple(values[first:last]), ways, pattern, places, tuple(sorted(set(map(len, ordered))))
                )
                ways, places, first = {}, {}, last

    def _find_exact(self, view: bytes, part: _AutomatonPart, missed: list[tuple[int, int]]) -> Iterator[Candidate]:
        """Yield where a value stands as one of its ways; note around which other anchors it may be cut or escaped."""
        at, search, places = 0, part.pattern.search, part.places
        while (found := search(view, at)) is not None:
            start = found.start()
            at = start + 1
            longest = 0
            best: Candidate | None = None
            for width in part.widths:
                for offset, size in places.get(view[start : start + width], ()):
                    low = start - offset
                    longest = max(longest, size)
                    way = part.ways.get(view[low : low + size]) if low >= 0 else None
                    if way is None or (way.whole_words and not _is_word(view, low, low + size)):
                        continue
                    if best is None or size > best.end - best.start:
                        best = self._make_candidate(view, way, low, low + size)
            if best is not None:
                yield best
                at = max(at, best.end)
            else:
                missed.append((start, longest))

    def _make_candidate(self, view: bytes, way: _Spelling, start: int, end: int) -> Candidate:
        low, high = max(0, start - way.before), min(len(view), end + way.after)
        while start > low and view[start - 1] in _BASE64:
            start -= 1
        while end < high and view[end] in _BASE64:
            end += 1
        known = self._values[way.value]
        return Candidate(start, end, known.rule, way.value, HIGH + 1, known.kind)

    def _find_rewritten(self, view: bytes, missed: list[tuple[int, int]]) -> Iterator[Candidate]:
        """Yield the values that show once escapes are decoded and line ends taken out, around anchors."""
        windows: list[tuple[int, int]] = []
        for start, size in sorted(missed)[: _MISSED_MIN + len(view) // _MISSED_EVERY]:
            # Each character may be written as six, as `\\u0021` is.
            low, high = max(0, start - 6 * size - 40), start + 6 * size + 40
            if windows and low <= windows[-1][1]:
                windows[-1] = windows[-1][0], max(high, windows[-1][1])
            else:
                windows.append((low, high))
        for low, high in windows:
            for pattern in _REWRITTEN:
                other = decodings.replace_with_meaning(view[low:high], pattern, _decode_escape)
                for part in (*self._fixed, *self._parts):
                    for hit in self._find_exact(other.data, part, []):
                        ((start, end),) = other.source_spans(hit.start, hit.end)
                        yield hit._replace(start=low + start, end=low + end)


def requires_whole_word(value: bytes, kind: str = SECRET) -> bool | None:
    """Return whether a recognized value counts as a whole word only; None if it counts only where it was recognized.

    A password may be an ordinary word. Taking each `production` out of a document because one
    line says `PASSWORD=production` would remove its meaning and hide nothing.
    """
    size = len(value)
    if not VALUE_CHARS_MIN <= size <= _VALUE_BYTES_MAX or b"\0" in value or len(set(value)) < 4:
        return None
    if value.lower() in _COMMON:
        return None
    if kind == PERSON:
        return True
    letters = value.translate(None, b"_-. ")
    # Letters alone are a word or words, unless capitals come where no word has them.
    cased = letters.islower() or letters.isupper() or letters.istitle() or randomness.english_pair_share(value) >= 0.55
    if value.isdigit() or (letters.isalpha() and cased):
        # A name such as `config.token` was taken for its value.
        return None if size < _PLAIN_MIN or randomness.is_code(value) else True
    return size < _PLAIN_MIN


def is_usable(value: str) -> bool:
    """Say whether a value is long enough to be searched for, and says something."""
    return len(value) >= VALUE_CHARS_MIN and value.lower() not in _HARMLESS and not value.isspace()


def _is_distinctive_name(name: bytes) -> bool:
    letters = sum(chr(byte).isalpha() for byte in name)
    return b"@" in name or (letters >= _NAME_LETTERS_MIN and name.lower() not in _COMMON)


def _is_word(view: bytes, start: int, end: int) -> bool:
    """Say whether no letter, digit or underscore touches `start`:`end`, but that of an escape."""
    if end < len(view) and view[end] in _WORD:
        return False
    if start == 0 or view[start - 1] not in _WORD:
        return True
    return _ESCAPE_BEFORE.search(view, max(0, start - 16), start) is not None


def _list_anchors(way: bytes) -> list[tuple[int, int]]:
    """Return places in `way` by which it is searched: where they begin, and how wide they are.

    Letters and digits are written alike everywhere. Both ends have a place, so that a value
    that is cut once is found by the other half.
    """
    width = max(_ANCHOR_MIN, min(_ANCHOR_MAX, len(way) // 2))
    last, half = len(way) - width, max(1, len(way) // 2 - width + 1)
    middle = range(_ANCHOR_STEP, min(last - _ANCHOR_STEP, _ANCHOR_STEP * _ANCHORS_MAX), _ANCHOR_STEP)
    stretches = [range(half), range(last, last - half, -1), *(range(low, low + _ANCHOR_STEP) for low in middle)]
    return [(offset, width) for offset in {_choose_anchor(way, stretch, width) for stretch in stretches}]


def _choose_anchor(way: bytes, offsets: range, width: int) -> int:
    plain = -1
    for offset in offsets:
        text = way[offset : offset + width]
        if text.isalnum():
            if _is_distinctive(text):
                return offset
            plain = offset if plain < 0 else plain
    return plain if plain >= 0 else offsets[0]


def _is_distinctive(text: bytes) -> bool:
    # A word such as `github` would be an anchor in each line, a repetition at each place of a hostile text.
    word = text.isalpha() and (text.islower() or text[1:].islower() or text.isupper())
    return not word and not text.isdigit() and len(set(text)) > 3


def _decode_escape(written: bytes) -> bytes:
    """Return the character an escape stands for; nothing for a line end or a color."""
    if written[:1] == b"%":
        return bytes((int(written[1:], 16),))
    if written[:1] == b"&":
        return html.unescape(written.decode()).encode()[:1]
    text = written.lstrip(b"\\")
    if text[:1] == b"u" and len(text) == 5:
        return bytes((int(text[1:], 16),))
    return text if len(text) == 1 and text in b"\"'/`" and written != text else b""


def _literal_pattern(way: bytes) -> bytes:
    return b"".join(
        b"\\x%02x" % byte if not (48 <= byte <= 57 or 65 <= byte <= 90 or 97 <= byte <= 122) else bytes((byte,))
        for byte in way
    )


def _iter_spellings(value: bytes, *, whole_words: bool) -> Iterator[tuple[bytes, _Spelling]]:
    """Yield how plain text, JSON, HTML, addresses and base64 write `value`."""
    plain = _Spelling(value, whole_words=whole_words)
    yield value, plain
    if not value.isalnum():
        text = value.decode("utf-8", "surrogateescape")
        once, escaped = json.dumps(text, ensure_ascii=False)[1:-1], json.dumps(text)[1:-1]
        twice = json.dumps(once, ensure_ascii=False)[1:-1]
        for way in {once, twice, escaped, json.dumps(escaped)[1:-1], html.escape(text)}:
            yield way.encode("utf-8", "surrogateescape"), plain
        for way in {quote(value, safe=""), quote(value), quote_plus(value)}:
            yield way.encode(), plain
    # Of base64 the part that does not depend on what is around, at each alignment.
    for lead in range(3):
        whole = base64.b64encode(b"\0" * lead + value)
        first = (0, 2, 3)[lead]
        rest = (0, 4, 4)[(lead + len(value)) % 3]
        core = whole[first : len(whole) - rest]
        if len(core) >= _BASE64_MIN:
            for coded in {core, core.replace(b"+", b"-").replace(b"/", b"_")}:
                yield coded, _Spelling(value, first, rest)


# Words that passwords, users and machines share with ordinary text.
_COMMON = frozenset(
    b"""
    access account active admin administrator another api-key apikey application argument basic bearer before boolean
    browser builder button cancel change changeit changeme channel client command common config configuration content
    context cookie create created current custom database debian default delete description desktop developer
    development disabled docker document domain editor element enabled encrypted environment error example expected
    expired export external false filter folder format function github gitlab global header hidden hostname hunter
    import input internal invalid jenkins kubernetes length letmein library localhost locked machine manager master
    message method missing module monitor mysecret mypassword nobody number object operator option optional options
    oracle output package parameter passwd password password1 passphrase people person placeholder player please
    plugin policy postgres prefix present private process production profile project prompt properties property
    provider public python qwerty random readonly reader record redacted redis reference regular release remote
    removed request required reserved resource response result return runner sample sandbox schema script search
    secret secrets secure select server service session setting settings simple single source staging standard start
    status storage stream string student subject submit support switch symbol system target template temporary
    testing testuser thread ticket token tokens traffic ubuntu undefined unique unknown update upload user username
    users validate value values vagrant variable version vscode warning website welcome window windows worker
    workspace writer yourpassword
    """.split()
)
