"""The proxy between a raw client and a raw upstream (R15)."""

import asyncio
import gzip
import json
import os
import socket
import subprocess
import threading
import time
import zlib

import brotli
import pytest

from flightlog.agents.capture.recorder import RewrittenRequest
from flightlog.agents.dialects.anthropic_messages import AssistantMessage, render_events
from flightlog.model.errors import Invalid
from flightlog.model.exchange import RequestOrigin, ResponseOutcome
from flightlog.store.compression import zstd
from support.captures import (
    BODY,
    EVENTS,
    TOKEN,
    answer_in_chunks,
    bytes_on_disk,
    exchanges,
    open_sent_call,
    plain,
    running_proxy,
    send_both_ways,
)
from support.upstream import answering, call, parts, reset
from support.waiting import until

STREAM = render_events(
    AssistantMessage(
        {
            "id": "msg_1",
            "content": [
                {"type": "text", "text": "Looking."},
                {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}},
            ],
            "stop_reason": "tool_use",
            "usage": {"output_tokens": 7},
        },
        is_whole=True,
    )
)
BIG = os.urandom(1 << 20) * 100


@pytest.mark.parametrize(
    ("answer", "copy"),
    [
        (
            plain(b'{"type":"message"}', headers="content-type: application/json\r\n"),
            b'{"type":"message"}',
        ),
        (plain(b""), b""),
        (
            plain(
                b'{"type":"error"}', status="429 Too Many Requests", headers="retry-after: 3\r\n"
            ),
            b'{"type":"error"}',
        ),
        (plain(b"oops", status="529 Overloaded"), b"oops"),
        (answer_in_chunks(EVENTS, headers="content-type: text/event-stream\r\n"), EVENTS),
        (answer_in_chunks(EVENTS, size=7), EVENTS),
        (answer_in_chunks(gzip.compress(EVENTS), headers="content-encoding: gzip\r\n"), EVENTS),
        (answer_in_chunks(zlib.compress(EVENTS), headers="content-encoding: deflate\r\n"), EVENTS),
        (
            answer_in_chunks(
                zlib.compress(EVENTS, wbits=-15), headers="content-encoding: deflate\r\n"
            ),
            EVENTS,
        ),
        (answer_in_chunks(brotli.compress(EVENTS), headers="content-encoding: br\r\n"), EVENTS),
        (answer_in_chunks(zstd.compress(EVENTS), headers="content-encoding: zstd\r\n"), EVENTS),
        (plain(gzip.compress(EVENTS), headers="content-encoding: gzip\r\n"), EVENTS),
        (plain(b"\xff not gzip", headers="content-encoding: gzip\r\n"), b"\xff not gzip"),
        (plain(BIG), BIG),
    ],
    ids=[
        "json",
        "empty",
        "429",
        "529",
        "sse",
        "sse-tiny",
        "gzip",
        "deflate",
        "deflate-raw",
        "br",
        "zstd",
        "gzip-length",
        "false-gzip",
        "100MB",
    ],
)
def test_r15_the_client_gets_unchanged_bytes_and_the_copy_is_decompressed(tmp_path, answer, copy):
    direct, through, store, exchange = send_both_ways(answer, tmp_path)

    assert (through[0], through[2], through[3]) == (direct[0], direct[2], direct[3])
    assert {name: through[1].get(name) for name in direct[1]} == direct[1]
    assert store.response_body(exchange) == copy
    assert (exchange.response.status, exchange.response.ending) == (
        direct[0],
        ResponseOutcome.COMPLETE,
    )


@pytest.mark.parametrize("ends", ["cut", "reset"])
def test_r15_a_broken_answer_is_broken_for_the_client_too(tmp_path, ends):
    def answer(connection, asked):
        answer_in_chunks(EVENTS, end=b"")(connection, asked) if ends == "cut" else answer_in_chunks(
            EVENTS, end=b"ff\r\nx"
        )(connection, asked)
        if ends == "reset":
            time.sleep(0.1)
            reset(connection)

    direct, through, store, exchange = send_both_ways(answer, tmp_path)

    assert not direct[3]
    assert not through[3]
    assert through[2].startswith(EVENTS) == direct[2].startswith(EVENTS)
    assert exchange.response.ending is ResponseOutcome.CUT
    assert store.response_body(exchange).startswith(EVENTS[:1000])


@pytest.mark.parametrize(
    ("last", "ending"),
    [(b"", ResponseOutcome.CUT)]
    + [(word, ResponseOutcome.COMPLETE) for word in (b"message_stop", b"error")],
)
def test_a_stream_that_closes_without_its_last_event_is_cut(tmp_path, last, ending):
    kinds = (b'message_start","message":{"content":[]},"x":"', last)
    events = b"".join(b'data: {"type":"%s"}\n\n' % kind for kind in kinds if kind)

    _, through, _, exchange = send_both_ways(answer_in_chunks(events), tmp_path)

    assert through[2:] == (events, True)
    assert exchange.response.ending is ending


def test_r15_call_continues_when_nothing_can_be_recorded(tmp_path):
    (tmp_path / "x").write_text("a file where the folder should be")

    with (
        answering(answer_in_chunks(EVENTS)) as upstream,
        running_proxy(upstream, tmp_path / "x") as (url, recorder),
    ):
        answers = [parts(call(url, BODY)) for _ in range(3)]

    assert [(status, body, whole) for status, _, body, whole in answers] == [
        (200, EVENTS, True)
    ] * 3
    assert recorder.losses


def test_r15_full_disk_loses_the_copy_and_not_the_call(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], check=True)
    try:
        with (
            answering(plain(os.urandom(300_000))) as upstream,
            running_proxy(upstream, disk / "x") as (url, recorder),
        ):
            first = parts(call(url, BODY))
            second = parts(call(url, BODY))
    finally:
        subprocess.run(["umount", disk], check=True)

    assert [len(answer[2]) for answer in (first, second)] == [300_000] * 2
    assert any("space" in loss for loss in recorder.losses)


def test_missing_upstream_is_answered_by_the_proxy_with_the_reason(tmp_path):
    with running_proxy("http://127.0.0.1:1", tmp_path / "x") as (url, _):
        status, headers, body, _ = parts(call(url, BODY))

    (exchange,) = exchanges(tmp_path / "x").read_exchanges()
    assert (status, json.loads(body)["error"]["type"]) == (502, "api_error")
    assert (exchange.response.ending, exchange.response.request_id) == (
        ResponseOutcome.UNANSWERED,
        headers["request-id"],
    )


def test_call_needs_the_token_and_reaches_only_the_upstream(tmp_path):
    asked = []

    def answer(connection, request):
        asked.append(request.partition(b" HTTP")[0])
        plain(b"{}")(connection, request)

    with (
        answering(answer) as upstream,
        running_proxy(upstream + "/base", tmp_path / "x") as (url, _),
    ):
        root = url.removesuffix(TOKEN).rstrip("/")
        refused = [
            parts(call(root, path=path))[0]
            for path in ("/v1/messages", f"/{TOKEN}", f"/{TOKEN}x/v1/messages")
        ]
        other = parts(call(url, method="GET", path="/api/hello?x=%2F"))[0]
        parts(call(url, BODY, path="/v1/messages?beta=true"))

    assert (refused, other) == ([404] * 3, 200)
    assert asked == [b"GET /base/api/hello?x=%2F", b"POST /base/v1/messages?beta=true"]
    assert [exchange.request.path for exchange in exchanges(tmp_path / "x").read_exchanges()] == [
        "/v1/messages?beta=true"
    ]
    assert TOKEN.encode() not in bytes_on_disk(tmp_path / "x")


def test_request_recorded_and_barrier_passed_before_the_first_byte(tmp_path):
    order = []

    def answer(connection, asked):
        order.append("upstream asked")
        plain(b"{}")(connection, asked)

    async def barrier(request):
        order.append(
            f"barrier {request.index}: {len(exchanges(tmp_path / 'x').read_exchanges())} on record"
        )
        await asyncio.sleep(0.3)
        order.append("passed")

    with (
        answering(answer) as upstream,
        running_proxy(upstream, tmp_path / "x", barrier=barrier) as (url, _),
    ):
        call(url, BODY)
        order.append("answered")

    assert sorted(order[:2]) == ["barrier 1: 1 on record", "upstream asked"]
    assert order[2:] == ["passed", "answered"]


def receive_until_quiet(connection):
    """Return what comes until nothing comes for two seconds, or the last chunk has come."""
    came = b""
    connection.settimeout(2)
    try:
        while not came.endswith(b"\r\n0\r\n\r\n"):
            came += connection.recv(1 << 20)
    except TimeoutError:
        pass
    return came


@pytest.mark.parametrize("size", [7, 4096])
def test_only_the_first_block_is_forwarded_before_the_barrier(size, tmp_path):
    passed = threading.Event()
    answer = answer_in_chunks(STREAM, size=size, headers="content-type: text/event-stream\r\n")

    async def barrier(_):
        await asyncio.to_thread(passed.wait, 20)

    with (
        answering(answer) as upstream,
        running_proxy(upstream, tmp_path / "x", barrier=barrier) as (url, _),
        open_sent_call(url) as connection,
    ):
        early = connection.recv(1) + receive_until_quiet(connection)
        passed.set()
        came = early + receive_until_quiet(connection)

    shown = parts(early)[2]
    assert STREAM.startswith(shown)
    assert STREAM.index(b"content_block_stop") <= len(shown) < STREAM.index(b"Bash")
    assert parts(came)[2:] == (STREAM, True)
    assert [exchange.response.notes for exchange in exchanges(tmp_path / "x").read_exchanges()] == [
        ()
    ]


def test_a_barrier_that_fails_or_hangs_does_not_fail_the_call(tmp_path):
    async def fails(request):
        raise ValueError("no")

    async def hangs(request):
        await asyncio.sleep(60)

    failed = send_both_ways(plain(b"{}"), tmp_path / "1", barrier=fails)
    hung = send_both_ways(plain(b"{}"), tmp_path / "2", barrier=hangs, barrier_s=0.2)

    assert failed[1][2] == hung[1][2] == b"{}"
    assert failed[3].response.notes == ("the barrier failed: ValueError: no",)
    assert "TimeoutError" in hung[3].response.notes[0]


def test_client_disconnect_closes_the_upstream_connection(tmp_path):
    gone = []

    def answer(connection, _):
        connection.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n")
        gone.append(connection.recv(10))

    with answering(answer) as upstream, running_proxy(upstream, tmp_path / "x") as (url, _):
        host, _, rest = url.removeprefix("http://").partition("/")
        name, _, port = host.partition(":")
        with socket.create_connection((name, int(port))) as connection:
            connection.sendall(
                f"POST /{rest}/v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{{}}".encode()
            )
            came = b""
            while b"hello" not in came:
                came += connection.recv(1000)
        until(lambda: gone)

    (exchange,) = exchanges(tmp_path / "x").read_exchanges()
    assert (gone, exchange.response.ending) == ([b""], ResponseOutcome.LEFT)


def test_rewritten_body_is_sent_and_both_bodies_are_stored(tmp_path):
    asked = []

    def answer(connection, request):
        asked.append(request.partition(b"\r\n\r\n")[2])
        plain(b"{}")(connection, request)

    other = b'{"model":"m","messages":[{"role":"user","content":"recorded"}]}'

    def rewrite(sender, arrived):
        return (
            RewrittenRequest(other, ("messages 0",))
            if sender.agent_context is RequestOrigin.SIDE and b"hi" in arrived.body
            else None
        )

    with (
        answering(answer) as upstream,
        running_proxy(upstream, tmp_path / "x", rewrite=rewrite) as (url, _),
    ):
        call(url, BODY)
        call(url, b'{"model":"m"}')

    store = exchanges(tmp_path / "x")
    first, second = store.read_exchanges()
    assert asked == [other, b'{"model":"m"}']
    assert (store.sent_body(first), first.request.replacements) == (other, ("messages 0",))
    assert b'"hi"' in store.client_body(first)
    assert second.request.client_body is None


def test_a_rewrite_that_refuses_stops_the_call(tmp_path):
    def rewrite(sender, arrived):
        raise Invalid("the branch left the recorded path")

    asked = []
    answer = asked.append
    with (
        answering(lambda *given: answer(given)) as upstream,
        running_proxy(upstream, tmp_path / "x", rewrite=rewrite) as (url, _),
    ):
        status, _, body, _ = parts(call(url, BODY))

    assert (status, asked) == (400, [])
    assert b"left the recorded path" in body
