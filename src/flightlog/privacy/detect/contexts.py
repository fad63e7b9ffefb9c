"""Values that are secret by the words before them: `datadog_api_key = "…"`, `--password …`.

One alternation of providers' names and of words for secrets finds where to look. Beside a
provider's name a value of that provider's form counts (`_beside_provider`); what counts
beside a word for a secret is decided in `assignments`.
"""

import functools
import re
from typing import Any, NamedTuple

import re2

from flightlog.privacy.detect import assignments, chance, forms, tokens
from flightlog.privacy.detect.hits import HIGH, LATIN, MEDIUM, Hit
from flightlog.privacy.detect.rules import Rule, rules
from flightlog.privacy.detect.wraps import joined

_REACH = 48
_LEAST = 12
_WIDTH_MAX = 360
LOOK = 400
_HASHY = re2.compile(
    rb"(?i)sha-?(?:1|256|384|512)|commit|checksum|digest|integrity|revision|md5|etag|blob|hash|uuid|guid|nonce|trace",
    LATIN,
)
_EVIDENCE = re2.compile(rb"[=>,(|\"'`]|:(?:[^/]|$)|(?i:token|key|secret|pass|pwd|auth|cred)[\w-]*\s", LATIN)
_SECRETIVE = re2.compile(rb"(?i)token|key|secret|pass|pwd|auth|cred|api", LATIN)
_OWNER = re2.compile(rb"(?i)(?:device|account|organization|org|user|member)_?(?:uu)?id", LATIN)
# Long enough, or cut by the end of a line.
_VALUE = re.compile(
    rb"[^A-Za-z0-9\x00][A-Za-z0-9_\-+/]{6}(?:[A-Za-z0-9_\-+/]{%d}|[A-Za-z0-9_\-+/]{0,5}[ \\]{0,2}(?:\r?\n|\\n))"
    % (_LEAST - 6)
)
_RUN = re.compile(rb"[A-Za-z0-9_\-+/.=:]{6,}")
_DIGIT = re.compile(rb"[0-9]")
_HUMP = re.compile(rb"[a-z][A-Z]")
_SECRETIVE_WORDS = "api|app|key|tok|sec|auth|acc|cli|pass|cred|writ|oauth|pers"
_LEADING = re.compile(rb"[a-z0-9]+?(?=[ _.-]{0,2}(?:%s)|[ :=]|\Z)" % _SECRETIVE_WORDS.encode())
# Names that are usual words: only with a word of credentials or a quoted value after them.
_AMBIGUOUS = """backlog box canva circle copper findl fixer front ghost guru hive hunter monday neon orbit
persona phrase segment semaphore shortcut sigma spectral stability steam together toggl twist zoom"""
AMBIGUOUS = frozenset(_AMBIGUOUS.split())
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
    plain = (name for name in every if name not in AMBIGUOUS)
    # A short name inside a word is that word.
    made = [(r"\b" if len(name) < 5 else "") + re.escape(name) for name in plain]
    words = "|".join(re.escape(name) for name in every if name in AMBIGUOUS)
    return tokens.either([*made, rf"\b(?:{words})(?:[ _.-]{{0,2}}(?:{_SECRETIVE_WORDS})| ?[:=] ?[\"'`])"])


def is_name(text: bytes) -> bool:
    """Say whether `text` is a provider's name."""
    return _known_name(text.lower()) is not None


@functools.lru_cache(maxsize=4096)
def _known_name(text: bytes) -> bytes | None:
    """Return the name that `text` is, or begins with where it is a usual word and more must follow."""
    rules_of = _tables().rules
    if text in rules_of:
        return text
    begun = _LEADING.match(text)
    return begun.group() if begun is not None and begun.group().decode() in AMBIGUOUS else None


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


def beside_name(window: bytes, start: int) -> tuple[int, Hit | None]:
    """Return how long the name at `start` is, and what it makes secret."""
    tables = _tables()
    name = tables.name.match(window, start)
    known = _known_name(name.group().lower()) if name is not None else None
    if known is None:
        return 1, None
    return len(known), _beside_provider(window, start + len(known), tables.rules[known])


def beside_word(window: bytes, start: int) -> tuple[int, Hit | None]:
    """Return how long the word for a secret at `start` is, and what it makes secret."""
    word = assignments.word_end(window, start)
    return max(word - start, 1), assignments.judge(window, start, word) if word else None


def name_end(data: bytes, start: int) -> int:
    """Return where the provider's name that begins at `start` ends, or 0 if none begins there."""
    name = _tables().name.match(data, start)
    return int(name.end()) if name else 0


def tells(name: bytes) -> bool:
    """Say whether `name` holds a provider's name or a word for a secret, or names a person's account."""
    tables, value = _tables(), b' = "0a1b2c3d4e5f6g7h8i9j"'
    told = tables.name.search(name) or tables.word.search(name + value) or _OWNER.search(name)
    return told is not None


def _beside_provider(view: bytes, end: int, near: tuple[Rule, ...]) -> Hit | None:
    stop = view.find(b"\0", end, end + _WIDTH_MAX)
    text = view[end : stop if stop >= 0 else end + _WIDTH_MAX]
    if not _has_candidate(text):
        return None
    hit = _first(text, near)
    if b"\n" in text[: _REACH * 3] and (hit is None or b"\n" in text[hit.start - 1 : hit.end + 1]):
        whole = _wrapped(view, end, near)
        if whole is not None and (hit is None or len(whole.value) > len(hit.value)):
            return whole
    return _placed(view, hit._replace(start=end + hit.start, end=end + hit.end)) if hit else None


def _has_candidate(text: bytes) -> bool:
    """Say whether something within reach may be a value: mixed, or cut by the end of a line."""
    for run in _RUN.finditer(text, 0, _REACH + 2 * _LEAST):
        if run.start() > _REACH:
            return False
        value = run.group()
        if _DIGIT.search(value) or len(_HUMP.findall(value)) > 1:
            return True
        if text[run.end() : run.end() + 3].lstrip(b" \\")[:1] == b"\n":
            return True
    return False


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
    before, after = text[hit.start - 1 : hit.start], text[hit.end : hit.end + 4].lstrip(b"\\")[:1]
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
