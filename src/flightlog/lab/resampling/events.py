"""What happens to samples: the closed union the journal of a run's samples holds (`.resamples.jsonl`).

A sample is on record as sent before it is sent, and as answered after its file is there. One that
was sent and has neither file nor end was in flight when the process died: it is asked for again.
"""

from msgspec import Struct

from flightlog.lab.resampling.layout import Item


class Target(Struct, frozen=True):
    """Samples of one request in one variant by one model; no model means the one that was asked then."""

    session: str
    request: int
    variant: int
    model: str
    first: int
    count: int

    @property
    def items(self) -> list[Item]:
        """Each of them."""
        numbers = range(self.first, self.first + self.count)
        return [Item(self.session, self.request, self.variant, number) for number in numbers]


class Limits(Struct, frozen=True):
    """How a batch is to be carried out."""

    max_budget_usd: float | None = None
    parallel: int = 8
    per_minute: float | None = None
    retries: int = 4
    timeout_s: float = 600.0
    wait_s: float = 0.5
    until_width: float | None = None


class Event(Struct, frozen=True, tag_field="kind", tag="event"):
    """What all of them have in common: a tag, and the batch."""

    batch: str


class BatchBegun(Event, frozen=True, tag="batch_begun"):
    """Samples were asked for, and their numbers are taken; nothing was sent yet."""

    targets: tuple[Target, ...]
    limits: Limits


class BatchTaken(Event, frozen=True, tag="batch_taken"):
    """A process took the batch up, the first one or one after a crash, within these limits."""

    process: str
    limits: Limits


class Sending(Event, frozen=True, tag="sending"):
    """A sample is about to be sent."""

    item: Item
    attempt: int


class Answered(Event, frozen=True, tag="answered"):
    """The answer is in its file. `model` is the one that was asked."""

    item: Item
    model: str
    usd: float | None
    message_id: str = ""


class Failed(Event, frozen=True, tag="failed"):
    """No answer came, after all tries; what came instead is in its file."""

    item: Item
    model: str
    status: int
    error: str


class BatchEnded(Event, frozen=True, tag="batch_ended"):
    """Nothing more is sent for this batch until it is taken up again; `completed` is its end."""

    reason: str


SampleEvent = BatchBegun | BatchTaken | Sending | Answered | Failed | BatchEnded
