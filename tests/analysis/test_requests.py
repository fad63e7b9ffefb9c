"""The requests of a session: each response once, with how it begins and what was logged."""

import pytest

from flightlog.analysis.requests import has_sent_requests, list_requests, read_sent_requests
from flightlog.analysis.service import analyze_session
from flightlog.archive.archive import Archive
from support.captures import capture_case, count_anew
from support.recordings import CASES
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
def test_each_request_has_its_kind_of_beginning(case, begins, tmp_path):
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


COMPARED = (
    *("thread", "model", "effort", "thinking_mode", "thinking_display", "betas", "cache_marks"),
    *("cache_ttls", "shape_id", "shape", "has_base", "kept_messages", "previous_messages"),
)


def test_captured_requests_say_what_the_client_logged(tmp_path):
    compared = 0
    for case in (case for case in CASES if case.startswith("2.1.325/")):
        opened = Archive({"claude-code": (str(capture_case(tmp_path / case, case)),)})
        for name, recording in opened.recordings.items():
            pairs = {}
            for sent in read_sent_requests(opened.read_session(name), recording):
                for message in sent.message_ids:
                    pairs.setdefault(message, []).append(sent)
            for captured, logged in (pair for pair in pairs.values() if len(pair) == 2):
                compared += 1
                assert [getattr(captured, key) for key in COMPARED] == [
                    getattr(logged, key) for key in COMPARED
                ]

    assert compared >= 45


OLD_CASES = [f"{version}/multi-turn-tools" for version in ("1.0.128", "2.0.76", "2.1.100")]
WRITTEN = [(0, 20_000), (20_000, 500), (0, 20_600), (20_600, 300)]
SENT_CHANGES = {
    "tools_changed": lambda sent: sent["body"]["tools"].pop(),
    "system_prompt_changed": lambda sent: sent["body"]["system"].append(
        {"type": "text", "text": "Answer in French."}
    ),
    "effort_changed": lambda sent: sent["body"].update(output_config={"effort": "high"}),
    "model_changed": lambda sent: sent["body"].update(model="claude-haiku-4-5"),
    "thinking_mode_changed": lambda sent: sent["body"].update(thinking={"type": "disabled"}),
    "betas_changed": lambda sent: sent["headers"].update({"anthropic-beta": "new-2026-01-01"}),
    "messages_rewritten": lambda sent: sent["body"]["messages"].pop(0),
    "likely_server_side": dict,
}


@pytest.mark.parametrize("cause", SENT_CHANGES)
@pytest.mark.parametrize("case", OLD_CASES)
def test_captures_of_old_clients_give_the_cause(case, cause, tmp_path):
    steps = read_main_steps(tmp_path / "plain", case)
    from_third_on = {step.request_id for step in steps[2:]}

    def change(sent):
        if sent["request_id"] in from_third_on:
            SENT_CHANGES[cause](sent)

    config = capture_case(tmp_path / "captured", case, change)
    count_anew(config, {step.message_id: use for step, use in zip(steps, WRITTEN, strict=False)})
    opened = Archive({"claude-code": (str(config),)})
    (session,) = opened.recordings
    detail = analyze_session(opened, session)

    assert [(o.verdict.value, list(o.causes)) for o in detail.cache[:4]] == [
        *(("cold", []), ("hit", []), ("miss", [cause]), ("hit", [])),
    ]
    assert has_sent_requests(opened.read_session(session), opened.recordings[session])
    assert detail.has_request_log


ODD_BODIES = [
    {"system": "Be brief.", "messages": [{"role": 5, "content": [1, {"type": None}]}]},
    {"system": [1, None, {"text": 5}], "tools": {"a": 1}},
    {"tools": [1, {"name": None}, {}, {"name": "t", "description": "d" * 200_000}]},
    {"messages": [1, "x"]},
    {"messages": None},
    {"thinking": "on", "output_config": [1]},
    {"messages": [{"role": "user", "content": [{"type": "text", "cache_control": ["x"]}]}]},
]


@pytest.mark.parametrize("body", ODD_BODIES)
def test_odd_captured_bodies_leave_the_verdicts_as_they_are(body, tmp_path):
    config = capture_case(tmp_path / "odd", OLD_CASES[2], lambda sent: sent["body"].update(body))
    plain, odd = (
        open_case(tmp_path / "plain", OLD_CASES[2]),
        Archive({"claude-code": (str(config),)}),
    )
    (session,) = plain.recordings

    expected, detail = (analyze_session(opened, session) for opened in (plain, odd))

    assert [o.verdict for o in detail.cache] == [o.verdict for o in expected.cache]
    for request in detail.context.requests:
        start = detail.context.starts[request.start].tokens
        assert start + sum(part.tokens for part in request.parts) == request.input_tokens


def test_other_calls_and_damaged_bodies_are_left_out(tmp_path):
    case = OLD_CASES[0]
    config = capture_case(tmp_path, case)
    blobs = sorted(config.glob("projects/**/blobs/**/*"), key=lambda path: path.name)
    for path in (path for path in blobs if path.is_file()):
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    opened = Archive({"claude-code": (str(config),)})
    (session,) = opened.recordings

    assert not has_sent_requests(opened.read_session(session), opened.recordings[session])
    assert len(requests_of(opened)) == 9


def read_main_steps(config, case):
    opened = open_case(config, case)
    (session,) = opened.recordings
    return opened.read_session(session).steps
