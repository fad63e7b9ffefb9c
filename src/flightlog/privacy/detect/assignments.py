"""What stands after a word for a secret: the secret, or code, prose or a stand-in for it.

Reads one name, the marks after it and the value, in any language's syntax: INI, JSON, YAML,
XML, shell, flags, headers, calls, cookies, connection strings. Knows no providers.
"""

import functools
import re
import string
from typing import NamedTuple

from flightlog.privacy.detect import quotes, randomness, rules
from flightlog.privacy.detect.candidates import LOW, MEDIUM, Candidate
from flightlog.privacy.detect.line_wraps import (
    BARE,
    LINE_END,
    NEXT_FIELD,
    WRAPPED_MAX,
    extend_with_lone_line,
    unwrap_lines,
    unwrap_value,
)

PASSWORDS = ("passphrase", "password", "passwd", "passw", "pass", "pwd", "psk", "securestring", "mnemonic")
STRONG = ("secret", "token", "bearer", "credential", "creds", "auth", "key", "crumb", "sig=")
WEAK = (
    "sessid",
    "sessionid=",
    "connect.sid",
    "cookie",
    "webhook",
    "salt",
    "license_key",
    "licensekey",
    "license-key",
    "license key",
    "_session=",
)
WORDS = (*PASSWORDS, *STRONG, *WEAK)
_HEADER = ("authorization", "authorisation")
# Letters that make another word of it: tokens, keyword, author.
_NOT_NEXT = {"token": "si", "pass": "a-z", "key": "swb", "auth": "o", "salt": "es"}
NAME_MAX = 40
_NAME_BYTES = (string.ascii_letters + string.digits + "_-.").encode()
_GAP_MAX = 40
_FILLERS_MAX = 5
_VALUE_MAX = 560
_TELLING = 150
# How far after a word is looked to tell whether it is worth a judgement: the word itself, and half a value.
WORTH_MAX = 60 + _TELLING
_FILLERS = (
    "b|r|u|f|value|val|default|string|str|char|text|basic|bearer|token|apikey|const|final|type|content|plaintext|asplaintext"
    "|ssws|digest|bot|header|hex|varchar|byte|var|let|new|env|static|readonly|optional|raw|identified|is|fmt|sprintf|s|base64"
)
# Of one character class, or over a few bytes: the standard library is linear here, and quicker to call.
_TAIL = rules.quick_pattern(rb"[\w.\-]*")
_MARKS = rules.quick_pattern(rb"[^A-Za-z0-9\x00]+")
_NUMBER = rules.quick_pattern(rb"[0-9]{1,6}(?:\t|(?:\xe2\x86\x92)+)[ \t]*")
_FILLER = rules.linear_pattern(f"(?i)(?:{_FILLERS})\\b".encode())
_WORD = rules.quick_pattern("(?i:{})".format("|".join(map(re.escape, sorted(WORDS, key=len, reverse=True)))).encode())
# Each word for a secret holds one of these.
_LEAST_WORD = rules.quick_pattern(
    b"|".join(re.escape(word.encode()) for word in WORDS if not any(each in word for each in WORDS if each != word))
)
_OPERATOR = rules.quick_pattern(rb"[=:>(|,]|<-|\s-\s")
_MASKED = rules.quick_pattern(rb"[#*.]{3,}\s")
_OPENED = rules.quick_pattern(rb"(?:[\"'`]|&quot;)\s*$")
_BORING = rules.linear_pattern(
    rb"(?i)(?-i:[a-z]p[sS]k)|pub(?:lic)?[_.-]?(?:key|token)|key[_.-]?(?:words?|board|stone|stroke|frame|press|bind|name|file|path|type|len|size"
    rb"|code|s?tore|ring|s\b|map|chain|less|note|noun|down|up\b|left|right|selector|mesh|pair|alias|id\b|vault|tab|ing)"
    rb"|monkeys?\b|monkey[_-]|turkey|hockey|donkey|whiskey|jockey|mickey"
    rb"|(?:primary|foreign|cache|sort|partition|hash|index|idx|hot|bucket|schema|sequence|natural|issuer|package).?key"
    rb"|short.?cut|key.?event"
    rb"|tokeniz|token.?(?:type|count|limit|usage|url|uri|endpoint|path|name|enum|kind|budget|len|file)|tokens|csrf|author\b|passive"
    rb"|pass(?:ed|ing|es|age|enger|ion|port)|bypass|compass|surpass|secretar|accessib|accessor|access.?log"
    rb"|session.?(?:id|dir|path|file|name|count|s\b)|sessions|sha(?:1|256|384|512)|checksum|hash|digest|integrity"
    rb"|fingerprint|auth.?(?:type|method|url|uri|endpoint|mode|source|results|enticat)|api.?(?:version|url|path|base"
    rb"|host|endpoint|group|doc|name)|signature.?(?:algo|version|method)|uuid|guid|thinking|tool.?use|etag|nonce|seeds|cookies"
    rb"|request.?id|stylesheet|accession|secrets?.?(?:name|id|len|size)|credentials?.?(?:id|url|uri|endpoint)|withcredentials"
    rb"|license.?(?:file|type|url)"
)
# It opens something where it is drawn at random, and else is the name of a secret.
_SECRET_ID = rules.quick_pattern(rb"(?i)secret[_-]id\Z")
_NEED_NO_DIGIT = (*(word.encode() for word in PASSWORDS), b"secret")
_DIGIT = rules.quick_pattern(rb"[0-9]")
# As many as the least length of a key, `_FILLER_MIN`.
_REPEATED = rules.quick_pattern(rb"([A-Za-z])\1{15}")
_TYPED = rules.quick_pattern(rb"[0-9!@#$%^&*+=?~-]")
_HUMPED = rules.linear_pattern(rb"[a-z][A-Z].*[a-z][A-Z]")
_PROSE = rules.quick_pattern(rb"[A-Za-z]{1,14}[.:!?]?\Z")
# Other marks make it another thing than a key; a percent sign only as addresses write it.
_USER = rules.quick_pattern(rb"(?i)(?:user|uid|login)[\w ]{0,12}[\"']?\s*(?:=>|[=:>])\s*[^\s=]")
_USER_REACH = 120
# In YAML and notes a word alone after `password:` ends its line; types in code are followed by a mark or have humps.
_LAST_WORD = rules.quick_pattern(rb"[A-Za-z][a-z]{5,30}(?: {0,2}\n|\r|\Z|\0|\"(?:[,}]|\Z))")
# Types, selectors, variables, pages about passwords.
_NO_PASSWORD = rules.quick_pattern(
    rb"(?i)^(?:string|str|text|bool(?:ean)?|number|int(?:eger)?|none|null|true|false|undefined|required|optional|any|bytes"
    rb"|object|secretstr|field|varchar|hidden|input|password|passwd)\b|(?-i:^[A-Z0-9_]*(?:PASSW|PWD)[A-Z0-9_]*$)|^!vault\b|^[#.][a-z-]+$|^\$[a-z_]|passw.*/|/.*passw"
)
_ALPHABET = rules.quick_pattern(rb"(?:[A-Za-z0-9_+/=.:-]|%[0-9A-Fa-f]{2})+")
_LATER = rules.quick_pattern(rb"(?:[A-Za-z][\w.@-]{1,30}[ \t]+){1,3}([A-Za-z0-9_+/=.-]{8,400})(?=[\s\"'`<>,;}\])]|\Z)")
_LATER_MAX = 460
_HASHY = rules.quick_pattern(rb"(?i)sha|hash|commit|digest|md5|revision|checksum|version")
_NAMED_NEXT = rules.quick_pattern(rb"[\w.-]+ ?[=:]")
# A mere `key` names entries of caches, stores and lists: short ids, paths, and slugs such as `Linux-pip-<hash>`.
_BARE_KEY_MIN = 16  # ids of lists have 12 or fewer characters
_SLUG = rules.quick_pattern(
    rb"[A-Za-z]{2,}[0-9.]*[-/:](?:[A-Za-z0-9._]+[-/:])*[0-9a-f]{32,}|[a-z]{3,}/.*/|/[^/]*\.[a-z]{2,4}$"
)
_ASSIGNS = (b"=", b":", b">")
# Marks that some vendors draw keys with, beside letters and digits; without them it must look random all the same.
_KEY_MARKS = b"\\%"
# Names under which even a repeated character or a number counts; a mere `key` or `token` has numbers as ids.
_SURE_NAMES = (b"secret", b"api", b"access", b"auth", b"private")
_FILLER_MIN = 16  # the shortest keys of vendors
_NUMBER_MAX = 20  # digits of the largest number of 64 bits
_FILLER_LETTERS = 3  # one repeated character, and up to two marks between
_NOISE = rules.linear_pattern(rb"[!@#$%^&*()][^!@#$%^&*()]*[!@#$%^&*()].*[!@#$%^&*()]")
_HEX = rules.quick_pattern(rb"[0-9a-fA-F]{16,}")


class _AssignedValue(NamedTuple):
    start: int
    end: int
    text: bytes
    quoted: bool
    operator: bytes
    told: bool = False


def find_words(low: bytes) -> tuple[str, ...]:
    """Return the words for secrets that stand in a text of small letters."""
    return tuple(word for word in (*WORDS, *_HEADER) if word.encode() in low)


def assignment_pattern(among: tuple[str, ...] = WORDS) -> str:
    """Return a pattern for a word for a secret, of those `among` them, and the beginning of a value after it."""
    words = []
    for word in sorted(set(among) - set(_HEADER), key=len, reverse=True):
        barred = _NOT_NEXT.get(word, "")
        first = f"[^\\W{barred}{barred.upper()}]|[.-]" if barred else r"[\w.-]"
        words.append(f"{re.escape(word)}(?:(?:{first})[\\w.-]*)?")
    more = rf"(?:(?:{_FILLERS})[^A-Za-z0-9\x00]+)*"
    chars = r"[A-Za-z0-9_\-+/~.$!@#%^&*]"
    numbered = r"(?:[0-9]{1,6}(?:[ \t]|\xe2)[^A-Za-z0-9\x00]+)?"
    # Marks that assign, then anything; or a mere blank, then something with a digit, as after a flag.
    typed = rf"(?:(?:[ :\r\n-]|\\[rn])+(?:{_FILLERS}))?"
    marks = r"[^A-Za-z0-9\x00]*"
    value = rf"(?:{chars}{{6}}|{chars}{{2,5}}{LINE_END})"
    assigned = rf"{typed}{marks}(?:[=:>(|,\"'`]| - | is [\"'`]){marks}{numbered}{more}{value}"
    blank = r"[ \t]+[A-Za-z_\-+/.~$!@#%^&*]*[0-9]"
    return rf"(?:{'|'.join([*words, *_HEADER])})(?:{assigned}|{blank})"


def word_end(view: bytes, start: int) -> int:
    """Return where the word for a secret that begins at `start` ends, or 0 if none begins there."""
    word = _WORD.match(view, start)
    return word.end() if word else 0


def contains_word(text: bytes) -> bool:
    """Say whether a word for a secret stands somewhere in `text`."""
    return _LEAST_WORD.search(text.lower()) is not None


def is_worth_judging(view: bytes, start: int) -> bool:
    """Say, of text with its escapes, whether the word at `start` may introduce a secret: most do not."""
    end = word_end(view, start)
    word = view[start:end].lower()
    if not word.startswith(_NEED_NO_DIGIT) and not _may_be_key(view, end):
        return False
    tail = _TAIL.match(view, end, end + NAME_MAX)
    return not _is_boring(_name_before(view, start) + view[start : tail.end() if tail else end])


def _may_be_key(view: bytes, end: int) -> bool:
    """Return whether something within reach has a digit, or repeats a letter as fillers of keys do."""
    stop = end + _TELLING
    return _DIGIT.search(view, end, stop) is not None or _REPEATED.search(view, end, stop) is not None


def judge_assignment(view: bytes, start: int, end: int) -> Candidate | None:
    """Return the secret value that the word at `start`:`end` introduces, if it does."""
    word = view[start:end].lower()
    if not word.startswith(_NEED_NO_DIGIT) and not _may_be_key(view, end):
        return None
    tail = _TAIL.match(view, end, end + NAME_MAX).end()
    name = _name_before(view, start) + view[start:tail]
    if _is_boring(name):
        return None
    high = _gap_end(view, tail)
    value = _find_value(view, tail, high, name)
    if _SECRET_ID.search(name) and not (value and randomness.is_uuid(value.text)):
        return None
    if value is not None and not value.quoted and word.decode("latin-1").startswith(PASSWORDS):
        end, text = extend_with_lone_line(view, value.end, value.text)
        value = value._replace(end=end, text=text)
    if value is not None and word.decode("latin-1").startswith(PASSWORDS):
        value = value._replace(told=_is_certain_password(view, start, value, name))
    weight = _weigh_value(word, name.lower(), value) if value is not None and value.text else 0
    if value is None or not weight:
        return _find_later_key(view, word, tail, high)
    return Candidate(value.start, value.end, _rule_for_word(word), value.text, weight)


def _find_later_key(view: bytes, word: bytes, low: int, high: int) -> Candidate | None:
    """Return a key that stands a few words after the mark: `<secret>{vendor kind KEY}`, `token: use KEY`."""
    operator = _OPERATOR.search(view, low, high)
    if operator is None or operator.group() not in (b"=", b":", b">") or word.decode("latin-1") not in STRONG:
        return None
    later = _LATER.match(view, high, high + _LATER_MAX)
    if later is None or _HASHY.search(view, high, later.start(1)):
        return None
    stop, text = unwrap_value(view, *later.span(1))
    if len(text) < 16:
        return None
    random = (
        randomness.is_random(text) if not randomness.is_uuid(text) else view[later.start() - 1 : later.start()] == b"{"
    )
    return Candidate(later.start(1), stop, _rule_for_word(word), text, MEDIUM) if random else None


@functools.lru_cache(maxsize=4096)
def _is_boring(name: bytes) -> bool:
    return _BORING.search(_SECRET_ID.sub(b"", name)) is not None


def _gap_end(view: bytes, at: int) -> int:
    """Return where the marks after a name end, with words of the language among them."""
    for _ in range(_FILLERS_MAX):
        marks = _MARKS.match(view, at, at + _GAP_MAX)
        if marks is None:
            break
        at = marks.end()
        number = _NUMBER.match(view, at, at + 10) if b"\n" in marks.group() else None
        if number is not None:
            at = number.end()
            continue
        filler = _FILLER.match(view, at, at + 16)
        if filler is None or _MARKS.match(view, filler.end(), filler.end() + 1) is None:
            break
        at = filler.end()
    return at


def _name_before(view: bytes, start: int) -> bytes:
    before = view[max(0, start - NAME_MAX) : start]
    return before[len(before.rstrip(_NAME_BYTES)) :]


def _find_value(view: bytes, low: int, high: int, name: bytes) -> _AssignedValue | None:
    gap = view[low:high]
    operator = _OPERATOR.search(gap)
    # An empty or masked value, or a list: what follows is something else.
    marks = gap.replace(b"\\", b"")
    empty = b'""' in marks or b"''" in marks or _MASKED.search(gap) is not None or (b"[" in gap and b"," in gap)
    if empty or (operator is None and not (name.startswith(b"-") or gap.strip() == b"" or _OPENED.search(gap))):
        return None
    marks = operator.group() if operator else b""
    # Passwords may begin with a mark that the gap took: the value begins after the quote or the blank.
    opened = quotes.find_quoted_value(view, low, gap, operator.end() if operator else 0)
    if b"\n" in gap and opened is None and _NAMED_NEXT.match(view, high, high + NAME_MAX):
        return None  # nothing was assigned, and the next line begins with a name of its own
    if opened is not None:
        return _value_in_quotes(view, low + opened[0], opened[1], marks)
    if gap.endswith((b"{", b"[")):
        return None  # a field of a template, or a subscript
    begin = low + len(gap.rstrip(b"$!@#%^&*+/.~-_?")) if gap.rstrip(b"$!@#%^&*+/.~-_?") else high
    bare = BARE.match(view, begin, begin + _VALUE_MAX)
    if bare is None:
        return None
    # In the query of an address the next name ends it.
    query = NEXT_FIELD.search(view, begin, bare.end()) if marks == b"=" or name.endswith(b"=") else None
    return _make_unwrapped_value(view, begin, query.start() if query else bare.end(), marks)


def _value_in_quotes(view: bytes, start: int, quote: bytes, marks: bytes) -> _AssignedValue | None:
    close = view.find(quote, start, start + _VALUE_MAX)
    line = view.find(b"\n", start, start + _VALUE_MAX)
    if close < 0 and line < 0:
        bare = BARE.match(view, start, start + _VALUE_MAX)
        return _AssignedValue(start, bare.end(), bare.group(), quoted=False, operator=marks) if bare else None
    if line >= 0 and (close < 0 or line < close):
        text, back = unwrap_lines(view, start, WRAPPED_MAX)
        end = text.find(quote)
        whole = text[:end].rstrip(b"\\") if end >= 0 else b""
        end = len(whole)
        return _AssignedValue(start, back(end), whole, quoted=True, operator=marks) if whole.strip() else None
    text = view[start:close].rstrip(b"\\")
    return _AssignedValue(start, start + len(text), text, quoted=True, operator=marks)


def _make_unwrapped_value(view: bytes, start: int, end: int, marks: bytes) -> _AssignedValue:
    stop, text = unwrap_value(view, start, end)
    return _AssignedValue(start, stop, text, quoted=False, operator=marks)


def _weigh_value(word: bytes, name: bytes, value: _AssignedValue) -> int:
    text = value.text.rstrip(b".")
    # Unquoted, a word and `=` are the next attribute: `name="password" placeholder="…"`.
    attribute = not value.quoted and text.endswith(b"=") and text[:-1].isalpha()
    if len(text) < 4 or text.endswith(b":") or attribute or randomness.is_reference(text) or b"\0" in text:
        return 0
    if word.decode("latin-1").startswith(PASSWORDS):
        told = value.operator != b"|" and (word != b"pass" or value.operator in (b"=", b":", b">"))
        return _weigh_password(text, value) if told and text.lower().rstrip(b":*?") not in name else 0
    if b"secret" in name and b" " not in text and len(text) >= 20 and _NOISE.search(text):
        written = value.quoted or (value.operator in (b"=", b":") and not randomness.is_code(text))
        return MEDIUM if written and randomness.shannon_entropy(text) >= 3.5 else 0
    if value.operator in _ASSIGNS and not randomness.is_code(text):
        text = text.translate(None, _KEY_MARKS)
    listed = name.strip(b"_-.") == b"key" and (len(text) < _BARE_KEY_MIN or _SLUG.search(text))
    if listed or b" " in text or len(text) < 10 or (randomness.is_code(text) and not randomness.is_headed(text)):
        return 0
    return MEDIUM if _is_key(word.decode("latin-1") in STRONG, name, value._replace(text=text)) else 0


def _is_key(strong: bool, name: bytes, value: _AssignedValue) -> bool:  # noqa: FBT001 - a fact about the word
    if randomness.is_uuid(value.text):
        named = any(mark in name for mark in (b"secret", b"token", b"apikey", b"api_key", b"api-key", b"authoriz"))
        return named and len(set(value.text)) > _FILLER_LETTERS  # the nil UUID stands for none
    if value.operator in _ASSIGNS and _is_filler(value.text):
        return any(mark in name for mark in _SURE_NAMES) or len(value.text) > _NUMBER_MAX
    if _ALPHABET.fullmatch(value.text) is None or (value.operator and randomness.is_grouped(value.text)):
        return _ALPHABET.fullmatch(value.text) is not None
    if not strong:
        return len(value.text) >= 16 and value.operator != b"" and randomness.is_random(value.text, floor=3.5)
    if _HEX.fullmatch(value.text):
        return randomness.shannon_entropy(value.text) >= 2.8
    return randomness.is_random(value.text, floor=3.0 if len(value.text) >= 20 else 2.9)


def _is_filler(text: bytes) -> bool:
    """Return whether `text` is as long as a key, but one repeated character or a mere number."""
    return len(text) >= _FILLER_MIN and (text.isdigit() or len(set(text)) <= _FILLER_LETTERS)


def _weigh_password(text: bytes, value: _AssignedValue) -> int:
    listed = value.operator[:1] in (b"(", b",") and not value.told
    # Names in lists of code have over half of their letter pairs usual, `urllib2` and `category-table` too.
    mixed = value.quoted and _TYPED.search(text) and randomness.english_pair_share(text) < 0.5
    if randomness.is_code(text) or _NO_PASSWORD.search(text) or (listed and not mixed):
        return 0
    if value.quoted:
        return LOW if len(text) >= 5 and text.count(b" ") <= 4 and not _is_sentence(text) else 0
    if value.told and len(text) >= 5:
        return LOW
    if value.operator == b">" or (value.operator == b"=" and randomness.english_pair_share(text) < 0.5):
        return LOW if (len(text) >= 6 and not _PROSE.match(text[:20])) or _HUMPED.search(text) else 0
    if not value.operator and len(text) < 8:
        return 0
    return LOW if len(text) >= 6 and _TYPED.search(text) and not _PROSE.match(text) else 0


def _is_certain_password(view: bytes, start: int, value: _AssignedValue, name: bytes) -> bool:
    """Say whether any word after `password` is one: beside a user's name, or in an environment's syntax."""
    if value.quoted:  # the last argument of a call; in lists of names more follow
        return view[value.end : value.end + 4].lstrip(b"\\\"'`")[:1] == b")"
    before, user = view[value.start - 1 : value.start], _USER.search(view, max(0, start - _USER_REACH), start)
    if value.operator == b">":
        return view[value.end : value.end + 2] == b"</" and user is not None
    if value.operator not in (b"=", b":") or before not in (b"=", b":", b" "):
        return False
    alone = value.operator == b":" and _LAST_WORD.match(view, value.start, value.end + 4)
    exported = value.operator == b"=" and name.isupper() and before == b"="
    return bool(alone or exported or user)


def _is_sentence(text: bytes) -> bool:
    if text.count(b" ") == 0 or _TYPED.search(text):
        return False
    # Small letters alone are a passphrase, unless grammar holds the words together.
    return randomness.english_pair_share(text) > 0.5 and (
        randomness.is_prose(text) or not text.replace(b" ", b"").islower()
    )


def _rule_for_word(word: bytes) -> str:
    return "password" if word.decode("latin-1").startswith(PASSWORDS) else "generic-secret"
