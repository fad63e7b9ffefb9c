import random
from datetime import UTC, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.live.billing import (
    LimitSample,
    Payment,
    ProfileLimits,
    compute_billing,
    divide_bucket,
    forecast_exhaustion,
)
from flightlog.live.state import VendorLimits, VendorWindow
from flightlog.model.usage import CostSource, Usage, UsageLine
from flightlog.usage.digest import UsageBucket
from support.live_files import MINUTE_MS, NOW_MS

HOUR_MS = 60 * MINUTE_MS
NO_LIMITS = ProfileLimits(None, ())


def row(at_ms, tokens=1000):
    return UsageLine(
        f"m{at_ms}", "s", "claude-opus-5-5", tokens, 0, 0, 0, 0, 0, at_ms, "", "", "", False
    )


@given(times=st.lists(st.integers(0, 899_999), min_size=1, max_size=20, unique=True),
       cuts=st.lists(st.integers(0, 899_999), max_size=4, unique=True), usd=st.floats(0.01, 50))  # fmt: skip
def test_a_divided_tally_adds_up_whatever_the_rows_say(times, cuts, usd):
    rows = [row(at) for at in times]
    tally = UsageBucket(
        "claude-opus-5-5",
        0,
        CostSource.TABLE,
        usd,
        len(rows),
        min(times),
        max(times),
        Usage(1000 * len(rows)),
    )

    parts = divide_bucket(tally, cuts, rows)

    assert sum(part.cost_usd for part in parts) == pytest.approx(usd)
    assert sum(part.total_tokens for part in parts) == tally.usage.total_tokens
    assert all(part.cost_usd >= 0 for part in parts)


def test_today_is_the_persons_day_and_the_block_has_its_start_and_end():
    spends = [
        Payment(NOW_MS - at * HOUR_MS, NOW_MS - at * HOUR_MS, 1.0, 10)
        for at in (1, 3, 11, 13, 30, 200)
    ]

    here = compute_billing(spends, NO_LIMITS, NOW_MS, UTC)
    there = compute_billing(spends, NO_LIMITS, NOW_MS, timezone(timedelta(hours=14)))

    assert (here.cost_today, there.cost_today, here.week_cost_usd) == (3.0, 1.0, 5.0)
    assert (here.block_start, here.block_end, here.block_cost_usd) == (
        NOW_MS - 3 * HOUR_MS,
        NOW_MS + 2 * HOUR_MS,
        2.0,
    )
    assert (here.budget_remaining, here.reset_time, here.budget_percent_used) == (120, "14:00", 60)
    assert here.burn_rate_per_hour == pytest.approx(2 / 3, abs=0.01)


def test_the_vendors_window_wins_while_it_runs_and_is_labelled():
    window = VendorWindow(37.0, NOW_MS + 90 * MINUTE_MS, "statusline", NOW_MS)
    spends = [Payment(NOW_MS - HOUR_MS, NOW_MS - HOUR_MS, 1.0, 10)]

    runs = compute_billing(spends, ProfileLimits(VendorLimits(window), ()), NOW_MS, UTC)
    over = compute_billing(
        spends, ProfileLimits(VendorLimits(window), ()), NOW_MS + 2 * HOUR_MS, UTC
    )

    assert (runs.budget_percent_used, runs.budget_remaining, runs.budget_source) == (
        37,
        90,
        "statusline",
    )
    assert runs.block_end == window.resets_at
    assert over.budget_source == "time of the block"


@pytest.mark.parametrize("per_hour", [12.0, 31.0, 60.0])
def test_on_a_steady_burn_the_forecast_is_within_a_tenth(per_hour):
    chance = random.Random(int(per_hour))
    reset = NOW_MS + 5 * HOUR_MS
    for now in range(NOW_MS + 30 * MINUTE_MS, NOW_MS + 90 * MINUTE_MS, 10 * MINUTE_MS):
        times = sorted(chance.randint(NOW_MS, now) for _ in range(25))
        # The vendor tells whole percents.
        samples = [
            LimitSample(at, float(int((at - NOW_MS) / HOUR_MS * per_hour)), reset) for at in times
        ]

        forecast = forecast_exhaustion(
            ProfileLimits(None, samples), (NOW_MS, reset), (0.0, 0.0), now
        )

        left = NOW_MS + 100 / per_hour * HOUR_MS - now
        if forecast.exhausted_at is not None:
            assert forecast.exhausted_at - now == pytest.approx(left, rel=0.1)
        else:
            assert left * 1.1 > reset - now
            assert forecast.percent_at_reset == pytest.approx(5 * per_hour, rel=0.1)


def test_without_the_vendor_a_budget_of_ones_own_is_forecast():
    forecast = forecast_exhaustion(
        ProfileLimits(None, (), 10.0), (NOW_MS, NOW_MS + 5 * HOUR_MS), (4.0, 3.0), NOW_MS
    )

    assert (forecast.exhausted_at, forecast.source) == (NOW_MS + 2 * HOUR_MS, "budget")
    assert (
        forecast_exhaustion(NO_LIMITS, (NOW_MS, NOW_MS + 5 * HOUR_MS), (4.0, 3.0), NOW_MS) is None
    )
