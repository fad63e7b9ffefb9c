"""Retention policy, items, and the pure plan.

`views.retention` plans, `store.retention` carries plans out on files; a room whose items are not
files carries out its own. Times are milliseconds since 1970.

A dry run shows this plan and a real run carries out this plan, so they cannot differ. Says nothing of
how: `store.retention` moves files, a room tombstones its rows.
"""

import enum
from collections.abc import Iterable
from datetime import UTC, datetime

from msgspec import Struct

from flightlog.model.usage import DAY_MS


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


def plan_retention(policy: RetentionPolicy, items: Iterable[RetentionItem], now_ms: int) -> tuple[RetentionMove, ...]:
    """Return what is to be done, oldest first; of several rules that apply to an item the final one counts."""
    moves = []
    for item in items:
        age_days = (now_ms - item.at_ms) // DAY_MS
        rule = _applicable_rule(policy, item, age_days)
        if rule is not None:
            target = f"{policy.archive}/{item.name}" if rule.deed is RetentionAction.ARCHIVE else ""
            moves.append(RetentionMove(item, rule.deed, age_days, target, _summary_name(rule, item)))
    return tuple(sorted(moves, key=lambda move: (move.item.at_ms, move.item.name)))


def is_untouched(policy: RetentionPolicy, name: str) -> bool:
    """Whether `name` belongs to a person: it is, or is below, a name the policy leaves alone."""
    return any(name == each or name.startswith(f"{each}/") for each in policy.untouched)


def _applicable_rule(policy: RetentionPolicy, item: RetentionItem, age_days: int) -> RetentionRule | None:
    if is_untouched(policy, item.name):
        return None
    archived = item.name.startswith(f"{policy.archive}/")
    due = [
        rule
        for rule in policy.rules
        if rule.kind == item.kind
        and age_days >= rule.after_days
        and not (archived and rule.deed is RetentionAction.ARCHIVE)
    ]
    return max(due, key=lambda rule: (rule.deed is RetentionAction.DELETE, rule.after_days), default=None)


def _summary_name(rule: RetentionRule, item: RetentionItem) -> str:
    moment = datetime.fromtimestamp(item.at_ms / 1000, UTC)
    return rule.summary.format(year=moment.year, quarter=(moment.month + 2) // 3, month=f"{moment.month:02}")
