"""A session given away: nothing private in it, nothing in it that acts, and it works offline."""

import random
from datetime import UTC

import pytest
from msgspec.structs import replace
from tools.bench.many import LONG_SCALE
from tools.bench.transcript import Session
from tools.bench.words import Words

from flightlog.app.runtime import open_runtime
from flightlog.archive.archive import Archive
from flightlog.archive.sharing import redact_session
from flightlog.model.entries import Image
from flightlog.model.text import describe_redaction
from flightlog.privacy.redactor import Redactor
from flightlog.web.commands import export_html
from flightlog.web.share import render_share_page
from flightlog.web.templates import make_environment
from support import hostile
from support.browser import Browser
from support.pages import make_runtime
from support.recordings import CASES, archive
from support.tool_showcase import PIXEL, TESTS, write_showcase
from support.transcripts import write

TEMPLATES = make_environment(UTC, lambda: 0)
BYTES_MAX = 6_000_000  # of a page of 5,000 steps
SECRET = "ghp_" + "x9K2mQ7vB4nL8sR3tW6yZ1aC5dF0gH2jK4pN"


@pytest.fixture(scope="module")
def browser():
    opened = Browser()
    yield opened
    opened.close()


def render_shared(archive, session):
    document, cleaner = redact_session(
        open_runtime(), archive, archive.read_session(session), Redactor(b"k" * 32)
    )
    return render_share_page(document, cleaner, make_environment(UTC, lambda: 0))


def test_secrets_are_taken_out_and_counted_on_top(tmp_path):
    source = archive(tmp_path, "2.1.325/multi-turn-tools")
    file = next(tmp_path.glob("projects/*/*.jsonl"))
    file.write_bytes(
        file.read_bytes().replace(b"Write a greeting", f"Use {SECRET} to greet".encode())
    )

    page = render_shared(source, source.latest_session())

    assert SECRET not in page.value
    assert page.secrets >= 1
    assert f"<b>{describe_redaction(page.secrets, page.personal)}</b>" in page.value


def test_images_are_shared_only_on_request_and_then_counted(tmp_path):
    session = write_showcase(tmp_path)
    source = Archive({"claude-code": (str(tmp_path),)})
    pictures = []
    arguments = (open_runtime(), source, source.read_session(session), Redactor(b"k" * 32))

    without = render_share_page(*redact_session(*arguments), TEMPLATES).value
    document, cleaner = redact_session(*arguments, pictures=pictures)
    with_images = render_share_page(document, cleaner, TEMPLATES, pictures).value

    assert pictures == [PIXEL]
    assert "data:image" not in without
    assert "Images are left out" in without
    assert f'src="data:image/png;base64,{PIXEL}"' in with_images
    assert "1 image included and not checked" in with_images


def test_picture_that_is_no_base64_never_reaches_a_page(tmp_path):
    source = archive(tmp_path, "2.1.325/single-turn")
    document, cleaner = redact_session(
        open_runtime(), source, source.read_session("dff270bc"), Redactor(b"k" * 32)
    )
    turn = document.value.session.turns[0]
    picture = replace(turn, prompt=(*turn.prompt, Image("image/png", 9, "picture0")))
    session = replace(document.value.session, turns=(picture,))
    hostile_document = document.map(lambda whole: replace(whole, session=session))

    page = render_share_page(hostile_document, cleaner, TEMPLATES, ['"onerror="alert(1)']).value

    assert "onerror" not in page
    assert 'base64,picture0"' in page


def test_exported_page_is_complete_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("FLIGHTLOG_HOME", str(tmp_path / "data"))
    session = write_showcase(tmp_path)
    runtime = make_runtime(tmp_path)
    source = Archive({"claude-code": (str(tmp_path),)})

    page = export_html(runtime, source, source.read_session(session))

    assert "Complete and not redacted." in page
    assert f'src="data:image/png;base64,{PIXEL}"' in page
    assert all(line in page for line in TESTS.split("\n"))
    assert "left out" not in page


@pytest.mark.parametrize("steps", [400, pytest.param(5_000, marks=pytest.mark.soak)])
def test_shared_page_stays_small_and_opens_from_disk_at_once(browser, tmp_path, steps):
    names = Words(1), random.Random(1)
    maker = Session(*names, "11111111-1111-4111-8111-111111111111", 1_793_600_000_000)
    maker.scale = LONG_SCALE
    lines = []
    while len(maker.truths) < steps:
        lines += maker.turn()
    write(tmp_path, maker.session, *lines)
    file = tmp_path / "shared.html"

    page = render_shared(Archive({"claude-code": (str(tmp_path),)}), maker.session).value
    file.write_text(page, encoding="utf-8")
    opened = browser.page()
    opened.go(file.as_uri() + "#1.1")
    took_ms = opened.js("performance.getEntriesByType('navigation')[0].loadEventEnd")
    opened.until("document.getElementById('timeline').dataset.whole !== undefined")

    assert len(page.encode()) <= BYTES_MAX * max(steps / 5_000, 0.12)
    assert took_ms <= 1_000
    assert opened.js("document.querySelectorAll('.row.step').length") == len(maker.truths)
    assert opened.complaints == []


def test_every_recording_can_be_shared_with_every_step_in_it(tmp_path):
    for number, case in enumerate(CASES):
        source = archive(tmp_path / str(number), case)
        for name in source.recordings:
            session = source.read_session(name)
            html = render_shared(source, name).value

            assert html.count('class="row step"') == sum(
                len(turn.steps) for thread in (session, *session.subagents) for turn in thread.turns
            )
            assert "/sessions/" not in html.replace("ralph-loop-sessions/", "")
            assert "data:image" not in html


def test_a_shared_page_works_offline_with_its_strip_and_keys(browser, tmp_path):
    source = archive(tmp_path, "2.1.325/multi-turn-tools")
    file = tmp_path / "shared.html"
    file.write_text(render_shared(source, source.latest_session()).value, encoding="utf-8")
    page = browser.page()

    page.go(file.as_uri())
    page.key("j")
    page.key("j")

    page.until("document.querySelector('.row.here')?.id === '1.2'")
    assert "secrets and " in page.js("document.querySelector('.removed').innerText")
    assert (page.dialogs, page.complaints) == ([], [])
    assert [url for url in page.requests if url != file.as_uri()] == []


def test_a_hostile_session_is_inert_in_a_shared_page(browser, tmp_path):
    session = hostile.write(tmp_path)
    file = tmp_path / "shared.html"
    html = render_shared(Archive({"claude-code": (str(tmp_path),)}), session).value
    file.write_bytes(html.encode("utf-8", "replace"))
    page = browser.page()

    page.go(file.as_uri())
    page.js("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    page.js("new Promise(done => setTimeout(done, 300))")

    assert (page.dialogs, page.outside()) == ([], [])
    assert (
        page.js(
            "document.querySelectorAll('script, style, img, iframe, object, link, base').length"
        )
        == 2
    )
    assert [complaint for complaint in page.complaints if "Security" in complaint] == []
