import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.agents.claude_code.decode import decode_record
from flightlog.agents.claude_code.scan import BLOCK_BYTES, scan_usage
from flightlog.model.entries import AssistantReply, ClientTotalReported
from flightlog.model.session import SessionFile
from flightlog.model.usage import ModelResponse, Usage, UsageQuality, row_to_response
from flightlog.sources.protocol import UsageScan
from flightlog.usage.attribution import attribute_responses

RECORDINGS = sorted((Path(__file__).parents[2] / "recordings" / "claude-code").rglob("*.jsonl"))


def line(name="msg_1", output=5, **fields):
    usage = fields.pop("usage", {"input_tokens": 3, "output_tokens": output})
    record = {
        "type": "assistant",
        "message": {
            "id": name,
            "model": fields.pop("model", "claude-x"),
            "content": [],
            "usage": usage,
        },
        "timestamp": "2026-06-01T10:00:00.250Z",
        "requestId": "req_1",
        "cwd": "/srv/app",
    }
    return json.dumps(record | fields, separators=(",", ":"), ensure_ascii=False).encode()


def session_file(path):
    return SessionFile(str(path), "s", 0, 0)


def scan_lines(tmp_path, *lines, end=b"\n"):
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"\n".join(lines) + end)
    return scan_usage(session_file(path))


def winners(*scans):
    return attribute_responses(
        [row_to_response(row) for one in scans for row in one.rows], {}
    ).responses


def test_a_line_becomes_a_response(tmp_path):
    usage = {
        "input_tokens": 3,
        "output_tokens": 5,
        "cache_read_input_tokens": 7,
        "cache_creation_input_tokens": 30,
        "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20},
        "server_tool_use": {"web_search_requests": 2},
    }

    scan = scan_lines(
        tmp_path, line(usage=usage, agentId="a1", isSidechain=True, isAbortedMidStream=True)
    )

    assert [row_to_response(row) for row in scan.rows] == [
        ModelResponse(
            "msg_1",
            "s",
            "claude-x",
            Usage(3, 5, 7, 30, 20, 2),
            1780308000250,
            "/srv/app",
            "req_1",
            "a1",
            True,
        )
    ]
    assert scan.first_ms == 1780308000250


def test_the_line_with_most_output_counts_and_then_the_earlier(tmp_path):
    late = "2026-06-01T11:00:00.000Z"

    scan = scan_lines(
        tmp_path, line(output=1), line(output=9, timestamp=late), line(output=9), line(output=2)
    )

    assert [(row.output_tokens, row.at_ms) for row in scan.rows] == [(9, 1780308000250)]


def test_a_replay_under_another_request_stays_apart(tmp_path):
    scan = scan_lines(tmp_path, line(), line(requestId="req_2", isSidechain=True))

    assert [(row.request_id, row.subagent) for row in scan.rows] == [("req_1", ""), ("req_2", "?")]


def test_unpaid_responses_are_skipped(tmp_path):
    user = json.dumps(
        {"type": "user", "toolUseResult": {"usage": {"input_tokens": 5}}}, separators=(",", ":")
    )

    scan = scan_lines(
        tmp_path, user.encode(), line(model="<synthetic>"), b'{"type":"assistant"}', line(usage={})
    )

    assert (len(scan.rows), scan.damaged_lines) == (1, 0)


@pytest.mark.parametrize(
    ("odd", "name", "output"),
    [
        (
            line(usage={"input_tokens": -1, "output_tokens": 4.0, "cache_creation": None}),
            "msg_1",
            4,
        ),
        (line(usage={"input_tokens": "x", "output_tokens": 4}), "msg_1", 4),
        (line(name=None, uuid="u1", requestId=None), "u1", 5),
        (line(name="", requestId="req_7"), "req_7", 5),
        (line(cwd="X").replace(b'"X"', b'"\xff"'), "msg_1", 5),
        (line(cwd="X").replace(b'"X"', b'"\\ud800"'), "msg_1", 5),
    ],
)
def test_odd_value_loses_its_field_and_not_the_line(tmp_path, odd, name, output):
    scan = scan_lines(tmp_path, odd)

    assert [(row.message_id, row.output_tokens) for row in scan.rows] == [(name, output)]
    assert scan.damaged_lines == 0


def test_odd_lines_that_are_no_responses_are_not_counted(tmp_path):
    scan = scan_lines(
        tmp_path,
        line(name=3, type="user"),
        line(name=3, model="<synthetic>"),
    )

    assert (scan.rows, scan.damaged_lines) == ([], 0)


@pytest.mark.parametrize("usage", [[], None, "x"])
def test_a_response_without_counts_is_unknown(tmp_path, usage):
    bare = json.loads(line("b", uuid="u2"))
    del bare["message"]["usage"]
    scan = scan_lines(tmp_path, line("a"), line("c", usage=usage), json.dumps(bare).encode())

    qualities = {row.message_id: (row.quality, row.output_tokens) for row in scan.rows}

    assert qualities == {
        "a": (UsageQuality.EXACT, 5),
        "b": (UsageQuality.MISSING, 0),
        "c": (UsageQuality.MISSING, 0),
    }


@pytest.mark.parametrize(
    ("version", "quality"),
    [("2.1.7", 0), ("2.1.8", 1), ("2.1.29", 1), ("2.1.58", 1), ("2.1.59", 0), ("", 0), ("x", 0)],
)
def test_versions_that_never_wrote_final_counts_are_lower_bounds(tmp_path, version, quality):
    (row,) = scan_lines(tmp_path, line("a", version=version)).rows

    assert row.quality == quality


@pytest.mark.parametrize(
    ("version", "output", "reason", "quality"),
    [
        ("2.1.7", 8, None, 1),
        ("2.0.76", 1, None, 1),
        ("2.1.81", 3, None, 1),
        ("2.1.7", 9, None, 0),
        ("2.1.7", 0, None, 0),
        ("2.1.7", 3, "end_turn", 0),
        ("2.1.100", 3, None, 0),
        ("", 3, None, 0),
    ],
)
def test_a_count_from_the_start_of_a_stream_is_a_lower_bound(
    tmp_path, version, output, reason, quality
):
    record = json.loads(line("a", version=version))
    record["message"] |= {"stop_reason": reason, "usage": {"output_tokens": output}}
    (row,) = scan_lines(tmp_path, json.dumps(record).encode()).rows
    (entry,) = decode_record(json.dumps(record).encode())

    assert (row.quality, entry.event.quality) == (quality, quality)


def test_a_line_without_any_id_is_counted_once(tmp_path):
    bare = line(name=None, requestId=None)

    scan = scan_lines(tmp_path, bare, bare)

    assert len({row.message_id for row in scan.rows}) == 1


def test_damage_is_counted_and_hides_nothing(tmp_path):
    scan = scan_lines(tmp_path, line("a"), line("b")[:-9], b'{"type":"cost-state"', line("c"))

    assert [row.message_id for row in scan.rows] == ["a", "c"]
    assert scan.damaged_lines == 2


def test_a_torn_tail_waits_and_a_whole_one_counts_at_once(tmp_path):
    torn = scan_lines(tmp_path, line("a"), line("b")[:-9], end=b"")
    whole = scan_lines(tmp_path, line("a"), line("b"), end=b"")

    assert ([row.message_id for row in torn.rows], torn.damaged_lines) == (["a"], 0)
    assert [row.message_id for row in whole.rows] == ["a", "b"]
    assert torn.end == whole.end == len(line("a")) + 1


def test_a_line_longer_than_a_block_is_read_whole(tmp_path):
    scan = scan_lines(tmp_path, line("a"), line("b", text="x" * 3 * BLOCK_BYTES), line("c"))

    assert [row.message_id for row in scan.rows] == ["a", "b", "c"]


def test_the_clients_own_totals_are_found(tmp_path):
    state = (
        b'{"type":"cost-state","sessionId":"s","totalCostUSD":0.5,"startTime":9,"modelUsage":{}}'
    )
    quoted = b'{"x":{"type":"cost-state"}}'

    scan = scan_lines(tmp_path, line(), state, quoted)
    unfinished = scan_lines(tmp_path, line(), state, end=b"")

    assert [(total.session, total.cost_usd) for total in scan.totals] == [("s", 0.5)]
    assert unfinished.totals == scan.totals


def test_missing_or_unreadable_file_is_reported(tmp_path):
    assert scan_usage(session_file(tmp_path / "none"), 7) == UsageScan(
        [], [], 7, error="No such file or directory"
    )
    assert scan_usage(session_file(tmp_path)).error == "Is a directory"


def test_a_file_without_times_has_no_birth(tmp_path):
    assert scan_lines(tmp_path, b"{}", b"not json").first_ms == 0


@given(data=st.data())
def test_cuts_between_scans_change_nothing(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("cut") / "s.jsonl"
    lines = [
        line(f"msg_{n % 4}", output=n * 7 % 5, timestamp=f"2026-06-01T10:00:{n:02d}.000Z")
        for n in range(12)
    ]
    whole = b"\n".join(lines) + b"\n"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=4)))

    parts, start = [], 0
    for cut in [*cuts, len(whole)]:
        path.write_bytes(whole[:cut])
        parts.append(scan_usage(session_file(path), start))
        start = parts[-1].end

    assert winners(*parts) == winners(scan_usage(session_file(path)))


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: f"{path.parts[-4]}-{path.stem[:8]}")
def test_the_scan_says_what_the_decoder_says(path):
    scan = scan_usage(session_file(path))

    entries = [
        entry for text in path.read_bytes().splitlines() for entry in decode_record(text) or []
    ]
    slow = [
        ModelResponse(
            reply.message_id,
            "s",
            reply.model,
            reply.usage,
            entry.at_ms or 0,
            entry.context.cwd,
            reply.request_id,
            entry.subagent,
            reply.is_aborted,
            quality=reply.quality,
        )
        for entry in entries
        if isinstance(reply := entry.event, AssistantReply) and not reply.is_synthetic
    ]
    assert winners(scan) == attribute_responses(slow, {}).responses
    stated = [
        entry.event.client_totals
        for entry in entries
        if isinstance(entry.event, ClientTotalReported)
    ]
    assert [(total.cost_usd, total.started_ms, total.models) for total in scan.totals] == [
        (total.cost_usd, total.started_ms, total.models) for total in stated
    ]
