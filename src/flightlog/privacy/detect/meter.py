"""How much work a text may cause: so many bytes examined for each byte of it.

Ordinary text uses a small part of it. Where somebody piled up beginnings of secrets, the
credit runs out, and the detectors stop weighing: the stretch from a trigger on is then taken
out unseen. A hostile text so loses words, never time, and hides nothing.
"""

import re

from flightlog.privacy.detect.hits import LOW, Hit

UNJUDGED = "unjudged"
_STRETCH = 256
_REST = re.compile(rb"[^\s\x00\"'<>]{0,1024}")
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

    def unjudged(self, view: bytes, start: int) -> Hit:
        """Return the stretch from `start` on, to be taken out as it is."""
        stop = view.find(b"\0", start, start + _STRETCH)
        # To the end of the word: half a token is still half a secret.
        end = stop if stop >= 0 else _REST.match(view, min(start + _STRETCH, len(view))).end()  # type: ignore[union-attr]
        return Hit(start, end, UNJUDGED, view[start:end], LOW)

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
