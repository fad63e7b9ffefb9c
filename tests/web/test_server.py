"""The routes, asked as a browser would ask them."""

import http.client
import json
import re
import shutil
import time

import pytest

from flightlog.archive.archive import Archive
from support.live_files import iso
from support.pages import WEB_ROOT, running
from support.recordings import CASES, ROOT, config_dir
from support.transcripts import user
from support.waiting import until


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = config_dir(tmp_path_factory.mktemp("server"), *CASES)
    with running(folder) as served:
        yield served, list(Archive({"claude-code": (str(folder),)}).recordings)


def session_of(case):
    files = (ROOT / case / "transcripts").glob("*.jsonl")
    return next(file.stem for file in sorted(files) if not file.stem.startswith("agent-"))


def test_the_list_names_every_session_newest_first(pages):
    served, ids = pages

    def list_sessions():
        return sorted(re.findall(r'href="/sessions/([0-9a-f-]{36})"', served.ask("/").text))

    assert until(lambda: list_sessions() == sorted(ids))


def test_a_filter_keeps_what_matches_and_an_empty_list_says_what_to_do(pages):
    served, _ = pages

    assert served.ask("/sessions?q=subagent").text.count('class="session"') < 33
    assert "No session matches" in served.ask("/sessions?q=nothing-like-this").text
    assert 'class="session"' in served.ask("/sessions?show=look&sort=cost").text


def test_the_list_is_not_sent_again_without_news(pages):
    served, _ = pages
    have = re.search(r"have=([0-9.]+)", served.ask("/sessions").text)[1]

    assert served.ask(f"/sessions?have={have}").status in {204, 200}
    assert served.ask("/sessions?have=0").status == 200


def test_every_recording_has_a_page_with_each_of_its_steps(pages):
    served, ids = pages

    for session in ids:
        html = served.ask(f"/sessions/{session}").text

        assert "Traceback" not in html
        assert f'data-session="{session}"' in html
        assert len(re.findall(r'<article class="row', html)) == int(
            re.search(r'data-total="(\d+)"', html)[1]
        )


def test_a_step_has_an_address_and_a_plain_text(pages):
    served, _ = pages
    session = session_of("2.1.325/multi-turn-tools")

    assert 'id="1.2"' in served.ask(f"/sessions/{session}?at=1.2").text
    plain = served.ask(f"/sessions/{session}/text?at=1.2")
    assert plain.headers["Content-Type"].startswith("text/plain")
    assert "Now I'll write the module." in plain.text


def test_a_call_can_be_seen_whole_where_it_was_cut(pages):
    served, _ = pages
    session = session_of("2.1.325/odd-outputs")

    cut = served.ask(f"/sessions/{session}").text
    whole = served.ask(f"/sessions/{session}/call?at=1.1&call=1").text

    assert "\n7999\n8000</pre>" not in cut
    assert "\n7999\n8000</pre>" in whole


def test_a_session_is_shared_as_a_file_to_keep(pages):
    served, _ = pages
    session = session_of("2.1.325/multi-turn-tools")

    answer = served.ask(f"/sessions/{session}/share")

    assert (
        answer.headers["Content-Disposition"]
        == f'attachment; filename="session-{session[:8]}.html"'
    )
    assert "0 secrets and " in answer.text
    assert "/home/dev" not in answer.text


def test_subagents_are_lanes_with_a_page_of_their_own(pages):
    served, _ = pages
    session = session_of("2.1.325/subagents-background")

    html = served.ask(f"/sessions/{session}").text
    subagent = re.search(r"subagent=([^\"&]+)", html)[1]

    assert "2 subagents" in html
    assert "SUBAGENT REPORT" in served.ask(f"/sessions/{session}?subagent={subagent}").text
    inline = served.ask(f"/sessions/{session}/rows/0?subagent={subagent}&inline=1").text
    assert f'id="{subagent}:1.1"' in inline


def test_finding_leads_to_the_row_that_says_it(pages):
    served, _ = pages
    session = session_of("2.1.325/multi-turn-tools")

    html = served.ask(f"/sessions/{session}/find?find=F-STRINGS").text

    assert "<mark>f-strings</mark>" in html
    assert f'href="/sessions/{session}?at=1.4#1.4"' in html
    assert "No matches for" in served.ask(f"/sessions/{session}/find?find=xyzzy").text


def test_an_offset_in_a_recording_leads_to_the_row_of_its_record(pages):
    served, _ = pages
    case = "2.1.325/multi-turn-tools"
    session = session_of(case)
    records = (ROOT / case / "transcripts" / f"{session}.jsonl").read_bytes().splitlines(True)
    at = next(i for i, record in enumerate(records) if b'"type":"tool_result"' in record)
    offset = sum(map(len, records[:at]))

    answer = served.ask(f"/sessions/{session}?offset={offset}")

    assert answer.headers["Location"].endswith(f"/sessions/{session}?at=1.1#1.1")
    gone = served.ask(f"/sessions/{session}?offset=1")
    assert gone.headers["Location"].endswith(f"/sessions/{session}")


def test_searching_looks_inside_the_sessions(pages):
    served, _ = pages

    html = served.ask("/sessions/words?q=SUBAGENT+REPORT").text

    assert "<mark>SUBAGENT</mark> REPORT" in html


def test_usage_says_each_figure_and_each_reason(pages):
    served, _ = pages

    html = served.ask("/usage").text

    for text in (
        "By day",
        "By model",
        "By project",
        "By 5-hour block",
        "compaction call",
        "agrees to the token",
    ):
        assert text in html


@pytest.mark.parametrize(
    "path", ["/sessions/nosuch", "/sessions/nosuch/text", "/sessions/nosuch/rows/0"]
)
def test_missing_page_names_the_next_step(pages, path):
    answer = pages[0].ask(path)

    assert (answer.status, "flightlog session list" in answer.text) == (404, True)


def test_ambiguous_prefix_is_refused_and_a_unique_one_served(pages):
    served, _ = pages
    session = session_of("2.1.325/multi-turn-tools")

    assert served.ask(f"/sessions/{session[:12]}").status == 200


def test_nothing_recorded_yet_is_a_page_that_says_what_to_do(tmp_path):
    with running(tmp_path) as served:
        assert "flightlog demo" in served.ask("/").text
        assert "No usage yet" in served.ask("/usage").text


def test_a_session_that_vanishes_leaves_the_list(tmp_path):
    folder = config_dir(tmp_path, "2.1.325/single-turn", "2.1.325/thinking")
    with running(folder) as served:
        assert served.ask("/").text.count('class="session"') == 2
        shutil.rmtree(folder / "projects" / "2.1.325-thinking")

        assert until(lambda: served.ask("/").text.count('class="session"') == 1)


@pytest.mark.parametrize(("age_s", "is_read"), [(1, True), (3600, False)])
def test_running_session_is_read_before_it_grows_and_idle_is_not(tmp_path, age_s, is_read):
    folder = config_dir(tmp_path, "2.1.325/multi-turn-tools")
    session = session_of("2.1.325/multi-turn-tools")
    (file,) = folder.rglob(f"{session}.jsonl")
    with file.open("a") as transcript:  # the time of the last record counts, not that of the file
        transcript.write(json.dumps(user("go on", 9, timestamp=iso(1000 * (time.time() - age_s)))))
        transcript.write("\n")
    with running(folder) as served:
        have = re.search(r'data-have="([^"]+)"', served.ask(f"/sessions/{session}").text)[1]
        connection = http.client.HTTPConnection(
            "127.0.0.1", served.port, timeout=3 if is_read else 1
        )
        connection.request(
            "GET",
            f"{WEB_ROOT}/sessions/{session}/live?have={have}",
            headers={"Cookie": served.cookie},
        )
        answer = connection.getresponse()
        answer.readline()  # how soon to come again
        answer.readline()

        if is_read:
            assert answer.readline() == b"event: news\n"
        else:
            with pytest.raises(TimeoutError):
                answer.readline()
        connection.close()
