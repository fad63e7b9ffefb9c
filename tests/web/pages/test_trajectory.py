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
def served(tmp_path_factory):
    folder = config_dir(
        tmp_path_factory.mktemp("served"), "2.1.325/single-turn", "2.1.325/subagent-foreground"
    )
    with running(folder) as pages:
        yield pages


def downloaded(served, session):
    cookie = {"Cookie": served.cookie, "Host": f"127.0.0.1:{served.port}"}
    with closing(http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)) as connection:
        connection.request("GET", f"{WEB_ROOT}/sessions/{session}/trajectory", headers=cookie)
        answer = connection.getresponse()
        return answer, answer.read()


def test_a_session_of_one_file_comes_as_json(served):
    answer, body = downloaded(served, SINGLE)

    assert (
        answer.headers["Content-Disposition"] == 'attachment; filename="trajectory-dff270bc.json"'
    )
    assert read_trajectory(body).session_id == SINGLE


def test_one_with_subagents_comes_packed_and_the_same_each_time(served):
    answer, body = downloaded(served, SUBAGENT)
    names = zipfile.ZipFile(io.BytesIO(body)).namelist()

    assert answer.headers["Content-Type"] == "application/zip"
    assert names == ["trajectory.json", "subagent_general-purpose_a18a8ad043c6ab8dd.json"]
    assert downloaded(served, SUBAGENT)[1] == body


def test_the_page_leads_to_it_and_a_stranger_gets_nothing(served):
    assert f'href="/sessions/{SINGLE}/trajectory"' in served.ask(f"/sessions/{SINGLE}").text
    assert served.ask(f"/sessions/{SINGLE}/trajectory", signed_in=False).status in {401, 403}
    assert served.ask("/sessions/nobody/trajectory").status == 404
