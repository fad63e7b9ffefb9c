"""Lines joined again where a terminal, a mail or a pager cut a long value.

What a tool puts before a line (diff marks, line numbers, quote marks, indentation) is taken
out with the line end. Local: joins a bounded stretch from one position on.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any

from flightlog.privacy.detect import randomness, rules

_LINE_MAX = 2_000
_RAGGED = 8
_BLANK = b" \t"
# Tried at the beginning of a line alone, over a few bytes.
_NUMBER = rules.quick_pattern(rb"[ \t]*[0-9]{1,6}(?:\t|(?:\xe2\x86\x92)+|[:|] ?| {2,})")
_SIGN = rules.quick_pattern(rb"[ \t]*[+-] ?")
_QUOTE = rules.quick_pattern(rb"[ \t]*[>|] ?")
_LEADS = {b"+": _SIGN, b"-": _SIGN, b">": _QUOTE, b"|": _QUOTE}
_LEAD_MAX = 12
_ENDS = (b"\n", b"\r", b"\\")

# A line end, also as raw JSON writes it: part of a pattern.
LINE_END = r"\\{0,2}(?:\\r)?(?:\\n|\r?\n)"

# A bare value, and in the query of an address the next name, which ends it.
BARE = rules.quick_pattern(rb"[^\s\"'`<>,;\x00\\)\]}]+")
NEXT_FIELD = rules.quick_pattern(rb"&(?:amp;)?[\w.\[\]-]{1,40}=")
# The next line begins with a run of a value, not with a name and its own value.
_NEXT_LINE = rules.linear_pattern(
    rb"\\?[ \t]*\r?\n[ \t]*(?:[0-9]{1,6}\t[ \t]*)?[+>|-]?[ \t]*[A-Za-z0-9_+/.~-]+(?:=*$|=*[^A-Za-z0-9_+/.~:=-])"
)
_LINE_ENDS = (b"", b"\n", b"\r", b'"', b"'", b"`", b";", b",", b"<", b"\\", b"\0", b"&", b"}")
_HEX_WHOLE = rules.quick_pattern(rb"(?:[0-9a-fA-F]{32}){1,4}|[0-9a-fA-F]{40}")
_HEX_LINE = rules.quick_pattern(rb"\s+[0-9a-fA-F]{16}")
_MIXED = rules.quick_pattern(rb"[a-z].*[A-Z]|[A-Z].*[a-z]|[0-9].*[a-zA-Z].*[0-9]")
_LONE = rules.quick_pattern(rb"\\?[ \t]*\r?\n[ \t]*([^\s=:;,\"'<>()\[\]{}\\]{2,40})(?=[ \t\r\n\"'<;\\\x00]|\Z)")
_NETRC = frozenset(b"default machine login account macdef".split())
WRAPPED_MAX = 300
_MARKED = rules.quick_pattern(rb"[0-9#!@%^*]")
_DENSE_HEX = rules.quick_pattern(rb"[0-9a-fA-F]{16,}")
_LONE_MAX = 80  # a line of a terminal

Back = Callable[[int], int]


def unwrap_lines(view: bytes, start: int, width: int) -> tuple[bytes, Back]:
    """Return the `width` bytes from `start` with line ends taken out, and the way back to offsets of `view`."""
    stop = view.find(b"\0", start, start + width)
    lines = view[start : stop if stop >= 0 else start + width].split(b"\n")
    parts, ends, cuts, at = [], [0], [0], 0
    for part, gone in _iter_unwrapped_lines(view, start, lines):
        parts.append(part)
        at += len(part)
        ends.append(at)
        cuts.append(cuts[-1] + gone)

    def back(end: int) -> int:
        # An end exactly at a cut belongs to the line before it.
        return start + end + cuts[bisect_right(ends, end - 1) - 1]

    return b"".join(parts), back


def ends_line(view: bytes, end: int) -> bool:
    """Say whether what ends at `end` ends with its line."""
    return view[end : end + 6].lstrip(b" \t")[:1] in _ENDS


def unwrap_around(view: bytes, at: int, before: int, width: int) -> tuple[bytes, Back, int]:
    """Return the same for a stretch that begins up to `before` bytes earlier, and where in it `at` is."""
    low = max(0, at - before)
    low = max(low, view.rfind(b"\0", low, at) + 1)
    text, back = unwrap_lines(view, low, at - low + width)
    first = 0
    last = len(text)
    while first < last:  # the first place in the text that comes from `at` or after it
        middle = (first + last) // 2
        if back(middle + 1) - 1 < at:
            first = middle + 1
        else:
            last = middle
    return text, back, first


def _iter_unwrapped_lines(view: bytes, start: int, lines: list[bytes]) -> Iterator[tuple[bytes, int]]:
    """Yield what is left of each line, and how many bytes are gone between it and the next."""
    if len(lines) == 1:
        yield lines[0], 0
        return
    begin = view.rfind(b"\n", max(0, start - _LINE_MAX), start) + 1
    lead = _line_lead_pattern(view, begin)
    width = 0
    skip = 0
    for index, line in enumerate(lines[:-1]):
        whole = line.rstrip(b" \t\r")
        whole = whole.removesuffix(b"\\")
        whole = whole[skip:]
        if index and len(whole) < width - _RAGGED:
            # A line shorter than the first was not cut: what comes after it is something else.
            yield b"\n".join([line[skip:], *lines[index + 1 :]]), 0
            return
        width = width or len(whole) + start - begin
        after = _lead_length(lines[index + 1], lead)
        yield whole, len(line) - skip - len(whole) + 1 + after
        skip = after
    yield lines[-1][skip:], 0


def _line_lead_pattern(view: bytes, begin: int) -> Any:
    """Return what stands before the line that begins at `begin`, and so perhaps before the lines after it."""
    if _NUMBER.match(view, begin, begin + _LEAD_MAX):
        return _NUMBER
    return _LEADS.get(view[begin : begin + 1])


def _lead_length(line: bytes, lead: Any) -> int:
    """Return how much at the beginning of `line` is not of the text."""
    marks = lead.match(line, 0, _LEAD_MAX + _RAGGED) if lead else None
    at = marks.end() if marks else 0
    return at + len(line) - at - len(line[at:].lstrip(_BLANK))


def unwrap_value(view: bytes, start: int, end: int) -> tuple[int, bytes]:
    """Return where the bare value at `start`:`end` ends and how it reads if the next lines go on with it."""
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
    # The next line goes on with the value only if it holds nothing else.
    after = view[stop : stop + 1]
    after = b"\n" if after == b" " and ends_line(view, stop) else after  # blanks stand where JSON wrote a line end
    ends = (
        after in _LINE_ENDS
        or view[stop : stop + 3] == b" --"
        or randomness.is_random(extra, floor=2.5)
        or _is_rest(plain, extra)
    )
    alone = extra and ends and not randomness.is_code(extra)
    if (
        alone
        and _DENSE_HEX.fullmatch(longer)
        and (not _HEX_WHOLE.fullmatch(plain) or _is_half(view, stop, plain, extra))
    ):
        return stop, longer
    digits = randomness.count_digits(extra)
    more = len(extra) < 4 or digits * 8 >= len(extra) or randomness.english_pair_share(extra) < 0.62
    return (stop, longer) if alone and more and randomness.is_random(longer) else (end, plain)


def _is_rest(plain: bytes, extra: bytes) -> bool:
    """Say whether `extra`, with more on its line, is the rest of a key: no word is so mixed."""
    return len(plain) >= 16 and len(extra) >= 4 and bool(randomness.count_digits(extra)) and bool(_MIXED.search(extra))


def _is_half(view: bytes, stop: int, plain: bytes, extra: bytes) -> bool:
    """Say whether two lines of equal length are one number in hex: a list of such would go on."""
    return len(plain) == len(extra) and _HEX_LINE.match(view, stop, stop + len(plain) + 8) is None


def extend_with_lone_line(view: bytes, end: int, text: bytes) -> tuple[int, bytes]:
    """Return where the typed value ends and how it reads with the next line, if that is one word without a mark."""
    lone = _LONE.match(view, end, end + _LONE_MAX) if len(text) >= 2 else None
    if lone is None or lone[1].lower() in _NETRC:
        return end, text
    if view[lone.end() : lone.end() + 1] in (b" ", b"\t") and not _MARKED.search(lone[1]):
        return end, text
    return lone.end(1), text + lone[1]
