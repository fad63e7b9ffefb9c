"""Gathering over real files: pages, accounts with swaps against the ledger, health, crowds."""

import json
import multiprocessing
import subprocess

import pytest
from ruamel.yaml import YAML

from flightlog.hooks.statusline_segments import StatusStyle, render_line
from flightlog.live.state import session_health_to_runtime_session
from support.live_files import MINUTE_MS, NOW_MS, Desk, by_id, iso, limits, session_id, week
from support.transcripts import user

ONE, TWO = session_id(1), session_id(2)


def test_one_collection_writes_every_page_and_one_line(tmp_path):
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


def test_second_collection_without_news_writes_no_session_page(tmp_path):
    desk = Desk(tmp_path)
    for number in range(5):
        desk.responses(session_id(number), (NOW_MS - 3 * MINUTE_MS, 1000, 10))
    desk.gather()
    desk.now_ms += 1000

    assert desk.gather().changed_count <= 2  # the two shared pages hold the time


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

    assert [profile.label for profile in after.auth_profiles] == [
        profile.label for profile in before.auth_profiles
    ]
    assert "Ada" in [profile.label for profile in after.auth_profiles]
    assert [profile.billing for profile in after.auth_profiles] == [
        profile.billing for profile in before.auth_profiles
    ]
    assert after.sessions[0].profile_switches == before.sessions[0].profile_switches


def test_deleting_our_cache_and_journal_changes_no_billing(tmp_path):
    desk = Desk(tmp_path)
    list(week(desk, sessions=4))
    before = [
        (profile.profile_id, profile.billing) for profile in desk.gather().state.auth_profiles
    ]

    for name in ("memory.bin", "state.bin"):
        (desk.folder / ".flightlog" / name).unlink()
    (desk.folder / ".flightlog" / "journal.jsonl").unlink()
    after = [(profile.profile_id, profile.billing) for profile in desk.gather().state.auth_profiles]

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
    (left,) = desk.list_archived()
    assert left["sessionId"] == ONE
    assert "# my remark" in left["yaml"]


def test_health_status_lists_its_issues(tmp_path):
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
    desk.set_mtime(path, NOW_MS - 8 * MINUTE_MS)
    desk.hook(ONE, "PreToolUse", NOW_MS - 7 * MINUTE_MS)
    dead = subprocess.Popen(["true"])
    dead.wait()
    desk.responses(TWO, (NOW_MS - MINUTE_MS, 100, 10))
    desk.tell(TWO, NOW_MS - MINUTE_MS, launch={"pid": dead.pid, "pid_started": 1})

    live = desk.gather(secrets=True)
    sessions = by_id(live)

    assert sessions[ONE].health.status == "critical"
    assert sessions[ONE].health.issues == [
        "Secrets detected",
        "Nothing written while it works",
        "Context near compaction",
    ]
    assert (sessions[ONE].alerts.secrets_detected, sessions[ONE].alerts.data_loss_risk) == (
        True,
        True,
    )
    assert (sessions[TWO].health.status, sessions[TWO].health.lifecycle) == ("warning", "orphaned")
    assert sessions[TWO].health.issues == [
        "Crashed (process gone, no SessionEnd event)",
        "Hooks missing",
    ]
    written = b"".join(path.read_bytes() for path in desk.folder.rglob("*") if path.is_file())
    assert token.encode() not in written


def test_secrets_are_looked_for_in_new_bytes_only(tmp_path):
    desk = Desk(tmp_path)
    token = "gh" + "p_" + "T7kQ2mZx9LwB4rVn8YcD3sHf6JgP1aE5uK0i"
    path = desk.responses(ONE, (NOW_MS - MINUTE_MS, 10, 10))
    desk.hook(ONE, "Stop", NOW_MS - MINUTE_MS)
    for _ in range(2):
        with path.open("a") as file:
            file.write(json.dumps(user(f"use {token}", 9, sessionId=ONE)) + "\n")
        desk.set_mtime(path, NOW_MS - MINUTE_MS)
        desk.gather(secrets=True)
        desk.gather(secrets=True)

    memory = (desk.folder / ".flightlog" / "memory.bin").read_bytes()
    import msgspec

    (memo,) = msgspec.msgpack.decode(memory)["sessions"].values()
    assert list(memo["secrets"].values()) == [2]
    assert memo["secrets_offsets"] == {str(path): path.stat().st_size}


def test_broken_state_file_does_not_stop_the_collection(tmp_path):
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

    for process in crowd:
        process.start()
    for process in crowd:
        process.join(120)

    assert [process.exitcode for process in crowd] == [0] * 16
    assert len((desk.folder / "daemon.log").read_text().splitlines()) == 48
    alone = Desk(tmp_path / "alone")
    list(week(alone, sessions=5))
    assert [profile.billing for profile in desk.gather().state.auth_profiles] == [
        profile.billing for profile in alone.gather().state.auth_profiles
    ]


def test_session_id_that_is_a_path_is_ignored(tmp_path):
    desk = Desk(tmp_path)
    (desk.home / "live").mkdir(parents=True)
    (desk.home / "live" / "...").write_text(str(desk.config))

    assert desk.gather().state.sessions == []


def test_status_line_is_prepared_in_each_width(tmp_path):
    desk = Desk(tmp_path)
    desk.responses(ONE, (NOW_MS - 3 * MINUTE_MS, 100_000, 1000))
    desk.tell(ONE, NOW_MS - MINUTE_MS, account="oauth-aaaa")

    drawn = by_id(desk.gather())[ONE].formatted_strings

    assert list(drawn) == [f"width{width}" for width in (40, 60, 80, 100, 120, 150, 200)]
    assert all(len(line) <= int(name.removeprefix("width")) for name, line in drawn.items())
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


@pytest.mark.parametrize(
    ("window", "tokens"),
    [({}, 2_803), ({"context_window_size": 200_000, "current_usage": None}, 0)],
    ids=["by the transcript", "by the client"],
)
def test_after_compaction_the_context_is_small(tmp_path, window, tokens):
    desk = Desk(tmp_path)
    path = desk.responses(ONE, (NOW_MS - MINUTE_MS, 160_000, 10))
    desk.tell(ONE, NOW_MS - MINUTE_MS, context_window=window)
    boundary = {"subtype": "compact_boundary", "compactMetadata": {"postTokens": 2_803}}
    with path.open("a") as file:
        file.write(json.dumps({"type": "system", "timestamp": iso(NOW_MS), **boundary}) + "\n")

    session = by_id(desk.gather())[ONE]

    page = json.loads((desk.folder / f"{ONE}.json").read_text())
    full = {**page, "context": {"percentUsed": 96}}  # as it was collected before the compaction
    shown = page if tokens else full
    line = render_line({"context_window": window}, shown, StatusStyle(200, False, NOW_MS / 1000))
    assert session.context.tokens_used == tokens
    assert f"ctx {session.context.percent_used}%" in line
    assert "near compaction" not in line


@pytest.mark.parametrize(
    "fields",
    [
        {"rate_limits": {"five_hour": {"used_percentage": 5, "resets_at": NOW_MS}}},
        {"rate_limits": {"five_hour": {"used_percentage": 1e300, "resets_at": NOW_MS / 1000}}},
        {"rate_limits": {"seven_day": {"used_percentage": 5, "resets_at": -1e18}}},
        {"context_window": {"context_window_size": 10**30}},
        {"prompt_cache": {"requests": 10**30}},
    ],
)
def test_a_payload_with_an_impossible_number_stops_nothing(tmp_path, fields):
    desk = Desk(tmp_path)
    desk.responses(ONE, (NOW_MS - MINUTE_MS, 1000, 10))
    desk.hook(ONE, "Stop", NOW_MS - MINUTE_MS)
    desk.tell(ONE, NOW_MS - MINUTE_MS, **fields)

    assert ONE in by_id(desk.gather())
    line = render_line(fields, {}, StatusStyle(200, False, NOW_MS / 1000))
    assert len(line) < 40


def test_a_directory_without_git_has_no_git_in_the_file(tmp_path):
    desk = Desk(tmp_path)
    desk.responses(ONE, (NOW_MS - MINUTE_MS, 1000, 10))
    desk.tell(ONE, NOW_MS - MINUTE_MS, workspace={"project_dir": str(tmp_path)})

    assert by_id(desk.gather())[ONE].git is None
    assert "git:" not in desk.yaml.read_text()


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


def test_a_fresh_file_time_is_no_sign_of_a_running_session(tmp_path):
    desk = Desk(tmp_path)
    touched = desk.responses(ONE, (NOW_MS - 200 * 86_400_000, 1000, 10))
    desk.set_mtime(touched, NOW_MS)
    desk.responses(TWO, (NOW_MS - MINUTE_MS, 1000, 10))

    assert desk.gather().state.sessions == []
    desk.hook(TWO, "PostToolUse", NOW_MS - MINUTE_MS)
    assert list(by_id(desk.gather())) == [TWO]
