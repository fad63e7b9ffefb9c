from datetime import UTC

from msgspec.structs import replace

from flightlog.model.usage import DAY_MS, CostSource
from flightlog.views.overview import (
    Overview,
    find_expiring_sessions,
    iter_facts,
    most_expensive_prompt,
    rank_projects,
)
from flightlog.views.session.outline import SessionSummary, TurnCost

COST = {"cost_usd": 1.0, "cost_source": CostSource.TABLE}
ONE = SessionSummary(
    "s1",
    "a",
    "title",
    "/shop",
    "",
    "",
    0,
    0,
    2,
    3,
    0,
    0,
    0,
    (),
    None,
    modified_ms=100 * DAY_MS,
    **COST,
)
TOLD = Overview(
    recordings=1, sessions=1, projects=1, turns=2, first_timestamp_ms=0, last_timestamp_ms=DAY_MS,
    keep_days=30, input_tokens=10, **COST,
)  # fmt: skip


def list_facts(**fields):
    return [fact.text for fact in iter_facts(replace(TOLD, **fields), UTC)]


def test_sessions_that_expire_soon_are_listed_soonest_first():
    old, older, new = (
        replace(ONE, session=name, modified_ms=day * DAY_MS)
        for name, day in (("b", 77), ("a", 76), ("c", 78))
    )

    expiring = find_expiring_sessions([new, old, older], 30, 100 * DAY_MS, 7)

    assert [(session.session, session.deletion_ms) for session in expiring] == [
        ("a", 106 * DAY_MS),
        ("b", 107 * DAY_MS),
    ]


def test_projects_rank_by_turns_then_cost():
    all_of = [
        ONE,
        replace(ONE, project="/bank", turns=9),
        replace(ONE, project=""),
        replace(ONE, project="/a", cost_usd=None),
    ]

    assert [share.project for share in rank_projects(all_of, 3)] == ["/bank", "/shop", "/a"]
    assert [share.project for share in rank_projects(all_of, 1)] == ["/bank"]
    assert [share.cost_usd for share in rank_projects(all_of, 3)] == [1.0, 1.0, None]


def test_the_most_expensive_prompt_is_the_one_that_cost_most():
    cheap, dear = (
        TurnCost("s#1", "cheap", 9, **COST),
        TurnCost("s#2", "dear", 1, 2.0, CostSource.TABLE),
    )

    assert (
        most_expensive_prompt(
            [
                replace(ONE, most_expensive_prompt=cheap),
                ONE,
                replace(ONE, most_expensive_prompt=dear),
            ]
        )
        == dear
    )
    assert most_expensive_prompt([ONE]) is None


def test_overview_lists_only_facts_that_apply():
    assert len(list_facts()) == 4
    assert "than is on record" not in " ".join(list_facts(unrecorded_cost_usd=0.00001))
    assert "$0.5000 more than is on record" in " ".join(list_facts(unrecorded_cost_usd=0.5))
    assert "$0.5000 less than is on record" in " ".join(list_facts(unrecorded_cost_usd=-0.5))
    assert "2 records of unknown type, 1 damaged span" in list_facts(
        unknown_records=2, damage_count=1
    )
    assert "cost unknown" in " ".join(list_facts(cost_usd=None))


def test_samples_are_never_taken_for_the_persons_own():
    commands = [fact.next_command for fact in iter_facts(replace(TOLD, is_sample=True), UTC)]

    assert all("--samples" in command for command in commands[:-1])
    assert commands[-1] == "flightlog demo"


def test_unscanned_sessions_are_reported_with_the_command():
    facts = list(iter_facts(replace(TOLD, sessions_not_scanned=2), UTC))

    assert facts[-1].text == "2 sessions not scanned for secrets"
    assert facts[-1].next_command == "flightlog privacy scan"
