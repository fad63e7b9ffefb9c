"""Gathering over real files: who pays, swaps between accounts against the ledger, limits and budgets."""

import json

import pytest
from ruamel.yaml import YAML

from flightlog.model.usage import Breakdown
from support.live_files import MINUTE_MS, NOW_MS, Desk, by_id, limits, session_id, week

DAY_MS = 86_400_000
ONE, TWO = session_id(1), session_id(2)


def find_payer(desk, name, at_ms):
    """Who pays by the notes alone."""
    notes = (
        (desk.home / "sessions" / "claude-code" / name / "status.jsonl").read_text().splitlines()
    )
    accounts = [
        (json.loads(note)["at_ms"], json.loads(note)["launch"]["account"]) for note in notes
    ]
    return [account for since, account in accounts if since <= at_ms][-1]


@pytest.mark.parametrize("seed", [7, 11])
def test_week_of_two_accounts_and_switches_adds_up_to_the_cent(tmp_path, seed):
    desk = Desk(tmp_path)
    responses = list(week(desk, seed=seed))

    live = desk.gather()
    looks = [desk.gather() for _ in range(2)]

    archive = desk.archive()
    ledger = archive.usage_report(Breakdown.SESSION, desk.runtime().zone).total.cost.usd
    archive.usage_pipeline.save()
    profiles = {profile.billing_fingerprint: profile for profile in live.state.auth_profiles}
    assert set(profiles) == {"oauth-aaaa", "oauth-bbbb"}
    sums = [profile.billing.week_cost_usd for profile in live.state.auth_profiles]
    assert round(sum(sums), 2) == round(ledger, 2)
    assert min(sums) > 0
    rate = ledger / sum(
        given * 5 + made * 25 for _, _, given, made in responses
    )  # the price list's ratio of this model
    for account, profile in profiles.items():
        mine = sum(
            given * 5 + made * 25
            for name, at, given, made in responses
            if find_payer(desk, name, at) == account
        )
        assert profile.billing.week_cost_usd == pytest.approx(mine * rate, abs=0.01)
    again = [
        [profile.billing.week_cost_usd for profile in look.state.auth_profiles] for look in looks
    ]
    assert again == [sums, sums]


def test_a_swap_shows_in_the_session_with_what_each_profile_paid(tmp_path):
    desk = Desk(tmp_path)
    at = NOW_MS - 10 * MINUTE_MS
    desk.responses(ONE, (at, 10_000, 100), (at + 60_000, 10_000, 100), (at + 120_000, 40_000, 100))
    desk.tell(ONE, at - 1000, account="oauth-aaaa")
    desk.gather()
    desk.tell(ONE, at + 90_000, account="oauth-bbbb")

    session = by_id(desk.gather())[ONE]

    assert [(swap.auth_profile, swap.since) for swap in session.profile_switches] == [
        ("default", 0),
        ("account-bbbb", at + 90_000),
    ]
    first, second = (swap.cost_usd for swap in session.profile_switches)
    assert round(first + second, 4) == session.cost.recorded_cost_usd == 0.246
    assert second > first


def test_without_fingerprint_the_weekly_reset_separates_accounts(tmp_path):
    desk = Desk(tmp_path)
    at = NOW_MS - 30 * MINUTE_MS
    desk.responses(ONE, (at, 1000, 10))
    end, other = NOW_MS + 2 * DAY_MS, NOW_MS + 4 * DAY_MS
    desk.tell(ONE, at, rate_limits=limits(1, NOW_MS + MINUTE_MS, 5, end))
    desk.gather()
    desk.tell(ONE, at + MINUTE_MS, rate_limits=limits(50, NOW_MS + MINUTE_MS, 70, other))
    swapped = desk.gather()
    desk.tell(ONE, at + 2 * MINUTE_MS, rate_limits=limits(2, NOW_MS + MINUTE_MS, 5, end))
    back = desk.gather()

    assert by_id(swapped)[ONE].auth_profile == "account-2"
    assert by_id(back)[ONE].auth_profile == "default"


def test_alias_path_and_directory_choose_the_profile_a_person_named(tmp_path):
    desk = Desk(tmp_path)
    desk.folder.mkdir()
    desk.yaml.write_text(
        "authProfiles:\n"
        "  - profileId: work\n    label: Work\n    aliases: [claude2]\n"
        "  - profileId: shop\n    label: The shop\n    pathPatterns: [/home/ada/shop]\n"
        "sessions:\n"
    )
    desk.responses(ONE, (NOW_MS - MINUTE_MS, 1000, 10))
    desk.responses(TWO, (NOW_MS - MINUTE_MS, 1000, 10))
    desk.tell(ONE, NOW_MS - MINUTE_MS, launch={"alias": "claude2"})
    desk.tell(TWO, NOW_MS - MINUTE_MS)

    sessions = by_id(desk.gather())

    assert (sessions[ONE].auth_profile, sessions[TWO].auth_profile) == ("work", "shop")
    assert "label: The shop" in desk.yaml.read_text()


def test_budgets_and_limits_a_person_set_raise_alerts(tmp_path):
    desk = Desk(tmp_path)
    desk.responses(ONE, (NOW_MS - 8 * MINUTE_MS, 100_000, 1_000))
    desk.hook(ONE, "Stop", NOW_MS - 7 * MINUTE_MS)
    desk.tell(ONE, NOW_MS - 7 * MINUTE_MS, rate_limits=limits(91, NOW_MS + 60 * MINUTE_MS))
    desk.gather()
    text = desk.yaml.read_text().replace(
        "  budgetWarningPercent: 80\n", "  budgetWarningPercent: 80\n  costTodayUsd: 0.1\n"
    )
    desk.yaml.write_text(text)

    issues = by_id(desk.gather())[ONE].health.issues

    assert issues[0].startswith("Budget today ")
    assert issues[1] == "5-hour limit 91% used"


def billing_text(desk):
    return YAML(typ="safe").load(desk.yaml.read_text())["authProfiles"][0]["billing"]


def test_a_value_that_becomes_unknown_leaves_the_file(tmp_path):
    desk = Desk(tmp_path)
    at = NOW_MS - 60 * MINUTE_MS
    desk.responses(ONE, (NOW_MS - 3 * MINUTE_MS, 100_000, 1_000))
    for minutes, percent in ((0, 10), (20, 30), (50, 70)):
        window = limits(percent, NOW_MS + 60 * MINUTE_MS)
        desk.tell(ONE, at + minutes * MINUTE_MS, account="oauth-aaaa", rate_limits=window)
    desk.gather()
    before = billing_text(desk)
    text = desk.yaml.read_text().replace(
        "      forecast:\n", "      mine: kept\n      forecast:  # my remark\n"
    )
    desk.yaml.write_text(text)
    desk.now_ms += 2 * 3_600_000
    desk.tell(ONE, desk.now_ms, rate_limits=limits(1, desk.now_ms + 300 * MINUTE_MS))

    desk.gather()

    after = billing_text(desk)
    assert before["forecast"]["exhaustedAt"] > NOW_MS
    assert {"forecast", "tokensPerMinute"} & after.keys() == set()
    assert after["mine"] == "kept"
    assert "# my remark" in desk.yaml.read_text()
    assert desk.gather().state.auth_profiles[0].billing.forecast is None


def test_limits_that_are_over_or_no_longer_reported_leave_the_file(tmp_path):
    desk = Desk(tmp_path)
    desk.responses(ONE, (NOW_MS - 3 * MINUTE_MS, 1_000, 10))
    more = {"spend_limit": {"used_percentage": 95}}
    desk.tell(ONE, NOW_MS, rate_limits={**limits(90, NOW_MS + MINUTE_MS), **more})
    desk.gather()
    before = billing_text(desk)
    desk.now_ms += 2 * MINUTE_MS
    desk.tell(ONE, desk.now_ms, rate_limits={"seven_day": limits(0, 0)["seven_day"]})

    desk.gather()

    assert set(before["limits"]) == {"fiveHour", "sevenDay", "spendLimit"}
    assert set(billing_text(desk)["limits"]) == {"sevenDay"}


def test_billing_of_an_older_program_is_kept_until_its_account_is_used(tmp_path):
    desk = Desk(tmp_path)
    figures = {"costToday": 17.03, "burnRatePerHour": 13.23, "budgetRemaining": 211}
    old = json.dumps({**figures, "resetTime": "13:00", "lastFetched": NOW_MS - MINUTE_MS})
    desk.folder.mkdir()
    (desk.folder / "billing-shared.json").write_text(old)
    desk.responses(ONE, (NOW_MS - 5 * MINUTE_MS, 1000, 10))

    desk.gather()

    first = billing_text(desk)
    assert (first["costToday"], first["budgetRemaining"], first["costSource"]) == (
        17.03,
        211,
        "billing-shared.json",
    )
    assert (desk.folder / "billing-shared.json.flightlog-1.bak").read_text() == old
    desk.responses(ONE, (NOW_MS - 5 * MINUTE_MS, 1000, 10), (NOW_MS, 1000, 10))
    desk.gather()
    assert billing_text(desk)["costSource"] == "ledger"


def test_an_account_never_used_has_no_window(tmp_path):
    desk = Desk(tmp_path)
    desk.folder.mkdir()
    desk.yaml.write_text("authProfiles:\n  - profileId: spare\n    label: Spare\nsessions:\n")

    (profile,) = desk.gather().state.auth_profiles
    desk.now_ms += 9 * DAY_MS
    later = desk.gather().state.auth_profiles[0].metadata

    bill = profile.billing
    assert [bill.budget_remaining, bill.budget_percent_used, bill.reset_time, bill.block_end] == (
        [None] * 4
    )
    assert (profile.metadata.detection_method, profile.metadata.last_used) == ("manual", None)
    assert (later.first_seen, later.detection_method) == (NOW_MS, "manual")


def test_last_use_is_remembered_after_the_week(tmp_path):
    desk = Desk(tmp_path)
    desk.responses(ONE, (NOW_MS - MINUTE_MS, 1000, 10))
    desk.gather()
    desk.now_ms += 20 * DAY_MS

    assert desk.gather().state.auth_profiles[0].metadata.last_used == NOW_MS - MINUTE_MS


def test_amounts_are_not_moved_between_profiles_by_rounding(tmp_path):
    desk = Desk(tmp_path)
    for number in range(5):
        name = session_id(number)
        desk.responses(name, (NOW_MS - 5 * MINUTE_MS, 1_000 + 137 * number, 10))
        desk.tell(name, NOW_MS - 4 * MINUTE_MS, account=f"oauth-{number:04}")

    profiles = desk.gather().state.auth_profiles

    assert len(profiles) == 5
    assert [item.billing.cost_today for item in profiles] == [
        item.billing.block_cost_usd for item in profiles
    ]


def test_a_block_that_is_over_has_no_burn_rate(tmp_path):
    desk = Desk(tmp_path)
    desk.responses(ONE, (NOW_MS - MINUTE_MS, 100_000, 10))
    running = desk.gather().state.auth_profiles[0].billing
    desk.now_ms += 9 * 3_600_000

    over = desk.gather().state.auth_profiles[0].billing

    assert running.burn_rate_per_hour > 0
    assert (over.burn_rate_per_hour, over.total_tokens, over.block_end) == (0, 0, None)
    assert over.week_cost_usd == running.week_cost_usd
