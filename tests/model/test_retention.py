"""What a policy plans: nothing too young, nothing of a person's own, and the same twice."""

from hypothesis import given
from hypothesis import strategies as st

from flightlog.model.retention import (
    RetentionAction,
    RetentionItem,
    RetentionPolicy,
    RetentionRule,
    plan_retention,
)
from flightlog.model.usage import DAY_MS

NOW = 1_780_000_000_000
POLICY = RetentionPolicy(
    "loop",
    (
        RetentionRule("session", 182, RetentionAction.ARCHIVE),
        RetentionRule("session", 365, RetentionAction.DELETE, "summaries/{year}-Q{quarter}.md"),
        RetentionRule("log", 30, RetentionAction.DELETE),
    ),
    excluded_names=("outputs",),
)


def item(name, kind, days):
    return RetentionItem(name, kind, NOW - days * DAY_MS)


def test_each_item_comes_to_the_final_rule_that_applies_to_it():
    items = [
        item("a", "session", 400),
        item("b", "session", 200),
        item("c", "session", 10),
        item("d", "log", 30),
    ]

    moves = plan_retention(POLICY, items, NOW)

    assert [(move.item.name, move.action, move.target) for move in moves] == [
        ("a", RetentionAction.DELETE, ""),
        ("b", RetentionAction.ARCHIVE, "archive/b"),
        ("d", RetentionAction.DELETE, ""),
    ]
    assert moves[0].summary == "summaries/2025-Q2.md"


def test_archived_items_are_not_archived_again_but_deleted_when_due():
    items = [item("archive/a", "session", 200), item("archive/b", "session", 400)]

    assert [(move.item.name, move.action) for move in plan_retention(POLICY, items, NOW)] == [
        ("archive/b", RetentionAction.DELETE)
    ]


def test_files_of_a_person_are_never_planned_for_removal():
    items = [
        item("outputs", "log", 9999),
        item("outputs/mine/x", "log", 9999),
        item("outputs-old", "log", 9999),
    ]

    assert [move.item.name for move in plan_retention(POLICY, items, NOW)] == ["outputs-old"]


days = st.integers(-10, 800)


@given(st.lists(st.tuples(st.sampled_from(["session", "log", "other"]), days), max_size=20))
def test_nothing_is_removed_early_whatever_the_order_of_items(given_items):
    items = [item(f"n{number}", kind, age) for number, (kind, age) in enumerate(given_items)]

    moves = plan_retention(POLICY, items, NOW)

    assert moves == plan_retention(POLICY, reversed(items), NOW)
    limits = {
        ("session", RetentionAction.ARCHIVE): 182,
        ("session", RetentionAction.DELETE): 365,
        ("log", RetentionAction.DELETE): 30,
    }
    assert all(move.age_days >= limits[move.item.kind, move.action] for move in moves)
    assert {move.item.name for move in moves} == {
        one.name for one, (kind, age) in zip(items, given_items, strict=True)
        if age >= {"session": 182, "log": 30, "other": 10**6}[kind]
    }  # fmt: skip
