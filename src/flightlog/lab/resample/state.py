"""Events of the batches of samples of a run, and the state folded from them.

A sample is on record as sent before it is sent, and as answered after its file exists. A sample
that was sent and has no file and no end was in flight when its process died, and is sent again.

One process at a time sends samples of a run: it holds `.resamples.lock`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import assert_never

from msgspec import Struct, field

from flightlog.lab.resample import layout
from flightlog.lab.resample.layout import SampleItem
from flightlog.model.errors import Invalid, NotFound
from flightlog.store.journal import Journal, JournalRecord

WIDTH = "width_reached"


class SampleTarget(Struct, frozen=True):
    """Samples of one request in one variant by one model; "" means the recorded model."""

    session: str
    request: int
    variant: int
    model: str
    first_sample: int
    count: int

    @property
    def items(self) -> list[SampleItem]:
        numbers = range(self.first_sample, self.first_sample + self.count)
        return [SampleItem(self.session, self.request, self.variant, number) for number in numbers]


class BatchLimits(Struct, frozen=True):
    """Limits of a batch: budget, parallelism, rate, retries, timeouts, stopping width."""

    max_budget_usd: float | None = None
    parallel: int = 8
    per_minute: float | None = None
    retries: int = 4
    timeout_s: float = 600.0
    wait_s: float = 0.5
    until_width: float | None = None


class BatchEventBase(Struct, frozen=True, tag_field="kind", tag="event"):
    """Base of all events: the tag, and the batch."""

    batch: str


class BatchStarted(BatchEventBase, frozen=True, tag="batch_begun"):
    """Samples were requested and their numbers reserved; nothing was sent yet."""

    targets: tuple[SampleTarget, ...]
    limits: BatchLimits


class BatchResumed(BatchEventBase, frozen=True, tag="batch_taken"):
    """A process started to work on the batch: the first one, or one after a crash."""

    process: str
    limits: BatchLimits


class SampleSent(BatchEventBase, frozen=True, tag="sending"):
    """A sample is about to be sent."""

    item: SampleItem
    attempt: int


class SampleAnswered(BatchEventBase, frozen=True, tag="answered"):
    """The answer is in its file. `model` is the one that was asked for."""

    item: SampleItem
    model: str
    cost_usd: float | None
    message_id: str = ""


class SampleFailed(BatchEventBase, frozen=True, tag="failed"):
    """No answer came after all attempts; what came instead is in its file."""

    item: SampleItem
    model: str
    status: int
    error: str


class BatchEnded(BatchEventBase, frozen=True, tag="batch_ended"):
    """Nothing more is sent for this batch until it is resumed; `completed` is final."""

    reason: str


SampleEvent = BatchStarted | BatchResumed | SampleSent | SampleAnswered | SampleFailed | BatchEnded


class BatchState(Struct):
    name: str
    targets: tuple[SampleTarget, ...]
    limits: BatchLimits
    started_at: str
    send_counts: dict[SampleItem, int] = field(default_factory=dict)
    answer_costs: dict[SampleItem, float | None] = field(default_factory=dict)
    failures: dict[SampleItem, SampleFailed] = field(default_factory=dict)
    stop_reason: str = ""

    @property
    def cost_usd(self) -> float:
        """The cost of its answers with a known price."""
        return sum(usd or 0.0 for usd in self.answer_costs.values())

    @property
    def unpriced_count(self) -> int:
        return sum(usd is None for usd in self.answer_costs.values())

    @property
    def remaining_samples(self) -> list[tuple[SampleTarget, SampleItem]]:
        """The samples still to send, alternating between the targets."""
        if self.stop_reason == WIDTH:
            return []
        numbered = ((target, enumerate(target.items)) for target in self.targets)
        every = [(at, target, item) for target, items in numbered for at, item in items]
        every.sort(key=lambda entry: entry[0])
        done = {*self.answer_costs, *self.failures}
        return [(target, item) for _, target, item in every if item not in done]


class BatchStore:
    """The journal of a run's samples, and the state of its batches."""

    def __init__(self, run: Path, *, now: Callable[[], str], new_id: Callable[[], str]) -> None:
        self.run = run
        self._journal: Journal[SampleEvent] = Journal(
            run / layout.JOURNAL, SampleEvent, now=now, new_id=new_id
        )
        self.batches: dict[str, BatchState] = {}
        if self._journal.path.exists():
            for entry in self._journal.read_records():
                if isinstance(entry, JournalRecord):
                    _apply_event(self.batches, entry)

    def append(self, event: SampleEvent, *, durable: bool = False) -> None:
        """Append an event to the journal and apply it to the state."""
        _apply_event(self.batches, self._journal.append(event, durable=durable))

    def next_number(self, session: str, request: int, variant: int) -> int:
        """Return the first sample number that is neither on disk nor reserved by a batch."""
        path = self.run / layout.sample_dir(session, request, variant)
        taken = [number for number, _, _ in layout.iter_sample_files(path)]
        for batch in self.batches.values():
            place = (session, request, variant)
            own = [one for one in batch.targets if (one.session, one.request, one.variant) == place]
            taken += [target.first_sample + target.count - 1 for target in own]
        return max(taken, default=0) + 1

    def next_variant(self, session: str, request: int) -> int:
        place, dirs = (session, request), layout.iter_sample_dirs(self.run)
        taken = [variant for name, of, variant, _ in dirs if (name, of) == place]
        return max(taken, default=0) + 1

    def open_batch(self, prefix: str) -> BatchState:
        """Return the unfinished batch whose name starts with `written`; with "" the only one."""
        unfinished = [batch for batch in self.batches.values() if batch.remaining_samples]
        matches = [batch for batch in unfinished if batch.name.startswith(prefix)]
        if not matches:
            hint = "ask for new samples with --count"
            raise NotFound("no batch of samples is unfinished", hint=hint)
        if len(matches) > 1:
            names = ", ".join(batch.name[:8] for batch in matches[:5])
            raise Invalid("several batches are unfinished", hint=f"name one: --batch {names}")
        return matches[0]


def _apply_event(batches: dict[str, BatchState], record: JournalRecord[SampleEvent]) -> None:
    event = record.event
    if isinstance(event, BatchStarted):
        batches[event.batch] = BatchState(event.batch, event.targets, event.limits, record.ts)
        return
    batch = batches.get(event.batch)
    if batch is None:
        return  # Its first line was damaged; its files still exist and keep their numbers.
    match event:
        case BatchResumed():
            batch.stop_reason, batch.limits = "", event.limits
        case SampleSent():
            batch.send_counts[event.item] = max(batch.send_counts.get(event.item, 0), event.attempt)
        case SampleAnswered():
            batch.answer_costs[event.item] = event.cost_usd
            batch.failures.pop(event.item, None)
        case SampleFailed():
            batch.failures[event.item] = event
        case BatchEnded():
            batch.stop_reason = event.reason
        case _:
            assert_never(event)
