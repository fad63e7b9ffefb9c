"""What a branch will cost, guessed from what its source cost from that turn on. Pure."""

from collections.abc import Sequence

from msgspec import Struct

from flightlog.model.session import Step
from flightlog.model.usage import Usage
from flightlog.usage.prices import price


class BranchEstimate(Struct, frozen=True):
    """US dollars for one branch that goes on as its source did; None where a price is not known.

    `cached_usd` takes the prompt cache as it was then; `uncached_usd` pays for the first request's
    whole context anew, as after a pause. `steps` is how many answers that would be.
    """

    steps: int
    cached_usd: float | None
    uncached_usd: float | None
    context_tokens: int


def estimate_branch(steps: Sequence[Step], turn: int) -> BranchEstimate:
    """Guess what going back to before `turn` costs."""
    rest = steps[turn - 1 :]
    costs = [each.cost.usd for each in rest]
    known = [each for each in costs if each is not None]
    cached = sum(known) if rest and len(known) == len(costs) else None
    if cached is None:
        return BranchEstimate(len(rest), None, None, rest[0].usage.prompt if rest else 0)
    first = rest[0]
    anew = price(first.model, Usage(cache_write_5m=first.usage.prompt, output=first.usage.output), first.at_ms).usd
    more = max((anew or 0.0) - (first.cost.usd or 0.0), 0.0)
    return BranchEstimate(len(rest), cached, cached + more, first.usage.prompt)
