"""How fast and for how much: a rate that all senders share, and money that is promised before it is spent.

Both live on one event loop, whoever sends: the senders on other machines wait for their turn here.
"""

import asyncio
from collections.abc import Callable


class RateLimiter:
    """Gives out turns: no more than so many a minute, and none while the API asks to wait."""

    def __init__(self, per_minute: float | None, clock: Callable[[], float]) -> None:
        """Begin at once; no rate is as fast as it goes."""
        self._every_s = 60.0 / per_minute if per_minute else 0.0
        self._clock = clock
        self._next = 0.0

    async def wait_turn(self) -> None:
        """Wait for a turn."""
        now = self._clock()
        at = max(self._next, now)
        self._next = at + self._every_s
        while at > now:
            await asyncio.sleep(at - now)
            now = self._clock()

    def delay_turns(self, seconds: float) -> None:
        """Give nobody a turn for so long."""
        self._next = max(self._next, self._clock() + seconds)


class BatchBudget:
    """A budget that is kept: what is on its way counts as much as the dearest answer so far."""

    def __init__(self, limit_usd: float | None, spent_usd: float) -> None:
        """Begin with what earlier processes spent."""
        self._limit = limit_usd
        self.spent_usd = spent_usd
        self._promised = 0.0
        self._returned = asyncio.Event()

    async def reserve_cost(self, expected: Callable[[], float]) -> float | None:
        """Set aside what a sample is expected to cost, when that may be spent; None when it never may."""
        while True:
            usd = expected()
            if self._limit is None or self.spent_usd + self._promised + usd <= self._limit:
                self._promised += usd
                return usd
            if not self._promised:
                return None
            self._returned.clear()
            await self._returned.wait()

    def commit(self, promised: float, usd: float | None) -> None:
        """Count what a sample did cost, in place of what was set aside."""
        self._promised = max(self._promised - promised, 0.0) if self._promised - promised > 1e-12 else 0.0
        self.spent_usd += usd or 0.0
        self._returned.set()
