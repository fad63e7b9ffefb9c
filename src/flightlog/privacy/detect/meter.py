"""How much work a text may cause: so many bytes examined for each byte of it.

Ordinary text uses a small part of it. Where somebody piled up beginnings of secrets, the
credit runs out, and nothing more is weighed in that record: the rest of it is taken out
unseen. A hostile text so loses words, never time, hides nothing, and stays as it then is.
"""

from flightlog.privacy.detect.hits import LOW, Hit

UNJUDGED = "unjudged"
_CREDIT_MAX = 384 << 10


class Meter:
    """Credit that grows with the place in the text and is spent by looks at it."""

    def __init__(self) -> None:
        """Begin with full credit."""
        self._credit = _CREDIT_MAX
        self._at = 0
        self.spent = 0
        self.granted = _CREDIT_MAX

    def begin(self) -> None:
        """Go back to the beginning: another search, or another reading of the text."""
        self._at = 0

    def unjudged(self, view: bytes, start: int) -> Hit:
        """Return the rest of the record from `start` on, to be taken out as it is."""
        stop = view.find(b"\0", start)
        end = stop if stop >= 0 else len(view)
        return Hit(start, end, UNJUDGED, view[start:end], LOW)

    def affords(self, at: int, cost: int) -> bool:
        """Say whether `cost` more bytes may be examined at `at`, and count them."""
        more = max(0, at - self._at)
        self._at = at
        self.granted += more
        self._credit = min(_CREDIT_MAX, self._credit + more)
        if cost > self._credit:
            return False
        self._credit -= cost
        self.spent += cost
        return True
