"""Plan samples: sweeps, variants, targets (the file: `docs/how-to/ask-again.md`).

Without `models` the recorded model is used; `as_recorded: false` leaves the unchanged request out.
Nothing is sent here.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace
from yaml import YAMLError

from flightlog.agents.capture.sanitize import Scrubber
from flightlog.lab.config import RunConfig, convert_config
from flightlog.lab.layout import as_json
from flightlog.lab.replay.source import ReplaySource
from flightlog.lab.resample.layout import REQUEST, VARIANT, sample_dir
from flightlog.lab.resample.requests import (
    SampleRequest,
    build_sample_request,
    find_edits,
    load_recorded_body,
    replace_values,
    request_of_turn,
    without_thinking,
)
from flightlog.lab.resample.samples import list_variants
from flightlog.lab.resample.state import (
    BatchLimits,
    BatchStarted,
    BatchState,
    BatchStore,
    SampleTarget,
)
from flightlog.lab.runner import agent_setup
from flightlog.lab.store import RunStore
from flightlog.model.errors import Invalid, Misconfigured, read_yaml
from flightlog.model.text import one_line, suggest_name
from flightlog.store.files import replace_file, resolve_inside
from flightlog.usage.prices import is_priced

_LABEL_CHARS_MAX = 80
SAMPLES_MAX = 100_000  # more is a mistake in the grid, and would cost a fortune


class SweepVariant(Struct, frozen=True, forbid_unknown_fields=True):
    """One variant of a sweep: values to set, and whether thinking is dropped."""

    label: str
    set: dict[str, Any] = {}
    drop_thinking: bool = False

    def __post_init__(self) -> None:
        if not self.set and not self.drop_thinking:
            raise ValueError("a variant has `set` or `drop_thinking`")

    def apply_to(self, body: dict[str, Any]) -> dict[str, Any]:
        return replace_values(without_thinking(body) if self.drop_thinking else body, self.set)


class Sweep(Struct, frozen=True, forbid_unknown_fields=True):
    """What to sample, with which models, how often. `numbers` are existing variants."""

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
        """Raise ValueError for duplicate labels, numbers below 1, and too many samples."""
        labels = [variant.label for variant in self.variants]
        if len(set(labels)) < len(labels):
            raise ValueError("two variants have the same label")
        if min((self.session, self.count, *self.requests, *self.turns)) < 1:
            raise ValueError("session, count, requests and turns count from 1")
        if self.sample_count > SAMPLES_MAX:
            raise ValueError(
                f"the grid has {self.sample_count:,} samples, more than {SAMPLES_MAX:,}"
            )

    @property
    def sample_count(self) -> int:
        """The number of samples, if no turns share a request."""
        variant_count = len(self.variants) + len(
            set(self.numbers) | ({0} if self.as_recorded else set())
        )
        requests = len(self.requests) + len(self.turns)
        return requests * max(len(self.models), 1) * variant_count * self.count


def parse_sweep(text: str) -> Sweep:
    try:
        data = read_yaml(text)
    except YAMLError as error:
        raise Misconfigured(
            f"the sweep is not YAML: {error}", hint="correct the line it names"
        ) from error
    sweep = convert_config(data, Sweep, "the sweep", _unknown_field_hint)
    if not sweep.requests and not sweep.turns:
        raise Misconfigured("the sweep names no request", hint="it needs `turns` or `requests`")
    return sweep


def _unknown_field_hint(message: str) -> str:
    unknown = re.search(r"unknown field `(.+?)`", message)
    kind = SweepVariant if "`$.variants" in message else Sweep
    all_fields = f"fields: {', '.join(kind.__struct_fields__)}"
    return suggest_name(unknown[1], kind.__struct_fields__, all_fields) if unknown else all_fields


class PlannedSamples(Struct, frozen=True):
    """Samples of one request in one variant by one model, before they have numbers."""

    session: str
    request: int
    variant: int
    model: str
    count: int


Make = Callable[[str, int, SweepVariant], int]  # session, request, change -> its number


def plan_samples(source: ReplaySource, sweep: Sweep, make: Make) -> list[PlannedSamples]:
    """Return every cell of a sweep; `make` returns the number of a variant."""
    session = source.planned.session_dir
    requests = dict.fromkeys(
        (*sweep.requests, *(request_of_turn(source, turn) for turn in sweep.turns))
    )
    cells = []
    for request in requests:
        numbers = [*([0] if sweep.as_recorded else []), *sweep.numbers]
        numbers += [make(session, request, change) for change in sweep.variants]
        for number in dict.fromkeys(numbers):
            place, models = (session, request, number), sweep.models or ("",)
            cells += [PlannedSamples(*place, model, sweep.count) for model in models]
    return cells


class VariantLabel(Struct, frozen=True):
    """The label of a variant, its origin, and its time."""

    label: str
    source: str
    created_at: str


def make_variant(
    store: BatchStore,
    run: RunStore,
    of: tuple[str, int],
    edited: dict[str, Any],
    origin: tuple[VariantLabel, Scrubber],
) -> int:
    """Create a variant of request `of` (session's directory, number) and return its number.

    The same edit under the same label is the same variant, so sampling it again adds samples. The
    edited request is written first; `variant.json` completes the variant.
    """
    session, request = of
    label, scrubber = origin
    name = one_line(label.label, _LABEL_CHARS_MAX)
    if not name:
        raise Invalid("a variant needs a label", hint="give it one with --label")
    cleaned = json.loads(scrubber.clean_bytes(json.dumps(edited).encode()))
    edits = find_edits(load_recorded_body(run, session, request), cleaned)
    body = as_json(cleaned).encode()
    for variant in list_variants(run.path):
        is_same = (variant.session, variant.request, variant.label) == (session, request, name)
        if is_same and _has_body(run.path / variant.path, body):
            return variant.number
    number = store.next_variant(session, request)
    folder = sample_dir(session, request, number)
    replace_file(resolve_inside(run.path, f"{folder}/{REQUEST}"), body)
    fields = {
        "label": name,
        "base_request_index": request,
        "edits": to_builtins(edits),
        "created_at": label.created_at,
        "source": label.source,
    }
    replace_file(resolve_inside(run.path, f"{folder}/{VARIANT}"), as_json(fields).encode())
    return number


def _has_body(path: Path, body: bytes) -> bool:
    try:
        return (path / REQUEST).read_bytes() == body
    except OSError:
        return False


def variant_maker(store: BatchStore, run: RunStore, origin: tuple[VariantLabel, Scrubber]) -> Make:
    """Return a function that creates missing variants on disk."""
    label, scrubber = origin

    def make(session: str, request: int, change: SweepVariant) -> int:
        edited = change.apply_to(load_recorded_body(run, session, request))
        variant_label = VariantLabel(change.label, label.source, label.created_at)
        return make_variant(store, run, (session, request), edited, (variant_label, scrubber))

    return make


def variant_previewer(store: BatchStore, run: RunStore) -> Make:
    """Return a function that only predicts variant numbers and rejects invalid edits."""
    numbers: dict[tuple[str, int], int] = {}

    def make(session: str, request: int, change: SweepVariant) -> int:
        body = load_recorded_body(run, session, request)
        find_edits(body, change.apply_to(body))
        number = numbers.get((session, request)) or store.next_variant(session, request)
        numbers[session, request] = number + 1
        return number

    return make


def number_samples(store: BatchStore, cells: list[PlannedSamples]) -> tuple[SampleTarget, ...]:
    """Assign numbers to samples, after the existing ones."""
    next_numbers: dict[tuple[str, int, int], int] = {}
    targets = []
    for cell in cells:
        key = (cell.session, cell.request, cell.variant)
        first = next_numbers.get(key) or store.next_number(*key)
        next_numbers[key] = first + cell.count
        targets.append(SampleTarget(*key, cell.model, first, cell.count))
    return tuple(targets)


def build_sample_requests(
    run: RunStore, targets: tuple[SampleTarget, ...], limits: BatchLimits
) -> dict[SampleTarget, SampleRequest]:
    """Return what is sent for each target; raise Invalid for a budget with an unpriced model."""
    requests = {target: build_sample_request(run, target) for target in targets}
    for request in requests.values():
        if limits.max_budget_usd is not None and not is_priced(request.model):
            hint = "leave the budget out, or ask another model"
            raise Invalid(
                f"the budget cannot be enforced: no price for {request.model[:60]!r}", hint=hint
            )
    return requests


def start_batch(
    store: BatchStore, name: str, targets: tuple[SampleTarget, ...], limits: BatchLimits
) -> BatchState:
    store.append(BatchStarted(name, targets, limits), durable=True)
    return store.batches[name]


def resolve_sample_upstream(config: RunConfig, base_url: str, environ: Mapping[str, str]) -> str:
    """Return the address for a run's samples."""
    if config.provider not in agent_setup.UPSTREAMS:
        hint = "use another run: requests of this provider are signed"
        raise Invalid(f"samples cannot be sent to provider {config.provider}", hint=hint)
    # An address on the command line is the person's explicit choice for the key.
    environment = {"ANTHROPIC_BASE_URL": base_url} if base_url else environ
    return agent_setup.resolve_upstream(
        replace(config, base_url="", provider="anthropic") if base_url else config, environment
    )


def batch_report(state: BatchState, reason: str) -> dict[str, object]:
    return {
        "batch": state.name,
        "stop_reason": reason,
        "samples": len(state.answer_costs),
        "errors": len(state.failures),
        "remaining": len(state.remaining_samples),
        "cost_usd": None if state.unpriced_count else round(state.cost_usd, 9),
        "max_budget_usd": state.limits.max_budget_usd,
        "targets": [dict(_target_fields(state, target)) for target in state.targets],
    }


def _target_fields(state: BatchState, target: SampleTarget) -> Iterator[tuple[str, object]]:
    items = set(target.items)
    errors = [failed.error for item, failed in sorted(state.failures.items()) if item in items]
    costs = [usd for item, usd in state.answer_costs.items() if item in items]
    yield "session", target.session
    yield "request", target.request
    yield "variant", target.variant
    yield "model", target.model or None
    yield "path", sample_dir(target.session, target.request, target.variant)
    yield "first_sample", target.first_sample
    yield "count", target.count
    yield "samples", len(costs)
    yield "cost_usd", None if None in costs else round(sum(cost or 0.0 for cost in costs), 9)
    yield "errors", errors
