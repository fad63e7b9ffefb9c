"""Output files and the tier that says who may see them.

`Clean` is text that passed the redactor. Only `privacy` may construct it, which a test checks,
and a tracked file accepts nothing else.
"""

import enum
from collections.abc import Callable
from typing import Generic, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

T = TypeVar("T")
U = TypeVar("U")


class Tier(enum.Enum):
    """Who may see an output file, from narrow to wide."""

    PRIVATE = "private"
    SHAREABLE = "shareable"
    TRACKED = "tracked"


class Clean(Struct, frozen=True):
    """Text from which secrets and personal data were removed."""

    text: str


class Redacted(Struct, Generic[T], frozen=True):
    """A value from which private details were removed, and how many.

    Each replaced occurrence counts. A home directory whose owner was removed is a personal
    detail. Redaction tags that the value had before do not count.
    """

    value: T
    secrets: int
    personal: int

    def map(self, make: Callable[[T], U]) -> "Redacted[U]":
        """Return `make(value)` with the same counts."""
        return cast("Redacted[U]", replace(self, value=make(self.value)))


class OutputFile(Struct, frozen=True):
    """One output file as a value; `store.output_files` writes it."""

    path: str
    tier: Tier
    body: str | Clean
