"""Retention policy, items, and the plan, which is a pure function of both.

A dry run shows the plan and a real run executes it, so they cannot differ. `store.directories`
executes a plan for files; a feature whose items are rows executes its own. Times are
milliseconds since 1970.
"""

import enum
from collections.abc import Iterable
from datetime import UTC, datetime

from msgspec import Struct

from flightlog.model.usage import DAY_MS


class RetentionAction(enum.Enum):
    """What happens to an item."""

    ARCHIVE = "archive"
    DELETE = "delete"


class RetentionRule(Struct, frozen=True):
    """The action for items of `kind` that are `after_days` old.

    `summary` names the file that must mention an item before it is deleted; `{year}`, `{quarter}`
    and `{month}` are replaced by the item's time, so that items may share one. Empty needs none.
    """

    kind: str
    after_days: int
    action: RetentionAction
    summary: str = ""


class RetentionPolicy(Struct, frozen=True):
    """The rules of one feature; `untouched` names belong to a person and are never planned for."""

    feature: str
    rules: tuple[RetentionRule, ...]
    excluded_names: tuple[str, ...] = ()
    archive: str = "archive"


class RetentionItem(Struct, frozen=True):
    """A file or directory, named from the feature's root, or a row, named by its id."""

    name: str
    kind: str
    at_ms: int
    size_bytes: int = 0


class RetentionMove(Struct, frozen=True):
    """One planned action; an archived item goes to `target`, `summary` must exist before."""

    item: RetentionItem
    action: RetentionAction
    age_days: int
    target: str = ""
    summary: str = ""


class RetentionResult(Struct, frozen=True):
    """What was done, and what was left for which reason."""

    completed: tuple[RetentionMove, ...]
    failed: tuple[tuple[RetentionMove, str], ...] = ()
    summaries: tuple[str, ...] = ()


def plan_retention(
    policy: RetentionPolicy, items: Iterable[RetentionItem], now_ms: int
) -> tuple[RetentionMove, ...]:
    """Return the actions, oldest item first; if several rules apply to an item, deletion wins."""
    moves = []
    for item in items:
        age_days = (now_ms - item.at_ms) // DAY_MS
        rule = _applicable_rule(policy, item, age_days)
        if rule is not None:
            is_archived = rule.action is RetentionAction.ARCHIVE
            target = f"{policy.archive}/{item.name}" if is_archived else ""
            summary = _summary_name(rule, item)
            moves.append(RetentionMove(item, rule.action, age_days, target, summary))
    return tuple(sorted(moves, key=lambda move: (move.item.at_ms, move.item.name)))


def is_untouched(policy: RetentionPolicy, name: str) -> bool:
    """Return whether `name` is, or is below, a name that the policy leaves to the person."""
    return any(name == own or name.startswith(f"{own}/") for own in policy.excluded_names)


def _applicable_rule(
    policy: RetentionPolicy, item: RetentionItem, age_days: int
) -> RetentionRule | None:
    if is_untouched(policy, item.name):
        return None
    archived = item.name.startswith(f"{policy.archive}/")
    old = [rule for rule in policy.rules if rule.kind == item.kind and age_days >= rule.after_days]
    due = [rule for rule in old if not (archived and rule.action is RetentionAction.ARCHIVE)]
    return max(
        due, key=lambda rule: (rule.action is RetentionAction.DELETE, rule.after_days), default=None
    )


def _summary_name(rule: RetentionRule, item: RetentionItem) -> str:
    at = datetime.fromtimestamp(item.at_ms / 1000, UTC)
    return rule.summary.format(year=at.year, quarter=(at.month + 2) // 3, month=f"{at.month:02}")
