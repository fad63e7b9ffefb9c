"""The board at several sizes, held against what a person saw and agreed to."""

from datetime import UTC

import pytest

from flightlog.live.billing import switch_advice
from flightlog.live.collector import LiveState
from flightlog.live.dashboard import TerminalSize, dashboard_lines
from flightlog.live.state import (
    AuthProfile,
    Billing,
    ContextUsage,
    Forecast,
    ModelInfo,
    ProfileSwitch,
    RuntimeSession,
    RuntimeState,
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


def shown(width, height, **told):
    return (
        "\n".join(
            line.text for line in dashboard_lines(lives(**told), TerminalSize(width, height, UTC))
        )
        + "\n"
    )


@pytest.mark.parametrize(("width", "height"), [(80, 24), (140, 0), (40, 12)])
def test_golden_board(width, height):
    text = shown(width, height)

    assert_golden(f"live/board-{width}x{height}.txt", text)
    assert all(len(line) <= width for line in text.splitlines())


def test_golden_board_with_more_sessions_than_lines_and_a_broken_file():
    text = shown(80, 24, sessions=40, broken="line 12, column 5: expected ',' or ']'")

    assert_golden("live/board-full.txt", text)
    assert len(text.splitlines()) == 24


def test_golden_board_of_nothing():
    text = "\n".join(line.text for line in dashboard_lines([], TerminalSize(80, 24, UTC))) + "\n"

    assert_golden("live/board-empty.txt", text)


def test_foreign_text_cannot_act():
    text = shown(140, 0)

    assert "gnp.exe" in text
    assert not [letter for letter in text if not letter.isprintable() and letter != "\n"]


def test_advice_names_who_has_room():
    (live,) = lives()

    assert switch_advice(live.state.auth_profiles).startswith("Work is nearly used up: go to ")
    assert switch_advice([live.state.auth_profiles[0]]) == "every profile is nearly used up"
    assert switch_advice([AuthProfile("a")]) == ""


def test_a_question_to_the_person_comes_first_and_life_stays_at_80_columns():
    states = lives(sessions=4)
    states[0].state.sessions[2].health.lifecycle = "waiting"

    lines = [item.text for item in dashboard_lines(states, TerminalSize(80, 24, UTC))]
    rows = lines[next(i for i, text in enumerate(lines) if text.startswith("SESSION")) :]

    assert "LIFE" in rows[0]
    assert rows[1].startswith("00000002")
    assert "waiting" in rows[1]


def test_without_sessions_the_clock_is_right():
    (title, *_) = dashboard_lines([], TerminalSize(80, 24, UTC, NOW_MS))

    assert "12:00:00" in title.text
