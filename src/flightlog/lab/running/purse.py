"""The budget of a run, shared by everything that spends.

Asked before each call to the model and told after it, so that nothing is asked for once the
budget is spent; what is on its way at that moment, one call of each running session, is still paid.
"""

import threading


class Budget:
    """What may be spent and what was."""

    def __init__(self, limit_usd: float | None, spent_usd: float = 0.0) -> None:
        """Begin with what earlier attempts spent."""
        self._limit = limit_usd
        self._spent = spent_usd
        self._lock = threading.Lock()
        self.unpriced = 0

    @property
    def spent_usd(self) -> float:
        """What was spent."""
        return self._spent

    @property
    def remaining_usd(self) -> float | None:
        """What may still be spent; None is no limit."""
        return None if self._limit is None else max(self._limit - self._spent, 0.0)

    @property
    def is_empty(self) -> bool:
        """Whether nothing may be spent any more."""
        return self._limit is not None and self._spent >= self._limit

    def charge(self, usd: float | None) -> None:
        """Count what a response cost; one without a price is counted as such."""
        with self._lock:
            if usd is None:
                self.unpriced += 1
            else:
                self._spent += usd
