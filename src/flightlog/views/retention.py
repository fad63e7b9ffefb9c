"""Planning what is old enough to go: a pure function of policy, items and time.

A dry run shows this plan and a real run carries out this plan, so they cannot differ. Says nothing of
how: `store.retention` moves files, a room tombstones its rows.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

from flightlog.model.retention import Deed, Item, Move, Policy, Rule
from flightlog.model.usage import DAY_MS


def plan(policy: Policy, items: Iterable[Item], now_ms: int) -> tuple[Move, ...]:
    """Return what is to be done, oldest first; of several rules that apply to an item the final one counts."""
    moves = []
    for item in items:
        age_days = (now_ms - item.at_ms) // DAY_MS
        rule = _rule(policy, item, age_days)
        if rule is not None:
            target = f"{policy.archive}/{item.name}" if rule.deed is Deed.ARCHIVE else ""
            moves.append(Move(item, rule.deed, age_days, target, _summary(rule, item)))
    return tuple(sorted(moves, key=lambda move: (move.item.at_ms, move.item.name)))


def is_untouched(policy: Policy, name: str) -> bool:
    """Whether `name` belongs to a person: it is, or is below, a name the policy leaves alone."""
    return any(name == each or name.startswith(f"{each}/") for each in policy.untouched)


def _rule(policy: Policy, item: Item, age_days: int) -> Rule | None:
    if is_untouched(policy, item.name):
        return None
    archived = item.name.startswith(f"{policy.archive}/")
    due = [
        rule
        for rule in policy.rules
        if rule.kind == item.kind and age_days >= rule.after_days and not (archived and rule.deed is Deed.ARCHIVE)
    ]
    return max(due, key=lambda rule: (rule.deed is Deed.DELETE, rule.after_days), default=None)


def _summary(rule: Rule, item: Item) -> str:
    moment = datetime.fromtimestamp(item.at_ms / 1000, UTC)
    return rule.summary.format(year=moment.year, quarter=(moment.month + 2) // 3, month=f"{moment.month:02}")
