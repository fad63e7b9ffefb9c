"""The home page: what was spent, what went wrong, what runs, what will be deleted; and no page without a next step."""

import os
import random
import re
from datetime import datetime

from retro.planted_sessions import Scene
from support.pages import running
from support.planted_findings import SESSION, read
from support.transcripts import write

DAY_MS = 86_400_000
PAGES = ("/live", "/usage", "/lab", "/findings", "/search", "/trace", "/cache", "/loops", "/retro")


def write_session(folder):
    scene = Scene(SESSION, random.Random(1), 3)
    scene.ask("Read it three times")
    for _ in range(3):
        read(scene, "/x/cart.py")
    return write(folder, SESSION, *scene.records), scene


def end_of(scene):
    last = max(record["timestamp"] for record in scene.records)
    return int(datetime.fromisoformat(last).timestamp() * 1000)


def test_home_answers_what_it_cost_what_failed_and_what_is_deleted(tmp_path, monkeypatch):
    monkeypatch.setenv("FLIGHTLOG_HOME", str(tmp_path / "data"))
    file, scene = write_session(tmp_path)
    now_ms = end_of(scene) + DAY_MS
    os.utime(file, ((now_ms - 25 * DAY_MS) / 1000,) * 2)

    with running(tmp_path, clock=lambda: now_ms) as pages:
        whole, home = pages.ask("/").text, pages.ask("/home").text
        findings, part = pages.ask("/findings").text, pages.ask("/home/findings").text
        week = pages.ask("/usage?since=7d").text

    sections = re.findall(r'<a href="/[^"]*"(?: aria-current="\w+")?>(\w+)</a>', whole)
    assert sections[:5] == ["Sessions", "Live", "Usage", "Lab", "More"]
    assert 'hx-get="/home"' in whole
    cost = re.search(r'href="/usage\?since=7d"><span class="cost">(\$[\d.]+)', home)[1]
    assert f'<b><span class="cost">{cost}</span></b>' in week, "the link leads to the figure"
    assert home.count('<rect class="space"') == 14
    assert f'href="/sessions/{SESSION}?at=1#1"' in home, "the prompt leads to its turn"
    assert "<b>1 session</b> by Claude Code" in home
    assert "1 not archived" in home
    assert "1 finding in 1 session" in re.sub("<[^>]+>", "", part)
    assert "repeated-read" in findings


def test_running_session_is_on_the_home_page(tmp_path):
    _, scene = write_session(tmp_path)

    with running(tmp_path, clock=lambda: end_of(scene) + 5_000) as pages:
        home = pages.ask("/home").text

    assert f'<a href="/sessions/{SESSION}">Read it three times</a>' in home
    assert "1 session with a record of the last 2 minutes" in home


def test_every_empty_page_has_a_sentence_and_a_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLIGHTLOG_HOME", str(tmp_path / "data"))

    with running(tmp_path / "config") as pages:
        texts = {path: pages.ask(path).text for path in ("/", *PAGES)}

    for path, text in texts.items():
        main = text[text.index('id="main"') : text.index("<dialog")]
        assert re.search(r"<(?:code|pre)>flightlog [a-z]", main), path
