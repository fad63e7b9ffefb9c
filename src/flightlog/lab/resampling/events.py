"""What happens to samples: the closed union the journal of a run's samples holds (`.resamples.jsonl`).

A sample is on record as sent before it is sent, and as answered after its file is there. One that
was sent and has neither file nor end was in flight when the process died: it is asked for again.
"""

from msgspec import Struct

from flightlog.lab.resampling.layout import SampleItem


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
