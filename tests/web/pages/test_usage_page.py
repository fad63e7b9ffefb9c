"""The usage page: a range of time, from a day to its sessions, and charts that are never empty."""

import datetime as dt
import re

import pytest

from support.browser import Browser
from support.pages import running
from support.transcripts import assistant, user, write

FIRST = dt.date(2025, 11, 1)
DAYS = 400
NOW_MS = int(dt.datetime(2026, 12, 5, 12, tzinfo=dt.UTC).timestamp() * 1000)  # the last day
CHART = "document.querySelector('[data-chart={}]')"
THIN = (
    "[...document.querySelectorAll('.chart [aria-label=bar] rect, .chart g rect')]"
    ".filter(bar => bar.height.baseVal.value > 1 && bar.width.baseVal.value > 0"
    " && bar.getBoundingClientRect().width < 1).length"
)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A year of sessions, one a day, of two models."""
    config = tmp_path_factory.mktemp("usage")
    for number in range(DAYS):
        at = f"{FIRST + dt.timedelta(days=number)}T10:00:00.000Z"
        name = f"{number:08x}-0000-4000-8000-000000000000"
        model = "claude-opus-5-5" if number % 2 else "claude-haiku-4-5"
        reply = assistant(f"msg_{number}", 2, {"type": "text", "text": "ok"}, timestamp=at)
        reply["message"]["model"] = model
        records = (
            {**record, "sessionId": name} for record in (user("Do it", 1, timestamp=at), reply)
        )
        write(config, name, *records, project=f"p{number % 3}")
    with running(config, clock=lambda: NOW_MS) as served:
        served.ask("/")
        yield served


def test_a_range_and_a_filter_select_and_lead_on(pages):
    whole, week = pages.ask("/usage").text, pages.ask("/usage?since=7d").text
    day = pages.ask("/usage?since=2026-11-02&until=2026-11-02").text
    model = pages.ask("/usage?since=30d&model=claude-opus-5-5").text
    wrong = pages.ask("/usage?since=soon")

    def sessions(text):
        return int(re.search(r'href="#session-title">(\d+) sessions?</a>', text)[1])

    assert [sessions(text) for text in (whole, week, day, model)] == [DAYS, 7, 1, 15]
    assert 'href="/usage?since=2026-11-02&amp;until=2026-11-02"' in whole, (
        "a day leads to its sessions"
    )
    name = f"{(dt.date(2026, 11, 2) - FIRST).days:08x}-0000-4000-8000-000000000000"
    assert f'href="/sessions/{name}"' in day
    assert f'href="/sessions/{name}?at=1#1"' in day, "and to the prompt"
    assert 'href="/usage?since=30d"' in model, "the filter can be removed"
    assert (wrong.status, "not a time" in wrong.text) == (400, True)
    assert (
        "No usage in this selection" in pages.ask("/usage?since=2020-01-01&until=2020-01-02").text
    )


@pytest.mark.parametrize("width", [390, 1280])
def test_charts_of_a_year_have_bars_that_can_be_seen(pages, width):
    browser = Browser()
    page = browser.page(width, 900)
    page.go(pages.door)
    page.go(f"{pages.root}/usage")
    page.until("document.querySelectorAll('.chart svg').length >= 8")

    bars = {
        kind: page.js(f"{CHART.format(kind)}.querySelectorAll('rect').length")
        for kind in ("day", "block", "model", "project")
    }
    thin = page.js(THIN)
    wide = page.js("document.documentElement.scrollWidth")
    browser.close()

    assert min(bars.values()) >= 2
    assert thin == 0
    assert wide <= width
    assert page.complaints == []


def test_counts_that_were_not_recorded_are_unknown_not_zero(tmp_path):
    bare = assistant("m1", 2)
    del bare["message"]["usage"]
    write(tmp_path, "aaaa", user("x", 1), bare)

    with running(tmp_path) as served:
        rows = re.findall(r"<tr><th.*?</tr>", served.ask("/usage").text)

    cells = [re.findall(r'<td class="num">(.*?)</td>', row)[:4] for row in rows]
    assert ["unknown"] * 4 in cells
    assert not any("0" in row for row in cells)
