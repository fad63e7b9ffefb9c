"""Judge values by the name before them: `datadog_api_key = "…"`, `--password …`.

Beside a provider's name, a value of one of that provider's forms counts, or one that looks
random. Values beside a word for a secret are judged in `assignments`.
"""

import functools
import re
from typing import Any

from flightlog.privacy.detect import assignments, provider_tokens, randomness, rules
from flightlog.privacy.detect.candidates import HIGH, MEDIUM, Candidate, Judgement, contains_needle
from flightlog.privacy.detect.line_wraps import ends_line, is_quoted, unwrap_lines, unwrap_value
from flightlog.privacy.detect.rules import TokenRule, load_rules

_REACH = 48  # bytes between a provider's name and its value
_LEAST = 12  # the shortest values of vendors
_WIDTH_MAX = 360  # bytes examined after a name: the longest form, wrapped
# The costs of judgements in bytes examined: of a word, of a name, of each form tried beside a name.
_WORD_COST, _NAME_COST, _FORM_COST = 250, 80, 40
# Words before a value that is a hash or an id.
_HASHY = rules.linear_pattern(
    rb"(?i)sha-?(?:1|256|384|512)|commit|checksum|digest|integrity|revision|md5|etag|blob|hash|uuid|guid"
    rb"|nonce|trace|(?:^|[\W_])(?:sha|rev|ref|h1)[\W_]"
)
# An operator, a quote or a word for a secret connects a name with its value.
_EVIDENCE = rules.linear_pattern(
    rb"[=>,(|\"'`]|:(?:[^/]|$)|(?i:token|key|secret|pass|pwd|auth|cred|private|access)[\w-]*\s| -u $"
)
# Words for secrets, also short ones that count only between a name and a value.
_SECRETIVE = rules.linear_pattern(
    rb"(?i)token|key|secret|pass|pwd|auth|cred|api|private|access|login"
)
# The name is part of an address, a path or a file name: a value after it needs another reason.
_LOCATION = rules.linear_pattern(
    rb"(?i)[\w-]*(?:/|\.(?:com|org|net|io|dev|co|cloud|app|ai|in|de|eu|uk|fr|jp|cn|ru|us|me"
    rb"|tar|t?gz|zip|whl|jar|deb|rpm)\b)[\w./~+%@-]*"
)
# Names of ids that are personal data.
_OWNER = rules.linear_pattern(rb"(?i)(?:device|account|organization|org|user|member)_?(?:uu)?id")
# The key of an id in JSON, after another field: `"id":"`, `"agentId":"`, `"response_id":"`.
_ID_KEY = rules.linear_pattern(rb"[,{]\s*\"(?:i|[A-Za-z]{1,24}I|[a-z_]{1,24}_i)d\"\s*:\s*\"\z")
# Some providers call a half of a credential an id; `apiCallId` is none.
_SECRET_ID = rules.linear_pattern(rb"(?i)token|key|secret|pass|pwd|auth|cred|private|access|login")
# Long enough, or cut by a line end.
_VALUE = rules.quick_pattern(
    rb"[^A-Za-z0-9\x00][A-Za-z0-9_\-+/]{6}"
    rb"(?:[A-Za-z0-9_\-+/:]{%d}|[A-Za-z0-9_\-+/]{0,5}[ \\]{0,2}(?:\r?\n|\\n))" % (_LEAST - 6)
)
_RUN = rules.quick_pattern(rb"[A-Za-z0-9_\-+/.=:]{6,}")  # may be a value, or half of one
_CUT_RUN = rules.quick_pattern(rb"[A-Za-z0-9_\-+/.=:~$!]{2,}")  # the part before a line end
_SHORT_HEX = rules.quick_pattern(rb"[0-9a-f]{1,31}")  # shorter than 128 bits: an id
_DIGIT = rules.quick_pattern(rb"[0-9]")  # nearly all values have one
_HUMP = rules.quick_pattern(rb"[a-z][A-Z]")  # a value without digits has several
# Beginnings of words for credentials in the names of variables.
_SECRETIVE_WORDS = "api|app|key|tok|sec|auth|acc|cli|pass|cred|writ|oauth|pers|priv"
# What must follow a provider's name that is an ordinary word.
_AFTER_WORD = (
    rf"[ _.-]{{0,2}}(?:{_SECRETIVE_WORDS})| ?[:=] ?(?:\\{{0,7}}[\"'`]|[A-Za-z0-9_-]{{8}})"
    r"| \\{0,7}[\"'`][A-Za-z0-9]|\.[A-Za-z]{2,9}\(\\{0,7}[\"'`]"
)
_AFTER = rules.quick_pattern(f"(?i){_AFTER_WORD}".encode())  # the same, compiled
_WORDY = rules.quick_pattern(rb"\w")  # a name after it is inside a word
_LONG_NAME = 5  # a shorter name inside a word is a part of that word
_SHORT_NAME = 4  # names of three letters begin names of other vendors
# An ordinary word at the beginning of a match of `_AFTER_WORD`.
_LEADING = rules.quick_pattern(
    rb"[a-z0-9]+?(?=[ _.-]{0,2}(?:%s)|[ :=]|\.[a-z]{2,9}\(|\Z)" % _SECRETIVE_WORDS.encode()
)
# Names that are ordinary words: they count only with a word for credentials or a value after them.
AMBIGUOUS = frozenset(rules.load_words("ambiguous"))
_USUAL_FORM = "{hex:32}"
_ANY_FORMS = ("{uuid}", "{dots:16-300}", "{b64:20-300}==", "{b64:20-300}=", "{b64:20-300}")
# A word before the value that makes it something else than a secret.
_LABEL = rules.linear_pattern(
    rb"(?i)(?:name|label|title|region|version|url|uri|host|path|file|dir)[\"'`\]\s]*[:=>]"
)
# English letter pairs: words and paths have over half of them. Half of a wrapped value, or a value
# of a vendor's form with few digits, may have more by chance.
_WORD_PAIRS, _PART_PAIRS, _FORM_PAIRS = 0.5, 0.6, 0.65
# Bits per character: below it, a value of a vendor's form repeats a few characters, as fillers do.
_FORM_ENTROPY = 2.2
# Only an operator and quotes are between the name and the value.
_ASSIGNED = rules.quick_pattern(rb"[\s\"'`]*[:=][\s\"'`=>]*|\s[\"'`]")


@functools.cache
def _secret_word_pattern(words: tuple[str, ...]) -> Any:
    """Return the compiled pattern of `words` and the beginning of a value after them."""
    return rules.linear_pattern(f"(?i){assignments.assignment_pattern(words)}".encode())


@functools.cache
def _rules_by_name() -> dict[bytes, tuple[TokenRule, ...]]:
    by_name: dict[bytes, tuple[TokenRule, ...]] = {}
    for rule in load_rules():
        for name in rule.near:
            by_name[name.encode()] = (*by_name.get(name.encode(), ()), rule)
    # A longer name of the same vendor (`sumologic`, `sumo`) has the forms of the shorter one.
    for longer in list(by_name):
        prefixes = (longer[:size] for size in range(_SHORT_NAME, len(longer)))
        shared = (rule for prefix in prefixes for rule in by_name.get(prefix, ()) if rule.forms)
        by_name[longer] = (*shared, *by_name[longer])
    return by_name


@functools.cache
def _name_lengths() -> tuple[int, ...]:
    """Return the lengths of providers' names, the longest first."""
    return tuple(sorted({len(name) for name in _rules_by_name()}, reverse=True))


def find_names(low: bytes) -> tuple[str, ...]:
    """Return the providers' names that occur in a text of small letters."""
    return tuple(name.decode() for name in _rules_by_name() if contains_needle(low, name))


def provider_name_pattern(among: tuple[str, ...] | None = None) -> str:
    """Return a pattern for the providers' names, or for those `among` them."""
    if among is None:
        among = tuple(name.decode() for name in _rules_by_name())
    names = provider_tokens.sort_for_pattern(among)
    common = [name for name in names if name not in AMBIGUOUS]
    patterns = [(r"\b" if len(name) < _LONG_NAME else "") + re.escape(name) for name in common]
    words = "|".join(re.escape(name) for name in names if name in AMBIGUOUS)
    if words:
        patterns.append(rf"\b(?:{words})(?:{_AFTER_WORD})")
    return provider_tokens.join_alternatives(patterns)


def _name_at(data: bytes, start: int) -> bytes | None:
    """Return the provider's name that begins at `start`, in small letters."""
    names, sizes = _rules_by_name(), _name_lengths()
    low = data[start : start + sizes[0]].lower()
    begins = not start or not _WORDY.match(data, start - 1, start)
    for size in sizes:
        name = low[:size]
        if name not in names or len(name) < size:
            continue
        if name.decode() in AMBIGUOUS:
            if begins and _AFTER.match(data, start + size, start + size + 20):
                return name
        elif size >= _LONG_NAME or (
            begins and data[start : start + size] in (name, name.upper(), name.title())
        ):
            return name  # but not `sumo` in `sumOfItems`
    return None


def name_size(text: bytes) -> int:
    """Return the length of the provider's name that `text` is or begins with, or 0."""
    return len(_match_provider_name(text.lower()) or b"")


@functools.lru_cache(maxsize=4096)
def _match_provider_name(text: bytes) -> bytes | None:
    """Return the name that `text` is, or begins with if the name is an ordinary word."""
    if text in _rules_by_name():
        return text
    leading = _LEADING.match(text)
    name = leading.group() if leading is not None else b""
    return name if name.decode() in AMBIGUOUS else None


def has_value(view: bytes, end: int) -> bool:
    """Return whether a long run is near a name that ends at `end`, and the name is no address."""
    stop = end + _REACH + 1 + _LEAST
    is_address = view[end : end + 1] in b"./-" and _LOCATION.match(view, end, stop)
    if is_address and not _SECRETIVE.search(view, end, stop):
        return False
    value = _VALUE.search(view, end, stop)
    return value is not None and view.find(b"\0", end, value.end()) < 0


def judge_beside_name(window: bytes, start: int) -> Judgement:
    """Judge the value beside the provider's name at `start`."""
    name = _name_at(window, start)
    if name is None:
        return Judgement(1, None, _NAME_COST)
    end = start + len(name)
    stop = window.find(b"\0", end, end + _WIDTH_MAX)
    text = window[end : stop if stop >= 0 else end + _WIDTH_MAX]
    if not _has_candidate(text):
        return Judgement(len(name), None, _NAME_COST)
    near = _rules_by_name()[name]
    forms = len(_ANY_FORMS) + sum(len(rule.forms) for rule in near)
    hit = _judge_beside_provider(window, end, text, near)
    return Judgement(len(name), hit, _NAME_COST + _FORM_COST * forms)


def judge_beside_word(window: bytes, start: int) -> Judgement:
    """Judge the value beside the word for a secret at `start`."""
    end = assignments.word_end(window, start)
    hit = assignments.judge_assignment(window, start, end) if end else None
    return Judgement(max(end - start, 1), hit, _WORD_COST)


def name_end(data: bytes, start: int) -> int:
    """Return where the provider's name that begins at `start` ends, or 0 if none begins there."""
    name = _name_at(data, start)
    return start + len(name) if name else 0


def is_secret_name(name: bytes) -> bool:
    """Return whether `name` has a provider's name or a word for a secret, or is a person's id."""
    value = b' = "0a1b2c3d4e5f6g7h8i9j"'
    low = name.lower()
    if any(_name_at(low, at) for at in range(len(low))):
        return True
    words = assignments.find_words(low)
    if words and _secret_word_pattern(words).search(name + value) is not None:
        return True
    return _OWNER.search(name) is not None


def _judge_beside_provider(
    view: bytes, end: int, text: bytes, near: tuple[TokenRule, ...]
) -> Candidate | None:
    hit = _first_candidate(text, near)
    if b"\n" in text[: _REACH * 3] and (hit is None or _is_part(text, hit)):
        whole = _find_wrapped_value(view, end, text, near, hit)
        if whole is not None and (hit is None or len(whole.value) > len(hit.value)):
            return whole
    if hit is None:
        return None
    hit = hit._replace(start=end + hit.start, end=end + hit.end)
    if hit.weight != MEDIUM:
        return hit
    stop, value = unwrap_value(view, hit.start, hit.end)
    return hit._replace(end=stop, value=value)


def _has_candidate(text: bytes) -> bool:
    """Return whether a run near the name may be a value: mixed, or cut by a line end."""
    for run in _RUN.finditer(text, 0, _REACH + 2 * _LEAST):
        if run.start() > _REACH:
            return False
        value = run.group()
        if text[run.end() : run.end() + 3].lstrip(b" \\")[:1] == b"\n":
            return True
        if len(value) < _LEAST or _is_path(value):
            continue
        if _DIGIT.search(value) or len(_HUMP.findall(value)) > 1:
            return True
    return False


def _is_path(value: bytes) -> bool:
    """Return whether `value` is an address or a path: some keys have slashes, but no words between."""
    return b"/" in value and (b"//" in value or randomness.english_pair_share(value) >= _WORD_PAIRS)


def _first_candidate(text: bytes, near: tuple[TokenRule, ...]) -> Candidate | None:
    for rule in near:
        for form in rule.forms or _ANY_FORMS:
            hit = _find_form(text, form, rule)
            if hit is not None:
                return hit
    # Many providers issue more kinds of keys than they document; this is the most frequent form.
    return _find_form(text, _USUAL_FORM, near[0]) or _find_random_value(text, near[0])


def _find_random_value(text: bytes, rule: TokenRule) -> Candidate | None:
    """Return a random value of any form, for a provider whose own forms did not match."""
    if not rule.forms:
        return None
    for form in _ANY_FORMS:
        hit = _find_form(text, form, TokenRule(rule.id, rule.provider))
        # A short hex number is an id, unless a word for a secret is before it.
        if hit is not None and (
            not _SHORT_HEX.fullmatch(hit.value) or _SECRETIVE.search(text, 0, hit.start)
        ):
            return hit
    return None


def _is_part(text: bytes, hit: Candidate) -> bool:
    """Return whether a value begins or ends with its line, and so may be a part of one."""
    begins = text[: hit.start].rstrip(b" \t")[-1:] in (b"\n", b"")
    return ends_line(text, hit.end) or begins or b"\n" in hit.value


def _find_wrapped_value(
    view: bytes, end: int, text: bytes, near: tuple[TokenRule, ...], part: Candidate | None
) -> Candidate | None:
    """Return a value that a line end cuts; the text before it keeps its lines."""
    for run in _CUT_RUN.finditer(text, 0, _REACH + _WIDTH_MAX // 2):
        low = run.start()
        if low > _REACH:
            return None
        if not ends_line(text, run.end()):
            continue
        rest, back = unwrap_lines(view, end + low, _WIDTH_MAX)
        whole = text[:low] + rest
        hit = _first_candidate(whole, near)
        if hit is None or hit.start < low:
            continue
        extends = part is not None and hit.value.endswith(part.value)
        is_sure = hit.weight != MEDIUM or extends or is_quoted(whole, hit.start, hit.end)
        if is_sure or _is_split_value(text, run, whole, hit):
            return hit._replace(start=back(hit.start - low + 1) - 1, end=back(hit.end - low))
    return None


def _is_split_value(text: bytes, run: Any, whole: bytes, hit: Candidate) -> bool:
    """Return whether an assigned value goes on alone in the next line, and no list of values follows."""
    begin = run.end() - len(run.group().lstrip(b"=:"))
    if text[:begin].rstrip(b" \"'`")[-1:] not in (b"=", b":") or hit.start != begin:
        return False
    first, second = hit.value[: run.end() - begin], hit.value[run.end() - begin :]
    alone = whole[hit.end : hit.end + 1] in (b"", b";", b",") or ends_line(whole, hit.end)
    third = whole[hit.end :].split(None, 1)[:1]
    listed = third and len(third[0]) == len(second) and _DIGIT.search(third[0])
    return alone and not listed and _is_value_part(first) and _is_value_part(second)


def _is_value_part(part: bytes) -> bool:
    if len(part) < 8 or not _DIGIT.search(part):
        return False
    return randomness.english_pair_share(part) < _PART_PAIRS


def _find_form(text: bytes, form: str, rule: TokenRule) -> Candidate | None:
    at = 0
    while (match := rules.bounded_form_pattern(form).search(text, at)) is not None:
        low, high = match.span(1)
        if low > _REACH:
            return None
        gap, value = text[:low], match.group(1)
        if _fits_form(gap, value, form, rule):
            return Candidate(low, high, rule.id, value, HIGH if rule.forms else MEDIUM)
        at = high
    return None


def _fits_form(gap: bytes, value: bytes, form: str, rule: TokenRule) -> bool:
    # Agents write the provider beside the ids of responses, sessions and tool calls.
    key = None if form in rule.forms else _ID_KEY.search(gap)
    if (
        gap.endswith((b"/", b"@", b"#", b"\\"))
        or (gap.endswith(b".") and gap[-2:-1].isdigit())
        or gap.count(b"\n") > 3
        or not _is_evident(gap, form, rule)
        or (key is not None and not _SECRET_ID.search(key.group()))
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
        drawn = randomness.is_random(value) or randomness.is_grouped(value)
        drawn = drawn and not randomness.is_uuid(value)
        return drawn and _LABEL.search(gap) is None
    return _has_mixed_characters(value, form) and randomness.shannon_entropy(value) >= _FORM_ENTROPY


def _is_evident(gap: bytes, form: str, rule: TokenRule) -> bool:
    """Return whether `gap` connects the name with the value; a form with literal text needs no mark."""
    return _EVIDENCE.search(gap) is not None or bool(
        rule.forms and gap.isspace() and rules.FIELD.sub("", form)
    )


def _has_mixed_characters(value: bytes, form: str) -> bool:
    if form.startswith("{digits") or rules.FIELD.sub("", form):
        return True
    digits = randomness.count_digits(value)
    if not digits:
        return len(value) >= 24 and randomness.english_pair_share(value) < _WORD_PAIRS
    return digits * 8 >= len(value) or randomness.english_pair_share(value) < _FORM_PAIRS
