"""The board at several sizes, held against what a person saw and agreed to."""

from datetime import UTC

import pytest

from flightlog.live.billing import switch_advice
from flightlog.live.collector import LiveState
from flightlog.live.dashboard import build_dashboard, format_countdown
from flightlog.live.dashboard_text import TextStyle, dashboard_lines, percent_bar, sparkline
from flightlog.live.state import (
    AuthProfile,
    Billing,
    ContextUsage,
    Forecast,
    ModelInfo,
    ProfileSwitch,
    RuntimeSession,
    RuntimeState,
    SessionActivity,
    SessionCost,
    SessionHealth,
    SessionMetadata,
    VendorLimits,
    VendorWindow,
)
from support.golden import assert_golden
from support.live_files import MINUTE_MS, NOW_MS

HOUR_MS = 60 * MINUTE_MS
HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202egnp.exe\r\nnext"


def lives(*, sessions=4, broken=""):
    five = VendorWindow(82.0, NOW_MS + 2 * HOUR_MS, "statusline", NOW_MS - MINUTE_MS)
    week = VendorWindow(91.0, NOW_MS + 50 * HOUR_MS, "statusline", NOW_MS - 20 * MINUTE_MS)
    work = Billing(17.03, 13.23, 120, 82, "14:00", 1, 1, last_fetched=NOW_MS, block_cost_usd=4.1, week_cost_usd=88.5,
                   block_end=NOW_MS + 2 * HOUR_MS, limits=VendorLimits(five, week),
                   forecast=Forecast(NOW_MS + HOUR_MS, 120.0, "statusline"))  # fmt: skip
    profiles = [
        AuthProfile("work", "Work", work),
        AuthProfile("home", HOSTILE, Billing(block_end=NOW_MS + HOUR_MS)),
    ]
    states = ("critical", "warning", "healthy", "unknown")
    running = [
        RuntimeSession(
            f"{at:08}-1111-4111-8111-111111111111",
            "work" if at % 2 == 0 else "home",
            HOSTILE if at == 1 else f"/home/ada/project-{at}",
            health=SessionHealth(
                states[at % 4],
                ["Secrets detected", "Context near compaction"][: 2 - at % 3],
                NOW_MS,
                "working",
            ),
            model=ModelInfo("Opus 5.5", "jsonInput"),
            context=ContextUsage(1, 2, 71 if at == 0 else 26, 3, at == 0),
            cost=SessionCost(1.25 * at, 1.3),
            metadata=SessionMetadata(NOW_MS, NOW_MS - at * 3 * MINUTE_MS),
            profile_switches=[ProfileSwitch("work", 0), ProfileSwitch("home", 1)]
            if at == 2
            else None,
        )
        for at in range(sessions)
    ]
    return [LiveState("/config", RuntimeState(profiles, running), broken, NOW_MS, {})]


def draw_board(width, **values):
    return "\n".join(line.text for line in board_lines(lives(**values), width)) + "\n"


def board_lines(states, width):
    return dashboard_lines(build_dashboard(states, (), NOW_MS), TextStyle(width, UTC))


@pytest.mark.parametrize("width", [40, 80, 140])
def test_board_is_golden(width):
    text = draw_board(width)

    assert_golden(f"live/board-{width}.txt", text)
    assert all(len(line) <= width for line in text.splitlines())


def test_board_with_a_broken_file_is_golden():
    assert_golden(
        "live/board-broken.txt", draw_board(80, sessions=1, broken="line 12: expected ','")
    )


def test_board_without_sessions_is_golden():
    assert_golden("live/board-empty.txt", "\n".join(line.text for line in board_lines([], 80)))


def test_foreign_text_on_the_board_is_inert():
    text = draw_board(140)

    assert "gnp.exe" in text
    assert not [letter for letter in text if not letter.isprintable() and letter != "\n"]


def test_advice_names_the_profile_with_room():
    (live,) = lives()

    assert switch_advice(live.state.auth_profiles).startswith("Work is nearly used up: go to ")
    assert switch_advice([live.state.auth_profiles[0]]) == "every profile is nearly used up"
    assert switch_advice([AuthProfile("a")]) == ""


def test_waiting_sessions_come_first_with_what_they_need():
    states = lives(sessions=4)
    running = states[0].state.sessions
    running[2].health.lifecycle = "waiting"
    running[2].activity = SessionActivity("PermissionRequest", NOW_MS - 12_000, "Bash")
    running[3].health.lifecycle = "waiting"
    running[3].activity = SessionActivity("PreToolUse", NOW_MS - 1000, "AskUserQuestion")
    running[0].health.lifecycle = "resting"

    lines = board_lines(states, 80)
    rows = lines[next(i for i, line in enumerate(lines) if line.text.startswith("SESSION")) :]

    assert [row.text[:8] for row in rows[1:3]] == ["00000003", "00000002"], "worst health first"
    assert "needs answer 1s" in rows[1].text
    assert "needs permission: Bash" in rows[2].text
    assert (rows[2].color, rows[3].color) == ("alert", "red")
    assert "idle 0s" in next(row.text for row in rows if row.text.startswith("00000000"))
    assert "4 running, 2 need you" in lines[0].text


def test_a_working_session_names_its_tool_and_how_long_it_runs():
    states = lives(sessions=1)
    states[0].state.sessions[0].activity = SessionActivity("PreToolUse", NOW_MS - 42_000, "Bash")

    assert "Bash 42s" in board_lines(states, 80)[-2].text


def test_missing_hooks_are_reported_once_for_the_machine():
    states = lives(sessions=2)
    for session in states[0].state.sessions:
        session.health.issues = ["Hooks missing"]

    text = "\n".join(line.text for line in board_lines(states, 140))

    assert text.count("Hooks missing") == 1
    assert "Hooks missing in 2 sessions, whose state is a guess: flightlog init" in text


def test_costs_of_directories_add_up_by_the_hour():
    first, second = (*lives(), *lives())
    first.hourly_costs, second.hourly_costs = (0.0, 1.0, 2.0), (0.0, 1.0, 6.0)

    board = build_dashboard([first, second], (), NOW_MS)

    assert board.hourly_costs == (0.0, 2.0, 8.0)
    assert sparkline(board.hourly_costs) == "▁▃█"


def test_a_crashed_session_does_not_count_as_running():
    states = lives(sessions=3)
    for session in states[0].state.sessions[:2]:
        session.health.lifecycle = "orphaned"
    heads = [board_lines(states, 140)[0].text]
    states[0].state.sessions.pop()
    heads.append(board_lines(states, 140)[0].text)

    assert "  1 running, 2 crashed  " in heads[0]
    assert "  nothing runs, 2 crashed  " in heads[1]


def test_bars_and_countdowns_are_exact():
    assert percent_bar(0) == "░" * 10
    assert percent_bar(1).count("█") == 1
    assert percent_bar(126) == "█" * 10
    assert sparkline([0.0, 0.0]) == "▁▁"
    assert format_countdown(116 * MINUTE_MS) == "1h 56m"
    assert format_countdown(51 * HOUR_MS) == "2d 3h"
    assert format_countdown(-5) == "0m"


def test_without_sessions_the_clock_is_right():
    assert "12:00:00" in board_lines([], 80)[0].text
