"""Find where a value begins and ends: quotes, line ends that cut it, blocks of many lines.

A terminal, a mail or a pager wraps long lines. The prefix that a tool puts before a line (diff
marks, line numbers, quote marks, indentation) is removed with the line end. Each function joins
a bounded stretch from one offset on.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from flightlog.privacy.detect import randomness, rules
from flightlog.privacy.detect.candidates import HIGH, MEDIUM, Candidate

_LINE_MAX = 2_000  # bounds the search for the beginning of the line
_RAGGED = 8  # wrapped lines differ in length by at most this: some tools wrap between words
_BLANK = b" \t"  # indentation
# Prefixes of lines, matched over a few bytes: a line number (`cat -n`, an arrow, `grep -n`), a diff
# sign, a quote mark of a mail or a table.
_NUMBER = rules.quick_pattern(rb"[ \t]*[0-9]{1,6}(?:\t|(?:\xe2\x86\x92)+|[:|] ?| {2,})")
_SIGN = rules.quick_pattern(rb"[ \t]*[+-] ?")  # diff
_QUOTE = rules.quick_pattern(rb"[ \t]*[>|] ?")  # mail, tables
_PREFIXES = {b"+": _SIGN, b"-": _SIGN, b">": _QUOTE, b"|": _QUOTE}
_PREFIX_MAX = 12  # six digits, blanks before them and an arrow of three bytes
_ENDS = (b"\n", b"\r", b"\\")

# A line end, also as raw JSON writes it: part of a pattern.
LINE_END = r"\\{0,2}(?:\\r)?(?:\\n|\r?\n)"

# A value without quotes ends at a blank, a quote or a closing mark.
BARE = rules.quick_pattern(rb"[^\s\"'`<>,;\x00\\)\]}]+")
# The next name in the query of an address, which ends the value before it.
NEXT_FIELD = rules.quick_pattern(rb"&(?:amp;)?[\w.\[\]-]{1,40}=")
# The next line begins with a run of a value, not with a name and its own value.
_NEXT_LINE = rules.linear_pattern(
    rb"\\?[ \t]*\r?\n[ \t]*(?:[0-9]{1,6}\t[ \t]*)?[+>|-]?[ \t]*[A-Za-z0-9_+/.~-]+"
    rb"(?:=*$|=*[^A-Za-z0-9_+/.~:=-])"
)
_VALUE_ENDS = (b"", b"\n", b"\r", b'"', b"'", b"`", b";", b",", b"<", b"\\", b"\0", b"&", b"}")
# The lengths of MD5, SHA-1, SHA-256, SHA-384 and SHA-512: such a line is complete.
_HEX_WHOLE = rules.quick_pattern(rb"(?:[0-9a-fA-F]{32}){1,4}|[0-9a-fA-F]{40}")
_HEX_LINE = rules.quick_pattern(rb"\s+[0-9a-fA-F]{16}")  # a list of hashes goes on
# Small and capital letters, or digits on both sides of a letter: no word is so mixed.
_MIXED = rules.quick_pattern(rb"[a-z].*[A-Z]|[A-Z].*[a-z]|[0-9].*[a-zA-Z].*[0-9]")
# A line of one word without marks of syntax, up to the length of a password.
_LONE = rules.quick_pattern(
    rb"\\?[ \t]*\r?\n[ \t]*([^\s=:;,\"'<>()\[\]{}\\]{2,40})(?=[ \t\r\n\"'<;\\\x00]|\Z)"
)
_NETRC = frozenset(
    b"default machine login account macdef".split()
)  # they begin an entry of a .netrc
# Bytes joined for one value: more than the keys that are not found by their frame.
WRAPPED_MAX = 300
_MARKED = rules.quick_pattern(rb"[0-9#!@%^*]")  # what passwords have and words do not
_DENSE_HEX = rules.quick_pattern(rb"[0-9a-fA-F]{16,}")  # half of an MD5: shorter runs are ids
_LONE_MAX = 80  # a line of a terminal
# Bits per character of the rest of a value: lower than for whole keys, since it is shorter.
_REST_ENTROPY = 2.5
# English letter pairs of the rest of a value: the limit for values with digits (`randomness`).
_REST_PAIRS = 0.62
_QUOTED_MAX = 200  # how far the closing quote of a value that begins with a backtick is searched
_VALUE_MARKS = b"$!@#%^&*+/.~-_?<{[("  # marks that a password may begin with
_SECOND_AT = rules.linear_pattern(rb"[^\s/:@\"'<>\x00]{1,40}@")  # of a password with an `@`
VALUE_MAX = 560  # no key in one line is longer; longer ones are found by their frame (PEM)
_GAP_MAX = 40  # marks between a name and its value: an indented next line fits
_FILLERS_MAX = 5  # words of the language among those marks: types, `const`, `Bearer`
# Words of languages, formats and headers that may come between a name and its value.
FILLERS = (
    "b|r|u|f|value|val|default|string|str|char|text|basic|bearer|token|apikey|const|final|type|content"
    "|plaintext|asplaintext|ssws|digest|bot|header|hex|varchar|byte|var|let|new|env|static|readonly"
    "|optional|raw|identified|is|fmt|sprintf|s|base64"
)
_MARKS = rules.quick_pattern(rb"[^A-Za-z0-9\x00]+")  # anything between words of one record
_CAT_NUMBER = rules.quick_pattern(
    rb"[0-9]{1,6}(?:\t|(?:\xe2\x86\x92)+)[ \t]*"
)  # a line number of `cat -n`
_FILLER = rules.linear_pattern(f"(?i)(?:{FILLERS})\\b".encode())  # one of those words
_PEM_MAX = 20_000  # a PEM block of 8192 bits has 6,400 characters, and may be indented or encrypted
_MANIFEST_MAX = 2_000  # bytes of a Kubernetes manifest before and after its `kind`
_PEM_MIN = 90  # the frame of a PEM block alone is shorter
_FRAME_MAX = 80  # a line of the frame
# One entry of a Kubernetes secret.
_ENTRY = rules.linear_pattern(
    rb"(?:\n|\\n|[{,])[ \t]*[\"']?[\w.-]+[\"']?:[ ]*[\"']?([A-Za-z0-9+/]{8,}={0,3})[\"']?[ \t\r]*(?:$|[\n\\,}#])"
)
PEM_END = b"-----END "
# The body of a PEM block, with headers, line ends of JSON and prefixes of lines.
_BODY = rules.linear_pattern(rb"[A-Za-z0-9+/=\s\\nr:,\-|>\".0-9]*")
# A file encrypted by Ansible: a header and lines of hex.
_VAULT = rules.linear_pattern(
    rb"\$ANSIBLE_VAULT;[0-9.]+;AES256[^\n\x00]{0,40}(?:\s*[0-9a-f]{16,80})+"
)

# Returns the offset in the text of an offset in the joined lines.
Back = Callable[[int], int]


class AssignedValue(NamedTuple):
    """A value after a name, with the mark that assigns it."""

    start: int
    end: int
    text: bytes
    quoted: bool
    operator: bytes
    certain: bool = False  # the syntax says that it is a password, whatever it looks like


def unwrap_lines(view: bytes, start: int, width: int) -> tuple[bytes, Back]:
    """Return the `width` bytes from `start` without line ends, and a function from its offsets to `view`'s."""
    stop = view.find(b"\0", start, start + width)
    lines = view[start : stop if stop >= 0 else start + width].split(b"\n")
    parts, ends, cuts, at = [], [0], [0], 0
    for part, removed in _iter_unwrapped_lines(view, start, lines):
        parts.append(part)
        at += len(part)
        ends.append(at)
        cuts.append(cuts[-1] + removed)

    def back(end: int) -> int:
        # An end exactly at a cut belongs to the line before it.
        return start + end + cuts[bisect_right(ends, end - 1) - 1]

    return b"".join(parts), back


def ends_line(view: bytes, end: int) -> bool:
    """Return whether a line ends at `end`, blanks aside."""
    return view[end : end + 6].lstrip(b" \t")[:1] in _ENDS


def unwrap_around(view: bytes, at: int, before: int, width: int) -> tuple[bytes, Back, int]:
    """Unwrap a stretch that begins up to `before` bytes before `at`; return also where `at` is in it."""
    low = max(0, at - before)
    low = max(low, view.rfind(b"\0", low, at) + 1)
    text, back = unwrap_lines(view, low, at - low + width)
    first, last = 0, len(text)
    while first < last:  # bisect for the first offset in the text that comes from `at` or after it
        middle = (first + last) // 2
        if back(middle + 1) - 1 < at:
            first = middle + 1
        else:
            last = middle
    return text, back, first


def _iter_unwrapped_lines(
    view: bytes, start: int, lines: list[bytes]
) -> Iterator[tuple[bytes, int]]:
    """Yield the rest of each line, and how many bytes are removed between it and the next."""
    if len(lines) == 1:
        yield lines[0], 0
        return
    begin = view.rfind(b"\n", max(0, start - _LINE_MAX), start) + 1
    # The first line's prefix is probably that of the next lines, too.
    prefix = _PREFIXES.get(view[begin : begin + 1])
    if _NUMBER.match(view, begin, begin + _PREFIX_MAX):
        prefix = _NUMBER
    width = skip = 0
    for index, line in enumerate(lines[:-1]):
        whole = line.rstrip(b" \t\r").removesuffix(b"\\")[skip:]
        if index and len(whole) < width - _RAGGED:
            # A line shorter than the first was not cut: the next line is something else.
            yield b"\n".join([line[skip:], *lines[index + 1 :]]), 0
            return
        width = width or len(whole) + start - begin
        after = _prefix_length(lines[index + 1], prefix)
        yield whole, len(line) - skip - len(whole) + 1 + after
        skip = after
    yield lines[-1][skip:], 0


def _prefix_length(line: bytes, prefix: Any) -> int:
    match = prefix.match(line, 0, _PREFIX_MAX + _RAGGED) if prefix else None
    return len(line) - len(line[match.end() if match else 0 :].lstrip(_BLANK))


def unwrap_value(view: bytes, start: int, end: int) -> tuple[int, bytes]:
    """Return the end and the text of the bare value at `start`:`end`, with the lines that continue it."""
    plain = view[start:end]
    if not ends_line(view, end) or len(plain) < 2 or _NEXT_LINE.match(view, end, end + 160) is None:
        return end, plain
    if randomness.is_code(plain) or randomness.is_reference(plain):
        return end, plain
    text, back = unwrap_lines(view, start, WRAPPED_MAX)
    longer = BARE.match(text).group()
    query = NEXT_FIELD.search(longer)
    longer = longer[: query.start()] if query and query.start() > len(plain) else longer
    stop, extra = back(len(longer)), longer[len(plain) :]
    # The next line continues the value only if there is nothing else on it. A line end that JSON
    # escaped was blanked out, so a blank may come first.
    after = view[stop : stop + 1]
    after = b"\n" if after == b" " and ends_line(view, stop) else after
    ends = (
        after in _VALUE_ENDS
        or view[stop : stop + 3] == b" --"
        or randomness.is_random(extra, floor=_REST_ENTROPY)
        or _is_rest(plain, extra)
    )
    if not extra or not ends or randomness.is_code(extra):
        return end, plain
    if _DENSE_HEX.fullmatch(longer) and (
        not _HEX_WHOLE.fullmatch(plain) or _is_half(view, stop, plain, extra)
    ):
        return stop, longer
    more = (
        len(extra) < 4
        or randomness.count_digits(extra) * 8 >= len(extra)
        or randomness.english_pair_share(extra) < _REST_PAIRS
    )
    return (stop, longer) if more and randomness.is_random(longer) else (end, plain)


def _is_rest(plain: bytes, extra: bytes) -> bool:
    """Return whether `extra`, with more text on its line, is mixed enough to be the rest of a key."""
    if len(plain) < 16 or len(extra) < 4 or not randomness.count_digits(extra):
        return False
    return _MIXED.search(extra) is not None


def _is_half(view: bytes, stop: int, plain: bytes, extra: bytes) -> bool:
    """Return whether two lines of equal length are one hex number: a list of hashes would go on."""
    return len(plain) == len(extra) and _HEX_LINE.match(view, stop, stop + len(plain) + 8) is None


def extend_with_lone_line(view: bytes, end: int, text: bytes) -> tuple[int, bytes]:
    """Return the end and the text of a typed value, with the next line if that is a single word."""
    lone = _LONE.match(view, end, end + _LONE_MAX) if len(text) >= 2 else None
    if lone is None or lone[1].lower() in _NETRC:
        return end, text
    if view[lone.end() : lone.end() + 1] in (b" ", b"\t") and not _MARKED.search(lone[1]):
        return end, text
    return lone.end(1), text + lone[1]


def extend_to_last_word(view: bytes, secret: Candidate) -> Candidate:
    """Return the password with the next line, if that is a single word and the last of the text."""
    end, value = extend_with_lone_line(view, secret.end, secret.value)
    last = view[end : end + 8].strip()[:1] in (b"", b"\0", b'"')
    if last and b"\n" not in view[secret.start : secret.end]:
        return secret._replace(end=end, value=value)
    return secret


def extend_to_host(view: bytes, match: Any) -> bytes:
    """Return the URL up to its host: a password may contain an `@`."""
    more = _SECOND_AT.match(view, match.end(), match.end() + 80)
    return bytes(view[match.start() : more.end()]) if more else bytes(match.group())


def find_quoted_value(view: bytes, low: int, gap: bytes, at: int) -> tuple[int, bytes] | None:
    """Return where in `gap` a quoted value begins, and its quote, or None.

    `gap` are the marks between a name and its value, at offset `low` of `view`; the search
    begins at `at` in it.
    """
    for index in range(at, len(gap)):
        mark = gap[index : index + 1]
        if mark in b"\"'`" and not gap[index + 1 :].strip(_VALUE_MARKS):
            if mark == b"`" and _begins_with_backtick(view, low + index, gap[index - 1 : index]):
                return index, gap[index - 1 : index]
            return index + 1, mark
    return None


def is_quoted(text: bytes, start: int, end: int) -> bool:
    """Return whether the value at `start`:`end` is between two equal quotes."""
    before, after = text[start - 1 : start], text[end : end + 4].lstrip(b"\\")[:1]
    return before == after and before in (b'"', b"'", b"`")


def value_in_quotes(view: bytes, start: int, quote: bytes, marks: bytes) -> AssignedValue | None:
    """Return the value that begins at `start` after `quote`, also if its end is cut off or wrapped."""
    close = view.find(quote, start, start + VALUE_MAX)
    line = view.find(b"\n", start, start + VALUE_MAX)
    if close < 0 and line < 0:
        bare = BARE.match(view, start, start + VALUE_MAX)
        if bare:
            return AssignedValue(start, bare.end(), bare.group(), quoted=False, operator=marks)
        return None
    if line >= 0 and (close < 0 or line < close):
        lines, back = unwrap_lines(view, start, WRAPPED_MAX)
        text = lines.partition(quote)[0].rstrip(b"\\") if quote in lines else b""
        if text.strip():
            return AssignedValue(start, back(len(text)), text, quoted=True, operator=marks)
        return None
    text = view[start:close].rstrip(b"\\")
    return AssignedValue(start, start + len(text), text, quoted=True, operator=marks)


def gap_end(view: bytes, at: int) -> int:
    """Return where the marks after a name end, with `FILLERS` among them."""
    for _ in range(_FILLERS_MAX):
        marks = _MARKS.match(view, at, at + _GAP_MAX)
        if marks is None:
            break
        at = marks.end()
        number = _CAT_NUMBER.match(view, at, at + 10) if b"\n" in marks.group() else None
        if number is not None:
            at = number.end()
            continue
        filler = _FILLER.match(view, at, at + 16)
        if filler is None or _MARKS.match(view, filler.end(), filler.end() + 1) is None:
            break
        at = filler.end()
    return at


def _begins_with_backtick(view: bytes, tick: int, outer: bytes) -> bool:
    """Return whether the backtick at `tick` belongs to a value in `outer` quotes; two quote a command."""
    if outer not in (b'"', b"'"):
        return False
    close = view.find(outer, tick, tick + _QUOTED_MAX)
    return close >= 0 and b"`" not in view[tick + 1 : close] and b"\n" not in view[tick:close]


def judge_ansible_vault(view: bytes, start: int) -> Candidate | None:
    """Return a file encrypted by Ansible: its key may be as weak as a password."""
    body = _VAULT.match(view, start, start + _PEM_MAX)
    if body:
        return Candidate(start, body.end(), "ansible-vault", b"".join(body.group().split()), MEDIUM)
    return None


def judge_pem_block(view: bytes, start: int, end: int) -> Candidate | None:
    """Return the private key that begins at `start`; `end` is where its last line begins."""
    stop = view.find(b"\0", start, min(end, start + _PEM_MAX))
    limit = stop if stop >= 0 else min(len(view), max(end, start) + _FRAME_MAX, start + _PEM_MAX)
    if end + len(PEM_END) <= limit:
        close = view.find(b"-----", end + len(PEM_END), min(limit, end + _FRAME_MAX))
        end = close + 5 if close >= 0 else end
    else:
        # The end was cut off: the base64 after the first line is still the key.
        head = view.find(b"-----", start + 10, min(limit, start + _FRAME_MAX))
        begin = head + 5 if head >= 0 else start + 10
        end = _BODY.match(view, begin, limit).end()
    if end - start < _PEM_MIN:
        return None
    return Candidate(start, end, "private-key", b"".join(view[start:end].split()), HIGH)


def find_kubernetes_values(view: bytes, at: int) -> Iterator[Candidate]:
    """Yield the values of a Kubernetes secret: base64 of any text."""
    first = max(0, at - _MANIFEST_MAX)
    low = max(view.rfind(b"\n---", first, at), view.rfind(b"\0", first, at), 0)
    stops = (view.find(mark, at, at + _MANIFEST_MAX) for mark in (b"\n---", b"\0"))
    high = min([stop for stop in stops if stop >= 0], default=at + _MANIFEST_MAX)
    for entry in _ENTRY.finditer(view, low, high):
        start, end = entry.span(1)
        value = view[start:end]
        if not value.isalpha() or len(value) >= 16:
            yield Candidate(start, end, "kubernetes-secret", value, MEDIUM)
