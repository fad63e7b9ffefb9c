from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from flightlog.model.usage import (
    BLOCK_MS,
    HOUR_MS,
    Breakdown,
    ClientTotals,
    Cost,
    CostSource,
    ModelResponse,
    ModelTotal,
    Usage,
    UsageQuality,
    format_tokens,
    response_to_row,
    sum_costs,
)
from flightlog.usage.digest import SessionUsage, digest_sessions
from flightlog.usage.prices import PricedResponse, price_responses
from flightlog.usage.reconciliation import GapEvidence
from flightlog.usage.report import total_row
from support.usage_oracle import blocks, rows, total

LINE = ModelResponse("m1", "s1", "claude-opus-5-5", Usage(1000, 100), 1793620800000, "/shop")
BERLIN, KOLKATA = ZoneInfo("Europe/Berlin"), ZoneInfo("Asia/Kolkata")
times = st.lists(st.integers(1_700_000_000_000, 1_700_600_000_000), min_size=1, max_size=30)


def at(*moments):
    responses = (
        replace(LINE, message_id=f"m{place}", at_ms=moment) for place, moment in enumerate(moments)
    )
    return price_responses(responses, {})


def ms(stamp):
    return int(datetime.fromisoformat(stamp).timestamp() * 1000)


def keys(items, by, zone=UTC):
    return {row.key: row.responses for row in rows(items, by, zone)}


@given(times)
def test_a_block_starts_at_a_full_hour_and_holds_five_hours(moments):
    spans = blocks(at(*moments))

    assert all(start % HOUR_MS == 0 and end - start == BLOCK_MS for start, end in spans)
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    assert all(sum(start <= moment < end for start, end in spans) == 1 for moment in moments)
    assert all(any(start <= moment < start + HOUR_MS for moment in moments) for start, _ in spans)
    assert sum(keys(at(*moments), Breakdown.BLOCK).values()) == len(moments)


def test_a_block_begins_with_the_first_response_after_the_last_block():
    moments = [
        "2026-11-02T09:59:00Z",
        "2026-11-02T13:59:59Z",
        "2026-11-02T14:00:00Z",
        "2026-11-03T03:30:00Z",
    ]

    counts = keys(at(*map(ms, moments)), Breakdown.BLOCK)

    assert counts == {
        "2026-11-02T09:00:00Z": 2,
        "2026-11-02T14:00:00Z": 1,
        "2026-11-03T03:00:00Z": 1,
    }


def test_days_and_months_are_those_of_the_time_zone():
    items = at(ms("2026-10-31T22:59:00Z"), ms("2026-10-31T23:30:00Z"))

    assert keys(items, Breakdown.DAY) == {"2026-10-31": 2}
    assert keys(items, Breakdown.DAY, BERLIN) == {"2026-10-31": 1, "2026-11-01": 1}
    assert keys(items, Breakdown.MONTH, BERLIN) == {"2026-10": 1, "2026-11": 1}
    assert keys(items, Breakdown.MONTH, KOLKATA) == {"2026-11": 2}


@pytest.mark.parametrize(
    ("day", "hours"), [("2026-03-29", 23), ("2026-10-25", 25), ("2026-07-01", 24)]
)
def test_a_day_is_as_long_as_the_clock_says_when_summer_time_changes(day, hours):
    midnight = datetime.fromisoformat(f"{day}T00:00:00").replace(tzinfo=BERLIN)
    begin = int(midnight.timestamp() * 1000)
    wanted = [begin + place * HOUR_MS for place in range(hours)]

    assert keys(at(*wanted), Breakdown.DAY, BERLIN) == {day: hours}
    assert keys(at(begin - 1, begin + hours * HOUR_MS), Breakdown.DAY, BERLIN).get(day) is None


@given(times, st.sampled_from(Breakdown))
def test_the_rows_of_any_break_down_add_up_to_the_total(moments, by):
    items = at(*moments)

    breakdown_rows = rows(items, by, BERLIN)

    assert sum((row.usage for row in breakdown_rows), Usage()) == total(items).usage
    assert sum(row.cost.usd for row in breakdown_rows) == pytest.approx(total(items).cost.usd)
    assert [row.key for row in breakdown_rows] == sorted(row.key for row in breakdown_rows)


def test_a_response_without_a_time_is_counted_and_belongs_to_no_day():
    items = at(0, ms("2026-11-02T09:59:00Z"))

    assert keys(items, Breakdown.DAY) == {"": 1, "2026-11-02": 1}
    assert keys(items, Breakdown.MONTH) == {"": 1, "2026-11": 1}
    assert keys(items, Breakdown.BLOCK) == {"": 1, "2026-11-02T09:00:00Z": 1}


def test_a_session_belongs_to_the_project_it_began_in():
    moved = [
        replace(LINE, message_id=f"m{n}", at_ms=n, project=name)
        for n, name in enumerate(("", "/a", "/b"), 1)
    ]

    assert keys(price_responses(moved, {}), Breakdown.PROJECT) == {"/a": 3}
    assert keys(price_responses([replace(LINE, project="")], {}), Breakdown.PROJECT) == {"": 1}


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=20), st.floats(0.001, 1000))
def test_what_the_client_said_of_an_unknown_model_is_shared_out_whole(counts, usd):
    lines = [
        replace(LINE, message_id=f"m{n}", model="mystery", usage=Usage(many))
        for n, many in enumerate(counts)
    ]
    client = {"s1": ClientTotals("s1", usd, 0, (ModelTotal("mystery", usd),))}

    items = price_responses([*lines, LINE], client)

    shared = [item.cost for item in items if item.response.model == "mystery"]
    assert sum(cost.usd for cost in shared) == pytest.approx(usd, rel=1e-12)
    assert {cost.source for cost in shared} == {CostSource.CLIENT}
    assert items[-1].cost.source is CostSource.TABLE


def test_without_a_word_of_the_client_an_unknown_model_stays_unknown():
    mystery = replace(LINE, model="mystery")
    elsewhere = {"s2": ClientTotals("s2", 1.0, 0, (ModelTotal("mystery", 1.0),))}
    unsaid = {"s1": ClientTotals("s1", 1.0, 0, (ModelTotal("mystery", 0.0),))}

    for client in ({}, elsewhere, unsaid):
        (item,) = price_responses([mystery], client)
        assert item.cost == Cost(None, CostSource.UNKNOWN)
        assert total([item]).unpriced_models == ("mystery",)


def test_a_known_price_is_not_replaced_by_the_clients():
    client = {"s1": ClientTotals("s1", 99.0, 0, (ModelTotal(LINE.model, 99.0),))}

    assert price_responses([LINE], client) == price_responses([LINE], {})


def test_sums_say_what_they_are_made_of():
    table, client, unknown = (
        Cost(1.0, CostSource.TABLE),
        Cost(2.0, CostSource.CLIENT),
        Cost(None, CostSource.UNKNOWN),
    )

    assert sum_costs([table, table]) == Cost(2.0, CostSource.TABLE)
    assert sum_costs([client, unknown]) == Cost(2.0, CostSource.CLIENT, is_lower_bound=True)
    assert sum_costs([table, client]) == Cost(3.0, CostSource.MIXED)
    assert sum_costs([unknown, unknown]) == unknown
    assert sum_costs([]) == Cost(0.0, CostSource.TABLE)


def test_only_unrecorded_tokens_make_counts_a_lower_bound():
    unpriced = replace(LINE, message_id="m2", model="mystery")
    too_low = replace(LINE, message_id="m3", quality=UsageQuality.LOWER_BOUND)
    totals = []
    for other in (unpriced, too_low):
        session = SessionUsage("s1", 1, [response_to_row(LINE), response_to_row(other)], [])
        totals.append(total_row(digest_sessions([session], lambda *_: GapEvidence())))

    assert [row.cost.is_lower_bound for row in totals] == [True, True]
    assert [row.cost.lacks_tokens for row in totals] == [False, True]
    shown = [format_tokens(row.usage.output_tokens, row.usage, row.cost) for row in totals]
    assert shown == ["200", "≥ 200"]
    assert sum_costs(row.cost for row in totals).lacks_tokens


def test_a_total_counts_responses_sessions_and_models():
    items = [
        *price_responses(
            [
                LINE,
                replace(LINE, message_id="m2", session="s2", model="mystery", at_ms=1793620800001),
            ],
            {},
        )
    ]

    row = total(items, "key")

    assert (row.key, row.responses, row.sessions) == ("key", 2, 2)
    assert (row.models, row.unpriced_models) == (("claude-opus-5-5", "mystery"), ("mystery",))
    assert (row.first_ms, row.last_ms) == (1793620800000, 1793620800001)
    assert total([]).usage == Usage()
    assert isinstance(items[0], PricedResponse)
