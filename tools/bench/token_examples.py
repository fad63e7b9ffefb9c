"""Texts that the rules for tokens must find, and texts that they must not, made from the forms of the rules."""

import re
from random import Random

from flightlog.privacy.detect.rules import CLASSES, FIELD, TokenRule, form_pattern

_OPEN_EXTRA = (
    6  # an example of an open field (`{b64:40-}`) is up to this much longer than it must be
)
_MIXED_MIN = 8  # shorter examples may be digits or letters alone, as vendors' short fields are


def make_examples(rule: TokenRule, seed: int = 0) -> list[str]:
    """Make texts that a rule must find, one or more per form."""
    chance = make_random(f"{rule.id}/{seed}")
    values = [make_example(form, chance) for form in rule.forms or ("{alnum:32}",)]
    if not rule.near:
        return values
    return [f'{word}_token = "{value}"' for value in values for word in rule.near]


def make_negatives(rule: TokenRule, seed: int = 0) -> list[str]:
    """Make texts that a rule must not find: its forms cut short, beside its words."""
    chance = make_random(f"{rule.id}/not/{seed}")
    short = (make_short_example(form, chance) for form in rule.forms or ("{alnum:32}",))
    patterns = [form_pattern(form) for form in rule.forms]
    values = [text for text in short if not any(re.search(form, text) for form in patterns)]
    return [f"{word} {value}" for value in values for word in rule.near or ("",)]


def make_random(seed: str) -> Random:
    """Return the random generator for examples."""
    return Random(seed)


def make_example(form: str, chance: Random) -> str:
    """Make a text of this form; a field of letters and digits gets both."""
    return FIELD.sub(lambda field: _field_example(field, chance), form)


def make_short_example(form: str, chance: Random) -> str:
    """Make a text that resembles this form but is too short for it."""
    longest = max(FIELD.finditer(form), key=lambda field: int(field["low"] or 0))
    low = int(longest["low"] or 36)
    name = longest["name"] if longest["low"] else "hex"
    return make_example(f"{form[: longest.start()]}{{{name}:{max(low // 3, 1)}}}", chance)


def _field_example(field: re.Match[str], chance: Random) -> str:
    if field["name"] == "uuid":
        digits = "".join(chance.choices("0123456789abcdef", k=32))
        groups = digits[:8], digits[8:12], "4" + digits[13:16], "a" + digits[17:20], digits[20:]
        return "-".join(groups)
    low = int(field["low"])
    count = low + (chance.randrange(_OPEN_EXTRA) if field["open"] and not field["high"] else 0)
    members = _expand_character_class(CLASSES[field["name"]])
    while True:
        text = "".join(chance.choices(members, k=count))
        mixed = any(c.isdigit() for c in text) and any(c.isalpha() for c in text)
        edges = text[0].isalnum() and text[-1].isalnum()
        if count < _MIXED_MIN or (edges and (mixed or members.isdigit() or members.isalpha())):
            return text


def _expand_character_class(spec: str) -> str:
    members, at = [], 0
    while at < len(spec):
        if spec[at + 1 : at + 2] == "-" and at + 2 < len(spec):
            members += [chr(c) for c in range(ord(spec[at]), ord(spec[at + 2]) + 1)]
            at += 3
        else:
            members.append(spec[at])
            at += 1
    return "".join(members)
