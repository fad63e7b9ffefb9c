"""Retention as values: what a policy says, what there is, what is to be done about it.

`views.retention` plans, `store.retention` carries plans out on files; a room whose items are not
files carries out its own. Times are milliseconds since 1970.
"""

import enum

from msgspec import Struct


class RetentionAction(enum.Enum):
    """What happens to an item, from mild to final."""

    ARCHIVE = "archive"
    DELETE = "delete"


class RetentionRule(Struct, frozen=True):
    """Items of `kind` come to this after so many days.

    `summary` names the page that must tell of an item before it is deleted; `{year}`, `{quarter}` and
    `{month}` stand for the item's time, so that many items may share one. Empty asks for none.
    """

    kind: str
    after_days: int
    deed: RetentionAction
    summary: str = ""


class RetentionPolicy(Struct, frozen=True):
    """The rules of one room; names below `untouched` are a person's own and are never planned for."""

    room: str
    rules: tuple[RetentionRule, ...]
    untouched: tuple[str, ...] = ()
    archive: str = "archive"


class RetentionItem(Struct, frozen=True):
    """Something that grows old: a file or directory named from the room's root, or a row named by its id."""

    name: str
    kind: str
    at_ms: int
    size: int = 0


class RetentionMove(Struct, frozen=True):
    """One thing to do; `target` is where an archived item goes, `summary` what must be there before."""

    item: RetentionItem
    deed: RetentionAction
    age_days: int
    target: str = ""
    summary: str = ""


class RetentionResult(Struct, frozen=True):
    """What was done, and what was left with the reason why."""

    done: tuple[RetentionMove, ...]
    left: tuple[tuple[RetentionMove, str], ...] = ()
    summaries: tuple[str, ...] = ()
