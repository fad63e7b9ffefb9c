"""The cache page over all sessions, and the panel on a session's page."""

import shutil
from pathlib import Path

import pytest

from support.pages import running

RECORDED = Path(__file__).parents[2] / "recordings" / "cache-causes"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    where = tmp_path_factory.mktemp("cache")
    for case in ("effort", "subagent"):
        shutil.copytree(RECORDED / case / "projects", where / "projects", dirs_exist_ok=True)
    with running(where) as served:
        yield served


def session_of(case):
    return next((RECORDED / case / "projects").glob("*/*.jsonl")).stem


def test_the_page_shows_causes_and_opens_each_miss(pages):
    html = pages.ask("/cache?since=all").text

    address = f"/sessions/{session_of('effort')}?at=4.1#4.1"
    assert "effort_changed" in html
    assert "medium to high" in html
    assert f'href="{address}"' in html
    assert pages.ask(address.partition("#")[0]).status == 200
    assert '<a href="/cache" aria-current="page">Cache</a>' in html


def test_an_archive_without_misses_says_so(tmp_path, pages):
    with running(tmp_path) as empty:
        assert "No cache misses" in empty.ask("/cache").text
    assert pages.ask("/cache?since=%3Cscript%3E").status == 200


def test_the_session_page_loads_the_panel(pages):
    session = session_of("effort")

    page = pages.ask(f"/sessions/{session}").text
    panel = pages.ask(f"/sessions/{session}/cache").text

    assert f'hx-get="/sessions/{session}/cache"' in page
    assert "Prompt cache: 1 of 4 requests missed" in panel
    assert "/effort high" in panel


def test_the_panel_links_to_steps_of_subagents(pages):
    panel = pages.ask(f"/sessions/{session_of('subagent')}/cache").text

    assert "subagent=a" in panel
    assert "Prompt cache: 0 of 6 requests missed" in panel
