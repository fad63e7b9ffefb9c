"""Retention as values: what a policy says, what there is, what is to be done about it.

`views.retention` plans, `store.retention` carries plans out on files; a room whose items are not
files carries out its own. Times are milliseconds since 1970.
"""

import enum

from msgspec import Struct


class Deed(enum.Enum):
    """What happens to an item, from mild to final."""

    ARCHIVE = "archive"
    DELETE = "delete"


class Rule(Struct, frozen=True):
    """Items of `kind` come to this after so many days.

    `summary` names the page that must tell of an item before it is deleted; `{year}`, `{quarter}` and
    `{month}` stand for the item's time, so that many items may share one. Empty asks for none.
    """

    kind: str
    after_days: int
    deed: Deed
    summary: str = ""


class Policy(Struct, frozen=True):
    """The rules of one room; names below `untouched` are a person's own and are never planned for."""

    room: str
    rules: tuple[Rule, ...]
    untouched: tuple[str, ...] = ()
    archive: str = "archive"


class Item(Struct, frozen=True):
    """Something that grows old: a file or directory named from the room's root, or a row named by its id."""

    name: str
    kind: str
    at_ms: int
    size: int = 0


class Move(Struct, frozen=True):
    """One thing to do; `target` is where an archived item goes, `summary` what must be there before."""

    item: Item
    deed: Deed
    age_days: int
    target: str = ""
    summary: str = ""


class Outcome(Struct, frozen=True):
    """What was done, and what was left with the reason why."""

    done: tuple[Move, ...]
    left: tuple[tuple[Move, str], ...] = ()
    summaries: tuple[str, ...] = ()
