"""Telling values drawn at random from typed words and from placeholders.

Pure questions about one value. English letter pairs tell identifiers from tokens better
than entropy alone: `client-vpn-endpoint-id` has the entropy of a key and the pairs of words.
"""

import itertools
import math
import string

from flightlog.privacy.detect import rules

# Which letters usually follow a letter in English.
_FOLLOWS = {
    "a": "bcdgilmnprsty",
    "b": "aeiloru",
    "c": "aehiklortu",
    "d": "adeiloru",
    "e": "abcdefgiklmnprstvwx",
    "f": "efiort",
    "g": "aehilnoru",
    "h": "aeio",
    "i": "abcdefglmnoprstvz",
    "k": "eins",
    "l": "adeilostuy",
    "m": "abeiopy",
    "n": "acdegiknostuvy",
    "o": "abcdfgiklmnoprstuvw",
    "p": "aeilopru",
    "q": "u",
    "r": "acdeikmnorstuvy",
    "s": "acehiklmopstuwy",
    "t": "acehiloprstuwy",
    "u": "bcegilmnprst",
    "v": "aeio",
    "w": "aehio",
    "y": "es",
}
# A change from small to capital begins a word in camelCase, but at random it comes at every other letter.
_USUAL = {
    (one, two): two.lower() in _FOLLOWS.get(one.lower(), "") and not (one.islower() and two.isupper())
    for one in string.ascii_letters
    for two in string.ascii_letters
}
_SHORT_MAX = 300
_TELLING_CHARS = 100
_N_LOG_N = [0.0, *(n * math.log2(n) for n in range(1, _SHORT_MAX + 1))]
_LETTERS = string.ascii_letters.encode()
# Where a value comes from, or a mask over it: never the value, whatever name it is assigned to.
_REFERENCE = rules.linear_pattern(
    rb"(?i)\*\*\*|\.\.\.|<[^>]*>|\$\{|\$\(|\{\{|%\(\w|^%[a-z]|^\$[A-Za-z_]+$|#\{|redacted|undefined|process\.env|environ"
    rb"|getenv|^env[.(\[]|secrets\.|<secret:|<person:"
)
_PLACEHOLDER = rules.linear_pattern(
    rb"(?i)example|place.?holder|change.?me|(?-i:your|Your|YOUR)|(?-i:xxxx|XXXX)|dummy|sample|insert"
    rb"|replace.?(?:me|with|this)|not.?a.?real|fake|my.?(?:secret|token|key|pass)|todo|fixme"
    rb"|abcdef123|123456789|00000000|abcdefgh"
)
_GRAMMAR = frozenset(
    b"the your you a an is are was be to of for and or in on at by with must may not no this that it if from as please"
    b" enter new old use set has have can will password passphrase".split()
)
# One character class each: the standard library is linear here, and quicker to call.
_DIGIT_RUN = rules.quick_pattern(rb"[0-9]+")
_HUMP = rules.quick_pattern(rb"[a-z][A-Z]")
_UUID = rules.linear_pattern(rb"(?i)[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_CODE = rules.linear_pattern(
    rb"^[A-Za-z_$][\w$]*(?:(?:\.|::|->)[A-Za-z_$][\w$]*)+[();,\[\]]*$|[({\[]|^/|^\.{1,2}/|^~/|^[a-z]+://|^[@&*]"
    rb"|^[\w.-]+\.(?:py|js|ts|go|rs|c|h|md|json|ya?ml|toml|txt|html?|css|sh|pem|crt|key|internal|local|com|org|net|io)$"
)
# A name of code with a digit among ten letters is not so long.
_LONG = 40
_RUN = rules.quick_pattern(rb"[A-Za-z0-9_.-]+")
# One key in 64 begins with a slash, as paths do.
_HEADED = rules.quick_pattern(rb"(?:[a-z]{1,8}\.|/)([A-Za-z0-9_+/=-]{24,200})")
_GROUPS = rules.quick_pattern(rb"[A-Z0-9]{3,8}(?:-[A-Z0-9]{3,8}){3,7}")
_DATE = rules.linear_pattern(
    rb"^\d{4}-\d\d-\d\d|^\d+(?:\.\d+)+$|^[v^~<>=]{0,2}\d+\.\d+\.\d+|^(?i:sha(?:1|256|384|512)|md5)[=:-]"
)


def shannon_entropy(value: bytes) -> float:
    """Return the Shannon entropy of `value`, in bits per character."""
    size = len(value)
    counts = map(value.count, set(value))
    if size > _SHORT_MAX:
        return math.log2(size) - sum(n * math.log2(n) for n in counts) / size
    return math.log2(size) - sum(map(_N_LOG_N.__getitem__, counts)) / size if size else 0.0


def is_reference(value: bytes) -> bool:
    """Return whether `value` is a variable, a template field or a mask instead of a value."""
    return _REFERENCE.search(value) is not None


def is_placeholder(value: bytes) -> bool:
    """Return whether `value` is a reference or reads as invented: a veto where no name vouches for it."""
    return is_reference(value) or _PLACEHOLDER.search(value) is not None or len(set(value)) <= 3


def is_prose(value: bytes) -> bool:
    """Return whether words are a sentence about something: a passphrase holds no words of grammar."""
    return not _GRAMMAR.isdisjoint(value.lower().split())


def is_uuid(value: bytes) -> bool:
    """Say whether `value` is a UUID, which names things far more often than it opens them."""
    return _UUID.fullmatch(value) is not None


def is_code(value: bytes) -> bool:
    """Say whether `value` reads as code, a path, an address, a date or a version."""
    return _CODE.search(value) is not None or _DATE.search(value) is not None


def is_headed(value: bytes) -> bool:
    """Return whether `value` is a key that begins as code or a path does: `hvs.…`, `/…`."""
    headed = _HEADED.fullmatch(value)
    if headed is None or count_digits(headed[1]) * 8 < len(headed[1]):
        return False
    return english_pair_share(headed[1]) < 0.45 and is_random(headed[1])


def english_pair_share(value: bytes) -> float:
    """Return the share of letter pairs that are usual in English; words have over a half. A part tells enough."""
    pairs = [_USUAL[pair] for pair in itertools.pairwise(value[:_TELLING_CHARS].decode("latin-1")) if pair in _USUAL]
    return sum(pairs) / len(pairs) if pairs else 0.0


def count_digits(value: bytes) -> int:
    """Return how many digits `value` has."""
    return len(value) - len(value.translate(None, b"0123456789"))


def is_random(value: bytes, *, floor: float = 3.0) -> bool:
    """Return whether `value` looks drawn at random: mixed, dense and not made of words. Counting values do, too."""
    digits = count_digits(value)
    letters = len(value) - len(value.translate(None, _LETTERS))
    if letters < 2 or shannon_entropy(value) < floor or not _has_long_part(value):
        return False
    if not _is_mixed(value, digits) or is_reference(value):
        return False
    long = len(value) >= _LONG and digits * 10 >= len(value) and _RUN.fullmatch(value) is not None
    return not is_code(value) or long or is_headed(value)


def is_grouped(value: bytes) -> bool:
    """Say whether `value` is a key in groups, as on a label: `4NR5Z-OG9JH-M6DVG-BBZFL`."""
    return _GROUPS.fullmatch(value) is not None and count_digits(value) >= 3 and not value.replace(b"-", b"").isdigit()


def _has_long_part(value: bytes) -> bool:
    return max(map(len, value.replace(b"-", b"_").replace(b".", b"_").split(b"_"))) >= 8


def _is_mixed(value: bytes, digits: int) -> bool:
    humps = len(_HUMP.findall(value))
    if not digits:
        return len(value) >= 16 and humps >= 3 and english_pair_share(value) < 0.45
    # Digits in several places, or a capital every few letters, are rare among names.
    runs = len(_DIGIT_RUN.findall(value))
    if runs >= 4 and digits * 5 >= len(value):
        return True
    most = 0.8 if runs >= 3 or humps >= 5 else 0.62 if digits * 8 > len(value) else 0.55
    return english_pair_share(value) < most
