"""Provider rules, token forms, and lazily compiled patterns.

A form is literal text with fields: `ghp_{alnum:36}`, `{hex:32}`, `{uuid}`, `{url:20-60}`,
`{b64:40-}`. The pattern that finds a token is made from its form, and so are the examples of
`tools/bench/token_examples`: the source contains no example of a secret.

A rule with `near` words counts only beside one of them; a rule without is recognized by its
own shape. `names.json` lists providers whose tokens have no public shape: beside those names,
any value that looks random counts.

Patterns are compiled on first use: a command that redacts a few lines would otherwise spend
most of its time on patterns that it does not need.
"""

import functools
import re
from pathlib import Path
from typing import Any

import msgspec
import re2

from flightlog.privacy.detect.candidates import LATIN

# The characters of each kind of field, as in brackets of a regular expression.
CLASSES = {
    "hex": "0-9a-f",
    "HEX": "0-9A-F",
    "xhex": "0-9a-fA-F",
    "lower": "0-9a-z",
    "upper": "0-9A-Z",
    "alnum": "0-9A-Za-z",
    "word": "0-9A-Za-z_",
    "url": "0-9A-Za-z_-",
    "b64": "0-9A-Za-z+/",
    "urlq": "0-9A-Za-z_=-",
    "dots": "0-9A-Za-z_.-",
    "dotq": "0-9A-Za-z_.=-",
    "b64u": "0-9A-Za-z+/=_-",
    "crypt": "./0-9A-Za-z",
    "phc": "0-9a-z=,",
    "fly": "+/0-9=A-Z_a-z,-",
    "krb": "$*./0-9:@A-Z_a-z-",
    "pct": "0-9A-Za-z%",
    "tilde": "0-9A-Za-z_~.-",
    "digits": "0-9",
    "alpha": "a-z",
    "ALPHA": "A-Z",
    "b32": "A-Z2-7",
    "bech": "02-9ac-hj-np-z",
    "BECH": "02-9AC-HJ-NP-Z",
}
# A field of a form: `{name}`, `{name:8}`, `{name:8-}` or `{name:8-20}`.
FIELD = re.compile(r"\{(?P<name>\w+)(?::(?P<low>\d+)(?P<open>-)?(?P<high>\d+)?)?\}")
# Vendors write UUIDs in small and in capital letters.
_UUID = "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
# re2 refuses counts above 1,000, and large counts are slow: longer fields repeat a count of 300.
_COUNT_MAX = 300
# Bits per character: below it, a value of a vendor's form repeats a few characters, as fillers do.
_FORM_ENTROPY = 2.0


def form_pattern(form: str) -> str:
    """Return the `re2` pattern of `form`, without boundaries."""
    parts, at = [], 0
    for field in FIELD.finditer(form):
        parts += [re.escape(form[at : field.start()]), _field_pattern(field)]
        at = field.end()
    return "".join(parts) + re.escape(form[at:])


@functools.cache
def bounded_form_pattern(form: str) -> Any:
    """Return a pattern that finds a form which is not a part of a longer value."""
    # With a mark at its edge that no language separates with, it is a part of a longer value.
    edge = r"A-Za-z0-9_+?^!@#%*~$-"
    field = r"\[(0-9A-Za-z_\.?)-\]\{(\d+)(,?\d*)\}"
    pattern = re.sub(field, _allow_equals_signs, form_pattern(form))
    bounded = rf"(?:^|[^{edge}])({pattern})(?:$|[^=/\\{edge}]|\\[nrt\"'\\])"
    return re2.compile(bounded.encode(), LATIN)


def _allow_equals_signs(field: re.Match[str]) -> str:
    """Add `=` to the characters of a field, but not to the first: some alphabets have it."""
    low, high = int(field[2]), field[3]
    more = f",{int(high[1:]) - 1}" if len(high) > 1 else high
    return f"[{field[1]}-][{field[1]}=-]{{{low - 1}{more}}}"


def form_head(form: str) -> str:
    """Return the literal text before the first field."""
    field = FIELD.search(form)
    return form[: field.start()] if field else form


def _field_pattern(field: re.Match[str]) -> str:
    if field["name"] == "uuid":
        return _UUID
    low = int(field["low"])
    members = f"[{CLASSES[field['name']]}]"
    if not field["open"]:
        return _repeat_pattern(members, low)
    if not field["high"]:
        return f"{_repeat_pattern(members, low)}{members}*"
    return f"{members}{{{low},{min(int(field['high']), _COUNT_MAX)}}}"


def _repeat_pattern(members: str, count: int) -> str:
    whole, rest = divmod(count, _COUNT_MAX)
    return f"{members}{{{_COUNT_MAX}}}" * whole + (f"{members}{{{rest}}}" if rest else "")


class _LazyPattern:
    """A pattern compiled on first use; then its methods are those of the compiled pattern."""

    def __init__(self, compile_: Any, *arguments: Any) -> None:
        self._compile, self._arguments = compile_, arguments

    def __getattr__(self, name: str) -> Any:
        compiled = self._compile(*self._arguments)
        for method in ("search", "match", "fullmatch", "finditer", "findall", "sub"):
            self.__dict__[method] = getattr(compiled, method)
        return getattr(compiled, name)


def linear_pattern(pattern: bytes) -> Any:
    """Return a pattern that takes linear time on any text."""
    return _LazyPattern(re2.compile, pattern, LATIN)


def quick_pattern(pattern: bytes) -> Any:
    """Return a pattern of the standard library: a faster call than `re2`.

    Use it only over a bounded stretch or for one class of characters, where it is linear, too.
    """
    return _LazyPattern(re.compile, pattern)


class TokenRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One kind of token of one provider."""

    id: str
    provider: str
    forms: tuple[str, ...] = ()
    near: tuple[str, ...] = ()
    entropy: float = _FORM_ENTROPY


def load_words(kind: str) -> list[str]:
    """Return a list of words from the package's data."""
    data = Path(__file__).with_name("words.json").read_bytes()
    return msgspec.json.decode(data, type=dict[str, list[str]])[kind]


@functools.cache
def load_rule_families() -> dict[str, tuple[TokenRule, ...]]:
    """Return all rules by family, read once from the package's data."""
    families = {}
    for file in sorted(Path(__file__).with_name("rules").glob("*.json")):
        data = file.read_bytes()
        if file.stem == "names":
            names = msgspec.json.decode(data, type=tuple[str, ...])
            forms = (TokenRule(f"{name}-credential", name, near=(name,)) for name in names)
            families[file.stem] = tuple(forms)
        else:
            families[file.stem] = msgspec.json.decode(data, type=tuple[TokenRule, ...])
    return families


@functools.cache
def load_rules() -> tuple[TokenRule, ...]:
    """Return all rules, families in order."""
    return tuple(rule for family in load_rule_families().values() for rule in family)
