"""Who gets in, and what every answer carries."""

import pytest

from flightlog.web.guard import CSP
from pages import TOKEN, running
from recordings import config_dir

PATHS = ["/", "/sessions", "/usage", "/static/base.css", "/nowhere", "/sessions/x/live", "/sessions/..%2f..%2fetc"]


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    with running(config_dir(tmp_path_factory.mktemp("guard"), "2.1.325/single-turn")) as served:
        yield served


def test_the_token_becomes_a_cookie_and_leaves_the_address(pages):
    answer = pages.ask(f"/?token={TOKEN}", signed_in=False)

    assert (answer.status, answer.headers["Location"]) == (303, "/")
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert cookie.startswith(f"flightlog-{pages.port}={TOKEN};")


@pytest.mark.parametrize("path", [*PATHS, f"/?token={'x' * 43}", "/?token=", f"/usage?token={TOKEN}"])
def test_without_the_token_nobody_gets_in(pages, path):
    answer = pages.ask(path, signed_in=False)

    assert answer.status == 401
    assert TOKEN not in answer.text


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_carries_the_protecting_headers(pages, path):
    for answer in (pages.ask(path), pages.ask(path, signed_in=False), pages.ask(path, Host="evil.example")):
        assert answer.headers["Content-Security-Policy"] == CSP
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["Cross-Origin-Opener-Policy"] == "same-origin"
        assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert "Access-Control-Allow-Origin" not in answer.headers


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "", "localhost."])
def test_a_name_that_is_made_to_point_here_is_refused(pages, host):
    assert pages.ask("/", Host=host.format(port=pages.port)).status == 403


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_our_own_names_are_answered(pages, host):
    assert pages.ask("/", Host=f"{host}:{pages.port}").status == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1:{port}", "http://127.0.0.1:1"])
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


def test_an_upgrade_is_held_to_the_rules_of_a_write(pages):
    assert pages.ask("/", Upgrade="websocket", Connection="Upgrade").status == 403


def test_read_only_refuses_every_write(tmp_path):
    with running(config_dir(tmp_path, "2.1.325/single-turn"), read_only=True) as pages:
        answer = pages.ask("/", "POST", Origin=pages.root, X_Flightlog="1")

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
def test_no_way_leads_out_of_our_own_files(pages, path):
    answer = pages.ask(path)

    assert answer.status in {400, 404}
    assert "root:" not in answer.text
    assert "import" not in answer.text
