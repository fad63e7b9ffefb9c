"""Gathering over real files: pages, accounts with swaps against the ledger, health, crowds."""

import json
import multiprocessing
import random
import subprocess

import pytest
from ruamel.yaml import YAML

from flightlog.hooks.statusline_segments import StatusStyle, render_line
from flightlog.live.state import session_health_to_runtime_session
from flightlog.model.usage import Breakdown
from support.live_files import MINUTE_MS, NOW_MS, Desk, iso, limits, session_id
from support.transcripts import user

DAY_MS = 86_400_000
ONE, TWO = session_id(1), session_id(2)


def by_id(live):
    return {each.session_id: each for each in live.state.sessions}


def test_one_look_writes_every_page_and_one_line(tmp_path):
    desk = Desk(tmp_path)
    desk.responses(ONE, (NOW_MS - 5 * MINUTE_MS, 100_000, 1_000))
    desk.tell(
        ONE,
        NOW_MS - 4 * MINUTE_MS,
        cost={"total_cost_usd": 0.61},
        rate_limits=limits(29, NOW_MS + 60 * MINUTE_MS),
    )

    live = desk.gather()

    assert sorted(path.name for path in desk.folder.iterdir()) == sorted(
        [
            ".flightlog",
            f"{ONE}.json",
            "billing-shared.json",
            "daemon.log",
            "runtime-state.yaml",
            "sessions.json",
        ]
    )
    page = json.loads((desk.folder / f"{ONE}.json").read_text())
    assert (page["launch"]["label"], page["cost"]["clientCostUsd"]) == ("Primary Account", 0.61)
    assert page["billing"]["limits"]["fiveHour"]["usedPercent"] == 29
    assert (
        json.loads((desk.folder / "billing-shared.json").read_text())["costToday"]
        == page["billing"]["costToday"]
    )
    summary = json.loads((desk.folder / "sessions.json").read_text())
    assert (summary["activeSessions"], summary["totalSessions"]) == (1, 1)
    assert len((desk.folder / "daemon.log").read_text().splitlines()) == 1
    assert live.state.auth_profiles[0].billing.budget_source == "statusline"


def test_a_second_look_at_nothing_new_writes_no_session_page_again(tmp_path):
    desk = Desk(tmp_path)
    for number in range(5):
        desk.responses(session_id(number), (NOW_MS - 3 * MINUTE_MS, 1000, 10))
    desk.gather()
    desk.now_ms += 1000

    assert desk.gather().changed_count <= 2  # the two shared pages hold the time


def week(desk, sessions=12, seed=7):
    """A week of two accounts: sessions swap between them, inside quarters of an hour too."""
    chance = random.Random(seed)
    started = NOW_MS - 6 * DAY_MS
    for number in range(sessions):
        name, at = session_id(number), started + number * 11 * 3_600_000
        said, account = [], chance.choice(["oauth-aaaa", "oauth-bbbb"])
        desk.tell(name, at, account=account)
        for _ in range(40):
            at += chance.randint(20, 200) * 1000
            said.append((at, chance.randint(1_000, 90_000), chance.randint(100, 4_000)))
            if chance.random() < 0.1:
                account = "oauth-bbbb" if account == "oauth-aaaa" else "oauth-aaaa"
                desk.tell(name, at + 500, account=account)
                at += 1000
        desk.responses(name, *said, project=f"p{number % 3}")
        for at_ms, given, made in said:
            yield name, at_ms, given, made


def paid(desk, name, at_ms):
    """Who pays by the notes alone."""
    notes = (
        (desk.home / "sessions" / "claude-code" / name / "status.jsonl").read_text().splitlines()
    )
    told = [(json.loads(note)["at_ms"], json.loads(note)["launch"]["account"]) for note in notes]
    return [account for since, account in told if since <= at_ms][-1]


@pytest.mark.parametrize("seed", [7, 11])
def test_week_of_two_accounts_and_switches_adds_up_to_the_cent(tmp_path, seed):
    desk = Desk(tmp_path)
    said = list(week(desk, seed=seed))

    live = desk.gather()
    looks = [desk.gather() for _ in range(2)]

    archive = desk.archive()
    ledger = archive.usage_report(Breakdown.SESSION, desk.runtime().zone).total.cost.usd
    archive.usage_pipeline.save()
    profiles = {each.billing_fingerprint: each for each in live.state.auth_profiles}
    assert set(profiles) == {"oauth-aaaa", "oauth-bbbb"}
    sums = [each.billing.week_cost_usd for each in live.state.auth_profiles]
    assert round(sum(sums), 2) == round(ledger, 2)
    assert min(sums) > 0
    rate = ledger / sum(
        given * 5 + made * 25 for _, _, given, made in said
    )  # the price list's ratio of this model
    for account, profile in profiles.items():
        mine = sum(
            given * 5 + made * 25
            for name, at, given, made in said
            if paid(desk, name, at) == account
        )
        assert profile.billing.week_cost_usd == pytest.approx(mine * rate, abs=0.01)
    again = [[each.billing.week_cost_usd for each in look.state.auth_profiles] for look in looks]
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
    assert round(first + second, 2) == session.cost.recorded_cost_usd
    assert second > first


def test_without_a_print_the_end_of_the_weeks_window_tells_accounts_apart(tmp_path):
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

    told = by_id(desk.gather())

    assert (told[ONE].auth_profile, told[TWO].auth_profile) == ("work", "shop")
    assert "label: The shop" in desk.yaml.read_text()


def test_deleting_the_file_loses_nothing(tmp_path):
    desk = Desk(tmp_path)
    at = NOW_MS - 10 * MINUTE_MS
    desk.responses(ONE, (at, 10_000, 100), (at + 120_000, 40_000, 100))
    desk.tell(ONE, at - 1000, account="oauth-aaaa")
    desk.tell(ONE, at + 90_000, account="oauth-bbbb")
    desk.gather()
    text = desk.yaml.read_text().replace("Primary Account", "Ada  # my name\n    mine: kept")
    desk.yaml.write_text(text.replace("thresholds:\n", "thresholds:\n  costTodayUsd: 20\n"))
    before = desk.gather().state
    own = [line for line in desk.yaml.read_text().splitlines() if "updated" not in line.lower()]

    desk.yaml.unlink()
    after = desk.gather().state
    again = [line for line in desk.yaml.read_text().splitlines() if "updated" not in line.lower()]

    assert own == again
    assert "  costTodayUsd: 20" in again

    assert [each.label for each in after.auth_profiles] == [
        each.label for each in before.auth_profiles
    ]
    assert "Ada" in [each.label for each in after.auth_profiles]
    assert [each.billing for each in after.auth_profiles] == [
        each.billing for each in before.auth_profiles
    ]
    assert after.sessions[0].profile_switches == before.sessions[0].profile_switches


def test_our_own_memory_can_be_thrown_away(tmp_path):
    desk = Desk(tmp_path)
    list(week(desk, sessions=4))
    before = [(each.profile_id, each.billing) for each in desk.gather().state.auth_profiles]

    for name in ("memory.bin", "state.bin"):
        (desk.folder / ".flightlog" / name).unlink()
    (desk.folder / ".flightlog" / "journal.jsonl").unlink()
    after = [(each.profile_id, each.billing) for each in desk.gather().state.auth_profiles]

    assert after == before


def test_lifecycle_runs_to_its_end_and_ended_sessions_are_archived(tmp_path):
    desk = Desk(tmp_path)
    stages = []
    desk.hook(ONE, "SessionStart", NOW_MS - 9 * MINUTE_MS)
    desk.tell(ONE, NOW_MS - 9 * MINUTE_MS)
    (desk.home / "live").mkdir()
    (desk.home / "live" / ONE).write_text(str(desk.config))
    stages.append(by_id(desk.gather())[ONE].health.lifecycle)
    desk.responses(ONE, (NOW_MS - 8 * MINUTE_MS, 1000, 10))
    for event in ("UserPromptSubmit", "PermissionRequest", "Stop"):
        desk.hook(ONE, event, NOW_MS - MINUTE_MS)
        stages.append(by_id(desk.gather())[ONE].health.lifecycle)
    desk.yaml.write_text(
        desk.yaml.read_text().replace("    health:", "    # my remark\n    health:")
    )
    desk.hook(ONE, "SessionEnd", NOW_MS)

    assert by_id(desk.gather()) == {}
    assert stages == ["starting", "working", "waiting", "resting"]
    (left,) = desk.archived()
    assert left["sessionId"] == ONE
    assert "# my remark" in left["yaml"]


def test_health_has_its_reasons(tmp_path):
    desk = Desk(tmp_path)
    token = "gh" + "p_" + "T7kQ2mZx9LwB4rVn8YcD3sHf6JgP1aE5uK0i"
    path = desk.responses(ONE, (NOW_MS - 8 * MINUTE_MS, 150_000, 10))
    with path.open("a") as file:
        file.write(
            json.dumps(
                user(f"use {token}", 9, timestamp=iso(NOW_MS - 8 * MINUTE_MS), sessionId=ONE)
            )
            + "\n"
        )
    desk.touched(path, NOW_MS - 8 * MINUTE_MS)
    desk.hook(ONE, "PreToolUse", NOW_MS - 7 * MINUTE_MS)
    dead = subprocess.Popen(["true"])
    dead.wait()
    desk.responses(TWO, (NOW_MS - MINUTE_MS, 100, 10))
    desk.tell(TWO, NOW_MS - MINUTE_MS, launch={"pid": dead.pid, "pid_started": 1})

    live = desk.gather(secrets=True)
    told = by_id(live)

    assert told[ONE].health.status == "critical"
    assert told[ONE].health.issues == [
        "Secrets detected",
        "Nothing written while it works",
        "Context near compaction",
    ]
    assert (told[ONE].alerts.secrets_detected, told[ONE].alerts.data_loss_risk) == (True, True)
    assert (told[TWO].health.status, told[TWO].health.lifecycle) == ("warning", "orphaned")
    assert told[TWO].health.issues == [
        "Crashed (process gone, no SessionEnd event)",
        "Hooks missing",
    ]
    written = b"".join(each.read_bytes() for each in desk.folder.rglob("*") if each.is_file())
    assert token.encode() not in written


def test_secrets_are_looked_for_in_new_bytes_only(tmp_path):
    desk = Desk(tmp_path)
    token = "gh" + "p_" + "T7kQ2mZx9LwB4rVn8YcD3sHf6JgP1aE5uK0i"
    path = desk.responses(ONE, (NOW_MS - MINUTE_MS, 10, 10))
    desk.hook(ONE, "Stop", NOW_MS - MINUTE_MS)
    for _ in range(2):
        with path.open("a") as file:
            file.write(json.dumps(user(f"use {token}", 9, sessionId=ONE)) + "\n")
        desk.touched(path, NOW_MS - MINUTE_MS)
        desk.gather(secrets=True)
        desk.gather(secrets=True)

    memory = (desk.folder / ".flightlog" / "memory.bin").read_bytes()
    import msgspec

    (memo,) = msgspec.msgpack.decode(memory)["sessions"].values()
    assert list(memo["secrets"].values()) == [2]
    assert memo["secrets_offsets"] == {str(path): path.stat().st_size}


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


def test_a_broken_file_does_not_stop_the_look(tmp_path):
    desk = Desk(tmp_path)
    desk.responses(ONE, (NOW_MS - 8 * MINUTE_MS, 1000, 10))
    desk.hook(ONE, "Stop", NOW_MS - 8 * MINUTE_MS)
    desk.gather()
    broken = desk.yaml.read_text() + "oops: [\n"
    desk.yaml.write_text(broken)

    live = desk.gather()

    assert live.error.startswith("line ")
    assert desk.yaml.read_text() == broken
    assert "runtime-state.yaml cannot be read" in live.state.sessions[0].health.issues
    assert "unreadable runtime-state.yaml: line" in (desk.folder / "daemon.log").read_text()


def _gather(root):
    desk = Desk.__new__(Desk)
    desk.config, desk.home, desk.now_ms = root / "config", root / "home", NOW_MS
    for _ in range(3):
        desk.gather()


def test_sixteen_agents_settling_at_once_agree(tmp_path):
    desk = Desk(tmp_path)
    list(week(desk, sessions=5))
    crowd = [
        multiprocessing.get_context("fork").Process(target=_gather, args=(tmp_path,))
        for _ in range(16)
    ]

    for each in crowd:
        each.start()
    for each in crowd:
        each.join(120)

    assert [each.exitcode for each in crowd] == [0] * 16
    assert len((desk.folder / "daemon.log").read_text().splitlines()) == 48
    alone = Desk(tmp_path / "alone")
    list(week(alone, sessions=5))
    assert [each.billing for each in desk.gather().state.auth_profiles] == [
        each.billing for each in alone.gather().state.auth_profiles
    ]


def test_a_session_id_that_is_a_path_goes_nowhere(tmp_path):
    desk = Desk(tmp_path)
    (desk.home / "live").mkdir(parents=True)
    (desk.home / "live" / "...").write_text(str(desk.config))

    assert desk.gather().state.sessions == []


def test_the_line_is_drawn_beforehand_in_each_width(tmp_path):
    desk = Desk(tmp_path)
    desk.responses(ONE, (NOW_MS - 3 * MINUTE_MS, 100_000, 1000))
    desk.tell(ONE, NOW_MS - MINUTE_MS, account="oauth-aaaa")

    drawn = by_id(desk.gather())[ONE].formatted_strings

    assert list(drawn) == [f"width{width}" for width in (40, 60, 80, 100, 120, 150, 200)]
    assert all(len(said) <= int(name.removeprefix("width")) for name, said in drawn.items())
    assert "ctx" in drawn["width40"]
    assert "Primary Account" in drawn["width200"]
    assert "\x1b" not in "".join(drawn.values())
    assert YAML(typ="safe").load(desk.yaml.read_text())["sessions"][0]["formattedStrings"] == drawn


def test_a_session_is_found_by_its_id_and_by_its_pane_while_it_lives(tmp_path):
    desk = Desk(tmp_path)
    for name, pane in ((ONE, "%3"), (TWO, "")):
        desk.responses(name, (NOW_MS - 3 * MINUTE_MS, 1000, 10))
        desk.tell(name, NOW_MS - MINUTE_MS, account="oauth-aaaa", launch={"tmux_pane": pane})
    desk.gather()
    first = YAML(typ="safe").load(desk.yaml.read_text())["quickLookup"]
    desk.yaml.write_text(desk.yaml.read_text().replace("  byTmux:", "  # mine\n  byTmux:"))
    desk.now_ms += 5 * 3_600_000
    desk.responses(TWO, (desk.now_ms - MINUTE_MS, 2000, 10))
    desk.hook(TWO, "Stop", desk.now_ms - MINUTE_MS)

    desk.gather()

    text = desk.yaml.read_text()
    second = YAML(typ="safe").load(text)["quickLookup"]
    assert first == {"bySessionId": {ONE: "default", TWO: "default"}, "byTmux": {"%3": ONE}}
    assert second == {"bySessionId": {TWO: "default"}, "byTmux": None}
    assert "  # mine\n  byTmux:" in text


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


def test_a_file_without_sessions_has_an_empty_list(tmp_path):
    desk = Desk(tmp_path)
    desk.gather()

    assert "\nsessions: []\n" in desk.yaml.read_text()
    desk.responses(ONE, (NOW_MS - MINUTE_MS, 1000, 10))
    desk.hook(ONE, "PostToolUse", NOW_MS - MINUTE_MS)
    assert list(by_id(desk.gather())) == [ONE]
    assert "\nsessions:\n  - sessionId" in desk.yaml.read_text()
    desk.hook(ONE, "SessionEnd", NOW_MS)
    desk.gather()
    assert "\nsessions: []\n" in desk.yaml.read_text()


@pytest.mark.parametrize(
    ("size", "used", "percent"),
    [(1_000_000, 850_000, 88), (1_000_000, 990_000, 100), (200_000, 1_880, 1), (200_000, 2_600, 2)],
)
def test_file_and_status_line_agree_on_the_context(tmp_path, size, used, percent):
    desk = Desk(tmp_path)
    window = {"context_window_size": size, "current_usage": {"cache_read_input_tokens": used}}
    desk.responses(ONE, (NOW_MS - MINUTE_MS, 1000, 10))
    desk.tell(ONE, NOW_MS - MINUTE_MS, context_window=window)

    context = by_id(desk.gather())[ONE].context

    page = json.loads((desk.folder / f"{ONE}.json").read_text())
    line = render_line({"context_window": window}, page, StatusStyle(200, False, NOW_MS / 1000))
    assert context.percent_used == percent
    assert f"ctx {percent}%" in line
    assert (context.tokens_used, context.tokens_left) == (used, max(size - 33_000 - used, 0))


def test_a_transcript_above_the_usual_window_is_in_a_long_one(tmp_path):
    desk = Desk(tmp_path)
    desk.responses(ONE, (NOW_MS - MINUTE_MS, 546_000, 10))
    desk.hook(ONE, "PostToolUse", NOW_MS - MINUTE_MS)

    context = by_id(desk.gather())[ONE].context

    assert (context.window_size, context.percent_used) == (1_000_000, 56)
    assert not context.near_compaction


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


def test_only_a_question_to_the_person_is_waiting(tmp_path):
    desk = Desk(tmp_path)
    desk.responses(ONE, (NOW_MS - 3 * MINUTE_MS, 1000, 10))
    seen = []
    for event, payload in (
        ("Stop", {}),
        ("Notification", {"notification_type": "idle_prompt"}),
        ("Notification", {"message": "Claude is waiting for your input"}),
        ("Notification", {"notification_type": "permission_prompt"}),
    ):
        desk.hook(ONE, event, NOW_MS - MINUTE_MS, **payload)
        seen.append(by_id(desk.gather())[ONE].health.lifecycle)

    assert seen == ["resting", "resting", "resting", "waiting"]


def test_a_health_file_becomes_a_session_of_the_state(tmp_path):
    desk = Desk(tmp_path)
    desk.responses(ONE, (NOW_MS - 3 * MINUTE_MS, 1000, 10))
    desk.tell(ONE, NOW_MS - MINUTE_MS, account="oauth-aaaa")
    session = by_id(desk.gather())[ONE]
    page = json.loads((desk.folder / f"{ONE}.json").read_text())

    again = session_health_to_runtime_session(page)

    assert (again.session_id, again.auth_profile) == (ONE, session.auth_profile)
    assert (again.health, again.context, again.model) == (
        session.health,
        session.context,
        session.model,
    )
    assert session_health_to_runtime_session(page, "work").auth_profile == "work"


def test_a_block_that_is_over_has_no_burn_rate(tmp_path):
    desk = Desk(tmp_path)
    desk.responses(ONE, (NOW_MS - MINUTE_MS, 100_000, 10))
    running = desk.gather().state.auth_profiles[0].billing
    desk.now_ms += 9 * 3_600_000

    over = desk.gather().state.auth_profiles[0].billing

    assert running.burn_rate_per_hour > 0
    assert (over.burn_rate_per_hour, over.total_tokens, over.block_end) == (0, 0, None)
    assert over.week_cost_usd == running.week_cost_usd


def test_a_fresh_file_time_is_no_sign_of_a_running_session(tmp_path):
    desk = Desk(tmp_path)
    touched = desk.responses(ONE, (NOW_MS - 200 * 86_400_000, 1000, 10))
    desk.touched(touched, NOW_MS)
    desk.responses(TWO, (NOW_MS - MINUTE_MS, 1000, 10))

    assert desk.gather().state.sessions == []
    desk.hook(TWO, "PostToolUse", NOW_MS - MINUTE_MS)
    assert list(by_id(desk.gather())) == [TWO]
