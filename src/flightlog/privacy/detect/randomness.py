"""Distinguish random values from words, code and placeholders.

Pure functions of one value. English letter pairs separate identifiers from tokens better than
entropy alone: `client-vpn-endpoint-id` has the entropy of a key and the letter pairs of words.
"""

import itertools
import math
import string

from flightlog.privacy.detect import rules

# The letters that usually follow a letter in English.
_PAIRS = (
    "a:bcdgilmnprsty b:aeiloru c:aehiklortu d:adeiloru e:abcdefgiklmnprstvwx f:efiort "
    "g:aehilnoru h:aeio i:abcdefglmnoprstvz k:eins l:adeilostuy m:abeiopy "
    "n:acdegiknostuvy o:abcdfgiklmnoprstuvw p:aeilopru q:u r:acdeikmnorstuvy "
    "s:acehiklmopstuwy t:acehiloprstuwy u:bcegilmnprst v:aeio w:aehio y:es"
)
_FOLLOWS = dict(pair.split(":") for pair in _PAIRS.split())
# A capital after a small letter is unusual: camelCase has few of them, random values one at every
# other letter.
_USUAL = {
    (first, second): second.lower() in _FOLLOWS.get(first.lower(), "")
    and not (first.islower() and second.isupper())
    for first in string.ascii_letters
    for second in string.ascii_letters
}
# Values up to this length take their logarithms from a table; nearly all values are shorter.
_SHORT_MAX = 300
# The share of usual pairs changes little after this many characters, so the rest is not examined.
_PAIR_CHARS_MAX = 100
# n * log2(n), with 0 for n = 0.
_N_LOG_N = [0.0, *(n * math.log2(n) for n in range(1, _SHORT_MAX + 1))]
_LETTERS = string.ascii_letters.encode()
# Bits per character: a value of mixed characters below it repeats too few of them to be a key.
RANDOM_ENTROPY = 3.0
# Shares of English letter pairs. Words have over 0.5, values drawn from letters about 0.25. A value
# without digits, or one that begins as code does, must be clearly below words. With digits, a
# higher share is still random: the more digits and runs of them, the higher.
_LETTERS_PAIRS, _FEW_DIGITS_PAIRS, _DIGITS_PAIRS, _SCATTERED_PAIRS = 0.45, 0.55, 0.62, 0.8
# Variables, template fields and masks: never a value, whatever name they are assigned to.
_REFERENCE = rules.linear_pattern(
    rb"(?i)\*\*\*|\.\.\.|<[^>]*>|\$\{|\$\(|\{\{|%\(\w|^%[a-z]|^\$[A-Za-z_]+$|#\{|redacted|undefined"
    rb"|process\.env|environ|getenv|^env[.(\[]|secrets\.|<secret:|<person:"
)
# Words and sequences of invented values in documentation and tests.
_PLACEHOLDER = rules.linear_pattern(
    rb"(?i)example|place.?holder|change.?me|(?-i:your|Your|YOUR)|(?-i:xxxx|XXXX)|dummy|sample|insert"
    rb"|replace.?(?:me|with|this)|not.?a.?real|fake|my.?(?:secret|token|key|pass)|todo|fixme"
    rb"|abcdef123|123456789|00000000|abcdefgh"
)
# Words of sentences about a password; passphrases are made of other words.
_GRAMMAR = frozenset(
    b"the your you a an is are was be to of for and or in on at by with must may not no this that it"
    b" if from as please enter new old use set has have can will password passphrase".split()
)
# One or two character classes: the standard library is linear here, and its call is faster.
_DIGIT_RUN = rules.quick_pattern(rb"[0-9]+")
_HUMP = rules.quick_pattern(rb"[a-z][A-Z]")  # a word begins inside a name in camelCase
# A UUID in either case, without braces.
_UUID = rules.linear_pattern(rb"(?i)[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
# Attribute access, calls and subscripts, paths, addresses, file and host names.
_CODE = rules.linear_pattern(
    rb"^[A-Za-z_$][\w$]*(?:(?:\.|::|->)[A-Za-z_$][\w$]*)+[();,\[\]]*$"
    rb"|[({\[]|^/|^\.{1,2}/|^~/|^[a-z]+://|^[@&*]"
    rb"|^[\w.-]+\.(?:py|js|ts|go|rs|c|h|md|json|ya?ml|toml|txt|html?|css|sh|pem|crt|key"
    rb"|internal|local|com|org|net|io)$"
)
# Names in code that have a digit among ten characters are shorter than this.
_LONG = 40
# The characters of dotted names and of tokens in parts.
_RUN = rules.quick_pattern(rb"[A-Za-z0-9_.-]+")
# A short word and a dot, or a slash: one key in 64 begins with a slash, as paths do.
_HEADED = rules.quick_pattern(rb"(?:[a-z]{1,8}\.|/)([A-Za-z0-9_+/=-]{24,200})")
# Product keys: groups of capitals and digits.
_GROUPS = rules.quick_pattern(rb"[A-Z0-9]{3,8}(?:-[A-Z0-9]{3,8}){3,7}")
# Dates, version numbers and ranges, and hashes with the name of their algorithm.
_DATE = rules.linear_pattern(
    rb"^\d{4}-\d\d-\d\d|^\d+(?:\.\d+)+$|^[v^~<>=]{0,2}\d+\.\d+\.\d+|^(?i:sha(?:1|256|384|512)|md5)[=:-]"
)
# Variables, masks, and ranges of ports in place of a password.
_MASK = rules.linear_pattern(rb"^[$<{%*]|^\[|^x+$|^:|^//|\{\w+|^[0-9]+:[0-9]+$")
# What prose says of a password: `is required`, `is not set`, `is hashed`.
_PREDICATE = rules.quick_pattern(
    rb"(?i)(?:not|now|never|always|also|only|being|still|stored|empty|wrong|incorrect|correct|valid|invalid"
    rb"|missing|optional|default|equal|safe|secure|weak|strong|blank|null|none|hidden|secret|known|unknown"
    rb"|longer|shorter|different|unique|temporary|about|their|there|these|those|where|which|given|shown"
    rb"|written|taken|\w*(?:ed|ing|able|ible))\Z"
)


def shannon_entropy(value: bytes) -> float:
    """Return the Shannon entropy of `value`, in bits per character."""
    size = len(value)
    counts = map(value.count, set(value))
    if size > _SHORT_MAX:
        return math.log2(size) - sum(n * math.log2(n) for n in counts) / size
    return math.log2(size) - sum(map(_N_LOG_N.__getitem__, counts)) / size if size else 0


def is_reference(value: bytes) -> bool:
    """Return whether `value` is a variable, a template field or a mask."""
    return _REFERENCE.search(value) is not None


def is_placeholder(value: bytes) -> bool:
    """Return whether `value` is a reference or an invented example."""
    return is_reference(value) or _PLACEHOLDER.search(value) is not None or len(set(value)) <= 3


def is_prose(value: bytes) -> bool:
    """Return whether `value` is a sentence: it has words of grammar, a passphrase has none."""
    return not _GRAMMAR.isdisjoint(value.lower().split())


def is_uuid(value: bytes) -> bool:
    """Return whether `value` is a UUID: far more often an identifier than a credential."""
    return _UUID.fullmatch(value) is not None


def is_code(value: bytes) -> bool:
    """Return whether `value` is code, a path, an address, a date or a version."""
    return _CODE.search(value) is not None or _DATE.search(value) is not None


def is_headed(value: bytes) -> bool:
    """Return whether `value` is a key that begins like code or a path: `hvs.…`, `/…`."""
    headed = _HEADED.fullmatch(value)
    if headed is None or count_digits(headed[1]) * 8 < len(headed[1]):
        return False
    return english_pair_share(headed[1]) < _LETTERS_PAIRS and is_random(headed[1])


def english_pair_share(value: bytes) -> float:
    """Return the share of letter pairs that are usual in English: over a half in words."""
    text = value[:_PAIR_CHARS_MAX].decode("latin-1")
    pairs = [_USUAL[pair] for pair in itertools.pairwise(text) if pair in _USUAL]
    return sum(pairs) / len(pairs) if pairs else 0


def count_digits(value: bytes) -> int:
    """Return the number of ASCII digits in `value`."""
    return len(value) - len(value.translate(None, b"0123456789"))


def is_random(value: bytes, *, floor: float = RANDOM_ENTROPY) -> bool:
    """Return whether `value` looks random: mixed characters, no words, entropy of at least `floor`.

    Sequences such as `a1b2c3d4` look random, too.
    """
    digits = count_digits(value)
    letters = len(value) - len(value.translate(None, _LETTERS))
    if letters < 2 or shannon_entropy(value) < floor or not _has_long_part(value):
        return False
    if not _is_mixed(value, digits) or is_reference(value):
        return False
    long = len(value) >= _LONG and digits * 10 >= len(value) and _RUN.fullmatch(value) is not None
    return not is_code(value) or long or is_headed(value)


def is_grouped(value: bytes) -> bool:
    """Return whether `value` is a product key in groups: `4NR5Z-OG9JH-M6DVG-BBZFL`."""
    return (
        _GROUPS.fullmatch(value) is not None
        and count_digits(value) >= 3
        and not value.replace(b"-", b"").isdigit()
    )


def is_masked(value: bytes) -> bool:
    """Return whether `value` is a variable, a mask or a range of ports in place of a password."""
    return _MASK.search(value) is not None


def is_password_like(value: bytes) -> bool:
    """Return whether `value` may be a password: long enough, and nothing in place of one."""
    return len(value) >= 4 and not is_reference(value) and not is_masked(value)


def is_predicate(value: bytes) -> bool:
    """Return whether prose says `value` of a password: `is required`, `is hashed`."""
    return _PREDICATE.match(value) is not None


def is_dense(value: bytes) -> bool:
    """Return whether `value` has the entropy and the digits of a key, and is no code."""
    dense = shannon_entropy(value) >= RANDOM_ENTROPY
    return dense and count_digits(value) >= 2 and not is_code(value)


def _has_long_part(value: bytes) -> bool:
    return max(map(len, value.replace(b"-", b"_").replace(b".", b"_").split(b"_"))) >= 8


def _is_mixed(value: bytes, digits: int) -> bool:
    humps = len(_HUMP.findall(value))
    if not digits:
        return len(value) >= 16 and humps >= 3 and english_pair_share(value) < _LETTERS_PAIRS
    # Names seldom have digits in several positions or a capital every few letters.
    runs = len(_DIGIT_RUN.findall(value))
    if runs >= 4 and digits * 5 >= len(value):
        return True
    if runs >= 3 or humps >= 5:
        return english_pair_share(value) < _SCATTERED_PAIRS
    most = _DIGITS_PAIRS if digits * 8 > len(value) else _FEW_DIGITS_PAIRS
    return english_pair_share(value) < most


# Words that passwords and the names of users and machines share with ordinary text.
COMMON_WORDS = frozenset(word.encode() for word in rules.load_words("common"))
