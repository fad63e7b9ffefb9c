"""Accounts over several configuration directories: who pays, what it is called, whose limits."""

import json
import os
import subprocess
import sys
import time
from datetime import UTC

import pytest
from msgspec.structs import replace

from flightlog.hooks import payload_log, writer
from flightlog.live.billing import merge_accounts
from flightlog.live.dashboard import build_dashboard
from flightlog.live.dashboard_text import TextStyle, dashboard_lines
from flightlog.live.service import (
    collect_here,
    find_known_config_dirs,
    label_profile,
    list_running,
    record_profile_switch,
)
from flightlog.model.errors import Invalid, NotFound
from flightlog.model.usage import DAY_MS
from support.hooking import run_hook
from support.live_files import MINUTE_MS, NOW_MS, Desk, limits, session_id

KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
PERSONAL = {"oauthAccount": {"accountUuid": "u-1", "emailAddress": "ada@example.org",
                             "organizationUuid": "o-1"}}  # fmt: skip


class Machine:
    """Two configuration directories with one home; only the first one is configured."""

    def __init__(self, root, monkeypatch):
        self.desks = [Desk(root / name) for name in ("personal", "work")]
        self.home, self.monkeypatch, self.now_ms = root / "home", monkeypatch, NOW_MS
        for desk in self.desks:
            desk.home = self.home
        (self.desks[0].config / ".claude.json").write_text(json.dumps(PERSONAL))

    def start(self, number, desk, key="", **payload):
        """Run a session: a transcript, a hook event, a payload of the status line."""
        name, place = session_id(number), self.desks[desk]
        place.responses(name, (NOW_MS - 3 * MINUTE_MS, 1000 * (number + 1), 10))
        place.hook(name, "Stop", NOW_MS - 2 * MINUTE_MS)
        self.report(number, desk, key, NOW_MS - MINUTE_MS, **payload)
        return name

    def report(self, number, desk, key, at_ms, **payload):
        for variable in KEYS:
            self.monkeypatch.delenv(variable, raising=False)
        if key:
            self.monkeypatch.setenv("ANTHROPIC_API_KEY", key)
        given = {"session_id": session_id(number), "cwd": "/home/ada/shop", **payload}
        return payload_log.append_payload(
            str(self.home), given, str(self.desks[desk].config), at_ms
        )

    def runtime(self):
        return replace(self.desks[0].runtime(), data_dir=str(self.home))


@pytest.fixture
def machine(tmp_path, monkeypatch):
    return Machine(tmp_path, monkeypatch)


def fake_key(end):
    return "sk-" + "test-" * 4 + end


def test_eleven_sessions_of_three_accounts_show_their_own(machine):
    """Sessions 0 to 3 pay by subscription, 4 to 7 by one key, 8 to 10 by another, in both places."""
    own = {}
    for number in range(11):
        key = "" if number < 4 else fake_key("0002") if number < 8 else fake_key("0003")
        desk = 0 if number < 4 else number % 2
        used = {"rate_limits": limits(20 + number, NOW_MS + 60 * MINUTE_MS)} if number < 4 else {}
        own[machine.start(number, desk, key, **used)] = (
            "ada@example.org" if not key else f"API key …{key[-4:]}"
        )

    states = collect_here(machine.runtime(), secrets=False)
    again = collect_here(machine.runtime(), secrets=False)

    running = {row["session"]: row for row in list_running(again)}
    assert {name: row["profile"] for name, row in running.items()} == own
    assert {row["profile"] for row in list_running(states)} == set(own.values())
    for name, row in running.items():
        five = (row["limits"] or {}).get("fiveHour")
        assert (five is not None) == (own[name] == "ada@example.org")
        assert row["agent"] == "claude-code"
    accounts = merge_accounts(live.state for live in again)
    assert sorted(profile.label for profile in accounts) == sorted(set(own.values()))
    ids = {
        profile.label: profile.profile_id for live in again for profile in live.state.auth_profiles
    }
    assert len(set(ids.values())) == 3
    pages = [path for desk in machine.desks for path in desk.folder.glob("0*.json")]
    assert {page.stem: json.loads(page.read_text())["launch"]["label"] for page in pages} == own


def test_a_session_without_a_status_line_shows_the_account_of_its_start(machine):
    machine.start(1, 0, rate_limits=limits(60, NOW_MS + 60 * MINUTE_MS))
    desk, name = machine.desks[0], session_id(2)
    path = desk.responses(name, (NOW_MS - 9 * MINUTE_MS, 1000, 10))
    shown = []
    for source, end in (("clear", "0002"), ("resume", "0003"), ("compact", "0004")):
        event = {"session_id": name, "hook_event_name": "SessionStart", "source": source}
        run_hook(
            machine.home,
            json.dumps({**event, "transcript_path": str(path), "model": "opus"}).encode(),
            ANTHROPIC_API_KEY=fake_key(end),
        )
        runtime = machine.runtime()
        clock = replace(runtime.clock, now_ms=lambda: int(time.time() * 1000))
        rows = list_running(collect_here(replace(runtime, clock=clock), secrets=False))
        shown += [(row["profile"], row["limits"]) for row in rows if row["session"] == name]

    assert shown == [("API key …0002", None), ("API key …0003", None), ("API key …0003", None)]


def test_a_directory_that_a_hook_reported_is_known(machine, tmp_path):
    machine.start(1, 1, fake_key("0002"))
    unreported = tmp_path / "gone"
    writer.note_directory(str(machine.home), str(unreported))

    known = find_known_config_dirs(machine.runtime())

    assert known == [str(desk.config) for desk in machine.desks]
    (tmp_path / "link").symlink_to(machine.desks[1].config)
    writer.note_directory(str(machine.home), str(tmp_path / "link"))
    assert find_known_config_dirs(machine.runtime()) == known
    assert (machine.home / "config-dirs").read_text().count(str(machine.desks[1].config)) == 1


def test_status_lists_running_sessions_of_all_directories(machine):
    name = machine.start(1, 1, fake_key("0002"))
    os.utime(next(machine.desks[1].config.glob("projects/*/*.jsonl")))
    environment = {
        **{key: value for key, value in os.environ.items() if key not in KEYS},
        "FLIGHTLOG_HOME": str(machine.home),
        "CLAUDE_CONFIG_DIR": str(machine.desks[0].config),
    }
    machine.desks[1].hook(name, "Stop", int(time.time() * 1000))
    machine.report(2, 1, fake_key("0002"), int(time.time() * 1000))  # no prompt yet

    done = subprocess.run(
        [sys.executable, "-m", "flightlog", "status", "--json"],
        env=environment, capture_output=True, check=True,
    )  # fmt: skip

    report = json.loads(done.stdout)
    row, starting = report["running"]
    assert starting["session"] == session_id(2)
    assert (row["session"], row["profile"]) == (name, "API key …0002")
    assert {"agent", "project", "config_dir", "lifecycle"} <= row.keys()
    assert report["archived_only_sessions"] == 0


def test_limits_of_an_idle_session_do_not_replace_newer_ones(machine):
    desk, reset_ms = machine.desks[0], NOW_MS + 60 * MINUTE_MS
    idle, busy = session_id(1), session_id(2)
    for name, ago, used, model in (
        (idle, 9, 5, "Opus"),
        (busy, 5, 75, "Opus"),
        (idle, 1, 5, "Fable"),
    ):
        desk.responses(name, (NOW_MS - ago * MINUTE_MS, 1000, 10))
        desk.tell(
            name, NOW_MS - ago * MINUTE_MS, account="oauth-aaaa1111", cost={"total_cost_usd": 1.0},
            model={"id": model}, rate_limits=limits(used, reset_ms),
        )  # fmt: skip
        rows = list_running(collect_here(machine.runtime(), secrets=False))

    assert [row["limits"]["fiveHour"]["usedPercent"] for row in rows] == [75, 75]


def test_old_billing_alone_is_migrated_and_shown_with_its_day(machine):
    desk = machine.desks[0]
    desk.folder.mkdir()
    old = {"costToday": 17.03, "burnRatePerHour": 13.23, "lastFetched": NOW_MS - 9 * DAY_MS}
    (desk.folder / "billing-shared.json").write_text(json.dumps(old))

    states = collect_here(machine.runtime(), secrets=False)

    (profile,) = states[0].state.auth_profiles
    assert (profile.billing.cost_today, profile.billing.burn_rate_per_hour) == (17.03, 13.23)
    head, account, *_ = dashboard_lines(build_dashboard(states, (), NOW_MS), TextStyle(200, UTC))
    assert "today $0.00  $0.00/h" in head.text
    assert account.text.startswith("Primary Account  2026-11-06 $17.03")


def test_label_reaches_the_account_in_every_directory(machine):
    for desk in (0, 1):
        machine.start(desk, desk, fake_key("0002"))
    machine.start(2, 1, fake_key("0003"))
    collect_here(machine.runtime(), secrets=False)

    label_profile(machine.runtime(), "API key …0002", "Blog", dry_run=False)

    running = list_running(collect_here(machine.runtime(), secrets=False))
    assert [row["profile"] for row in running] == ["Blog", "Blog", "API key …0003"]


def test_a_budget_is_that_of_the_account_in_all_directories(machine):
    for number, end in ((2, "0003"), (3, "0002"), (4, "0002")):
        machine.start(number, number % 2, fake_key(end))
    for _ in range(2):
        states = collect_here(machine.runtime(), secrets=False)
    total = sum(session.cost.recorded_cost_usd for live in states for session in live.state.sessions
                if session.session_id != session_id(2))  # fmt: skip
    for desk in machine.desks:
        text = desk.yaml.read_text().replace(
            "thresholds:\n", f"thresholds:\n  costTodayUsd: {total}\n"
        )
        desk.yaml.write_text(text)

    for _ in range(2):
        states = collect_here(machine.runtime(), secrets=False)

    figures = {}
    for live in states:
        for profile in live.state.auth_profiles:
            bill = profile.billing
            shown = (bill.cost_today, bill.block_cost_usd, bill.burn_rate_per_hour, bill.block_end)
            figures.setdefault(profile.label, []).append(shown)
    assert figures.keys() == {"API key …0002", "API key …0003"}
    first, second = figures["API key …0002"]
    assert first == second
    assert first[0] == pytest.approx(total, abs=1e-4)
    (account,) = [profile for profile in merge_accounts(live.state for live in states)
                  if profile.label == "API key …0002"]  # fmt: skip
    assert account.billing.cost_today == first[0]
    issues = {session.session_id: session.health.issues
              for live in states for session in live.state.sessions}  # fmt: skip
    assert "Budget today 100% used" in issues[session_id(3)]
    assert "Budget today 100% used" in issues[session_id(4)]
    assert not any("Budget" in issue for issue in issues[session_id(2)])
    page = json.loads((machine.desks[1].folder / f"{session_id(3)}.json").read_text())
    assert page["billing"]["costToday"] == first[0]


def test_an_id_of_two_accounts_is_refused(machine):
    for desk, account in enumerate(("key-aaaa", "key-bbbb")):
        place = machine.desks[desk]
        place.folder.mkdir()
        place.yaml.write_text(
            f"authProfiles:\n  - profileId: default\n    label: Mine {desk}\n"
            f"    billingFingerprint: {account}\nsessions: []\n"
        )
        machine.start(desk, desk)
        machine.desks[desk].tell(session_id(desk), NOW_MS, account=account)
    writer.note_directory(str(machine.home), str(machine.desks[1].config))

    with pytest.raises(Invalid, match="2 accounts"):
        label_profile(machine.runtime(), "default", "x", dry_run=False)
    running = list_running(collect_here(machine.runtime(), secrets=False))
    assert [row["profile"] for row in running] == ["Mine 0", "Mine 1"]


def test_switch_is_billed_from_the_request_on(machine):
    desk, name = machine.desks[0], session_id(1)
    at = NOW_MS - 10 * MINUTE_MS
    desk.responses(name, (at, 10_000, 100), (at + 60_000, 10_000, 100), (at + 120_000, 40_000, 100))
    for at_ms, account, cost in (
        (at - 1000, "key-aaaa", 0.0),
        (at + 1000, "key-aaaa", 0.1),
        (at + 61_000, "key-aaaa", 0.2),
        (at + 121_000, "key-bbbb", 0.6),  # the client reports after the response
    ):
        desk.tell(name, at_ms, account=account, cost={"total_cost_usd": cost})

    (session,) = desk.gather().state.sessions

    first, second = session.profile_switches
    assert second.since == at + 61_001
    assert (first.auth_profile, second.auth_profile) == ("default", "account-bbbb")
    assert second.cost_usd > first.cost_usd  # 40,000 of 60,000 tokens


def test_swap_to_an_unknown_profile_is_refused_before_it_is_written(machine):
    name = machine.start(1, 0, fake_key("0002"))
    collect_here(machine.runtime(), secrets=False)

    with pytest.raises(NotFound, match="no such profile: 'nosuch'"):
        record_profile_switch(machine.runtime(), name, "nosuch", "", dry_run=True)


def test_swap_finds_the_account_in_the_directory_of_the_session(machine):
    for desk, account in enumerate(("key-aaaa", "key-bbbb")):
        place = machine.desks[desk]
        place.folder.mkdir()
        place.yaml.write_text(
            f"authProfiles:\n  - profileId: default\n    label: Mine {desk}\n"
            f"    billingFingerprint: {account}\nsessions: []\n"
        )
        place.responses(session_id(desk), (NOW_MS - MINUTE_MS, 1000, 10))
    machine.home.mkdir()
    writer.note_directory(str(machine.home), str(machine.desks[1].config))

    with pytest.raises(NotFound, match="no profile 'Mine 1' in") as refused:
        record_profile_switch(machine.runtime(), session_id(0), "Mine 1", "", dry_run=False)

    assert refused.value.hint == "flightlog live profiles"
    swap = record_profile_switch(machine.runtime(), session_id(0), "default", "", dry_run=True)
    assert swap["profile"] == "default"


def test_an_unknown_account_is_not_the_default_of_another_directory(machine):
    machine.start(1, 0, fake_key("0002"))
    machine.desks[1].responses(session_id(2), (NOW_MS - MINUTE_MS, 1000, 10))
    machine.desks[1].tell(session_id(2), NOW_MS - MINUTE_MS)
    writer.note_directory(str(machine.home), str(machine.desks[1].config))

    first, second = list_running(collect_here(machine.runtime(), secrets=False))

    assert (first["profile"], first["profile_id"]) == ("API key …0002", "default")
    assert second["profile"] == "Primary Account (config)"
    assert second["profile_id"].startswith("default-")


def test_a_payload_without_account_leaves_the_default_of_an_account(machine):
    desk, reset_ms = machine.desks[0], NOW_MS + 60 * MINUTE_MS
    for number, account, used in ((1, "oauth-aaaa1111", 20), (2, "", 91)):
        desk.responses(session_id(number), (NOW_MS - MINUTE_MS, 1000, 10))
        window = {"five_hour": {"used_percentage": used, "resets_at": reset_ms / 1000}}
        name = {"name": "ada@example.org"} if account else {}
        desk.tell(session_id(number), NOW_MS, account=account, launch=name, rate_limits=window)
    desk.responses(session_id(3), (NOW_MS - MINUTE_MS, 1000, 10))  # without a status line
    desk.hook(session_id(3), "Stop", NOW_MS - MINUTE_MS)

    rows = list_running(collect_here(machine.runtime(), secrets=False))

    first, unknown, silent = sorted(rows, key=lambda row: row["session"])
    assert (first["profile"], first["profile_id"]) == ("ada@example.org", "default")
    assert first["limits"]["fiveHour"]["usedPercent"] == 20
    assert unknown["profile_id"].startswith("default-")
    assert (unknown["profile"], unknown["account"]) == ("Primary Account (config)", None)
    assert unknown["limits"]["fiveHour"]["usedPercent"] == 91
    assert silent["profile_id"] == "default"


def test_a_session_without_account_leaves_a_default_that_learns_one(machine):
    desk = machine.desks[0]
    desk.responses(session_id(2), (NOW_MS - MINUTE_MS, 1000, 10))
    desk.tell(session_id(2), NOW_MS - MINUTE_MS)
    before = list_running(collect_here(machine.runtime(), secrets=False))
    desk.responses(session_id(1), (NOW_MS - MINUTE_MS, 1000, 10))
    desk.tell(session_id(1), NOW_MS, account="oauth-aaaa1111", launch={"name": "ada@example.org"})

    for _ in range(2):
        rows = list_running(collect_here(machine.runtime(), secrets=False))
        known, unknown = sorted(rows, key=lambda row: row["session"])
        assert (known["profile"], known["profile_id"]) == ("ada@example.org", "default")
        assert unknown["profile"] == "Primary Account (config)"
        assert unknown["profile_id"].startswith("default-")
    assert [row["profile_id"] for row in before] == ["default"]


def test_a_key_that_the_person_declined_does_not_pay(tmp_path, monkeypatch):
    for variable in KEYS:
        monkeypatch.delenv(variable, raising=False)
    key = fake_key("0005")
    answers = {"customApiKeyResponses": {"approved": [], "rejected": [key[-20:]]}}
    (tmp_path / ".claude.json").write_text(json.dumps(PERSONAL | answers))
    monkeypatch.setenv("ANTHROPIC_API_KEY", key)
    monkeypatch.setenv("CLAUDE_CODE_USE_BEDROCK", "0")
    names = {}
    for entry in ("cli", "sdk-cli"):  # `claude -p` does not ask
        monkeypatch.setenv("CLAUDE_CODE_ENTRYPOINT", entry)
        names[entry] = payload_log.find_account(str(tmp_path / ".claude"))[1]
    monkeypatch.setenv("CLAUDE_CODE_ENTRYPOINT", "cli")
    monkeypatch.setenv("ANTHROPIC_API_KEY", fake_key("0006"))

    assert names == {"cli": "ada@example.org", "sdk-cli": "API key …0005"}
    assert payload_log.find_account(str(tmp_path / ".claude"))[1] == "API key …0006"


def test_a_login_beside_another_directory_is_not_taken_for_its_own(tmp_path, monkeypatch):
    for variable in KEYS:
        monkeypatch.delenv(variable, raising=False)
    (tmp_path / ".claude.json").write_text(json.dumps(PERSONAL))

    accounts = [payload_log.find_account(str(tmp_path / name)) for name in (".claude", ".work")]

    assert accounts[0][1] == "ada@example.org"
    assert accounts[1] == ("", "")
