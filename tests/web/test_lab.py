"""The lab's pages over real runs: replicates that failed, branches started on a page, samples; hostile words inert."""

import json
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest

from flightlog.app.runtime import open_runtime
from flightlog.lab.replay import service
from flightlog.lab.replay.branch import ReplayOptions
from support import hostile
from support.browser import Browser
from support.labs import again, bash, config, run, script
from support.pages import WEB_ROOT, running
from support.samples_made import write_samples
from support.waiting import alive, command_line, processes, until

AXE = Path(__file__).parents[2] / ".tools/web/node_modules/axe-core/axe.min.js"
PAYLOAD = "".join(payload for payload in hostile.PAYLOADS if "\ud800" not in payload)
HEADERS = {"X_Flightlog": "1"}


def prepare_run(root):
    """A run whose agent says and does hostile things, with replicates, a verifier that fails, and samples."""
    work = root / "work"
    work.mkdir(parents=True)
    (work / "shop.py").write_text("price = 1\n")
    turns = [
        [
            {"text": PAYLOAD},
            bash(f"printf %s {quote(PAYLOAD)} > '<b>.txt'; echo 'price = 2' > shop.py"),
        ],
        [bash("cat shop.py; exit 3")],
        PAYLOAD,
    ]
    other = {
        "when": {"prompt": "^another way"},
        "replies": script([bash(f"echo {quote(PAYLOAD)}")], PAYLOAD)["rules"][0]["replies"],
    }
    scenario = {"rules": [other, *script(*turns)["rules"]]}
    verifiers = [{"name": "<u>v</u>", "command": "grep -q 'price = 1' shop.py"}]
    more = {"hypothesis": PAYLOAD, "tags": ["<i>t</i>"], "verifiers": verifiers}
    given = config(root, scenario, {"prompt": PAYLOAD, "count": 2}, engine="scripted", **more)
    book = run(root, given, "shop", env={"PATH": "/usr/bin:/bin", "HOME": str(root / "home")})
    tool = ("Bash", {"command": PAYLOAD})
    write_samples(book, 1, 0, [tool] * 6 + [PAYLOAD] * 2, session="session_01_r01")
    write_samples(book, 1, 1, [PAYLOAD] * 8, label=PAYLOAD, session="session_01_r01")
    source = service.open_replay_source(open_runtime(), root / "runs", "shop", 1, 1)
    service.replay_session(
        open_runtime(),
        source,
        3,
        ReplayOptions(prompt="another way" + PAYLOAD.replace("\x00", "")),
        lambda *_: None,
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("lab-pages")
    prepare_run(root)
    return root


@pytest.fixture(scope="module")
def browser():
    opened = Browser()
    yield opened
    opened.close()


STEP = "/lab/runs/shop/1r1/2"


def origin(served):
    return {"Origin": served.origin, **HEADERS}


def test_runs_sessions_and_steps_show_what_inspect_shows(place, monkeypatch):
    monkeypatch.chdir(place)
    with running(place / "config") as served:
        listed, one, session, step = (
            served.ask(path) for path in ("/lab", "/lab/runs/shop", "/lab/runs/shop/1r1", STEP)
        )
        samples = served.ask("/lab/runs/shop/samples")
        ways = served.ask("/lab/runs/shop/ways")
        points = served.ask("/lab/runs/shop/1r1/points")
        missing = [
            served.ask(path).status
            for path in (
                "/lab/runs/nobody",
                "/lab/runs/..",
                "/lab/runs/shop/7",
                "/lab/runs/shop/1r1/99",
                "/lab/replays/1",
            )
        ]
        not_one = served.ask("/lab/runs/shop/certificate")

    assert [answer.status for answer in (listed, one, session, step, samples)] == [200] * 5
    assert 'href="/lab/runs/shop"' in listed.text
    assert one.text.count("&lt;u&gt;v&lt;/u&gt; failed") == 2
    assert 'hx-get="/lab/runs/shop/ways"' in one.text
    assert "Divergence tree" in ways.text
    assert "1 fork" in ways.text
    assert 'href="/lab/runs/shop/1r1/2#replay"' in points.text
    assert "shop.py" in one.text
    assert 'href="/lab/runs/shop/1r1/2"' in session.text
    for text in (
        "Exit code 3",
        "price = 2",
        "request_002.json",
        "Show expected cost",
        "failed",
    ):
        assert text in step.text, text
    assert "6 of 8" in samples.text
    assert "<b>request_001_v01</b> against request_001: differs" in samples.text
    assert missing == [404] * 5
    assert (not_one.status, "is not a replay" in not_one.text) == (404, True)


def test_without_runs_the_page_says_what_to_do_and_without_samples_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with running(tmp_path / "config") as served:
        assert "flightlog lab run experiment.yaml" in served.ask("/lab").text
    (tmp_path / "work").mkdir()
    run(
        tmp_path,
        config(tmp_path, script("done"), "go", engine="scripted"),
        "bare",
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
    )
    with running(tmp_path / "config") as served:
        assert (
            "flightlog lab resample bare --list-requests"
            in served.ask("/lab/runs/bare/samples").text
        )


def test_unreadable_run_is_reported_and_hides_no_other(tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    home = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    run(tmp_path, config(tmp_path, script("done"), "go", engine="scripted"), "good", env=home)
    (tmp_path / "runs/bad").mkdir()
    (tmp_path / "runs/bad/config.yaml").write_text("<script>alert(1)</script>: [")
    monkeypatch.chdir(tmp_path)

    with running(tmp_path / "config") as served:
        listed, one, other = (
            served.ask(path) for path in ("/lab", "/lab/runs/good", "/lab/runs/bad")
        )

    assert (listed.status, one.status) == (200, 200)
    assert 'href="/lab/runs/good"' in listed.text
    assert "Unreadable: bad: " in listed.text
    assert other.status >= 400
    assert "<script>alert" not in listed.text + other.text


def test_a_replay_shows_its_price_then_runs_and_is_certified(place, monkeypatch):
    monkeypatch.chdir(place)
    with running(place / "config") as served:
        asked = served.ask(f"{STEP}/replay?count=2&prompt=Mind+the+price")
        started = served.ask(
            f"{STEP}/replay", "POST", body="count=2&prompt=Mind+the+price", **origin(served)
        )
        follow = started.headers["Location"]

        until(lambda: "running" not in served.ask(f"{follow}/part").text, 60)
        part = served.ask(f"{follow}/part")
        branches = re.findall(r'href="(/lab/runs/replay_shop_[^"/]+)"', part.text)
        certificate = served.ask(f"{branches[0]}/certificate")
        source = served.ask("/lab/runs/shop")
        listed = served.ask("/lab")

    assert re.search(r"\$0\.\d{4}</b>|\$0\.\d{4} to \$0\.\d{4}", re.sub(r"\s+", " ", asked.text))
    assert "Mind the price" in asked.text
    assert (started.status, follow) == (303, f"{WEB_ROOT}/lab/replays/1")
    assert "completed" in part.text, part.text
    assert "hx-trigger" not in part.text
    assert len(set(branches)) == 2
    assert "<b>exact+prompt</b>" in certificate.text
    assert "Mind the price" in certificate.text
    assert "turn 2, exact+prompt" in source.text
    assert source.text.count("└ ") == 3
    assert '<a href="/lab/replays/1">Replay 1</a>' in listed.text


def test_comparison_shows_both_sides_and_where_they_part(place, monkeypatch):
    monkeypatch.chdir(place)
    (branch,) = (path.name for path in (place / "runs").glob("replay_shop_s01_t03_*"))
    with running(place / "config") as served:
        page = served.ask(f"/lab/runs/{branch}/compare").text
        no_branch = served.ask("/lab/runs/shop/compare").status

    turns = re.split(r'<section class="compared', page)[1:]
    assert "followed by the new prompt" in page, "the certificate in words"
    assert [turn.startswith(" first") for turn in turns] == [True, False]
    assert "first difference" in turns[0]
    assert turns[0].count('<div class="side">') == 2
    assert "<b>Bash</b>" in turns[0].partition("Branch</h3>")[2], "what the branch did"
    assert "ended before" in turns[1], "the original had one turn left"
    assert no_branch == 404


@pytest.mark.parametrize(
    ("headers", "read_only", "sent"),
    [
        ({}, False, ("count=1", 403)),
        ({"Origin": "http://evil.example", **HEADERS}, False, ("count=1", 403)),
        (HEADERS, True, ("count=1", 403)),
        (HEADERS, False, ("count=0", 400)),
        (HEADERS, False, ("count=21", 400)),
        (HEADERS, False, (f"count=1&prompt={'a' * 4001}", 400)),
    ],
    ids=["no-header", "other-origin", "read-only", "none", "too-many", "too-long"],
)
def test_no_replay_starts_without_the_header_or_read_only_or_with_nonsense(
    place, monkeypatch, headers, read_only, sent
):
    monkeypatch.chdir(place)
    before = sorted(path.name for path in (place / "runs").iterdir())
    with running(place / "config", read_only=read_only) as served:
        body, status = sent
        sent_headers = {"Origin": served.origin} | headers if headers else {}
        answer = served.ask(f"{STEP}/replay", "POST", body=body, **sent_headers)
        shown = served.ask(STEP).text

    assert answer.status == status
    assert sorted(path.name for path in (place / "runs").iterdir()) == before
    assert ("Show expected cost" in shown) is not read_only
    assert ("flightlog lab replay shop --session 1 --replicate 1 --turn 2" in shown) is read_only


@pytest.fixture
def slow(tmp_path, monkeypatch):
    """A run whose branches take a minute; returns who is at work on one."""
    marker = tmp_path / "slow-from-now-on"
    (tmp_path / "work").mkdir()
    replies = script([bash(f"test -e {marker} && sleep 60; true")], "done")
    home = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    run(tmp_path, config(tmp_path, replies, "go", engine="scripted"), "slow", env=home)
    marker.touch()
    monkeypatch.chdir(tmp_path)
    return lambda: [
        pid for pid in processes() if f"{marker} && sleep" in command_line(pid) and alive(pid)
    ]


def test_a_running_replay_is_interrupted_when_the_server_ends(tmp_path, slow):
    with running(tmp_path / "config") as served:
        started = served.ask(
            "/lab/runs/slow/1/1/replay", "POST", body="count=1&prompt=", **origin(served)
        )
        assert started.status == 303
        until(slow, 60)
        assert "running" in served.ask("/lab/replays/1/part").text

    assert slow() == []
    (branch,) = (tmp_path / "runs").glob("replay_slow_*")
    assert again(tmp_path, branch.name).state.branch.turn == 1


def test_a_server_that_is_killed_takes_its_replay_along(slow):
    program = (
        "import time; from flightlog.app.runtime import open_runtime; "
        "from flightlog.lab.service import ReplayRequest, start_replay; "
        "start_replay(open_runtime(), ReplayRequest('slow', 1, 0, 1)); time.sleep(60)"
    )
    server = subprocess.Popen([sys.executable, "-c", program])
    until(slow, 60)

    server.kill()
    server.wait()

    until(lambda: not slow(), 10)


PATHS = (
    "/lab",
    "/lab/runs/shop",
    "/lab/runs/shop/1r1",
    "/lab/runs/shop/1r1/1",
    STEP,
    f"{STEP}/replay?count=2&prompt={quote(PAYLOAD[:900])}",
    "/lab/runs/shop/ways",
    "/lab/runs/shop/samples",
)


@pytest.mark.parametrize(("width", "dark"), [(360, False), (1280, True)])
def test_hostile_words_are_inert_and_pages_are_accessible(place, monkeypatch, browser, width, dark):
    monkeypatch.chdir(place)
    with running(place / "config") as served:
        page = browser.page(width, 900, dark=dark)
        page.go(served.door)
        (branch,) = (path.name for path in (place / "runs").glob("replay_shop_s01_t03_*"))
        for path in (
            *PATHS,
            f"/lab/runs/{branch}",
            f"/lab/runs/{branch}/1",
            f"/lab/runs/{branch}/certificate",
            f"/lab/runs/{branch}/compare",
        ):
            page.go(served.root + path)
            page.until("!document.querySelector('[hx-trigger=load]')")
            page.js("document.querySelectorAll('details').forEach(each => { each.open = true; })")
            page.js("new Promise(done => setTimeout(done, 150))")
            assert page.js("document.documentElement.scrollWidth") <= width, path
            assert (
                page.js(
                    "document.querySelectorAll('img, iframe, object, main script, main style').length"
                )
                == 0
            )
            assert not page.js(
                "[...document.querySelectorAll('*')]"
                ".some(each => [...each.attributes].some(one => one.name.startsWith('on')))"
            )
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
                    violation["nodes"][0]["failureSummary"][:200],
                )
                for violation in violations
                if violation["impact"] in {"serious", "critical"}
            ]
            assert (path, serious) == (path, [])
            page.resize(2400, 900)
            assert page.js("document.documentElement.scrollWidth") <= 2400, path
            page.resize(width, 900)
        assert (page.dialogs, page.outside(), page.complaints) == ([], [], [])


def test_a_replay_is_started_by_keyboard_alone_and_the_page_follows_it(place, monkeypatch, browser):
    monkeypatch.chdir(place)
    with running(place / "config") as served:
        page = browser.page()
        page.go(served.door)
        page.go(served.root + STEP)
        page.js("document.querySelector('textarea[name=prompt]').focus()")
        page.type("By keys")
        page.js("document.querySelector('#replay button').focus()")
        page.key("Enter")
        page.until("location.pathname.endsWith('/replay') && document.getElementById('start')")
        page.js("document.getElementById('start').focus()")
        page.key("Enter")
        page.until("document.getElementById('replay-status')")
        page.until(
            "document.querySelector('#replay-status [role=status]').innerText.includes('completed')",
            60,
        )
        page.until(
            "document.querySelector('#replay-status table a').innerText.startsWith('replay_shop')"
        )
        assert (page.dialogs, page.outside(), page.complaints) == ([], [], [])
