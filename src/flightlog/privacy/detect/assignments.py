"""Judge the value after a word for a secret: a secret, or code, prose or a placeholder.

Reads a name, the marks after it and the value, in any language's syntax: INI, JSON, YAML, XML,
shell, flags, headers, calls, cookies, connection strings. Providers are in `named_values`.
"""

import functools
import re
import string

from flightlog.privacy.detect import line_wraps, randomness, rules
from flightlog.privacy.detect.candidates import LOW, MEDIUM, Candidate

PASSWORDS = tuple("passphrase password passwd passw pass pwd psk securestring mnemonic".split())
STRONG = ("secret", "token", "bearer", "credential", "creds", "auth", "key", "crumb", "sig=")
WEAK = (
    *"sessid sessionid= connect.sid cookie webhook salt".split(),
    *"license_key licensekey license-key _session=".split(),
    "license key",
)
WORDS = (*PASSWORDS, *STRONG, *WEAK)
_HEADER = ("authorization", "authorisation")
# Letters after a word that make it another word: tokens, keyword, author.
_NOT_NEXT = {"token": "si", "pass": "a-z", "key": "swb", "auth": "o", "salt": "es"}
NAME_MAX = 40  # bytes of a name before and after the word: longer than names in code
_NAME_BYTES = (string.ascii_letters + string.digits + "_-.").encode()
_DIGIT_REACH = 150  # a key has a digit within this many bytes after the word
# Bytes after a word that decide whether it is worth a judgement: the word, and half a value.
WORTH_MAX = 60 + _DIGIT_REACH
# One character class, or a few bytes: the standard library is linear here, and its call is faster.
_TAIL = rules.quick_pattern(rb"[\w.\-]*")
# The longest word for a secret that begins here.
_WORD = rules.quick_pattern(
    "(?i:{})".format("|".join(map(re.escape, sorted(WORDS, key=len, reverse=True)))).encode()
)
# Every word for a secret contains one of these.
_LEAST_WORD = rules.quick_pattern(
    b"|".join(
        re.escape(word.encode())
        for word in WORDS
        if not any(part in word for part in WORDS if part != word)
    )
)
# What assigns in some language; ` - ` does in lists of notes.
_OPERATOR = rules.quick_pattern(rb"[=:>(|,]|<-|\s-\s")
_MASKED = rules.quick_pattern(rb"[#*.]{3,}\s")  # `password: ****`
_OPENED = rules.quick_pattern(rb"(?:[\"'`]|&quot;)\s*$")  # a quote without an operator before it
# Names that contain a word for a secret and are something else.
_BORING = rules.linear_pattern(
    rb"(?i)(?-i:[a-z]p[sS]k)|pub(?:lic)?[_.-]?(?:key|token)"
    rb"|key[_.-]?(?:words?|board|stone|stroke|frame|press|bind|name|file|path|type|len|size"
    rb"|code|s?tore|ring|s\b|map|chain|less|note|noun|down|up\b|left|right|selector|mesh|pair|alias"
    rb"|id\b|vault|tab|ing)"
    rb"|monkeys?\b|monkey[_-]|turkey|hockey|donkey|whiskey|jockey|mickey"
    rb"|(?:primary|foreign|cache|sort|partition|hash|index|idx|hot|bucket|schema|sequence|natural|issuer"
    rb"|package).?key"
    rb"|short.?cut|key.?event|tokeniz"
    rb"|token.?(?:type|count|limit|usage|url|uri|endpoint|path|name|enum|kind|budget|len|file)"
    rb"|tokens|csrf|author\b|passive|pass(?:ed|ing|es|age|enger|ion|port)|bypass|compass|surpass|secretar"
    rb"|accessib|accessor|access.?log|session.?(?:id|dir|path|file|name|count|s\b)|sessions"
    rb"|sha(?:1|256|384|512)|checksum|hash|digest|integrity|fingerprint"
    rb"|auth.?(?:type|method|url|uri|endpoint|mode|source|results|enticat)"
    rb"|api.?(?:version|url|path|base|host|endpoint|group|doc|name)|signature.?(?:algo|version|method)"
    rb"|uuid|guid|thinking|tool.?use|etag|nonce|seeds|cookies|request.?id|stylesheet|accession"
    rb"|secrets?.?(?:name|id|len|size)|credentials?.?(?:id|url|uri|endpoint)|withcredentials"
    rb"|license.?(?:file|type|url)"
)
# A `secret_id` is a credential only if its value looks random; otherwise it is an identifier.
_SECRET_ID = rules.quick_pattern(rb"(?i)secret[_-]id\Z")
_NEED_NO_DIGIT = (*(word.encode() for word in PASSWORDS), b"secret")
_DIGIT = rules.quick_pattern(rb"[0-9]")  # every key has one
_REPEATED = rules.quick_pattern(rb"([A-Za-z])\1{15}")  # as many as the shortest key, `_FILLER_MIN`
_TYPED = rules.quick_pattern(rb"[0-9!@#$%^&*+=?~-]")  # what passwords have and words do not
_HUMPED = rules.linear_pattern(rb"[a-z][A-Z].*[a-z][A-Z]")  # two capitals inside
_PROSE = rules.quick_pattern(rb"[A-Za-z]{1,14}[.:!?]?\Z")  # one word, with the end of a sentence
# The name of a user and a value for it.
_USER = rules.quick_pattern(rb"(?i)(?:user|uid|login)[\w ]{0,12}[\"']?\s*(?:=>|[=:>])\s*[^\s=]")
_USER_REACH = 120  # the line before the password fits
# In YAML and notes a single word after `password:` ends its line; types in code are followed by a
# mark or have capitals inside.
_LAST_WORD = rules.quick_pattern(rb"[A-Za-z][a-z]{5,30}(?: {0,2}\n|\r|\Z|\0|\"(?:[,}]|\Z))")
# Types, selectors, variables, pages about passwords.
_NO_PASSWORD = rules.quick_pattern(
    rb"(?i)^(?:string|str|text|bool(?:ean)?|number|int(?:eger)?|none|null|true|false|undefined|required"
    rb"|optional|any|bytes|object|secretstr|field|varchar|hidden|input|password|passwd)\b"
    rb"|(?-i:^[A-Z0-9_]*(?:PASSW|PWD)[A-Z0-9_]*$)|^!vault\b|^[#.][a-z-]+$|^\$[a-z_]|passw.*/|/.*passw"
)
# The characters of keys; a percent sign only as addresses write it.
_ALPHABET = rules.quick_pattern(rb"(?:[A-Za-z0-9_+/=.:-]|%[0-9A-Fa-f]{2})+")
# One to three words, then a key.
_LATER = rules.quick_pattern(
    rb"(?:[A-Za-z][\w.@-]{1,30}[ \t]+){1,3}([A-Za-z0-9_+/=.-]{8,400})(?=[\s\"'`<>,;}\])]|\Z)"
)
_LATER_MAX = 460  # three short words and the longest key of `_LATER`
_LATER_KEY_MIN = 16  # after other words only the length of a vendor's key counts
# Words after which a random value is a hash or a version.
_HASHY = rules.quick_pattern(rb"(?i)sha|hash|commit|digest|md5|revision|checksum|version")
_NAMED_NEXT = rules.quick_pattern(rb"[\w.-]+ ?[=:]")  # the next line assigns something else
# A mere `key` names entries of caches, stores and lists: short ids, paths, and slugs such as
# `Linux-pip-<hash>`.
_BARE_KEY_MIN = 16  # ids of lists have 12 or fewer characters
# A slug that ends with a hash, a path of directories, a file name.
_SLUG = rules.quick_pattern(
    rb"[A-Za-z]{2,}[0-9.]*[-/:](?:[A-Za-z0-9._]+[-/:])*[0-9a-f]{32,}|[a-z]{3,}/.*/|/[^/]*\.[a-z]{2,4}$"
)
_ASSIGNS = (b"=", b":", b">")
# Marks that some vendors use in keys, beside letters and digits; the rest must look random, too.
_KEY_MARKS = b"\\%"
# Names under which even a repeated character or a number counts: a mere `key` or `token` may be
# a numeric id.
_SURE_NAMES = (b"secret", b"api", b"access", b"auth", b"private")
_UUID_NAMES = (b"secret", b"token", b"apikey", b"api_key", b"api-key", b"authoriz")
_FILLER_MIN = 16  # the shortest keys of vendors
_NUMBER_MAX = 20  # digits of the largest number of 64 bits
_FILLER_LETTERS = 3  # one repeated character, and up to two marks between
_NOISE = rules.linear_pattern(
    rb"[!@#$%^&*()][^!@#$%^&*()]*[!@#$%^&*()].*[!@#$%^&*()]"
)  # three marks
_HEX = rules.quick_pattern(rb"[0-9a-fA-F]{16,}")  # hex keys have 64 bits or more
# Bits per character. Weak words and values full of marks need more than `RANDOM_ENTROPY`; hex has
# at most 4 and short keys repeat less, so they need less.
_WEAK_ENTROPY, _SHORT_ENTROPY, _HEX_ENTROPY = 3.5, 2.9, 2.8
_LONG_KEY = 20  # from here on a key must have `RANDOM_ENTROPY`
# English letter pairs: names in lists of code have over half of them, `urllib2` and
# `category-table` too; passwords with marks have fewer.
_WORD_PAIRS = 0.5


def find_words(low: bytes) -> tuple[str, ...]:
    """Return the words for secrets that occur in a text of small letters."""
    return tuple(word for word in (*WORDS, *_HEADER) if word.encode() in low)


def assignment_pattern(among: tuple[str, ...] = WORDS) -> str:
    """Return a pattern for one of the words `among` and the beginning of a value after it."""
    words = []
    for word in sorted(set(among) - set(_HEADER), key=len, reverse=True):
        barred = _NOT_NEXT.get(word, "")
        first = f"[^\\W{barred}{barred.upper()}]|[.-]" if barred else r"[\w.-]"
        words.append(f"{re.escape(word)}(?:(?:{first})[\\w.-]*)?")
    more = rf"(?:(?:{line_wraps.FILLERS})[^A-Za-z0-9\x00]+)*"
    chars = r"[A-Za-z0-9_\-+/~.$!@#%^&*]"
    numbered = r"(?:[0-9]{1,6}(?:[ \t]|\xe2)[^A-Za-z0-9\x00]+)?"
    # Marks that assign, then anything; or only a blank, then something with a digit, as after a flag.
    typed = rf"(?:(?:[ :\r\n-]|\\[rn])+(?:{line_wraps.FILLERS}))?"
    marks = r"[^A-Za-z0-9\x00]*"
    value = rf"(?:{chars}{{6}}|{chars}{{2,5}}{line_wraps.LINE_END})"
    assigned = rf"{typed}{marks}(?:[=:>(|,\"'`]| - | is [\"'`]){marks}{numbered}{more}{value}"
    blank = r"[ \t]+[A-Za-z_\-+/.~$!@#%^&*]*[0-9]"
    return rf"(?:{'|'.join([*words, *_HEADER])})(?:{assigned}|{blank})"


def word_end(view: bytes, start: int) -> int:
    """Return where the word for a secret that begins at `start` ends, or 0 if none begins there."""
    word = _WORD.match(view, start)
    return word.end() if word else 0


def contains_word(text: bytes) -> bool:
    """Return whether a word for a secret occurs in `text`."""
    return _LEAST_WORD.search(text.lower()) is not None


def is_worth_judging(view: bytes, start: int) -> bool:
    """Return whether the word at `start` of raw text may introduce a secret: most do not."""
    end = word_end(view, start)
    return _may_be_key(view, start, end) and not _is_boring(_name_around(view, start, end)[0])


def _may_be_key(view: bytes, start: int, end: int) -> bool:
    """Return whether the word needs no digit, or a digit or a letter repeated as in fillers is near."""
    if view[start:end].lower().startswith(_NEED_NO_DIGIT):
        return True
    stop = end + _DIGIT_REACH
    return bool(_DIGIT.search(view, end, stop) or _REPEATED.search(view, end, stop))


def _name_around(view: bytes, start: int, end: int) -> tuple[bytes, int]:
    """Return the whole name that the word at `start`:`end` is part of, and where it ends."""
    before = view[max(0, start - NAME_MAX) : start]
    tail = _TAIL.match(view, end, end + NAME_MAX).end()
    return before[len(before.rstrip(_NAME_BYTES)) :] + view[start:tail], tail


def judge_assignment(view: bytes, start: int, end: int) -> Candidate | None:
    """Return the secret value that the word at `start`:`end` introduces, or None."""
    if not _may_be_key(view, start, end):
        return None
    word = view[start:end].lower()
    name, tail = _name_around(view, start, end)
    if _is_boring(name):
        return None
    high = line_wraps.gap_end(view, tail)
    value = _find_value(view, tail, high, name)
    if _SECRET_ID.search(name) and not (value and randomness.is_uuid(value.text)):
        return None
    if value is not None and _is_password_word(word):
        if not value.quoted:
            end, text = line_wraps.extend_with_lone_line(view, value.end, value.text)
            value = value._replace(end=end, text=text)
        value = value._replace(certain=_is_certain_password(view, start, value, name))
    weight = _weigh_value(word, name.lower(), value) if value is not None and value.text else 0
    if value is None or not weight:
        return _find_later_key(view, word, tail, high)
    return Candidate(value.start, value.end, _rule_for_word(word), value.text, weight)


def _is_password_word(word: bytes) -> bool:
    return word.decode("latin-1").startswith(PASSWORDS)


def _find_later_key(view: bytes, word: bytes, low: int, high: int) -> Candidate | None:
    """Return a key a few words after the mark: `<secret>{vendor kind KEY}`, `token: use KEY`."""
    operator = _OPERATOR.search(view, low, high)
    if operator is None or operator.group() not in _ASSIGNS or word.decode("latin-1") not in STRONG:
        return None
    later = _LATER.match(view, high, high + _LATER_MAX)
    if later is None or _HASHY.search(view, high, later.start(1)):
        return None
    stop, text = line_wraps.unwrap_value(view, *later.span(1))
    if len(text) < _LATER_KEY_MIN:
        return None
    braced = view[later.start() - 1 : later.start()] == b"{"
    random = braced if randomness.is_uuid(text) else randomness.is_random(text)
    return Candidate(later.start(1), stop, _rule_for_word(word), text, MEDIUM) if random else None


@functools.lru_cache(maxsize=4096)
def _is_boring(name: bytes) -> bool:
    return _BORING.search(_SECRET_ID.sub(b"", name)) is not None


def _find_value(view: bytes, low: int, high: int, name: bytes) -> line_wraps.AssignedValue | None:
    gap = view[low:high]
    operator = _OPERATOR.search(gap)
    # After an empty or masked value, or in a list, the next text is something else.
    unescaped = gap.replace(b"\\", b"")
    empty = b'""' in unescaped or b"''" in unescaped or _MASKED.search(gap) is not None
    listed = b"[" in gap and b"," in gap
    assigned = operator or name.startswith(b"-") or gap.strip() == b"" or _OPENED.search(gap)
    if empty or listed or not assigned:
        return None
    marks = operator.group() if operator else b""
    # Passwords may begin with a mark of the gap: the value begins after the quote or the blank.
    opened = line_wraps.find_quoted_value(view, low, gap, operator.end() if operator else 0)
    if b"\n" in gap and opened is None and _NAMED_NEXT.match(view, high, high + NAME_MAX):
        return None  # nothing was assigned, and the next line begins with another name
    if opened is not None:
        return line_wraps.value_in_quotes(view, low + opened[0], opened[1], marks)
    if gap.endswith((b"{", b"[")):
        return None  # a field of a template, or a subscript
    before = gap.rstrip(b"$!@#%^&*+/.~-_?")
    begin = low + len(before) if before else high
    bare = line_wraps.BARE.match(view, begin, begin + line_wraps.VALUE_MAX)
    if bare is None:
        return None
    is_query = marks == b"=" or name.endswith(b"=")
    next_field = line_wraps.NEXT_FIELD.search(view, begin, bare.end()) if is_query else None
    stop, text = line_wraps.unwrap_value(
        view, begin, next_field.start() if next_field else bare.end()
    )
    return line_wraps.AssignedValue(begin, stop, text, quoted=False, operator=marks)


def _weigh_value(word: bytes, name: bytes, value: line_wraps.AssignedValue) -> int:
    text = value.text.rstrip(b".")
    # Unquoted, a word and `=` are the next attribute: `name="password" placeholder="…"`.
    attribute = not value.quoted and text.endswith(b"=") and text[:-1].isalpha()
    is_short = len(text) < 4 or text.endswith(b":")
    if is_short or attribute or randomness.is_reference(text) or b"\0" in text:
        return 0
    if _is_password_word(word):
        assigned = value.operator != b"|" and (word != b"pass" or value.operator in _ASSIGNS)
        if assigned and text.lower().rstrip(b":*?") not in name:
            return _weigh_password(text, value)
        return 0
    if b"secret" in name and b" " not in text and len(text) >= _LONG_KEY and _NOISE.search(text):
        literal = value.quoted or (value.operator in (b"=", b":") and not randomness.is_code(text))
        return MEDIUM if literal and randomness.shannon_entropy(text) >= _WEAK_ENTROPY else 0
    if value.operator in _ASSIGNS and not randomness.is_code(text):
        text = text.translate(None, _KEY_MARKS)
    listed = name.strip(b"_-.") == b"key" and (len(text) < _BARE_KEY_MIN or _SLUG.search(text))
    is_short = listed or b" " in text or len(text) < 10
    if is_short or (randomness.is_code(text) and not randomness.is_headed(text)):
        return 0
    return MEDIUM if _is_key(word, name, text, value.operator) else 0


def _is_key(word: bytes, name: bytes, text: bytes, operator: bytes) -> bool:
    if randomness.is_uuid(text):
        named = any(mark in name for mark in _UUID_NAMES)
        return named and len(set(text)) > _FILLER_LETTERS  # the nil UUID means no value
    is_filler = text.isdigit() or len(set(text)) <= _FILLER_LETTERS
    if operator in _ASSIGNS and len(text) >= _FILLER_MIN and is_filler:
        return any(mark in name for mark in _SURE_NAMES) or len(text) > _NUMBER_MAX
    if _ALPHABET.fullmatch(text) is None:
        return False
    if operator and randomness.is_grouped(text):
        return True
    if word.decode("latin-1") not in STRONG:
        is_long = len(text) >= _FILLER_MIN and operator != b""
        return is_long and randomness.is_random(text, floor=_WEAK_ENTROPY)
    floor = randomness.RANDOM_ENTROPY if len(text) >= _LONG_KEY else _SHORT_ENTROPY
    is_hex = _HEX.fullmatch(text) is not None
    entropy = randomness.shannon_entropy(text) if is_hex else 0.0
    return entropy >= _HEX_ENTROPY if is_hex else randomness.is_random(text, floor=floor)


def _weigh_password(text: bytes, value: line_wraps.AssignedValue) -> int:
    listed = value.operator[:1] in (b"(", b",") and not value.certain
    mixed = (
        value.quoted and _TYPED.search(text) and randomness.english_pair_share(text) < _WORD_PAIRS
    )
    if randomness.is_code(text) or _NO_PASSWORD.search(text) or (listed and not mixed):
        return 0
    if value.quoted:
        return LOW if len(text) >= 5 and text.count(b" ") <= 4 and not _is_sentence(text) else 0
    if value.certain and len(text) >= 5:
        return LOW
    if value.operator == b">" or (
        value.operator == b"=" and randomness.english_pair_share(text) < _WORD_PAIRS
    ):
        is_typed = len(text) >= 6 and not _PROSE.match(text[:20])
        return LOW if is_typed or _HUMPED.search(text) else 0
    if not value.operator and len(text) < 8:
        return 0
    return LOW if len(text) >= 6 and _TYPED.search(text) and not _PROSE.match(text) else 0


def _is_certain_password(
    view: bytes, start: int, value: line_wraps.AssignedValue, name: bytes
) -> bool:
    """Return whether the syntax makes any word a password: beside a user's name, or in a `.env` file."""
    if value.quoted:  # the last argument of a call; in lists of names more follow
        return view[value.end : value.end + 4].lstrip(b"\\\"'`")[:1] == b")"
    before = view[value.start - 1 : value.start]
    user = _USER.search(view, max(0, start - _USER_REACH), start)
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
    if randomness.english_pair_share(text) <= _WORD_PAIRS:
        return False
    # Small letters alone are a passphrase, unless they have words of grammar.
    return randomness.is_prose(text) or not text.replace(b" ", b"").islower()


def _rule_for_word(word: bytes) -> str:
    return "password" if _is_password_word(word) else "generic-secret"
