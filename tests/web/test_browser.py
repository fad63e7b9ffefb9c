"""The pages in a real browser, used as a person would use them."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from flightlog.agents.scripted.agent import ScriptedAgent, ScriptedEnvironment
from flightlog.agents.scripted.scenario import load_scenario
from flightlog.agents.scripted.server import serve_scenario
from flightlog.app.runtime import open_runtime
from flightlog.setup.demo import DEMO_SCENARIO, PROMPTS, make_repository
from support import hostile
from support.browser import Browser
from support.pages import WEB_ROOT, running
from support.real_agent import new_session
from support.recordings import FROZEN_CASES, ROOT, config_dir

AXE = Path(__file__).parents[2] / ".tools/web/node_modules/axe-core/axe.min.js"
OTHERS_SEEN = {(390, True)}  # they have the parts and colors of the first ones
SHOWN = "document.querySelectorAll('.session').length"
HERE = "document.querySelector('.row.here')?.id"


@pytest.fixture(scope="module")
def browser():
    opened = Browser()
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    with running(config_dir(tmp_path_factory.mktemp("browser"), *FROZEN_CASES)) as served:
        yield served


@pytest.fixture
def page(browser, pages):
    opened = browser.page()
    opened.go(pages.door)
    opened.until(f"{SHOWN} === 36")
    yield opened
    assert (opened.dialogs, opened.outside(), opened.complaints) == ([], [], [])


def session_of(case):
    files = (ROOT / case / "transcripts").glob("*.jsonl")
    return next(file.stem for file in sorted(files) if not file.stem.startswith("agent-"))


def test_the_token_leads_in_and_is_gone_from_the_address(page, pages):
    assert page.js("location.href") == f"{pages.root}/"
    page.until(f"{SHOWN} === 36")
    assert page.js("document.cookie") == ""


def test_private_file_signs_in_and_another_port_gets_no_cookie(browser, pages, tmp_path):
    seen = []

    class Neighbor(BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append(self.headers.get("Cookie"))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(f'<a href="{pages.root}/usage">a link of another site</a>'.encode())

        def log_message(self, *_):
            pass

    neighbor = ThreadingHTTPServer(("127.0.0.1", 0), Neighbor)
    threading.Thread(target=neighbor.serve_forever, daemon=True).start()
    lead = tmp_path / "open.html"
    lead.write_text(f'<meta http-equiv="refresh" content="0;url={pages.door}">')
    opened = browser.page()

    opened.go(lead.as_uri())
    opened.until(f"{SHOWN} === 36")
    opened.go(f"{pages.root}/usage")
    own = opened.js("document.title")
    opened.go(f"http://127.0.0.1:{neighbor.server_port}/")
    opened.click("a")
    opened.until("document.body.textContent.includes('Links from other sites are refused')")
    neighbor.shutdown()
    neighbor.server_close()

    assert "Usage" in own
    assert set(seen) == {None}


def test_typing_filters_the_list_and_the_address_follows(page):
    page.key("/")
    page.type("subagents")

    page.until(f"{SHOWN} === 1")
    page.until("location.search === '?q=subagents'")
    assert page.until("document.querySelector('#words .hits')?.innerText.includes('subagents')")


def test_keys_choose_a_session_open_it_and_lead_back(page):
    for key in "jjk":
        page.key(key)
    chosen = page.js("document.querySelectorAll('.session')[0].classList.contains('here')")
    page.key("o")
    page.until(
        f"location.pathname.startsWith('{WEB_ROOT}/sessions/') && document.readyState === 'complete'"
    )

    page.key("u")

    assert chosen
    page.until(f"location.pathname === '{WEB_ROOT}/' && document.readyState === 'complete'")
    page.key("?")
    assert page.js("document.getElementById('help').open")


def test_steps_are_walked_by_key_and_each_has_an_address(page, pages):
    page.go(f"{pages.root}/sessions/{session_of('2.1.325/multi-turn-tools')}")
    for key in "jjj":
        page.key(key)
        page.js("new Promise(done => setTimeout(done, 60))")
    assert page.js(HERE) == "1.2"
    page.key("J")
    page.until(f"{HERE} === '2'")
    page.key("g")
    page.until(f"{HERE} === '1'")
    page.key("e")
    page.until(f"{HERE} === '1.5'")

    page.click("[id='1.3'] .at")

    page.until("location.search === '?at=1.3' && location.hash === '#1.3'")
    page.go(page.js("location.href"))
    page.until(f"{HERE} === '1.3'")
    assert "1.3" in page.js("document.getElementById('scrub-at').textContent")


def test_digits_show_one_kind_of_rows_and_a_key_copies_the_link(page, pages):
    page.go(f"{pages.root}/sessions/{session_of('2.1.325/multi-turn-tools')}")
    page.key("2")
    page.until("location.search === '?show=prompts' && document.readyState === 'complete'")
    prompts = page.js("[...document.querySelectorAll('.row')].map(row => row.id).join()")
    page.key("j")
    page.until(f"{HERE} === '1'")
    page.key("c")
    copied = page.js("document.getElementById('scrub-at').textContent")
    page.key("1")

    page.until("location.search === '' && document.querySelectorAll('.row.step').length > 5")
    assert prompts == "1,2"
    assert copied == "Link to 1 copied"


def test_the_strip_leads_to_any_row(page, pages):
    page.go(f"{pages.root}/sessions/{session_of('2.1.325/multi-turn-tools')}")

    page.js(
        "(s => { s.value = 9; s.dispatchEvent(new Event('input', {bubbles: true})); })"
        "(document.getElementById('scrubber'))"
    )

    page.until(f"{HERE} === '2.2'")


def test_finding_in_a_session_leads_to_the_row(page, pages):
    page.go(f"{pages.root}/sessions/{session_of('2.1.325/multi-turn-tools')}")
    page.key("/")
    page.type("f-strings")
    page.until("document.querySelector('#found mark')")

    page.click("#found .hits a")

    page.until(f"{HERE} === '1.4'")


def test_a_cut_output_is_shown_whole_in_place(page, pages):
    page.go(f"{pages.root}/sessions/{session_of('2.1.325/odd-outputs')}")

    page.click("[id='1.1'] .all")

    page.until("document.getElementById('1.1').innerText.includes('\\n8000')")


def test_a_subagent_unfolds_inside_its_call(page, pages):
    page.go(f"{pages.root}/sessions/{session_of('2.1.325/subagent-foreground')}")

    page.click("details.subagent > summary")

    page.until("document.querySelector('.subagent-rows .row')")


def test_charts_are_drawn_and_their_tables_stand_below(page, pages):
    page.go(f"{pages.root}/usage")

    page.until("document.querySelectorAll('.chart svg').length >= 8")
    assert page.js("document.querySelectorAll('.breakdown table').length") == 6


def test_a_running_session_grows_on_the_page_within_a_second(browser, tmp_path):
    with (
        serve_scenario(load_scenario(DEMO_SCENARIO)) as model,
        running(tmp_path / "config") as served,
    ):
        project = tmp_path / "subscriptions"
        make_repository(project)
        agent = ScriptedAgent(
            ScriptedEnvironment(
                model.url, project, tmp_path / "config", open_runtime().clock.now_ms, new_session
            ),
            new_session(),
        )
        agent.run_prompt(PROMPTS[0])
        page = browser.page()
        page.go(served.door)
        page.go(f"{served.root}/sessions/{agent.transcript.stem}")
        page.until("document.querySelector('#live').innerText.includes('active')")
        before = page.js("document.querySelectorAll('.row').length")

        agent.run_prompt(PROMPTS[1])
        wrote = open_runtime().clock.now_ms()
        page.until(f"document.querySelectorAll('.row').length > {before}")
        page.until("document.getElementById('timeline').innerText.includes('stays on the 28th')")
        seen_after_ms = open_runtime().clock.now_ms() - wrote

        assert seen_after_ms <= 1_000
        page.until("document.getElementById('2.4')")
        assert page.js(
            "document.querySelectorAll('.row').length"
            " === new Set([...document.querySelectorAll('.row')].map(row => row.id)).size"
        )
        assert (page.dialogs, page.complaints) == ([], [])


@pytest.mark.parametrize("width", [360, 1280])
def test_hostile_recordings_are_only_ever_shown(browser, tmp_path, width):
    session = hostile.write(tmp_path)
    with running(tmp_path) as served:
        page = browser.page(width, 900)
        page.go(served.door)
        page.until(f"{SHOWN} === 1")
        for path in (
            "/",
            f"/sessions/{session}",
            f"/sessions/{session}?subagent=a1",
            "/usage",
            "/?q=script",
            f"/sessions/{session}?find=alert",
        ):
            page.go(served.root + path)
            page.js("document.querySelectorAll('details').forEach(each => { each.open = true; })")
            page.js("document.querySelectorAll('.all').forEach(each => each.click())")
            page.js("new Promise(done => setTimeout(done, 400))")
            assert page.js("document.documentElement.scrollWidth") <= width, path
            assert page.js(
                "[...document.querySelectorAll('img')].every(each => each.src.startsWith('data:image/'))"
            )
            assert not page.js(
                "[...document.querySelectorAll('*')]"
                ".some(each => [...each.attributes].some(one => one.name.startsWith('on')))"
            )
        assert (page.dialogs, page.outside()) == ([], [])
        assert [
            complaint for complaint in page.complaints if "Content Security Policy" in complaint
        ] == []


@pytest.mark.parametrize("dark", [True, False])
@pytest.mark.parametrize("width", [390, 1280])
def test_no_page_has_a_serious_fault_of_access(browser, pages, width, dark):
    page = browser.page(width, 900, dark=dark)
    page.go(pages.door)
    many = session_of("2.1.325/multi-turn-tools")
    everywhere = ("/", "/usage", f"/sessions/{many}", f"/sessions/{many}?show=edits")
    others = (
        f"/sessions/{session_of('2.1.325/compaction-auto')}",
        f"/sessions/{session_of('2.1.325/subagent-foreground')}",
        "/live",
        "/lab",
        "/more",
        "/findings?since=all",
        "/search?q=file",
        "/trace",
        "/cache?since=all",
        "/loops",
        "/retro",
        "/dataset",
        "/privacy",
        "/doctor?whole",
        "/sessions/nosuch",
    )
    for path in (*everywhere, *(others if (width, dark) in OTHERS_SEEN else ())):
        page.go(pages.root + path)
        page.js("new Promise(done => setTimeout(done, 250))")
        page.js(AXE.read_text() + "; true")
        violations = json.loads(
            page.js(
                "axe.run({resultTypes: ['violations']}).then(r => JSON.stringify(r.violations))"
            )
        )
        serious = [
            (
                violation["id"],
                violation["nodes"][0]["html"][:200],
                violation["nodes"][0]["failureSummary"][:300],
            )
            for violation in violations
            if violation["impact"] in {"serious", "critical"}
        ]
        assert (path, serious) == (path, [])
        assert page.js("document.documentElement.scrollWidth") <= width, path
