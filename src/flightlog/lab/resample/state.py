"""Batch events and their fold.

A sample is on record as sent before it is sent, and as answered after its file is there. One that
was sent and has neither file nor end was in flight when the process died: it is asked for again.

One process at a time asks for samples of a run: it holds `.resamples.lock`. What it wrote is
enough for the next one to go on.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import assert_never

from msgspec import Struct, field

from flightlog.lab.resample import layout
from flightlog.lab.resample.layout import SampleItem
from flightlog.model.errors import Invalid, NotFound
from flightlog.store.journal import Journal, JournalRecord
from flightlog.store.locks import exclusive_lock

WIDTH = "width_reached"


class SampleTarget(Struct, frozen=True):
    """Samples of one request in one variant by one model; no model means the one that was asked then."""

    session: str
    request: int
    variant: int
    model: str
    first: int
    count: int

    @property
    def items(self) -> list[SampleItem]:
        """Each of them."""
        numbers = range(self.first, self.first + self.count)
        return [SampleItem(self.session, self.request, self.variant, number) for number in numbers]


class BatchLimits(Struct, frozen=True):
    """How a batch is to be carried out."""

    max_budget_usd: float | None = None
    parallel: int = 8
    per_minute: float | None = None
    retries: int = 4
    timeout_s: float = 600.0
    wait_s: float = 0.5
    until_width: float | None = None


class BatchEventBase(Struct, frozen=True, tag_field="kind", tag="event"):
    """What all of them have in common: a tag, and the batch."""

    batch: str


class BatchStarted(BatchEventBase, frozen=True, tag="batch_begun"):
    """Samples were asked for, and their numbers are taken; nothing was sent yet."""

    targets: tuple[SampleTarget, ...]
    limits: BatchLimits


class BatchResumed(BatchEventBase, frozen=True, tag="batch_taken"):
    """A process took the batch up, the first one or one after a crash, within these limits."""

    process: str
    limits: BatchLimits


class SampleSent(BatchEventBase, frozen=True, tag="sending"):
    """A sample is about to be sent."""

    item: SampleItem
    attempt: int


class SampleAnswered(BatchEventBase, frozen=True, tag="answered"):
    """The answer is in its file. `model` is the one that was asked."""

    item: SampleItem
    model: str
    usd: float | None
    message_id: str = ""


class SampleFailed(BatchEventBase, frozen=True, tag="failed"):
    """No answer came, after all tries; what came instead is in its file."""

    item: SampleItem
    model: str
    status: int
    error: str


class BatchEnded(BatchEventBase, frozen=True, tag="batch_ended"):
    """Nothing more is sent for this batch until it is taken up again; `completed` is its end."""

    reason: str


SampleEvent = BatchStarted | BatchResumed | SampleSent | SampleAnswered | SampleFailed | BatchEnded


class BatchState(Struct):
    """One batch as it stands."""

    name: str
    targets: tuple[SampleTarget, ...]
    limits: BatchLimits
    began_at: str
    sent: dict[SampleItem, int] = field(default_factory=dict)
    answered: dict[SampleItem, float | None] = field(default_factory=dict)
    failed: dict[SampleItem, SampleFailed] = field(default_factory=dict)
    reason: str = ""

    @property
    def cost_usd(self) -> float:
        """What its answers cost, those of known price."""
        return sum(each or 0.0 for each in self.answered.values())

    @property
    def unpriced_count(self) -> int:
        """How many answers have no known price."""
        return sum(each is None for each in self.answered.values())

    @property
    def remaining_samples(self) -> list[tuple[SampleTarget, SampleItem]]:
        """What it still has to ask for, one sample of each target after the other."""
        if self.reason == WIDTH:
            return []
        every = [(at, target, item) for target in self.targets for at, item in enumerate(target.items)]
        every.sort(key=lambda each: each[0])
        return [(target, item) for _, target, item in every if item not in self.answered and item not in self.failed]


class BatchStore:
    """The journal of a run's samples, and how its batches stand."""

    def __init__(self, run: Path, *, now: Callable[[], str], new_id: Callable[[], str]) -> None:
        """Read what is on record."""
        self.run = run
        self._journal: Journal[SampleEvent] = Journal(run / layout.JOURNAL, SampleEvent, now=now, new_id=new_id)
        self.batches: dict[str, BatchState] = {}
        if self._journal.path.exists():
            for entry in self._journal.read_records():
                if isinstance(entry, JournalRecord):
                    _apply_event(self.batches, entry)

    def append(self, event: SampleEvent, *, durable: bool = False) -> None:
        """Write down what happened, and know it from now on."""
        _apply_event(self.batches, self._journal.append(event, durable=durable))

    def next_number(self, session: str, request: int, variant: int) -> int:
        """The first number that no sample has, on disk or promised to a batch."""
        path = self.run / layout.sample_dir(session, request, variant)
        taken = [number for number, _, _ in layout.iter_sample_files(path)]
        for batch in self.batches.values():
            same = (session, request, variant)
            taken += [
                target.first + target.count - 1
                for target in batch.targets
                if (target.session, target.request, target.variant) == same
            ]
        return max(taken, default=0) + 1

    def next_variant(self, session: str, request: int) -> int:
        """The first number that no variant of a request has."""
        taken = [each for name, of, each, _ in layout.iter_sample_dirs(self.run) if (name, of) == (session, request)]
        return max(taken, default=0) + 1

    def open_batch(self, written: str) -> BatchState:
        """Find a batch that is not over, by the beginning of its name; without one, the only one there is."""
        left = [batch for batch in self.batches.values() if batch.remaining_samples]
        found = [each for each in left if each.name.startswith(written)]
        if not found:
            raise NotFound("no batch of samples is left to go on with", hint="ask for new ones with --count")
        if len(found) > 1:
            names = ", ".join(each.name[:8] for each in found[:5])
            raise Invalid("several batches are left to go on with", hint=f"name one: --batch {names}")
        return found[0]


@contextmanager
def lock_batches(run: Path, who: str) -> Iterator[None]:
    """Ask for samples of a run alone."""
    with exclusive_lock(run / layout.LOCK, who=who):
        yield


def _apply_event(batches: dict[str, BatchState], record: JournalRecord[SampleEvent]) -> None:
    event = record.event
    if isinstance(event, BatchStarted):
        batches[event.batch] = BatchState(event.batch, event.targets, event.limits, record.ts)
        return
    batch = batches.get(event.batch)
    if batch is None:
        return  # The line that began it was damaged; its files are still there and keep their numbers.
    match event:
        case BatchResumed():
            batch.reason, batch.limits = "", event.limits
        case SampleSent():
            batch.sent[event.item] = max(batch.sent.get(event.item, 0), event.attempt)
        case SampleAnswered():
            batch.answered[event.item] = event.usd
            batch.failed.pop(event.item, None)
        case SampleFailed():
            batch.failed[event.item] = event
        case BatchEnded():
            batch.reason = event.reason
        case _:
            assert_never(event)
