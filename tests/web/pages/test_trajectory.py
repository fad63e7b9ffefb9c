"""A trajectory from the session's page."""

import http.client
import io
import zipfile
from contextlib import closing

import pytest

from flightlog.views.atif.document import read_trajectory
from support.pages import WEB_ROOT, running
from support.recordings import config_dir

SINGLE, SUBAGENT = "dff270bc-8c89-50b0-878f-ba9bc4885db8", "7575a0bb-2157-59ca-ac05-1a1b85aa965e"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = config_dir(
        tmp_path_factory.mktemp("served"), "2.1.325/single-turn", "2.1.325/subagent-foreground"
    )
    with running(folder) as pages:
        yield pages


def download(pages, session):
    cookie = {"Cookie": pages.cookie, "Host": f"127.0.0.1:{pages.port}"}
    with closing(http.client.HTTPConnection("127.0.0.1", pages.port, timeout=30)) as connection:
        connection.request("GET", f"{WEB_ROOT}/sessions/{session}/trajectory", headers=cookie)
        answer = connection.getresponse()
        return answer, answer.read()


def test_a_session_of_one_file_comes_as_json(pages):
    answer, body = download(pages, SINGLE)

    assert (
        answer.headers["Content-Disposition"] == 'attachment; filename="trajectory-dff270bc.json"'
    )
    assert read_trajectory(body).session_id == SINGLE


def test_session_with_subagents_comes_as_the_same_zip_each_time(pages):
    answer, body = download(pages, SUBAGENT)
    names = zipfile.ZipFile(io.BytesIO(body)).namelist()

    assert answer.headers["Content-Type"] == "application/zip"
    assert names == ["trajectory.json", "subagent_general-purpose_a18a8ad043c6ab8dd.json"]
    assert download(pages, SUBAGENT)[1] == body


def test_page_links_the_download_and_a_stranger_gets_nothing(pages):
    assert f'href="/sessions/{SINGLE}/trajectory"' in pages.ask(f"/sessions/{SINGLE}").text
    assert pages.ask(f"/sessions/{SINGLE}/trajectory", signed_in=False).status in {401, 403}
    assert pages.ask("/sessions/nosuch/trajectory").status == 404
