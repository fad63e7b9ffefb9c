"""A grid of models, variants and turns, asked for as one batch with one budget.

    turns: [3, 7]                      # or requests: [5, 12]
    models: [claude-opus-5-5, claude-haiku-4-5]
    variants:
      - {label: cold, set: {temperature: 0}}
      - {label: no-thinking, drop_thinking: true}
      - {label: hint, set: {messages.-1.content.0.text: Run the tests first.}}
    count: 10
    max_budget_usd: 5

Without `models` the recorded one is asked; `as_recorded: false` leaves the unchanged request out.
Text in, a value out, or a word on what is wrong. Pure.
"""

import re
from typing import Any

import msgspec
from msgspec import Struct
from ruamel.yaml.error import YAMLError

from flightlog.lab.resampling.editing import replace_values, without_thinking
from flightlog.model.damage import read_yaml
from flightlog.model.errors import Misconfigured
from flightlog.model.text import suggest_name

SAMPLES_MAX = 100_000


class SweepVariant(Struct, frozen=True, forbid_unknown_fields=True):
    """One variant of a sweep: values put at places of the request, thinking kept or left out."""

    label: str
    set: dict[str, Any] = {}
    drop_thinking: bool = False

    def __post_init__(self) -> None:
        """Refuse a variant that changes nothing."""
        if not self.set and not self.drop_thinking:
            raise ValueError("a variant has `set` or `drop_thinking`")

    def apply_to(self, body: dict[str, Any]) -> dict[str, Any]:
        """Make the change."""
        return replace_values(without_thinking(body) if self.drop_thinking else body, self.set)


class Sweep(Struct, frozen=True, forbid_unknown_fields=True):
    """What is asked, of whom, how often. `numbers` are variants that are there already; 0 is as recorded."""

    session: int = 1
    replicate: int = 0
    requests: tuple[int, ...] = ()
    turns: tuple[int, ...] = ()
    models: tuple[str, ...] = ()
    variants: tuple[SweepVariant, ...] = ()
    numbers: tuple[int, ...] = ()
    as_recorded: bool = True
    count: int = 5
    max_budget_usd: float | None = None
    parallel: int | None = None
    per_minute: float | None = None

    def __post_init__(self) -> None:
        """Refuse a grid without a row, and one that nobody can mean."""
        labels = [each.label for each in self.variants]
        if len(set(labels)) < len(labels):
            raise ValueError("two variants have the same label")
        if min((self.session, self.count, *self.requests, *self.turns)) < 1:
            raise ValueError("session, count, requests and turns count from 1")
        if self.sample_count > SAMPLES_MAX:
            raise ValueError(f"the grid has {self.sample_count:,} samples, more than {SAMPLES_MAX:,}")

    @property
    def sample_count(self) -> int:
        """How many samples it has at least."""
        kinds = len(self.variants) + len(set(self.numbers) | ({0} if self.as_recorded else set()))
        return (len(self.requests) + len(self.turns)) * max(len(self.models), 1) * kinds * self.count


def parse_sweep(text: str) -> Sweep:
    """Read a sweep from YAML."""
    try:
        data = read_yaml(text)
    except YAMLError as error:
        raise Misconfigured(f"the sweep is not YAML: {error}", hint="correct the line it names") from error
    try:
        sweep = msgspec.convert(data, Sweep)
    except msgspec.ValidationError as error:
        raise Misconfigured(f"the sweep cannot be used: {error}", hint=_unknown_field_hint(str(error))) from error
    if not sweep.requests and not sweep.turns:
        raise Misconfigured("the sweep names nothing to ask", hint="it needs `turns` or `requests`")
    return sweep


def _unknown_field_hint(message: str) -> str:
    found = re.search(r"unknown field `(.+?)`", message)
    kind = SweepVariant if "`$.variants" in message else Sweep
    every = "every field: docs/how-to/ask-again.md"
    return suggest_name(found[1], kind.__struct_fields__, every) if found else every
