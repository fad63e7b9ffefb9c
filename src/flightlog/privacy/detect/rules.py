"""The rule data: which providers' tokens look how, and near which words.

A rule with `near` words counts only beside one of them; a rule without is known by its own
shape. `names.json` lists providers whose tokens have no public shape: there any value that
looks drawn at random counts. Patterns and examples are made from forms (`forms`).
"""

import functools
import re
from pathlib import Path

import msgspec

from flightlog.privacy.detect import forms


class TokenRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One kind of token of one provider."""

    id: str
    provider: str
    forms: tuple[str, ...] = ()
    near: tuple[str, ...] = ()
    entropy: float = 2.0

    def make_examples(self, seed: int = 0) -> list[str]:
        """Make texts that must be found by this rule, one or more per form."""
        chance = forms.make_random(f"{self.id}/{seed}")
        values = [forms.make_example(form, chance) for form in self.forms or ("{alnum:32}",)]
        if not self.near:
            return values
        return [f'{word}_token = "{value}"' for value in values for word in self.near]

    def make_negatives(self, seed: int = 0) -> list[str]:
        """Make texts that this rule must leave alone: its forms cut short, and never by its word alone."""
        chance = forms.make_random(f"{self.id}/not/{seed}")
        cut = (forms.make_short_example(form, chance) for form in self.forms or ("{alnum:32}",))
        values = [text for text in cut if not any(re.search(forms.form_pattern(form), text) for form in self.forms)]
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
