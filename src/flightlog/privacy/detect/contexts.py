"""Values that are secret by the words before them: `datadog_api_key = "…"`, `--password …`.

One alternation of providers' names and of words for secrets finds where to look. Beside a
provider's name a value of that provider's form counts (`_beside_provider`); what counts
beside a word for a secret is decided in `assignments`.
"""

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import re2

from flightlog.privacy.detect import assignments, chance, forms
from flightlog.privacy.detect.hits import HIGH, LATIN, MEDIUM, Hit
from flightlog.privacy.detect.meter import Meter
from flightlog.privacy.detect.rules import Rule, rules
from flightlog.privacy.detect.wraps import joined

_REACH = 48
_LEAST = 12
_BEFORE = 128
_AFTER = 800
_REMEMBERED_MAX = 10_000
_WIDTH_MAX = 360
_LOOK = 200
_HASHY = re2.compile(
    rb"(?i)sha-?(?:1|256|384|512)|commit|checksum|digest|integrity|revision|md5|etag|blob|hash|uuid|guid|nonce|trace",
    LATIN,
)
_EVIDENCE = re2.compile(rb"[=>,(|\"'`]|:(?:[^/]|$)|(?i:token|key|secret|pass|pwd|auth|cred)[\w-]*\s", LATIN)
_SECRETIVE = re2.compile(rb"(?i)token|key|secret|pass|pwd|auth|cred|api", LATIN)
_OWNER = re2.compile(rb"(?i)(?:device|account|organization|org|user|member)_?(?:uu)?id", LATIN)
_Judge = Callable[[bytes, int], tuple[int, Hit | None]]
# Long enough, or cut by the end of a line.
_VALUE = re.compile(
    rb"[^A-Za-z0-9\x00][A-Za-z0-9_\-+/]{6}(?:[A-Za-z0-9_\-+/]{%d}|[A-Za-z0-9_\-+/]{0,5}[ \\]{0,2}(?:\r?\n|\\n))"
    % (_LEAST - 6)
)
_PROMISING = re.compile(rb"[0-9]|[A-Za-z_+/-]{13}")
_USUAL_FORM = "{hex:32}"
_ANY_FORMS = ("{uuid}", "{dots:16-120}", "{b64:20-100}=", "{b64:20-100}")
# A word before the value that says it is something else.
_LABEL = re2.compile(rb"(?i)(?:name|label|title|region|version|url|uri|host|path|file|dir)[\"'`\]\s]*[:=>]", LATIN)
_ASSIGNED = re.compile(rb"[\s\"'`]*[:=][\s\"'`=>]*")


class _Tables(NamedTuple):
    name: Any  # a provider's name
    word: Any  # a word for a secret, and the beginning of a value after it
    rules: dict[bytes, tuple[Rule, ...]]


@functools.cache
def _tables() -> _Tables:
    by_name: dict[bytes, tuple[Rule, ...]] = {}
    for rule in rules():
        for name in rule.near:
            by_name[name.encode()] = (*by_name.get(name.encode(), ()), rule)
    name, word = (re2.compile(f"(?i){pattern}".encode(), LATIN) for pattern in (names(), assignments.trigger()))
    return _Tables(name, word, by_name)


def names() -> str:
    """Return a pattern for the providers' names."""
    every = sorted({name for rule in rules() for name in rule.near}, key=lambda name: (-len(name), name))
    # A short name inside a word is that word.
    return "|".join((r"\b" if len(name) < 5 else "") + re.escape(name) for name in every)


def is_name(text: bytes) -> bool:
    """Say whether `text` is a provider's name."""
    return text.lower() in _tables().rules


def has_value(view: bytes, end: int) -> bool:
    """Say whether something long stands within reach of a name that ends at `end`."""
    value = _VALUE.search(view, end, end + _REACH + 1 + _LEAST)
    return value is not None and view.find(b"\0", end, value.end()) < 0


@functools.cache
def _bounded(form: str) -> Any:
    # Marks that no separator uses make it another, longer value, or a damaged one.
    edge = r"A-Za-z0-9_+?^!@#%*~$-"
    made = re.sub(r"\[(0-9A-Za-z_\.?)-\]\{(\d+)(,?\d*)\}", _padded, forms.pattern(form))
    return re2.compile(rf"(?:^|[^{edge}])({made})(?:$|[^=/\\{edge}]|\\[nrt\"'\\])".encode(), LATIN)


def _padded(field: re.Match[str]) -> str:
    """Return the field with `=` among its characters, but not first: some alphabets have it."""
    low, high = int(field[2]), field[3]
    more = f",{int(high[1:]) - 1}" if len(high) > 1 else high
    return f"[{field[1]}-][{field[1]}=-]{{{low - 1}{more}}}"


def find(view: bytes, meter: Meter) -> Iterator[Hit]:
    """Yield the values in `view` that the words before them make secret."""
    tables = _tables()
    yield from _judged_once(view, meter, tables.name, _beside_name)
    yield from _judged_once(view, meter, tables.word, _beside_word)


def _judged_once(view: bytes, meter: Meter, words: Any, judge: _Judge) -> Iterator[Hit]:
    """Yield what `judge` says of each of `words`; what repeats, in a transcript or a hostile text, is judged once."""
    meter.begin()
    at = 0
    judged: dict[tuple[int, bytes], tuple[int, Hit | None]] = {}
    while (found := words.search(view, at)) is not None:
        start = found.start()
        if judge is _beside_name and not has_value(view, found.end()):
            at = found.end()
            continue
        low = max(0, start - _BEFORE)
        window = start - low, view[low : start + _AFTER]
        answer = judged.get(window)
        if answer is None:
            if not meter.affords(start, _LOOK):
                hit = meter.unjudged(view, start)
                at = hit.end
                yield hit
                continue
            answer = judge(window[1], window[0])
            if len(judged) < _REMEMBERED_MAX:
                judged[window] = answer
        at = start + answer[0]
        if answer[1] is not None:
            yield answer[1]._replace(start=low + answer[1].start, end=low + answer[1].end)


def _beside_name(window: bytes, start: int) -> tuple[int, Hit | None]:
    """Return how long the name at `start` is, and what it makes secret."""
    tables = _tables()
    name = tables.name.match(window, start)
    return name.end() - start, _beside_provider(window, name.end(), tables.rules[name.group().lower()])


def _beside_word(window: bytes, start: int) -> tuple[int, Hit | None]:
    word = assignments.word_end(window, start)
    return max(word - start, 1), assignments.judge(window, start, word) if word else None


def tells(name: bytes) -> bool:
    """Say whether `name` holds a provider's name or a word for a secret, or names a person's account."""
    tables, value = _tables(), b' = "0a1b2c3d4e5f6g7h8i9j"'
    told = tables.name.search(name) or tables.word.search(name + value) or _OWNER.search(name)
    return told is not None


def _beside_provider(view: bytes, end: int, near: tuple[Rule, ...]) -> Hit | None:
    stop = view.find(b"\0", end, end + _WIDTH_MAX)
    text = view[end : stop if stop >= 0 else end + _WIDTH_MAX]
    if _PROMISING.search(text, 0, _REACH + 2 * _LEAST) is None:
        return None
    hit = _first(text, near)
    if b"\n" in text[: _REACH * 3] and (hit is None or b"\n" in text[hit.start - 1 : hit.end + 1]):
        whole = _wrapped(view, end, near)
        if whole is not None and (hit is None or len(whole.value) > len(hit.value)):
            return whole
    return _placed(view, hit._replace(start=end + hit.start, end=end + hit.end)) if hit else None


def _placed(view: bytes, hit: Hit) -> Hit:
    stop, value = assignments.unwrapped(view, hit.start, hit.end) if hit.weight == MEDIUM else (hit.end, hit.value)
    return hit._replace(end=stop, value=value)


def _first(text: bytes, near: tuple[Rule, ...]) -> Hit | None:
    for rule in near:
        for form in rule.forms or _ANY_FORMS:
            hit = _shaped(text, form, rule)
            if hit is not None:
                return hit
    # Many providers hand out more kinds of keys than they write about; this is the most usual.
    return _shaped(text, _USUAL_FORM, near[0]) or _any(text, near[0])


def _any(text: bytes, rule: Rule) -> Hit | None:
    """Return what stands beside a provider's name and looks drawn at random, of whatever form."""
    if not rule.forms:
        return None
    for form in _ANY_FORMS:
        hit = _shaped(text, form, Rule(rule.id, rule.provider))
        if hit is not None:
            return hit
    return None


def _wrapped(view: bytes, end: int, near: tuple[Rule, ...]) -> Hit | None:
    text, back = joined(view, end, _WIDTH_MAX)
    hit = _first(text, near)
    if hit is None or (hit.weight == MEDIUM and not _is_quoted(text, hit)):
        return None
    return hit._replace(start=back(hit.start + 1) - 1, end=back(hit.end))


def _is_quoted(text: bytes, hit: Hit) -> bool:
    before, after = text[hit.start - 1 : hit.start], text[hit.end : hit.end + 1]
    return before == after and before in (b'"', b"'", b"`")


def _shaped(text: bytes, form: str, rule: Rule) -> Hit | None:
    at = 0
    while (match := _bounded(form).search(text, at)) is not None:
        low, high = match.span(1)
        if low > _REACH:
            return None
        gap, value = text[:low], match.group(1)
        if _fits(gap, value, form, rule):
            return Hit(low, high, rule.id, value, HIGH if rule.forms else MEDIUM)
        at = high
    return None


def _fits(gap: bytes, value: bytes, form: str, rule: Rule) -> bool:
    if gap.endswith((b"/", b"@", b"#", b"\\")) or gap.count(b"\n") > 3 or _EVIDENCE.search(gap) is None:
        return False
    if chance.is_placeholder(value) or _HASHY.search(gap) is not None:
        return False
    if not rule.forms:
        if form == "{uuid}":
            return _SECRETIVE.search(gap) is not None or _ASSIGNED.fullmatch(gap) is not None
        return chance.is_random(value) and not chance.is_uuid(value) and _LABEL.search(gap) is None
    if form == "{uuid}" and b"id" in gap.lower() and _SECRETIVE.search(gap) is None:
        return False
    return _mixed(value, form) and chance.entropy(value) >= 2.2


def _mixed(value: bytes, form: str) -> bool:
    if form.startswith("{digits") or forms.FIELD.sub("", form):
        return True
    digits = chance.count_digits(value)
    if not digits:
        return len(value) >= 24 and chance.wordiness(value) < 0.5
    return digits * 8 >= len(value) or chance.wordiness(value) < 0.65
