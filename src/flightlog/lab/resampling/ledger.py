"""The batches of samples of a run, folded from their journal, and the numbers that are taken.

One process at a time asks for samples of a run: it holds `.resamples.lock`. What it wrote is
enough for the next one to go on.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import assert_never

from msgspec import Struct, field

from flightlog.lab.resampling import layout
from flightlog.lab.resampling.events import (
    Answered,
    BatchBegun,
    BatchEnded,
    BatchTaken,
    Failed,
    Limits,
    SampleEvent,
    Sending,
    Target,
)
from flightlog.lab.resampling.layout import Item
from flightlog.model.errors import Invalid, NotFound
from flightlog.store.journal import Journal, Record
from flightlog.store.locks import lock

WIDTH = "width_reached"


class BatchState(Struct):
    """One batch as it stands."""

    name: str
    targets: tuple[Target, ...]
    limits: Limits
    began_at: str
    sent: dict[Item, int] = field(default_factory=dict)
    answered: dict[Item, float | None] = field(default_factory=dict)
    failed: dict[Item, Failed] = field(default_factory=dict)
    reason: str = ""

    @property
    def usd(self) -> float:
        """What its answers cost, those of known price."""
        return sum(each or 0.0 for each in self.answered.values())

    @property
    def unpriced(self) -> int:
        """How many answers have no known price."""
        return sum(each is None for each in self.answered.values())

    @property
    def left(self) -> list[tuple[Target, Item]]:
        """What it still has to ask for, one sample of each target after the other."""
        if self.reason == WIDTH:
            return []
        every = [(at, target, item) for target in self.targets for at, item in enumerate(target.items)]
        every.sort(key=lambda each: each[0])
        return [(target, item) for _, target, item in every if item not in self.answered and item not in self.failed]


class Ledger:
    """The journal of a run's samples, and how its batches stand."""

    def __init__(self, run: Path, *, now: Callable[[], str], new_id: Callable[[], str]) -> None:
        """Read what is on record."""
        self.run = run
        self._journal: Journal[SampleEvent] = Journal(run / layout.JOURNAL, SampleEvent, now=now, new_id=new_id)
        self.batches: dict[str, BatchState] = {}
        if self._journal.path.exists():
            for entry in self._journal.read():
                if isinstance(entry, Record):
                    _add(self.batches, entry)

    def note(self, event: SampleEvent, *, durable: bool = False) -> None:
        """Write down what happened, and know it from now on."""
        _add(self.batches, self._journal.append(event, durable=durable))

    def next_number(self, session: str, request: int, variant: int) -> int:
        """The first number that no sample has, on disk or promised to a batch."""
        path = self.run / layout.folder(session, request, variant)
        taken = [number for number, _, _ in layout.files(path)]
        for batch in self.batches.values():
            same = (session, request, variant)
            taken += [
                one.first + one.count - 1 for one in batch.targets if (one.session, one.request, one.variant) == same
            ]
        return max(taken, default=0) + 1

    def next_variant(self, session: str, request: int) -> int:
        """The first number that no variant of a request has."""
        taken = [each for name, of, each, _ in layout.folders(self.run) if (name, of) == (session, request)]
        return max(taken, default=0) + 1

    def open_batch(self, written: str) -> BatchState:
        """Find a batch that is not over, by the beginning of its name; without one, the only one there is."""
        left = [each for each in self.batches.values() if each.left]
        found = [each for each in left if each.name.startswith(written)]
        if not found:
            raise NotFound("no batch of samples is left to go on with", hint="ask for new ones with --count")
        if len(found) > 1:
            names = ", ".join(each.name[:8] for each in found[:5])
            raise Invalid("several batches are left to go on with", hint=f"name one: --batch {names}")
        return found[0]


@contextmanager
def held(run: Path, who: str) -> Iterator[None]:
    """Ask for samples of a run alone."""
    with lock(run / layout.LOCK, who=who):
        yield


def _add(batches: dict[str, BatchState], record: Record[SampleEvent]) -> None:
    event = record.event
    if isinstance(event, BatchBegun):
        batches[event.batch] = BatchState(event.batch, event.targets, event.limits, record.ts)
        return
    batch = batches.get(event.batch)
    if batch is None:
        return  # The line that began it was damaged; its files are still there and keep their numbers.
    match event:
        case BatchTaken():
            batch.reason, batch.limits = "", event.limits
        case Sending():
            batch.sent[event.item] = max(batch.sent.get(event.item, 0), event.attempt)
        case Answered():
            batch.answered[event.item] = event.usd
            batch.failed.pop(event.item, None)
        case Failed():
            batch.failed[event.item] = event
        case BatchEnded():
            batch.reason = event.reason
        case _:
            assert_never(event)
