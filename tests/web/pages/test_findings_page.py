"""Findings at the top of a session's page: at once for a short session, later for a long one."""

import random

from flightlog.web.pages.session import FINDINGS_BYTES_MAX
from retro.planted_sessions import Scene
from support.pages import running
from support.planted_findings import SESSION, read
from support.transcripts import write


def write_session(folder, filler=""):
    scene = Scene(SESSION, random.Random(1), 3)
    scene.ask(f"Look {filler}")
    for _ in range(3):
        read(scene, "/x/<script>alert(1)</script>.py")
    write(folder, SESSION, *scene.records)


def test_page_of_a_short_session_begins_with_its_findings(tmp_path):
    write_session(tmp_path)

    with running(tmp_path) as pages:
        html = pages.ask(f"/sessions/{SESSION}").text

    findings = html[html.index('id="findings"') : html.index('id="scrub"')]
    assert "repeated-read" in findings
    assert f'href="/sessions/{SESSION}?at=1.1#1.1"' in findings
    assert f'href="/sessions/{SESSION}?at=1.3#1.3" data-jump="1.3">#1.3</a>' in findings  # evidence
    assert "<script>alert" not in findings


def test_page_of_a_long_session_asks_for_its_findings_later(tmp_path):
    write_session(tmp_path, "x" * FINDINGS_BYTES_MAX)

    with running(tmp_path) as pages:
        html = pages.ask(f"/sessions/{SESSION}").text
        part = pages.ask(f"/sessions/{SESSION}/findings").text

    assert f'hx-get="/sessions/{SESSION}/findings"' in html
    assert "repeated-read" not in html
    assert "repeated-read" in part
