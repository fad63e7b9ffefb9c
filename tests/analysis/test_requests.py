"""The requests of a session: each response once, with how it begins and what was logged."""

import pytest

from flightlog.analysis.requests import list_requests
from support.recordings import archive as open_case
from support.transcripts import archive as made_archive
from support.transcripts import assistant, user


def requests_of(opened, session=""):
    recording = opened.find_recording(session or next(iter(opened.recordings)))
    whole = opened.read_session(recording.session)
    return list_requests(whole, recording.source.logged_requests(recording.files))


@pytest.mark.parametrize(
    ("case", "begins"),
    [
        ("2.1.325/compaction-manual", "first continues resumed compacted"),
        ("2.1.325/compaction-auto", "first continues compacted"),
        ("2.1.325/branched-at-turn", "first"),  # the other responses are of the original session
        ("2.1.325/api-error-fatal", ""),  # never answered
    ],
)
def test_how_each_request_begins(case, begins, tmp_path):
    requests = requests_of(open_case(tmp_path, case))

    assert " ".join(request.begins.value for request in requests) == begins


def test_a_fork_does_not_count_the_response_that_called_it_again(tmp_path):
    requests = requests_of(open_case(tmp_path, "2.1.325/subagent-fork"))

    assert [request.thread for request in requests] == ["", "", "", "a21fce6a74deb6afe"]
    assert len({request.message_id for request in requests}) == 4


def test_commands_hooks_and_clear_precede_the_next_request(tmp_path):
    tokens = {"cache_creation_input_tokens": 9_000}
    opened = made_archive(
        tmp_path,
        user("Go.", 1),
        assistant("m1", 2, tokens=tokens),
        user("<command-name>/model</command-name><command-args>opus</command-args>", 3),
        user("Stop hook feedback: not yet", 4, isMeta=True),
        assistant("m2", 5, tokens=tokens),
        user("<command-name>/clear</command-name>", 6),
        user("Again.", 7),
        assistant("m3", 8, tokens=tokens),
    )

    first, second, third = requests_of(opened)

    assert (first.preceded_by, second.preceded_by) == ((), ("/model opus", "hook"))
    assert third.begins.value == "cleared"
    assert first.logged is None


def test_only_sessions_without_log_and_writes_lack_cache_writes(tmp_path):
    logged = requests_of(open_case(tmp_path / "a", "2.1.325/single-turn"))
    plain = requests_of(made_archive(tmp_path / "b", user("Go.", 1), assistant("m1", 2)))

    assert [request.has_cache_writes for request in (*logged, *plain)] == [True, False]
