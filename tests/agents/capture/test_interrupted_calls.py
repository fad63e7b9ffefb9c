"""Calls that end early or are too large: what the client gets, and what the recording says of it."""

import asyncio
import itertools
import socket
import threading

import pytest

from flightlog.agents.capture.proxy import ProxySettings
from flightlog.agents.capture.recorder import ExchangeRecorder
from flightlog.agents.capture.server import capture_in_thread
from flightlog.model.exchange import ResponseOutcome
from support.captures import BODY, TOKEN, exchanges, open_sent_call, plain, running_proxy
from support.upstream import answering, call, parts
from support.waiting import until


def read_ended_exchanges(folder):
    """The exchanges whose end is on record."""
    stored = exchanges(folder).read_exchanges()
    return [exchange for exchange in stored if exchange.response is not None]


def test_a_client_that_leaves_before_the_answer_releases_the_upstream(tmp_path):
    asked, gone = threading.Event(), []

    def answer(connection, _):
        asked.set()
        gone.append(connection.recv(10))

    with answering(answer) as upstream, running_proxy(upstream, tmp_path / "x") as (url, recorder):
        with open_sent_call(url):
            assert asked.wait(10)
        until(lambda: gone and read_ended_exchanges(tmp_path / "x"))

    (exchange,) = read_ended_exchanges(tmp_path / "x")
    assert (gone, recorder.losses) == ([b""], [])
    assert (exchange.response.ending, exchange.response.status) == (ResponseOutcome.LEFT, 0)


def test_a_client_that_leaves_at_the_barrier_cancels_it(tmp_path):
    waiting, cancelled, gone = threading.Event(), [], []

    def answer(connection, request):
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello")
        gone.append(connection.recv(10))

    async def barrier(_):
        await asyncio.sleep(0.3)  # the head of the answer arrives meanwhile
        waiting.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    with (
        answering(answer) as upstream,
        running_proxy(upstream, tmp_path / "x", barrier=barrier) as (url, _),
    ):
        with open_sent_call(url):
            assert waiting.wait(10)
        until(lambda: gone and read_ended_exchanges(tmp_path / "x"))

    (exchange,) = read_ended_exchanges(tmp_path / "x")
    assert (cancelled, gone) == ([True], [b""])
    assert exchange.response.ending is ResponseOutcome.LEFT


def test_a_client_that_leaves_does_not_wait_for_a_barrier_that_hangs(tmp_path):
    waiting, cancelled = threading.Event(), []

    async def barrier(_):
        waiting.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    with (
        answering(lambda connection, _: connection.recv(10)) as upstream,
        running_proxy(upstream, tmp_path / "x", barrier=barrier) as (url, _),
    ):
        with open_sent_call(url):
            assert waiting.wait(10)
        until(lambda: cancelled and read_ended_exchanges(tmp_path / "x"), 10)

    (exchange,) = read_ended_exchanges(tmp_path / "x")
    assert exchange.response.ending is ResponseOutcome.LEFT


def test_what_arrived_before_a_break_at_the_barrier_is_forwarded(tmp_path):
    def answer(connection, _):
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello")
        connection.shutdown(socket.SHUT_RDWR)

    async def barrier(_):
        await asyncio.sleep(0.5)

    with (
        answering(answer) as upstream,
        running_proxy(upstream, tmp_path / "x", barrier=barrier) as (url, _),
    ):
        status, _, body, is_whole = parts(call(url, BODY))

    store = exchanges(tmp_path / "x")
    (exchange,) = store.read_exchanges()
    assert (status, body, is_whole) == (200, b"hello", False)
    assert (store.response_body(exchange), exchange.response.ending) == (
        b"hello",
        ResponseOutcome.CUT,
    )


def test_a_request_that_is_too_large_is_rejected_and_not_forwarded(tmp_path):
    asked = []

    def answer(connection, request):
        asked.append(len(request.partition(b"\r\n\r\n")[2]))
        plain(b"{}")(connection, request)

    with (
        answering(answer) as upstream,
        running_proxy(upstream, tmp_path / "x", body_bytes_max=1000) as (url, _),
    ):
        statuses = [parts(call(url, b" " * size))[0] for size in (1001, 1000)]

    assert (statuses, asked) == ([413, 200], [1000])
    assert len(exchanges(tmp_path / "x").read_exchanges()) == 1


def test_a_client_that_asks_before_it_sends_the_body_may_go_on(tmp_path):
    with answering(plain(b"{}")) as upstream, running_proxy(upstream, tmp_path / "x") as (url, _):
        came = call(url, BODY, "expect: 100-continue\r\n")

    first, _, rest = came.partition(b"\r\n\r\n")
    assert first == b"HTTP/1.1 100 Continue"
    assert (parts(rest)[0], parts(rest)[2]) == (200, b"{}")


def test_a_slow_disk_delays_no_call_and_the_recording_says_so(tmp_path):
    disk, is_slow, passed = threading.Event(), threading.Event(), []

    async def barrier(request):
        passed.append(request.index)

    def wait_for_disk(_):
        is_slow.set()
        disk.wait(30)

    recorder = ExchangeRecorder(exchanges(tmp_path / "x"), ended=wait_for_disk)
    names = map(str, itertools.count())
    with answering(plain(b"{}")) as upstream:
        settings = ProxySettings(
            upstream, TOKEN, lambda: next(names), barrier=barrier, record_s=0.1
        )
        with capture_in_thread(settings, recorder) as url:
            statuses = [parts(call(url, BODY))[0]]
            assert is_slow.wait(30)
            statuses.append(parts(call(url, BODY))[0])
            disk.set()

    first, second = exchanges(tmp_path / "x").read_exchanges()
    assert (statuses, passed, recorder.losses) == ([200, 200], [1], [])
    assert first.response.notes == ()
    assert second.response.notes == ("the response was forwarded before the request was recorded",)


@pytest.mark.parametrize(
    ("encoding", "stored"), [("exotic", "exotic"), ("gzip, exotic", "gzip,exotic")]
)
def test_an_unknown_compression_is_stored_by_its_name(encoding, stored, tmp_path):
    answer = plain(b"\x00packed", headers=f"content-encoding: {encoding}\r\n")

    with answering(answer) as upstream, running_proxy(upstream, tmp_path / "x") as (url, _):
        body = parts(call(url, BODY))[2]

    store = exchanges(tmp_path / "x")
    (exchange,) = store.read_exchanges()
    assert body == store.response_body(exchange) == b"\x00packed"
    assert exchange.response.encoding == stored
