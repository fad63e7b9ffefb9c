"""Values that are secret by the words before them: `datadog_api_key = "…"`, `--password …`.

One alternation of providers' names and of words for secrets finds where to look. Beside a
provider's name a value of that provider's form counts (`_beside_provider`); what counts
beside a word for a secret is decided in `assignments`.
"""

import functools
import re
from typing import Any

import re2

from flightlog.privacy.detect import assignments, provider_tokens, randomness, rules
from flightlog.privacy.detect.candidates import HIGH, LATIN, MEDIUM, Candidate, Judgement, contains_needle
from flightlog.privacy.detect.line_wraps import ends_line, unwrap_lines, unwrap_value
from flightlog.privacy.detect.rules import TokenRule, load_rules

_REACH = 48
_LEAST = 12
_WIDTH_MAX = 360
# What judgements cost, in bytes examined: of a word, of a name, and of each form tried beside a name.
_WORD_LOOK, _NAME_LOOK, _FORM_LOOK = 250, 80, 40
_HASHY = rules.linear_pattern(
    rb"(?i)sha-?(?:1|256|384|512)|commit|checksum|digest|integrity|revision|md5|etag|blob|hash|uuid|guid|nonce|trace"
    rb"|(?:^|[\W_])(?:sha|rev|ref|h1)[\W_]"
)
_EVIDENCE = rules.linear_pattern(
    rb"[=>,(|\"'`]|:(?:[^/]|$)|(?i:token|key|secret|pass|pwd|auth|cred|private|access)[\w-]*\s| -u $"
)
_SECRETIVE = rules.linear_pattern(rb"(?i)token|key|secret|pass|pwd|auth|cred|api|private|access|login")
# The name is part of an address, a path or the name of a file: what comes after it needs a reason of its own.
_LOCATION = rules.linear_pattern(
    rb"(?i)[\w-]*(?:/|\.(?:com|org|net|io|dev|co|cloud|app|ai|in|de|eu|uk|fr|jp|cn|ru|us|me|tar|t?gz|zip|whl|jar|deb|rpm)\b)[\w./~+%@-]*"
)
_OWNER = rules.linear_pattern(rb"(?i)(?:device|account|organization|org|user|member)_?(?:uu)?id")
# Long enough, or cut by the end of a line.
_VALUE = rules.quick_pattern(
    rb"[^A-Za-z0-9\x00][A-Za-z0-9_\-+/]{6}(?:[A-Za-z0-9_\-+/:]{%d}|[A-Za-z0-9_\-+/]{0,5}[ \\]{0,2}(?:\r?\n|\\n))"
    % (_LEAST - 6)
)
_RUN = rules.quick_pattern(rb"[A-Za-z0-9_\-+/.=:]{6,}")
_CUT_RUN = rules.quick_pattern(rb"[A-Za-z0-9_\-+/.=:~$!]{2,}")
_SHORT_HEX = rules.quick_pattern(rb"[0-9a-f]{1,31}")
_DIGIT = rules.quick_pattern(rb"[0-9]")
_HUMP = rules.quick_pattern(rb"[a-z][A-Z]")
_SECRETIVE_WORDS = "api|app|key|tok|sec|auth|acc|cli|pass|cred|writ|oauth|pers|priv"
_AFTER_WORD = (
    rf"[ _.-]{{0,2}}(?:{_SECRETIVE_WORDS})| ?[:=] ?(?:\\{{0,7}}[\"'`]|[A-Za-z0-9_-]{{8}})"
    r"| \\{0,7}[\"'`][A-Za-z0-9]|\.[A-Za-z]{2,9}\(\\{0,7}[\"'`]"
)
_AFTER = rules.quick_pattern(f"(?i){_AFTER_WORD}".encode())
_WORDY = rules.quick_pattern(rb"\w")
# A shorter name inside a word is that word.
_LONG_NAME = 5
_SHORT_NAME = 4  # names of three letters begin names of other vendors
_LEADING = rules.quick_pattern(rb"[a-z0-9]+?(?=[ _.-]{0,2}(?:%s)|[ :=]|\.[a-z]{2,9}\(|\Z)" % _SECRETIVE_WORDS.encode())
# Names that are usual words: only with a word of credentials or a quoted value after them.
_AMBIGUOUS = """abstract, aha, backlog, bored, box, bubble, canva, chef, circle, cisco, clay, cockroach,
commodities, copper, createsend, cricket, daily, directus, ditto, enigma, fal, findl, fixer, fleet,
front, ftp, ghost, groove, guru, harness, hive, honey, hotwire, humanity, hunter, kite, ldap,
lighton, linear, manifest, moderation, monday, neon, nexus, orbit, persona, phrase, polygon,
privacy, prospect, railway, readme, recharge, redis, replicate, retool, riot, ronin, salad, segment,
semaphore, sentiment, shortcut, sift, sigma, spectral, square, stability, steam, surge, teamup,
tines, together, toggl, tomorrow, twist, unkey, verifier, wit, zoom"""
AMBIGUOUS = frozenset(word.strip() for word in _AMBIGUOUS.split(","))
_USUAL_FORM = "{hex:32}"
_ANY_FORMS = ("{uuid}", "{dots:16-300}", "{b64:20-300}==", "{b64:20-300}=", "{b64:20-300}")
# A word before the value that says it is something else.
_LABEL = rules.linear_pattern(rb"(?i)(?:name|label|title|region|version|url|uri|host|path|file|dir)[\"'`\]\s]*[:=>]")
_ASSIGNED = rules.quick_pattern(rb"[\s\"'`]*[:=][\s\"'`=>]*|\s[\"'`]")


@functools.cache
def _secret_word_pattern(words: tuple[str, ...]) -> Any:
    """Return the pattern of one of the words for a secret and the beginning of a value after it."""
    return re2.compile(f"(?i){assignments.assignment_pattern(words)}".encode(), LATIN)


@functools.cache
def _rules_by_name() -> dict[bytes, tuple[TokenRule, ...]]:
    by_name: dict[bytes, tuple[TokenRule, ...]] = {}
    for rule in load_rules():
        for name in rule.near:
            by_name[name.encode()] = (*by_name.get(name.encode(), ()), rule)
    # A longer name of the same vendor (`sumologic`, `sumo`) has the forms of the shorter one.
    prefixes = {longer: [longer[:size] for size in range(_SHORT_NAME, len(longer))] for longer in by_name}
    for longer, shorter in prefixes.items():
        shared = (rule for prefix in shorter for rule in by_name.get(prefix, ()) if rule.forms)
        by_name[longer] = (*shared, *by_name[longer])
    return by_name


@functools.cache
def _name_lengths() -> tuple[int, ...]:
    """Return how long the providers' names are, the longest first."""
    return tuple(sorted({len(name) for name in _rules_by_name()}, reverse=True))


def find_names(low: bytes) -> tuple[str, ...]:
    """Return the providers' names that stand in a text of small letters."""
    return tuple(name.decode() for name in _rules_by_name() if contains_needle(low, name))


def provider_name_pattern(among: tuple[str, ...] | None = None) -> str:
    """Return a pattern for the providers' names, or for those `among` them."""
    every = provider_tokens.sort_for_pattern([name.decode() for name in _rules_by_name()] if among is None else among)
    plain = (name for name in every if name not in AMBIGUOUS)
    # A short name inside a word is that word.
    made = [(r"\b" if len(name) < _LONG_NAME else "") + re.escape(name) for name in plain]
    words = "|".join(re.escape(name) for name in every if name in AMBIGUOUS)
    return provider_tokens.join_alternatives([*made, *([rf"\b(?:{words})(?:{_AFTER_WORD})"] if words else [])])


def _name_at(data: bytes, start: int) -> bytes | None:
    """Return the provider's name that begins at `start`, in small letters."""
    known, sizes = _rules_by_name(), _name_lengths()
    low = data[start : start + sizes[0]].lower()
    begins = not start or not _WORDY.match(data, start - 1, start)
    for size in sizes:
        name = low[:size]
        if name not in known or len(name) < size:
            continue
        if name.decode() in AMBIGUOUS:
            if begins and _AFTER.match(data, start + size, start + size + 20):
                return name
        elif size >= _LONG_NAME or (begins and data[start : start + size] in (name, name.upper(), name.title())):
            return name  # `sumOfItems` holds no `sumo`
    return None


def name_size(text: bytes) -> int:
    """Return how long the provider's name is that `text` is, or begins with; 0 if it is none."""
    return len(_match_provider_name(text.lower()) or b"")


@functools.lru_cache(maxsize=4096)
def _match_provider_name(text: bytes) -> bytes | None:
    """Return the name that `text` is, or begins with where it is a usual word and more must follow."""
    if text in _rules_by_name():
        return text
    begun = _LEADING.match(text)
    return begun.group() if begun is not None and begun.group().decode() in AMBIGUOUS else None


def has_value(view: bytes, end: int) -> bool:
    """Return whether something long is within reach of a name that ends at `end`, which is no mere address."""
    stop = end + _REACH + 1 + _LEAST
    if view[end : end + 1] in b"./-" and _LOCATION.match(view, end, stop) and not _SECRETIVE.search(view, end, stop):
        return False
    value = _VALUE.search(view, end, stop)
    return value is not None and view.find(b"\0", end, value.end()) < 0


@functools.cache
def _bounded_form_pattern(form: str) -> Any:
    # Marks that no separator uses make it another, longer value, or a damaged one.
    edge = r"A-Za-z0-9_+?^!@#%*~$-"
    made = re.sub(r"\[(0-9A-Za-z_\.?)-\]\{(\d+)(,?\d*)\}", _allow_equals_signs, rules.form_pattern(form))
    return re2.compile(rf"(?:^|[^{edge}])({made})(?:$|[^=/\\{edge}]|\\[nrt\"'\\])".encode(), LATIN)


def _allow_equals_signs(field: re.Match[str]) -> str:
    """Return the field with `=` among its characters, but not first: some alphabets have it."""
    low, high = int(field[2]), field[3]
    more = f",{int(high[1:]) - 1}" if len(high) > 1 else high
    return f"[{field[1]}-][{field[1]}=-]{{{low - 1}{more}}}"


def judge_beside_name(window: bytes, start: int) -> Judgement:
    """Return how long the name at `start` is, and what it makes secret."""
    known = _name_at(window, start)
    if known is None:
        return Judgement(1, None, _NAME_LOOK)
    end = start + len(known)
    stop = window.find(b"\0", end, end + _WIDTH_MAX)
    text = window[end : stop if stop >= 0 else end + _WIDTH_MAX]
    if not _has_candidate(text):
        return Judgement(len(known), None, _NAME_LOOK)
    near = _rules_by_name()[known]
    tried = len(_ANY_FORMS) + sum(len(rule.forms) for rule in near)
    return Judgement(len(known), _judge_beside_provider(window, end, text, near), _NAME_LOOK + _FORM_LOOK * tried)


def judge_beside_word(window: bytes, start: int) -> Judgement:
    """Return how long the word for a secret at `start` is, and what it makes secret."""
    word = assignments.word_end(window, start)
    return Judgement(
        max(word - start, 1), assignments.judge_assignment(window, start, word) if word else None, _WORD_LOOK
    )


def name_end(data: bytes, start: int) -> int:
    """Return where the provider's name that begins at `start` ends, or 0 if none begins there."""
    name = _name_at(data, start)
    return start + len(name) if name else 0


def is_secret_name(name: bytes) -> bool:
    """Say whether `name` holds a provider's name or a word for a secret, or names a person's account."""
    value = b' = "0a1b2c3d4e5f6g7h8i9j"'
    low = name.lower()
    if any(_name_at(low, at) for at in range(len(low))):
        return True
    words = assignments.find_words(low)
    told = (_secret_word_pattern(words).search(name + value) if words else None) or _OWNER.search(name)
    return told is not None


def _judge_beside_provider(view: bytes, end: int, text: bytes, near: tuple[TokenRule, ...]) -> Candidate | None:
    hit = _first_candidate(text, near)
    if b"\n" in text[: _REACH * 3] and (hit is None or _is_part(text, hit)):
        whole = _find_wrapped_value(view, end, text, near, hit)
        if whole is not None and (hit is None or len(whole.value) > len(hit.value)):
            return whole
    return _extend_over_lines(view, hit._replace(start=end + hit.start, end=end + hit.end)) if hit else None


def _has_candidate(text: bytes) -> bool:
    """Say whether something within reach may be a value: mixed, or cut by the end of a line."""
    for run in _RUN.finditer(text, 0, _REACH + 2 * _LEAST):
        if run.start() > _REACH:
            return False
        value = run.group()
        if text[run.end() : run.end() + 3].lstrip(b" \\")[:1] == b"\n":
            return True
        if len(value) >= _LEAST and (_DIGIT.search(value) or len(_HUMP.findall(value)) > 1) and not _is_path(value):
            return True
    return False


def _is_path(value: bytes) -> bool:
    """Say whether `value` is of an address or a path: those hold slashes, as some keys do, but words between them."""
    return b"/" in value and (b"//" in value or randomness.english_pair_share(value) >= 0.5)


def _extend_over_lines(view: bytes, hit: Candidate) -> Candidate:
    stop, value = unwrap_value(view, hit.start, hit.end) if hit.weight == MEDIUM else (hit.end, hit.value)
    return hit._replace(end=stop, value=value)


def _first_candidate(text: bytes, near: tuple[TokenRule, ...]) -> Candidate | None:
    for rule in near:
        for form in rule.forms or _ANY_FORMS:
            hit = _find_form(text, form, rule)
            if hit is not None:
                return hit
    # Many providers hand out more kinds of keys than they write about; this is the most usual.
    return _find_form(text, _USUAL_FORM, near[0]) or _find_random_value(text, near[0])


def _find_random_value(text: bytes, rule: TokenRule) -> Candidate | None:
    """Return what stands beside a provider's name and looks drawn at random, of whatever form."""
    if not rule.forms:
        return None
    for form in _ANY_FORMS:
        hit = _find_form(text, form, TokenRule(rule.id, rule.provider))
        # A short number in hex is a name of something, unless a word says that it opens something.
        if hit is not None and (not _SHORT_HEX.fullmatch(hit.value) or _SECRETIVE.search(text, 0, hit.start)):
            return hit
    return None


def _is_part(text: bytes, hit: Candidate) -> bool:
    """Say whether a value begins or ends with its line, and so may be a part of one."""
    return ends_line(text, hit.end) or text[: hit.start].rstrip(b" \t")[-1:] in (b"\n", b"") or b"\n" in hit.value


def _find_wrapped_value(
    view: bytes, end: int, text: bytes, near: tuple[TokenRule, ...], part: Candidate | None
) -> Candidate | None:
    """Return the value that goes on over the end of a line; what stands before it keeps its lines."""
    for run in _CUT_RUN.finditer(text, 0, _REACH + _WIDTH_MAX // 2):
        low = run.start()
        if low > _REACH:
            return None
        if not ends_line(text, run.end()):
            continue
        rest, back = unwrap_lines(view, end + low, _WIDTH_MAX)
        hit = _first_candidate(text[:low] + rest, near)
        if hit is None or hit.start < low:
            continue
        known = part is not None and hit.value.endswith(part.value)
        whole = text[:low] + rest
        if hit.weight != MEDIUM or known or _is_quoted(whole, hit) or _is_split_value(text, run, whole, hit):
            return hit._replace(start=back(hit.start - low + 1) - 1, end=back(hit.end - low))
    return None


def _is_split_value(text: bytes, run: Any, whole: bytes, hit: Candidate) -> bool:
    """Say whether an assigned value goes on in the next line, which holds nothing else and ends a list of no such."""
    begin = run.end() - len(run.group().lstrip(b"=:"))
    if text[:begin].rstrip(b" \"'`")[-1:] not in (b"=", b":") or hit.start != begin:
        return False
    first, second = hit.value[: run.end() - begin], hit.value[run.end() - begin :]
    alone = whole[hit.end : hit.end + 1] in (b"", b";", b",") or ends_line(whole, hit.end)
    third = whole[hit.end :].split(None, 1)[:1]
    return (
        alone
        and all(
            len(part) >= 8 and _DIGIT.search(part) and randomness.english_pair_share(part) < 0.6
            for part in (first, second)
        )
        and not (third and len(third[0]) == len(second) and _DIGIT.search(third[0]))
    )


def _is_quoted(text: bytes, hit: Candidate) -> bool:
    before, after = text[hit.start - 1 : hit.start], text[hit.end : hit.end + 4].lstrip(b"\\")[:1]
    return before == after and before in (b'"', b"'", b"`")


def _find_form(text: bytes, form: str, rule: TokenRule) -> Candidate | None:
    at = 0
    while (match := _bounded_form_pattern(form).search(text, at)) is not None:
        low, high = match.span(1)
        if low > _REACH:
            return None
        gap, value = text[:low], match.group(1)
        if _fits_form(gap, value, form, rule):
            return Candidate(low, high, rule.id, value, HIGH if rule.forms else MEDIUM)
        at = high
    return None


def _fits_form(gap: bytes, value: bytes, form: str, rule: TokenRule) -> bool:
    if (
        gap.endswith((b"/", b"@", b"#", b"\\"))
        or (gap.endswith(b".") and gap[-2:-1].isdigit())
        or gap.count(b"\n") > 3
        or not _is_evident(gap, form, rule)
    ):
        return False
    place = _LOCATION.match(gap)
    named = _SECRETIVE.search(gap, place.end() if place else 0) is not None
    assigned = _ASSIGNED.fullmatch(gap) is not None
    vouched = named or (assigned and b"=" in gap)
    invented = randomness.is_reference(value) if vouched else randomness.is_placeholder(value)
    if (place and not named) or invented or _HASHY.search(gap) is not None:
        return False
    if form == "{uuid}":
        return (named or assigned) if not rule.forms else (named or b"id" not in gap.lower())
    if not rule.forms:
        drawn = (randomness.is_random(value) or randomness.is_grouped(value)) and not randomness.is_uuid(value)
        return drawn and _LABEL.search(gap) is None
    return _has_mixed_characters(value, form) and randomness.shannon_entropy(value) >= 2.2


def _is_evident(gap: bytes, form: str, rule: TokenRule) -> bool:
    """Say whether a name has to do with what stands after it; a form with marks of its own may follow at once."""
    return _EVIDENCE.search(gap) is not None or bool(rule.forms and gap.isspace() and rules.FIELD.sub("", form))


def _has_mixed_characters(value: bytes, form: str) -> bool:
    if form.startswith("{digits") or rules.FIELD.sub("", form):
        return True
    digits = randomness.count_digits(value)
    if not digits:
        return len(value) >= 24 and randomness.english_pair_share(value) < 0.5
    return digits * 8 >= len(value) or randomness.english_pair_share(value) < 0.65
