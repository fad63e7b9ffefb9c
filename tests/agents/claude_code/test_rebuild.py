"""Requests rebuilt from transcripts, requests told apart, streams cut anywhere."""

import json

import pytest

from flightlog.agents.capture.dumps import build_rebuilt_files
from flightlog.agents.capture.proxy import ProxySettings
from flightlog.agents.capture.recorder import ExchangeRecorder
from flightlog.agents.capture.server import capture_in_thread
from flightlog.agents.claude_code.rebuild import RebuildFidelity, hash_request, rebuild_requests
from flightlog.agents.dialects import anthropic_messages
from flightlog.agents.dialects.anthropic_messages import RequestClassifier
from support.captures import TOKEN, captured_requests, exchanges
from support.recordings import ROOT

UNCAPTURED = {"skill-fork", "subagent-fork", "workflow"}  # cases recorded without their requests


def normal(body):
    """A request without what a transcript does not tell."""
    fields = {
        key: value for key, value in body.items() if key not in {"metadata", "stream", "safeguards"}
    }
    fields["system"] = [
        block
        for block in body["system"]
        if not block["text"].startswith("x-anthropic-billing-header")
    ]
    texts = [
        {**m, "content": [{"type": "text", "text": m["content"]}]}
        if isinstance(m["content"], str)
        else m
        for m in body["messages"]
    ]
    return {**fields, "messages": texts}


def test_every_rebuilt_request_equals_the_captured_one():
    captured = [request for request in captured_requests() if request["version"] == "2.1.325"]
    by_id, by_digest = {}, {}
    for capture in captured:
        by_id[capture["request_id"]] = capture
        by_digest[
            hash_request(capture["body"], capture["headers"]["anthropic-beta"].split(","))
        ] = capture
    grades, rebuilt = [], []
    files = sorted((ROOT / "2.1.325").rglob("*.jsonl"))
    for path in (path for path in files if not UNCAPTURED & set(path.parts)):
        for request in rebuild_requests(sound(path)):
            raw = next(
                (by_id[name] for name in request.request_ids if name in by_id),
                by_digest.get(request.digest),
            )
            assert raw is not None, (path.name, request.id)
            assert normal(request.body) == normal(raw["body"])
            assert request.missing_parts == ()
            grades.append(request.fidelity)
            rebuilt.append(normal(request.body))

    assert (len(grades), grades.count(RebuildFidelity.EXACT)) == (104, 88)
    missing = [request for request in captured if normal(request["body"]) not in rebuilt]
    assert len(missing) == 3
    assert all(
        "[compaction prompt" in request["body"]["messages"][-1]["content"][-1]["text"]
        for request in missing
    )


def sound(path):
    for line in path.read_bytes().splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue


def test_edited_transcript_is_not_rebuilt_as_exact():
    path = next((ROOT / "2.1.325/multi-turn-tools/transcripts").glob("*.jsonl"))
    records = [json.loads(line) for line in path.read_bytes().splitlines()]
    blob = next(record for record in records if record["type"] == "api-request-blob")
    blob["message"]["content"] = "something else"

    first = rebuild_requests(records)[0]

    assert (first.fidelity, first.missing_parts) == (RebuildFidelity.PARTIAL, ("message 0",))
    assert (
        rebuild_requests([record for record in records if record["type"] != "api-request-shape"])[0]
        .missing_parts[-1]
        .startswith("system")
    )
    assert (
        rebuild_requests([record for record in records if record["type"] in {"user", "assistant"}])
        == []
    )


def test_rebuilt_requests_beyond_the_limit_are_dumped_by_their_digest():
    path = next((ROOT / "2.1.325/multi-turn-tools/transcripts").glob("*.jsonl"))
    requests = rebuild_requests(sound(path))
    room = len(json.dumps(requests[0].body, ensure_ascii=False))

    files = {file.path: file.body for file in build_rebuilt_files(requests, full_bytes=room)}

    assert json.loads(files["raw_dumps/request_001.json"]) == requests[0].body
    assert json.loads(files["raw_dumps/request_002.json"]) == {
        "rebuilt_from": requests[1].id,
        "request_digest": requests[1].digest,
        "characters": len(json.dumps(requests[1].body, ensure_ascii=False)),
    }
    assert len(files["api_captures.jsonl"].splitlines()) == len(requests)


@pytest.mark.parametrize("version", ["1.0.128", "2.0.76", "2.1.100", "2.1.325"])
def test_subagents_are_separated_in_every_client_version(version):
    case = "subagent-foreground" if version == "2.1.325" else "subagent"
    recogniser = RequestClassifier()
    ours = [
        request
        for request in captured_requests()
        if (request["version"], request["case"]) == (version, case)
    ]

    contexts = [
        recogniser.classify_request(
            request["headers"], json.dumps(request["body"]).encode()
        ).agent_context.value
        for request in ours
    ]

    assert [context for context in contexts if context != "side"] == [
        "main",
        "subagent",
        "subagent",
        "main",
    ]


def stream_of(events):
    """Return server-sent events as the API sends them."""
    return b"".join(
        b"event: x\r\ndata: " + json.dumps(event).encode() + b"\r\n\r\n" for event in events
    )


def delta(index, kind, **fields):
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind} | fields}


def test_a_stream_cut_anywhere_gives_the_message_so_far():
    block = {"type": "tool_use", "id": "t", "name": "Bash", "input": {}}
    thinking = {"type": "thinking", "thinking": ""}
    usage = {"input_tokens": 3, "output_tokens": 1}
    events = [
        {"type": "message_start", "message": {"id": "m", "content": [], "usage": usage}},
        {"type": "ping"},
        {"type": "content_block_start", "index": 0, "content_block": thinking},
        delta(0, "thinking_delta", thinking="hm"),
        delta(0, "signature_delta", signature="sig"),
        {"type": "content_block_start", "index": 1, "content_block": block},
        delta(1, "input_json_delta", partial_json='{"a":'),
        delta(1, "input_json_delta", partial_json="1}"),
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use"},
            "usage": {"output_tokens": 9},
        },
        {"type": "message_stop"},
    ]
    data = stream_of(events)

    whole = anthropic_messages.decode_response(data)
    parts_of = [anthropic_messages.decode_response(data[:at]) for at in range(len(data))]

    assert whole.is_whole
    assert whole.usage == {"input_tokens": 3, "output_tokens": 9}
    assert whole.message["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {**block, "input": {"a": 1}},
    ]
    assert not any(part.is_whole for part in parts_of[: len(data) - 2])
    assert any(
        p.message and p.message["content"][-1:] == [{**block, "input": {"partial_json": '{"a":'}}]
        for p in parts_of
    )
    assert anthropic_messages.decode_response(anthropic_messages.render_events(whole)) == whole


def test_a_response_that_is_no_stream_is_an_error_or_a_message():
    error = anthropic_messages.decode_response(b'{"type":"error","error":{}}')
    message = anthropic_messages.decode_response(b'{"id":"m","usage":{}}')

    assert error.error == {"type": "error", "error": {}}
    assert message.message == {"id": "m", "usage": {}}


def test_capturing_stops_with_nothing_left_running(tmp_path):
    import threading

    before = threading.active_count()
    recorder = ExchangeRecorder(exchanges(tmp_path / "x"))
    with capture_in_thread(ProxySettings("http://127.0.0.1:1", TOKEN, str), recorder):
        assert threading.active_count() > before

    assert threading.active_count() == before
