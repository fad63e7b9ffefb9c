"""Pages: files that are views, and who may see them.

`Clean` is text that passed the redactor; only `privacy` may construct it (a check
in the tests holds the rest of the source to that). A tracked page accepts nothing else.
"""

import enum
from collections.abc import Callable
from typing import Generic, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

T = TypeVar("T")
U = TypeVar("U")


class Tier(enum.Enum):
    """Who may see a page, from narrow to wide."""

    PRIVATE = "private"
    SHAREABLE = "shareable"
    TRACKED = "tracked"


class Clean(Struct, frozen=True):
    """Text from which secrets and personal data were taken out."""

    text: str


class Redacted(Struct, Generic[T], frozen=True):
    """A value from which private details were removed, and how many.

    Each replaced occurrence counts, so a token that occurred three times counts three times.
    Home directories whose owner was removed count as personal details. What was a tag before
    does not count.
    """

    value: T
    secrets: int
    personal: int

    def map(self, make: Callable[[T], U]) -> "Redacted[U]":
        """Return what `make` makes of the value, with the same numbers."""
        return cast("Redacted[U]", replace(self, value=make(self.value)))


class OutputFile(Struct, frozen=True):
    """One file of a layout, as a value; `store.pages` puts it on disk."""

    path: str
    tier: Tier
    body: str | Clean
