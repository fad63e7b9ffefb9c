"""Pages: files that are views, and who may see them.

`Clean` is text that passed the redactor; only `privacy` may construct it (a check
in the tests holds the rest of the source to that). A tracked page accepts nothing else.
"""

import enum

from msgspec import Struct


class Tier(enum.Enum):
    """Who may see a page, from narrow to wide."""

    PRIVATE = "private"
    SHAREABLE = "shareable"
    TRACKED = "tracked"


class Clean(Struct, frozen=True):
    """Text from which secrets and personal data were taken out."""

    text: str


class Page(Struct, frozen=True):
    """One file of a layout, as a value; `store.pages` puts it on disk."""

    path: str
    tier: Tier
    body: str | Clean
