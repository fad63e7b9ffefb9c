"""A session given away: nothing private in it, nothing in it that acts, and it works offline."""

from datetime import UTC

import pytest

from flightlog.app.runtime import open_runtime
from flightlog.archive.archive import Archive
from flightlog.archive.sharing import redact_session
from flightlog.model.text import describe_redaction
from flightlog.privacy.redactor import Redactor
from flightlog.web.share import render_share_page
from flightlog.web.templates import make_environment
from support import hostile
from support.browser import Browser
from support.recordings import CASES, archive

SECRET = "ghp_" + "x9K2mQ7vB4nL8sR3tW6yZ1aC5dF0gH2jK4pN"


@pytest.fixture(scope="module")
def browser():
    opened = Browser()
    yield opened
    opened.close()


def shared(archive, session):
    document, cleaner = redact_session(
        open_runtime(), archive, archive.read_session(session), Redactor(b"k" * 32)
    )
    return render_share_page(document, cleaner, make_environment(UTC, lambda: 0))


def test_secrets_are_taken_out_and_counted_on_top(tmp_path):
    found = archive(tmp_path, "2.1.325/multi-turn-tools")
    file = next(tmp_path.glob("projects/*/*.jsonl"))
    file.write_bytes(
        file.read_bytes().replace(b"Write a greeting", f"Use {SECRET} to greet".encode())
    )

    told = shared(found, found.latest_session())

    assert SECRET not in told.value
    assert told.secrets >= 1
    assert f"<b>{describe_redaction(told.secrets, told.personal)}</b>" in told.value


def test_every_recording_can_be_shared_with_every_step_in_it(tmp_path):
    for number, case in enumerate(CASES):
        found = archive(tmp_path / str(number), case)
        for name in found.recordings:
            session = found.read_session(name)
            html = shared(found, name).value

            assert html.count('class="row step"') == sum(
                len(turn.steps) for thread in (session, *session.subagents) for turn in thread.turns
            )
            assert "/sessions/" not in html.replace("ralph-loop-sessions/", "")
            assert "data:image" not in html


def test_a_shared_page_works_offline_with_its_strip_and_keys(browser, tmp_path):
    found = archive(tmp_path, "2.1.325/multi-turn-tools")
    file = tmp_path / "shared.html"
    file.write_text(shared(found, found.latest_session()).value, encoding="utf-8")
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
    html = shared(Archive({"claude-code": (str(tmp_path),)}), session).value
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
    assert [said for said in page.complaints if "Security" in said] == []
