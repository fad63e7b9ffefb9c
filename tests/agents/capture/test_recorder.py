"""What is kept of a call, and what never is."""

import json
import os

import pytest

from flightlog.agents.capture.dumps import build_dump_files
from flightlog.agents.capture.proxy import ProxySettings
from flightlog.agents.capture.recorder import ExchangeRecorder
from flightlog.agents.capture.server import capture_in_thread
from flightlog.agents.dialects import anthropic_messages
from flightlog.model.exchange import ResponseOutcome
from flightlog.store.output_files import write_output_files
from support.captures import (
    BODY,
    EVENTS,
    KEY,
    TOKEN,
    answer_in_chunks,
    bytes_on_disk,
    exchanges,
    plain,
    running_proxy,
    send_both_ways,
)
from support.upstream import answering, call
from support.waiting import until


def test_missing_request_id_is_generated_and_an_existing_one_kept(tmp_path):
    made = send_both_ways(plain(b"{}"), tmp_path / "1")
    with_id = send_both_ways(plain(b"{}", headers="request-id: req_theirs\r\n"), tmp_path / "2")

    assert made[1][1]["request-id"] == made[3].response.request_id == "req_made_1"
    assert with_id[1][1]["request-id"] == with_id[3].response.request_id == "req_theirs"


def test_the_key_and_the_device_are_in_no_byte_on_disk(tmp_path):
    events = [{"type": "message_start", "message": {"id": "m", "content": [], "usage": {}}}]
    events += [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    ]
    for at in range(0, len(KEY), 5):
        delta = {"type": "text_delta", "text": KEY[at : at + 5]}
        events.append({"type": "content_block_delta", "index": 0, "delta": delta})
    events += [{"type": "message_stop"}]
    stream = (
        b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
        + f"data: {KEY}\n\n".encode()
    )
    body = json.dumps(
        {
            "messages": [{"role": "user", "content": f"env: {KEY}"}],
            "metadata": {"user_id": "device-1"},
        }
    )
    answer = answer_in_chunks(
        stream, size=11, headers=f"set-cookie: {KEY}\r\nanthropic-ratelimit-x: {KEY}\r\n"
    )

    _, through, store, exchange = send_both_ways(answer, tmp_path, body.encode())
    write_output_files(tmp_path / "x", build_dump_files(store))

    assert KEY.encode() in through[2]
    stored = bytes_on_disk(tmp_path / "x")
    assert KEY.encode() not in stored
    assert b"device-1" not in stored
    message = anthropic_messages.decode_response(store.response_body(exchange)).message
    assert KEY not in json.dumps(message)
    assert message["content"][0]["text"] == "[scrubbed]"


def test_key_sent_as_a_bearer_token_is_removed_too(tmp_path):
    body = json.dumps({"messages": [{"role": "user", "content": f"env: {KEY}"}]}).encode()

    with (
        answering(plain(KEY.encode())) as upstream,
        running_proxy(upstream, tmp_path / "x") as (url, _),
    ):
        call(url, body, f"authorization: Bearer {KEY}\r\n")

    assert KEY.encode() not in bytes_on_disk(tmp_path / "x")


def test_the_capture_files_are_views_and_stay_small(tmp_path):
    store = exchanges(tmp_path / "x")
    with (
        answering(answer_in_chunks(EVENTS)) as upstream,
        running_proxy(upstream, tmp_path / "x") as (url, _),
    ):
        for _ in range(3):
            call(url, BODY)

    write_output_files(tmp_path / "full", build_dump_files(store))
    write_output_files(
        tmp_path / "small", build_dump_files(store, full_bytes=len(BODY) + len(EVENTS))
    )

    rows = [
        json.loads(line) for line in (tmp_path / "full/api_captures.jsonl").read_text().splitlines()
    ]
    assert [row["request_index"] for row in rows] == [1, 2, 3]
    dumps = tmp_path / "full/raw_dumps"
    assert json.loads((dumps / "request_002.json").read_text())["messages"] == [
        {"role": "user", "content": "hi"}
    ]
    assert (dumps / "response_003.txt").read_bytes() == EVENTS
    assert json.loads((dumps / "request_001_headers.json").read_text())["path"] == "/v1/messages"
    assert json.loads((dumps / "response_001_headers.json").read_text())["status"] == 200
    reference = json.loads((tmp_path / "small/raw_dumps/request_003.json").read_text())
    assert reference["sha256"] == store.read_exchanges()[2].request.sent_body.digest
    assert (tmp_path / "small/raw_dumps/response_003.txt").read_bytes() == EVENTS


def test_a_request_that_is_no_json_is_kept_without_its_key(tmp_path):
    store = exchanges(tmp_path / "x")
    with answering(plain(b"{}")) as upstream, running_proxy(upstream, tmp_path / "x") as (url, _):
        call(url, f"env: {KEY}".encode(), f"x-api-key: {KEY}\r\n")

    (exchange,) = store.read_exchanges()
    files = {file.path: file.body for file in build_dump_files(store)}
    row = json.loads(files["api_captures.jsonl"])
    assert (store.sent_body(exchange), exchange.request.scrubbed_fields) == (
        b"env: [scrubbed]",
        ("a credential",),
    )
    assert (row["system_prompt_hash"], set(row["sampling_params"].values())) == (None, {None})


def test_dumps_of_an_open_exchange_and_of_a_damaged_body_are_made(tmp_path):
    large = json.dumps({"messages": os.urandom(1 << 18).hex()}).encode()  # kept in files of its own
    with answering(plain(large)) as upstream, running_proxy(upstream, tmp_path / "x") as (url, _):
        call(url, large)
        call(url, BODY)
    journal = tmp_path / "x" / "exchanges.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(line for line in lines if b'"index":2,"status"' not in line))
    for path in {path for path in (tmp_path / "x").rglob("*") if path.is_file()} - {journal}:
        path.write_bytes(b"damaged")

    files = {file.path: file.body for file in build_dump_files(exchanges(tmp_path / "x"))}

    rows = [json.loads(row) for row in files["api_captures.jsonl"].splitlines()]
    assert [(row["request_index"], row["ending"]) for row in rows] == [(1, "complete"), (2, "open")]
    head = json.loads(files["raw_dumps/response_002_headers.json"])
    assert head == {"status": None, "headers": {}, "ending": "open"}
    assert (files["raw_dumps/request_001.json"], files["raw_dumps/response_001.txt"]) == ("", "")
    assert json.loads(files["raw_dumps/request_002.json"])["messages"][0]["content"] == "hi"


def test_a_capture_goes_on_counting_where_an_earlier_one_ended(tmp_path):
    with answering(plain(b"{}")) as upstream:
        for _ in range(2):
            with running_proxy(upstream, tmp_path / "x") as (url, _):
                call(url, BODY)

    assert [exchange.index for exchange in exchanges(tmp_path / "x").read_exchanges()] == [1, 2]


def test_ended_response_is_counted_before_the_next_call_is_allowed(tmp_path):
    seen, counted_at_call = [], []

    def rewrite(info, request):
        counted_at_call.append(len(seen))

    recorder = ExchangeRecorder(exchanges(tmp_path / "x"), ended=seen.append)
    with answering(plain(b"{}")) as upstream:
        settings = ProxySettings(upstream, TOKEN, lambda: "made", rewrite=rewrite)
        with capture_in_thread(settings, recorder) as url:
            for _ in range(5):
                call(url, BODY)

    assert (counted_at_call, len(seen)) == ([0, 1, 2, 3, 4], 5)
    endings = [exchange.response.ending for exchange in exchanges(tmp_path / "x").read_exchanges()]
    assert endings == [ResponseOutcome.COMPLETE] * 5


def test_ended_response_is_stored_although_no_call_follows(tmp_path):
    def has_ended():
        (exchange,) = exchanges(tmp_path / "x").read_exchanges()
        return exchange.response and exchange.response.ending == ResponseOutcome.COMPLETE

    with answering(plain(b"{}")) as upstream, running_proxy(upstream, tmp_path / "x") as (url, _):
        call(url, BODY)
        until(has_ended)


def test_an_upstream_that_is_no_address_is_refused(tmp_path):
    from flightlog.model.errors import Unavailable

    with (
        pytest.raises(Unavailable, match="address"),
        running_proxy("ftp://example", tmp_path / "x"),
    ):
        pass
