"""The log of requests in transcripts: what was sent, compared with the request before."""

import json
from pathlib import Path

import pytest

from flightlog.agents.claude_code.rebuild import rebuild_requests
from flightlog.agents.claude_code.source import SOURCE
from support.recordings import CASES, archive


def read_records(path):
    """The whole records of a file; a killed client leaves half a line."""
    lines = Path(path).read_bytes().splitlines()
    return [json.loads(line) for line in lines if line.endswith(b"}")]


@pytest.mark.parametrize("case", [case for case in CASES if case.startswith("2.1.325/")])
def test_message_lists_are_as_long_as_the_rebuilt_requests(case, tmp_path):
    opened = archive(tmp_path, case)
    for recording in opened.recordings.values():
        rebuilt = {
            request.id: len(request.body["messages"])
            for file in recording.files
            for request in rebuild_requests(read_records(file.path))
        }

        requests = [r for r in SOURCE.logged_requests(recording.files) if not r.is_copied]

        assert {request.id: request.message_count for request in requests} == rebuilt
        assert all(request.shape and request.model for request in requests)


def test_older_clients_and_damaged_lines_log_nothing(tmp_path):
    opened = archive(tmp_path, "2.1.100/multi-turn-tools")
    (recording,) = opened.recordings.values()
    with Path(recording.files[0].path).open("ab") as file:
        file.write(b'{"type":"api-request","id":7,"keep":"many"}\n{"type":"api-request"')

    assert list(SOURCE.logged_requests(recording.files)) == []


def test_a_rewound_request_keeps_fewer_messages_than_the_one_before(tmp_path):
    opened = archive(tmp_path, "2.1.325/interactive-permission-interrupt-rewind")
    (recording,) = opened.recordings.values()

    last = list(SOURCE.logged_requests(recording.files))[-1]

    assert (last.kept_messages, last.previous_messages, last.has_base) == (7, 8, True)


def test_replies_of_another_session_are_marked_as_copied(tmp_path):
    opened = archive(tmp_path, "2.1.325/branched-at-turn")
    (recording,) = opened.recordings.values()

    requests = list(SOURCE.logged_requests(recording.files))

    assert [request.is_copied for request in requests].count(True) == 6
    assert requests[-1].message_count == 14


@pytest.mark.parametrize(
    "damage",
    [
        {"base": "gone", "keep": 10**15},
        {"base": "itself", "keep": 3},
        {"keep": -5, "tail": None, "params": {"betas": [1], "thinking": "on"}},
        {"cacheControl": [{"value": []}], "shapeHash": None, "timestamp": "never"},
    ],
)
def test_a_damaged_request_is_read_around(damage, tmp_path):
    opened = archive(tmp_path, "2.1.325/multi-turn-tools")
    (recording,) = opened.recordings.values()
    known = list(SOURCE.logged_requests(recording.files))
    with Path(recording.files[0].path).open("ab") as file:
        record = {"type": "api-request", "id": "itself", "tail": ["a", "b"], **damage}
        file.write(json.dumps(record).encode() + b"\n")

    requests = list(SOURCE.logged_requests(recording.files))

    assert [request for request in requests if request.id != "itself"] == known
    assert len(requests) == len(known) + 1


def test_messages_of_a_lost_request_count_as_unchanged(tmp_path):
    opened = archive(tmp_path, "2.1.325/multi-turn-tools")
    (recording,) = opened.recordings.values()
    path = Path(recording.files[0].path)
    lines = path.read_bytes().splitlines(keepends=True)
    sent = [at for at, line in enumerate(lines) if b'"type":"api-request",' in line]
    path.write_bytes(b"".join(line for at, line in enumerate(lines) if at != sent[1]))

    requests = [r for r in SOURCE.logged_requests(recording.files) if not r.is_copied]

    assert len(requests) == len(sent) - 1
    assert all(request.kept_messages == request.previous_messages for request in requests)
