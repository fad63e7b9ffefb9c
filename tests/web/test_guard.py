"""Who gets in, and what every answer carries."""

import http.client

import pytest

from flightlog.web.auth import CSP
from support.pages import TOKEN, WEB_ROOT, running
from support.recordings import config_dir

PATHS = [
    "/",
    "/sessions",
    "/usage",
    "/static/base.css",
    "/nowhere",
    "/sessions/x/live",
    "/sessions/..%2f..%2fetc",
]


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    with running(config_dir(tmp_path_factory.mktemp("guard"), "2.1.325/single-turn")) as served:
        yield served


def test_sign_in_sets_a_strict_cookie_with_a_fresh_id_below_the_root(pages):
    answers = [pages.ask(f"/?token={TOKEN}", signed_in=False) for _ in range(2)]

    cookies = [answer.headers["Set-Cookie"] for answer in answers]
    names, ids = zip(*(cookie.partition(";")[0].split("=", 1) for cookie in cookies), strict=True)
    assert [(answer.status, answer.headers["Location"]) for answer in answers] == [
        (303, f"{WEB_ROOT}/")
    ] * 2
    assert all(
        cookie.endswith(f"; HttpOnly; Path={WEB_ROOT}/; SameSite=Strict") for cookie in cookies
    )
    assert set(names) == {f"flightlog-{pages.port}"}
    assert len({*ids, TOKEN}) == 3
    assert min(len(session_id) for session_id in ids) >= 43


@pytest.mark.parametrize("value", [TOKEN, "", "x" * 43])
def test_cookie_that_is_no_session_id_is_refused(pages, value):
    assert pages.ask("/", signed_in=False, Cookie=f"flightlog-{pages.port}={value}").status == 401


@pytest.mark.parametrize(
    "path", ["/", "/sessions", "/static/base.css", f"/?token={TOKEN}", WEB_ROOT, f"{WEB_ROOT}0/"]
)
def test_path_outside_the_root_is_not_found_and_sets_no_cookie(pages, path):
    for headers in ({}, {"Cookie": pages.cookie}):
        connection = http.client.HTTPConnection("127.0.0.1", pages.port, timeout=30)
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        body = answer.read().decode()
        connection.close()

        assert (answer.status, answer.headers["Set-Cookie"]) == (404, None)
        assert WEB_ROOT not in body


def test_request_from_another_site_is_refused_with_the_cookie(pages):
    link = {"Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
    frame = link | {"Sec_Fetch_Dest": "iframe"}
    for site in ("cross-site", "same-site"):
        assert pages.ask("/", Sec_Fetch_Site=site).status == 403
        assert pages.ask("/sessions", Sec_Fetch_Site=site, **link).status == 403
        assert pages.ask(f"/?token={TOKEN}", Sec_Fetch_Site=site).status == 403
        assert pages.ask(f"/?token={TOKEN}", Sec_Fetch_Site=site, **frame).status == 403
        assert pages.ask(f"/?token={'x' * 43}", Sec_Fetch_Site=site, **link).status == 401
        welcome = pages.ask(f"/?token={TOKEN}", signed_in=False, Sec_Fetch_Site=site, **link)
        assert (welcome.status, "Set-Cookie" in welcome.headers) == (200, True)
    for site in ("same-origin", "none"):
        assert pages.ask("/", Sec_Fetch_Site=site).status == 200


@pytest.mark.parametrize(
    "path", [*PATHS, f"/?token={'x' * 43}", "/?token=", f"/usage?token={TOKEN}"]
)
def test_without_the_token_no_request_is_served(pages, path):
    answer = pages.ask(path, signed_in=False)

    assert answer.status == 401
    assert TOKEN not in answer.text


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_carries_the_protecting_headers(pages, path):
    for answer in (
        pages.ask(path),
        pages.ask(path, signed_in=False),
        pages.ask(path, Host="evil.example"),
    ):
        assert answer.headers["Content-Security-Policy"] == CSP
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["Cross-Origin-Opener-Policy"] == "same-origin"
        assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert "Access-Control-Allow-Origin" not in answer.headers


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "", "localhost."]
)
def test_a_name_that_is_made_to_point_here_is_refused(pages, host):
    assert pages.ask("/", Host=host.format(port=pages.port)).status == 403


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_our_own_names_are_answered(pages, host):
    assert pages.ask("/", Host=f"{host}:{pages.port}").status == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1:{port}", "http://127.0.0.1:1"]
)
def test_another_site_may_not_even_read(pages, origin):
    assert pages.ask("/", Origin=origin.format(port=pages.port)).status == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_a_write_needs_our_origin_and_our_header(pages, method):
    own = f"http://127.0.0.1:{pages.port}"

    assert pages.ask("/", method).status == 403
    assert pages.ask("/", method, Origin=own).status == 403
    assert pages.ask("/", method, X_Flightlog="1").status == 403
    assert pages.ask("/", method, Origin="http://evil.example", X_Flightlog="1").status == 403
    assert pages.ask("/", method, Origin=own, X_Flightlog="1").status == 405


def test_upgrade_request_follows_the_rules_of_a_write(pages):
    assert pages.ask("/", Upgrade="websocket", Connection="Upgrade").status == 403


def test_read_only_refuses_every_write(tmp_path):
    with running(config_dir(tmp_path, "2.1.325/single-turn"), read_only=True) as pages:
        answer = pages.ask("/", "POST", Origin=pages.origin, X_Flightlog="1")

        assert (answer.status, "--read-only" in answer.text) == (403, True)
        assert "read-only" in pages.ask("/").text


@pytest.mark.parametrize(
    "path",
    [
        "/static/../data.py",
        "/static/%2e%2e/data.py",
        "/static/vendor/../../data.py",
        "/static/..%2fdata.py",
        "/static//etc/passwd",
        "/static/vendor/package-lock.json",
        "/sessions/..%2f..%2f..%2fetc%2fpasswd",
        "/sessions/%2e%2e/text",
        "/sessions/.ssh",
        "/sessions/a%00b",
        "/sessions/x/rows/-1",
        "/sessions/x/rows/99999999999999999999",
    ],
)
def test_no_path_leads_out_of_the_static_files(pages, path):
    answer = pages.ask(path)

    assert answer.status in {400, 404}
    assert "root:" not in answer.text
    assert "import" not in answer.text
