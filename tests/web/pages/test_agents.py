"""The pages of sessions of more than one agent, over a real server."""

import re
import time

import pytest

from support.pages import running
from support.recordings import config_dir
from support.small_agent import SESSION, registering_agent, write_session

ICON = re.compile(r'<svg class="agent"[^>]*aria-label="([a-z-]+)"')


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    root = tmp_path_factory.mktemp("both")
    folder = config_dir(root, "2.1.325/single-turn")
    start = int(time.time() * 1000) - 1_763_000_000_000 - 60_000
    write_session(root / "tinker", {"type": "prompt", "ms": start, "id": "p9", "text": "<b>now"})
    with pytest.MonkeyPatch.context() as patch, registering_agent():
        patch.setenv("TINKER_HOME", str(root / "tinker"))
        with running(folder, data_dir=root / "data") as served:
            yield served


def test_the_list_names_agents_and_filters_by_one(pages):
    whole, own = pages.ask("/").text, pages.ask("/?agent=tinker").text

    assert {*ICON.findall(whole)} == {"claude-code", "tinker"}
    assert '<option value="tinker">Tinker</option>' in whole
    assert {*ICON.findall(own)} == {"tinker"}
    assert '<option value="tinker" selected>' in own


def test_a_page_of_a_session_names_its_agent_and_version(pages):
    page = pages.ask(f"/sessions/{SESSION}").text

    assert ICON.findall(page) == ["tinker"]
    assert re.search(r"Tinker</span>\s+0\.9\.1", page)
    assert "cart.py" in page


def test_search_results_name_the_agent(pages):
    html = pages.ask("/search?q=widgets").text
    words = pages.ask("/sessions/words?q=agent:tinker").text

    assert {*ICON.findall(html)} == {"tinker"}
    assert ICON.findall(words) == ["tinker"]


def test_the_live_page_lists_recent_sessions_apart(pages):
    part = pages.ask("/live/part").text

    assert "whether they run is not recorded" in part
    assert ICON.findall(part) == ["tinker"]
    assert "<dt>Running</dt><dd><b>0</b>" in part


def test_a_shared_page_has_the_icon_inside(pages):
    shared = pages.ask(f"/sessions/{SESSION}/share").text

    assert ICON.findall(shared) == ["tinker"]
    assert "<b>now" not in shared
