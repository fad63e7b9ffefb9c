"""How much work a text may cause: so many bytes examined for each byte of it.

Ordinary text uses a small part of it. Where somebody piled up beginnings of secrets, the
credit runs out, and the detectors stop weighing: what follows a trigger is then taken for a
secret unseen. A hostile text so loses words, never time, and hides nothing.
"""

UNJUDGED = "unjudged"
_BYTES_PER_BYTE = 2
_CREDIT_MAX = 128 << 10


class Meter:
    """Credit that grows with the place in the text and is spent by looks at it."""

    def __init__(self) -> None:
        """Begin with full credit."""
        self._credit = _CREDIT_MAX
        self._at = 0
        self.spent = 0
        self.granted = _CREDIT_MAX

    def begin(self) -> None:
        """Go back to the beginning: another detector, or another reading of the text."""
        self._at = 0

    def affords(self, at: int, cost: int) -> bool:
        """Say whether `cost` more bytes may be examined at `at`, and count them."""
        more = (at - self._at) * _BYTES_PER_BYTE
        self._at = at
        self.granted += more
        self._credit = min(_CREDIT_MAX, self._credit + more)
        if cost > self._credit:
            return False
        self._credit -= cost
        self.spent += cost
        return True
