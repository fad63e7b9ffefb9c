"""What a person asks for, turned into a batch on record: its targets, their numbers, and where they are sent.

Nothing is sent here.
"""

from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from flightlog.lab.book import RunStore
from flightlog.lab.config import RunConfig
from flightlog.lab.replaying.source import ReplaySource
from flightlog.lab.resampling.editing import find_edits
from flightlog.lab.resampling.events import BatchLimits, BatchStarted, SampleTarget
from flightlog.lab.resampling.layout import sample_dir
from flightlog.lab.resampling.ledger import BatchState, BatchStore
from flightlog.lab.resampling.recorded import SampleRequest, build_sample_request, load_recorded_body, request_of_turn
from flightlog.lab.resampling.sweep import Sweep, SweepVariant
from flightlog.lab.resampling.variants import VariantLabel, make_variant
from flightlog.lab.running import asking as running
from flightlog.model.errors import Invalid
from flightlog.sources.api.scrub import Scrubber
from flightlog.usage.prices import is_priced


class PlannedSamples(Struct, frozen=True):
    """Samples of one request in one variant by one model, before they have numbers."""

    session: str
    request: int
    variant: int
    model: str
    count: int


Make = Callable[[str, int, SweepVariant], int]  # session's directory, request, what is changed: the variant's number


def plan_samples(source: ReplaySource, sweep: Sweep, make: Make) -> list[PlannedSamples]:
    """Every cell of a sweep; `make` gives its variants their numbers."""
    session = source.planned.name
    requests = dict.fromkeys((*sweep.requests, *(request_of_turn(source, turn) for turn in sweep.turns)))
    cells = []
    for request in requests:
        numbers = [*([0] if sweep.as_recorded else []), *sweep.numbers]
        numbers += [make(session, request, change) for change in sweep.variants]
        for number in dict.fromkeys(numbers):
            cells += [PlannedSamples(session, request, number, model, sweep.count) for model in sweep.models or ("",)]
    return cells


def variant_maker(ledger: BatchStore, book: RunStore, told: tuple[VariantLabel, Scrubber]) -> Make:
    """Make variants on disk, those that are not there."""
    label, scrubber = told

    def make(session: str, request: int, change: SweepVariant) -> int:
        edited = change.apply_to(load_recorded_body(book, session, request))
        own = VariantLabel(change.label, label.source, label.created_at)
        return make_variant(ledger, book, (session, request), edited, (own, scrubber))

    return make


def variant_previewer(ledger: BatchStore, book: RunStore) -> Make:
    """Only say which numbers they would have, and refuse what would be refused."""
    given: dict[tuple[str, int], int] = {}

    def make(session: str, request: int, change: SweepVariant) -> int:
        body = load_recorded_body(book, session, request)
        find_edits(body, change.apply_to(body))
        number = given.get((session, request)) or ledger.next_variant(session, request)
        given[session, request] = number + 1
        return number

    return make


def number_samples(ledger: BatchStore, cells: list[PlannedSamples]) -> tuple[SampleTarget, ...]:
    """Give samples their numbers, after those there are."""
    taken: dict[tuple[str, int, int], int] = {}
    targets = []
    for cell in cells:
        place = (cell.session, cell.request, cell.variant)
        first = taken.get(place) or ledger.next_number(*place)
        taken[place] = first + cell.count
        targets.append(SampleTarget(*place, cell.model, first, cell.count))
    return tuple(targets)


def build_sample_requests(
    book: RunStore, targets: tuple[SampleTarget, ...], limits: BatchLimits
) -> dict[SampleTarget, SampleRequest]:
    """What is sent for each target; a budget for a model without a price is refused, as nobody could keep it."""
    found = {target: build_sample_request(book, target) for target in targets}
    for each in found.values():
        if limits.max_budget_usd is not None and not is_priced(each.model):
            hint = "leave the budget out, or ask another model"
            raise Invalid(f"a budget cannot be kept: the price of {each.model[:60]!r} is not known", hint=hint)
    return found


def start_batch(ledger: BatchStore, name: str, targets: tuple[SampleTarget, ...], limits: BatchLimits) -> BatchState:
    """Put a batch on record."""
    ledger.append(BatchStarted(name, targets, limits), durable=True)
    return ledger.batches[name]


def resolve_sample_upstream(config: RunConfig, named: str, environ: Mapping[str, str]) -> str:
    """Where samples of a run are sent."""
    if config.provider not in running.UPSTREAMS:
        raise Invalid(
            f"samples cannot be asked of provider {config.provider}",
            hint="ask another run: the requests of this provider are signed",
        )
    # An address named on the command line is a person's own word on where the key goes.
    said = {"ANTHROPIC_BASE_URL": named} if named else environ
    return running.resolve_upstream(replace(config, base_url="", provider="anthropic") if named else config, said)


def batch_report(state: BatchState, reason: str) -> dict[str, object]:
    """How a batch stands, for whoever asked."""
    return {
        "batch": state.name,
        "stop_reason": reason,
        "samples": len(state.answered),
        "errors": len(state.failed),
        "left": len(state.remaining_samples),
        "cost_usd": None if state.unpriced_count else round(state.cost_usd, 9),
        "max_budget_usd": state.limits.max_budget_usd,
        "targets": [dict(_target_fields(state, target)) for target in state.targets],
    }


def _target_fields(state: BatchState, target: SampleTarget) -> Iterator[tuple[str, object]]:
    items = set(target.items)
    errors = [each.error for item, each in sorted(state.failed.items()) if item in items]
    costs = [usd for item, usd in state.answered.items() if item in items]
    yield "session", target.session
    yield "request", target.request
    yield "variant", target.variant
    yield "model", target.model or None
    yield "path", sample_dir(target.session, target.request, target.variant)
    yield "first", target.first
    yield "count", target.count
    yield "samples", len(costs)
    yield "cost_usd", None if None in costs else round(sum(each or 0.0 for each in costs), 9)
    yield "errors", errors
