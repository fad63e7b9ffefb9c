"""The Live page over a real server and real files."""

import time

from support.live_files import MINUTE_MS, Desk, limits, session_id
from support.pages import running

HOSTILE = "<script>alert(1)</script>\x1b[2J"


def desk_with_two(tmp_path):
    now = int(time.time() * 1000)
    desk = Desk(tmp_path, now)
    desk.responses(session_id(1), (now - 2 * MINUTE_MS, 150_000, 100))
    desk.tell(
        session_id(1),
        now - MINUTE_MS,
        rate_limits=limits(91, now + 60 * MINUTE_MS),
        model={"display_name": HOSTILE},
    )
    desk.responses(session_id(2), (now - 2 * MINUTE_MS, 1_000, 100))
    desk.hook(session_id(2), "PostToolUse", now - 2 * MINUTE_MS)
    return desk


def test_the_live_page_shows_sessions_profiles_and_problems(tmp_path):
    desk = desk_with_two(tmp_path)
    with running(desk.config, data_dir=desk.home) as pages:
        whole, part = pages.ask("/live"), pages.ask("/live/part")

    assert (whole.status, part.status) == (200, 200)
    assert 'aria-current="page">Live</a>' in whole.text
    assert part.text.lstrip().startswith('<section id="live"')
    shown = ("Primary Account", "91 %", "near compaction", "resets in")
    for text in (session_id(1)[:8], session_id(2)[:8], *shown):
        assert text in part.text
    assert "<script>alert" not in whole.text
    assert "\x1b" not in whole.text


def test_without_anything_the_page_says_what_to_do(tmp_path):
    with running(tmp_path) as pages:
        assert "No running sessions" in pages.ask("/live").text
