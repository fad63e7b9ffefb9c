"""Provider rule data, token forms, lazily compiled patterns.

A form is literal text with fields: `ghp_{alnum:36}`, `{hex:32}`, `{uuid}`, `{url:20-60}`, `{b64:40-}`.
From a form come the pattern that finds the token and examples made at run time, so that no
example of a secret ever stands in the source. Knows nothing of rules, keywords or text around.

A command that redacts a few lines would else spend most of its time on patterns it does not need.

A rule with `near` words counts only beside one of them; a rule without is known by its own
shape. `names.json` lists providers whose tokens have no public shape: there any value that
looks drawn at random counts. Patterns and examples are made from forms (`forms`).
"""

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import re2

from flightlog.privacy.detect.candidates import LATIN

if TYPE_CHECKING:
    from random import Random

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
FIELD = re.compile(r"\{(?P<name>\w+)(?::(?P<low>\d+)(?P<open>-)?(?P<high>\d+)?)?\}")
_UUID = "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
# re2 refuses counts above 1,000 and large ones make it slow; past this many characters a run is simply long.
_COUNT_MAX = 300
_OPEN_EXTRA = 6


def form_pattern(form: str) -> str:
    """Return the `re2` pattern of `form`, without boundaries."""
    parts, at = [], 0
    for field in FIELD.finditer(form):
        parts += [re.escape(form[at : field.start()]), _field_pattern(field)]
        at = field.end()
    return "".join(parts) + re.escape(form[at:])


def form_head(form: str) -> str:
    """Return the literal text before the first field."""
    field = FIELD.search(form)
    return form[: field.start()] if field else form


def make_random(seed: str) -> "Random":
    """Return what examples are drawn with."""
    from random import Random  # noqa: PLC0415 - nobody who redacts makes examples

    return Random(seed)  # noqa: S311 - examples, not keys


def make_example(form: str, chance: "Random") -> str:
    """Make a text of this form; fields of two or more kinds of characters hold both letters and digits."""
    return FIELD.sub(lambda field: _field_example(field, chance), form)


def make_short_example(form: str, chance: "Random") -> str:
    """Make a text that is near this form but too short to be of it."""
    fields = list(FIELD.finditer(form))
    last = max(fields, key=lambda field: int(field["low"] or 0))
    low = int(last["low"] or 36)
    cut = form[: last.start()] + "{" + f"{last['name'] if last['low'] else 'hex'}:{max(low // 3, 1)}" + "}"
    return make_example(cut, chance)


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


def _field_example(field: re.Match[str], chance: "Random") -> str:
    if field["name"] == "uuid":
        digits = "".join(chance.choices("0123456789abcdef", k=32))
        return "-".join((digits[:8], digits[8:12], "4" + digits[13:16], "a" + digits[17:20], digits[20:]))
    low = int(field["low"])
    count = low + (chance.randrange(_OPEN_EXTRA) if field["open"] and not field["high"] else 0)
    members = _expand_character_class(CLASSES[field["name"]])
    while True:
        text = "".join(chance.choices(members, k=count))
        mixed = any(c.isdigit() for c in text) and any(c.isalpha() for c in text)
        edges = text[0].isalnum() and text[-1].isalnum()
        if count < 8 or (edges and (mixed or members.isdigit() or members.isalpha())):
            return text


def _expand_character_class(spec: str) -> str:
    found, at = [], 0
    while at < len(spec):
        if spec[at + 1 : at + 2] == "-" and at + 2 < len(spec):
            found += [chr(c) for c in range(ord(spec[at]), ord(spec[at + 2]) + 1)]
            at += 3
        else:
            found.append(spec[at])
            at += 1
    return "".join(found)


class _LazyPattern:
    """A pattern that is not compiled yet; from its first use on, its methods are those of the compiled one."""

    def __init__(self, compile_: Any, *what: Any) -> None:
        self._compile, self._what = compile_, what

    def __getattr__(self, name: str) -> Any:
        made = self._compile(*self._what)
        for method in ("search", "match", "fullmatch", "finditer", "findall", "sub"):
            self.__dict__[method] = getattr(made, method)
        return getattr(made, name)


def linear_pattern(pattern: bytes) -> Any:
    """Return a pattern whose time is linear in the text, whatever the text."""
    return _LazyPattern(re2.compile, pattern, LATIN)


def quick_pattern(pattern: bytes) -> Any:
    """Return a pattern that is quicker to call, for bounded stretches or one class of characters."""
    return _LazyPattern(re.compile, pattern)


class TokenRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One kind of token of one provider."""

    id: str
    provider: str
    forms: tuple[str, ...] = ()
    near: tuple[str, ...] = ()
    entropy: float = 2.0

    def make_examples(self, seed: int = 0) -> list[str]:
        """Make texts that must be found by this rule, one or more per form."""
        chance = make_random(f"{self.id}/{seed}")
        values = [make_example(form, chance) for form in self.forms or ("{alnum:32}",)]
        if not self.near:
            return values
        return [f'{word}_token = "{value}"' for value in values for word in self.near]

    def make_negatives(self, seed: int = 0) -> list[str]:
        """Make texts that this rule must leave alone: its forms cut short, and never by its word alone."""
        chance = make_random(f"{self.id}/not/{seed}")
        cut = (make_short_example(form, chance) for form in self.forms or ("{alnum:32}",))
        values = [text for text in cut if not any(re.search(form_pattern(form), text) for form in self.forms)]
        return [f"{word} {value}" for value in values for word in self.near or ("",)]


@functools.cache
def load_rule_families() -> dict[str, tuple[TokenRule, ...]]:
    """Return all rules by family, read from the package's data once."""
    folder = Path(__file__).with_name("rules")
    found = {}
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        family = file.name.removesuffix(".json")
        if family == "names":
            names = msgspec.json.decode(file.read_bytes(), type=tuple[str, ...])
            found[family] = tuple(TokenRule(f"{name}-credential", name, near=(name,)) for name in names)
        elif file.name.endswith(".json"):
            found[family] = msgspec.json.decode(file.read_bytes(), type=tuple[TokenRule, ...])
    return found


@functools.cache
def load_rules() -> tuple[TokenRule, ...]:
    """Return all rules, families in order."""
    return tuple(rule for family in load_rule_families().values() for rule in family)
