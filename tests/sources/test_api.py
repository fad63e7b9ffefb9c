"""The proxy between a raw client and a raw upstream (R15), and between the real agent and the scripted model."""

import asyncio
import gzip
import json
import os
import socket
import subprocess
import time
import zlib

import brotli
import pytest
import zstandard

from captures import TOKEN, bytes_on_disk, captured_requests, exchanges, proxied
from flightlog.agents.driver import Ask
from flightlog.agents.scripted import parse, serve
from flightlog.model.errors import Invalid
from flightlog.model.exchange import Context, Ending
from flightlog.sources.api import sse
from flightlog.sources.api.dumps import pages
from flightlog.sources.api.proxy import Settings
from flightlog.sources.api.rebuild import Fidelity, digest, rebuilt
from flightlog.sources.api.recorder import Recorder, Sent
from flightlog.sources.api.serving import capturing
from flightlog.sources.api.wire import Recogniser
from flightlog.store.pages import publish
from real_agent import ALLOWED, make_bench, new_session
from recordings import ROOT
from upstream import answering, call, parts, reset
from waiting import until

KEY = "sk-" + "canary-" + "k3y" * 8
ASKED = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "metadata": {"user_id": "device-1"}}
BODY = json.dumps(ASKED).encode()
EVENTS = b"".join(b'event: ping\ndata: {"n":%d}\n\n' % at for at in range(500))


def plain(body, *, status="200 OK", headers=""):
    head = f"HTTP/1.1 {status}\r\n{headers}content-length: {len(body)}\r\n\r\n".encode()
    return lambda connection, _: connection.sendall(head + body)


def chunked(body, *, size=700, headers="", end=b"0\r\n\r\n"):
    def answer(connection, _):
        connection.sendall(f"HTTP/1.1 200 OK\r\n{headers}transfer-encoding: chunked\r\n\r\n".encode())
        for at in range(0, len(body), size):
            part = body[at : at + size]
            connection.sendall(b"%x\r\n%s\r\n" % (len(part), part))
        connection.sendall(end)
        if not end:
            connection.shutdown(socket.SHUT_RDWR)

    return answer


def said_once(answer, tmp_path, body=BODY, **settings):
    """One call, direct and through the proxy; both answers, and the exchange."""
    with answering(answer) as upstream:
        direct = parts(call(upstream, body))
        with proxied(upstream, tmp_path / "x", **settings) as (url, recorder):
            through = parts(call(url, body, f"x-api-key: {KEY}\r\n"))
    store = exchanges(tmp_path / "x")
    assert recorder.losses == []
    return direct, through, store, store.read()[0]


BIG = os.urandom(1 << 20) * 100


@pytest.mark.parametrize(
    ("answer", "copy"),
    [
        (plain(b'{"type":"message"}', headers="content-type: application/json\r\n"), b'{"type":"message"}'),
        (plain(b""), b""),
        (plain(b'{"type":"error"}', status="429 Too Many Requests", headers="retry-after: 3\r\n"), b'{"type":"error"}'),
        (plain(b"oops", status="529 Overloaded"), b"oops"),
        (chunked(EVENTS, headers="content-type: text/event-stream\r\n"), EVENTS),
        (chunked(EVENTS, size=7), EVENTS),
        (chunked(gzip.compress(EVENTS), headers="content-encoding: gzip\r\n"), EVENTS),
        (chunked(zlib.compress(EVENTS), headers="content-encoding: deflate\r\n"), EVENTS),
        (chunked(brotli.compress(EVENTS), headers="content-encoding: br\r\n"), EVENTS),
        (chunked(zstandard.compress(EVENTS), headers="content-encoding: zstd\r\n"), EVENTS),
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
        "br",
        "zstd",
        "gzip-length",
        "false-gzip",
        "100MB",
    ],
)
def test_r15_the_client_gets_the_upstreams_bytes_and_the_copy_is_free_of_compression(tmp_path, answer, copy):
    direct, through, store, exchange = said_once(answer, tmp_path)

    assert (through[0], through[2], through[3]) == (direct[0], direct[2], direct[3])
    assert {name: through[1].get(name) for name in direct[1]} == direct[1]
    assert store.received(exchange) == copy
    assert (exchange.response.status, exchange.response.ending) == (direct[0], Ending.COMPLETE)


@pytest.mark.parametrize("ends", ["cut", "reset"])
def test_r15_a_broken_answer_is_broken_for_the_client_too(tmp_path, ends):
    def answer(connection, asked):
        chunked(EVENTS, end=b"")(connection, asked) if ends == "cut" else chunked(EVENTS, end=b"ff\r\nx")(
            connection, asked
        )
        if ends == "reset":
            time.sleep(0.1)
            reset(connection)

    direct, through, store, exchange = said_once(answer, tmp_path)

    assert not direct[3]
    assert not through[3]
    assert through[2].startswith(EVENTS) == direct[2].startswith(EVENTS)
    assert exchange.response.ending is Ending.CUT
    assert store.received(exchange).startswith(EVENTS[:1000])


def test_r15_when_nothing_can_be_kept_the_call_goes_on(tmp_path):
    (tmp_path / "x").write_text("a file where the folder should be")

    with answering(chunked(EVENTS)) as upstream, proxied(upstream, tmp_path / "x") as (url, recorder):
        answers = [parts(call(url, BODY)) for _ in range(3)]

    assert [(status, body, whole) for status, _, body, whole in answers] == [(200, EVENTS, True)] * 3
    assert recorder.losses


def test_r15_a_full_disk_costs_the_copy_not_the_call(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], check=True)
    try:
        with answering(plain(os.urandom(300_000))) as upstream, proxied(upstream, disk / "x") as (url, recorder):
            first = parts(call(url, BODY))
            second = parts(call(url, BODY))
    finally:
        subprocess.run(["umount", disk], check=True)

    assert [len(each[2]) for each in (first, second)] == [300_000] * 2
    assert any("space" in loss for loss in recorder.losses)


def test_no_upstream_is_an_answer_of_our_own_and_said_so(tmp_path):
    with proxied("http://127.0.0.1:1", tmp_path / "x") as (url, _):
        status, headers, body, _ = parts(call(url, BODY))

    (exchange,) = exchanges(tmp_path / "x").read()
    assert (status, json.loads(body)["error"]["type"]) == (502, "api_error")
    assert (exchange.response.ending, exchange.response.request_id) == (Ending.UNANSWERED, headers["request-id"])


def test_only_who_knows_the_word_gets_through_and_only_to_the_upstream(tmp_path):
    asked = []

    def answer(connection, request):
        asked.append(request.partition(b" HTTP")[0])
        plain(b"{}")(connection, request)

    with answering(answer) as upstream, proxied(upstream + "/base", tmp_path / "x") as (url, _):
        root = url.removesuffix(TOKEN).rstrip("/")
        refused = [parts(call(root, path=path))[0] for path in ("/v1/messages", f"/{TOKEN}", f"/{TOKEN}x/v1/messages")]
        other = parts(call(url, method="GET", path="/api/hello?x=%2F"))[0]
        parts(call(url, BODY, path="/v1/messages?beta=true"))

    assert (refused, other) == ([404] * 3, 200)
    assert asked == [b"GET /base/api/hello?x=%2F", b"POST /base/v1/messages?beta=true"]
    assert [each.request.path for each in exchanges(tmp_path / "x").read()] == ["/v1/messages?beta=true"]
    assert TOKEN.encode() not in bytes_on_disk(tmp_path / "x")


def test_a_request_is_on_record_and_the_barrier_passed_before_the_first_byte(tmp_path):
    order = []

    def answer(connection, asked):
        order.append("upstream asked")
        plain(b"{}")(connection, asked)

    async def barrier(request):
        order.append(f"barrier {request.index}: {len(exchanges(tmp_path / 'x').read())} on record")
        await asyncio.sleep(0.3)
        order.append("passed")

    with answering(answer) as upstream, proxied(upstream, tmp_path / "x", barrier=barrier) as (url, _):
        call(url, BODY)
        order.append("answered")

    assert sorted(order[:2]) == ["barrier 1: 1 on record", "upstream asked"]
    assert order[2:] == ["passed", "answered"]


def test_a_barrier_that_fails_or_hangs_does_not_fail_the_call(tmp_path):
    async def fails(request):
        raise ValueError("no")

    async def hangs(request):
        await asyncio.sleep(60)

    failed = said_once(plain(b"{}"), tmp_path / "1", barrier=fails)
    hung = said_once(plain(b"{}"), tmp_path / "2", barrier=hangs, barrier_s=0.2)

    assert failed[1][2] == hung[1][2] == b"{}"
    assert failed[3].response.notes == ("the barrier failed: ValueError: no",)
    assert "TimeoutError" in hung[3].response.notes[0]


def test_a_client_that_leaves_is_noticed_and_the_upstream_let_go(tmp_path):
    gone = []

    def answer(connection, _):
        connection.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n")
        gone.append(connection.recv(10))

    with answering(answer) as upstream, proxied(upstream, tmp_path / "x") as (url, _):
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

    (exchange,) = exchanges(tmp_path / "x").read()
    assert (gone, exchange.response.ending) == ([b""], Ending.LEFT)


def test_a_rewrite_takes_the_place_of_the_clients_body_and_both_are_kept(tmp_path):
    asked = []

    def answer(connection, request):
        asked.append(request.partition(b"\r\n\r\n")[2])
        plain(b"{}")(connection, request)

    other = b'{"model":"m","messages":[{"role":"user","content":"recorded"}]}'

    def rewrite(said, arrived):
        return Sent(other, ("messages 0",)) if said.context is Context.SIDE and b"hi" in arrived.body else None

    with answering(answer) as upstream, proxied(upstream, tmp_path / "x", rewrite=rewrite) as (url, _):
        call(url, BODY)
        call(url, b'{"model":"m"}')

    store = exchanges(tmp_path / "x")
    first, second = store.read()
    assert asked == [other, b'{"model":"m"}']
    assert (store.sent(first), first.request.replaced) == (other, ("messages 0",))
    assert b'"hi"' in store.given(first)
    assert second.request.given is None


def test_a_rewrite_that_refuses_stops_the_call(tmp_path):
    def rewrite(said, arrived):
        raise Invalid("the branch left the recorded path")

    asked = []
    answer = asked.append
    with (
        answering(lambda *given: answer(given)) as upstream,
        proxied(upstream, tmp_path / "x", rewrite=rewrite) as (url, _),
    ):
        status, _, body, _ = parts(call(url, BODY))

    assert (status, asked) == (400, [])
    assert b"left the recorded path" in body


def test_a_missing_request_id_is_made_up_and_one_that_is_there_passed_on(tmp_path):
    made = said_once(plain(b"{}"), tmp_path / "1")
    kept = said_once(plain(b"{}", headers="request-id: req_theirs\r\n"), tmp_path / "2")

    assert made[1][1]["request-id"] == made[3].response.request_id == "req_made_1"
    assert kept[1][1]["request-id"] == kept[3].response.request_id == "req_theirs"


def test_the_key_and_the_device_are_in_no_byte_on_disk(tmp_path):
    told = [{"type": "message_start", "message": {"id": "m", "content": [], "usage": {}}}]
    told += [{"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}]
    for at in range(0, len(KEY), 5):
        delta = {"type": "text_delta", "text": KEY[at : at + 5]}
        told.append({"type": "content_block_delta", "index": 0, "delta": delta})
    told += [{"type": "message_stop"}]
    stream = b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in told) + f"data: {KEY}\n\n".encode()
    body = json.dumps({"messages": [{"role": "user", "content": f"env: {KEY}"}], "metadata": {"user_id": "device-1"}})
    answer = chunked(stream, size=11, headers=f"set-cookie: {KEY}\r\nanthropic-ratelimit-x: {KEY}\r\n")

    _, through, store, exchange = said_once(answer, tmp_path, body.encode())
    publish(tmp_path / "x", pages(store))

    assert KEY.encode() in through[2]
    kept = bytes_on_disk(tmp_path / "x")
    assert KEY.encode() not in kept
    assert b"device-1" not in kept
    message = sse.answer(store.received(exchange)).message
    assert KEY not in json.dumps(message)
    assert message["content"][0]["text"] == "[scrubbed]"


def test_a_key_as_a_bearer_token_is_known_too(tmp_path):
    body = json.dumps({"messages": [{"role": "user", "content": f"env: {KEY}"}]}).encode()

    with answering(plain(KEY.encode())) as upstream, proxied(upstream, tmp_path / "x") as (url, _):
        call(url, body, f"authorization: Bearer {KEY}\r\n")

    assert KEY.encode() not in bytes_on_disk(tmp_path / "x")


def test_the_capture_files_are_views_and_stay_small(tmp_path):
    store = exchanges(tmp_path / "x")
    with answering(chunked(EVENTS)) as upstream, proxied(upstream, tmp_path / "x") as (url, _):
        for _ in range(3):
            call(url, BODY)

    publish(tmp_path / "full", pages(store))
    publish(tmp_path / "small", pages(store, full_bytes=len(BODY) + len(EVENTS)))

    rows = [json.loads(line) for line in (tmp_path / "full/api_captures.jsonl").read_text().splitlines()]
    assert [row["request_index"] for row in rows] == [1, 2, 3]
    dumps = tmp_path / "full/raw_dumps"
    assert json.loads((dumps / "request_002.json").read_text())["messages"] == [{"role": "user", "content": "hi"}]
    assert (dumps / "response_003.txt").read_bytes() == EVENTS
    assert json.loads((dumps / "request_001_headers.json").read_text())["path"] == "/v1/messages"
    assert json.loads((dumps / "response_001_headers.json").read_text())["status"] == 200
    reference = json.loads((tmp_path / "small/raw_dumps/request_003.json").read_text())
    assert reference["sha256"] == store.read()[2].request.sent.digest
    assert (tmp_path / "small/raw_dumps/response_003.txt").read_bytes() == EVENTS


def test_a_capture_goes_on_counting_where_an_earlier_one_ended(tmp_path):
    with answering(plain(b"{}")) as upstream:
        for _ in range(2):
            with proxied(upstream, tmp_path / "x") as (url, _):
                call(url, BODY)

    assert [each.index for each in exchanges(tmp_path / "x").read()] == [1, 2]


def test_an_upstream_that_is_no_address_is_refused(tmp_path):
    from flightlog.model.errors import Unavailable

    with pytest.raises(Unavailable, match="address"), proxied("ftp://example", tmp_path / "x"):
        pass


SUBAGENT = {
    "description": "d",
    "prompt": "SUBTASK: say so",
    "subagent_type": "general-purpose",
    "run_in_background": False,
}
SCRIPT = {
    "rules": [
        {"when": {"prompt": "SUBTASK"}, "replies": [{"text": "sub done"}]},
        {
            "replies": [
                {"blocks": [{"tool": "Bash", "input": {"command": "env | grep API_KEY; echo x > made.txt"}}]},
                {"blocks": [{"tool": "Agent", "input": SUBAGENT}]},
                {"text": "done"},
            ]
        },
    ]
}


def test_the_real_agent_through_the_proxy_is_captured_as_it_spoke_and_its_key_nowhere(tmp_path):
    bench = make_bench(tmp_path / "bench")
    session = new_session()
    with serve(parse(SCRIPT)) as model, proxied(model.url, tmp_path / "x") as (url, recorder):
        environment = bench.environment(url)
        running = bench.client.start(
            Ask("Go on.", arguments=ALLOWED, cwd=bench.project, environment=environment, session=session)
        )
        outcome = running.wait(60)
        running.stop()

    store = exchanges(tmp_path / "x")
    found = store.read()
    assert (outcome.exit_code, recorder.losses) == (0, [])
    assert [each.request.context.value for each in found] == ["main", "main", "subagent", "main"]
    assert {each.request.session_id for each in found} == {session}
    assert [bool(each.request.agent_id) for each in found] == [False, False, True, False]
    key = environment["ANTHROPIC_API_KEY"]
    for each, seen in zip(found, model.requests, strict=True):
        asked = json.loads(json.dumps(seen.body).replace(key, "[scrubbed]"))
        assert json.loads(store.sent(each)) == {**asked, "metadata": {"user_id": "[scrubbed]"}}
    answers = {each.response.request_id: sse.answer(store.received(each)) for each in found}
    assert all(answer.is_whole for answer in answers.values())
    records = bench.transcripts()[session]
    assert {r["requestId"] for r in records if r["type"] == "assistant"} <= set(answers)
    publish(tmp_path / "x", pages(store))
    assert key.encode() not in bytes_on_disk(tmp_path / "x")
    told = {each.digest: each for each in rebuilt(records)}
    for each in found:
        if each.request.context is Context.MAIN and b"[scrubbed]" not in store.sent(each).partition(b'"metadata"')[0]:
            betas = each.request.headers["anthropic-beta"].split(",")
            assert told[digest(json.loads(store.sent(each)), betas)].fidelity is Fidelity.EXACT


def test_the_real_agents_compaction_is_known_by_what_it_says(tmp_path):
    bench = make_bench(tmp_path / "bench")
    session = new_session()
    replies = [{"when": {"prompt": "TEXT ONLY"}, "replies": [{"text": "<analysis>a</analysis><summary>s</summary>"}]}]
    script = parse({"rules": [*replies, {"replies": [{"text": "ok"}]}]})
    with serve(script) as model, proxied(model.url, tmp_path / "x") as (url, _):
        for prompt, more in (("Begin.", {"session": session}), ("/compact", {"resume": session})):
            ask = Ask(prompt, cwd=bench.project, environment=bench.environment(url), **more)
            running = bench.client.start(ask)
            running.wait(60)
            running.stop()

    found = exchanges(tmp_path / "x").read()
    assert [(each.request.is_compaction, each.request.context) for each in found] == [
        (False, Context.MAIN),
        (True, Context.MAIN),
    ]


def normal(body):
    """A request without what a transcript does not tell."""
    kept = {key: value for key, value in body.items() if key not in {"metadata", "stream", "safeguards"}}
    kept["system"] = [each for each in body["system"] if not each["text"].startswith("x-anthropic-billing-header")]
    texts = [
        {**m, "content": [{"type": "text", "text": m["content"]}]} if isinstance(m["content"], str) else m
        for m in body["messages"]
    ]
    return {**kept, "messages": texts}


def test_every_rebuilt_request_equals_the_captured_one():
    captured = [each for each in captured_requests() if each["version"] == "2.1.325"]
    by_id, by_digest = {}, {}
    for each in captured:
        by_id[each["request_id"]] = each
        by_digest[digest(each["body"], each["headers"]["anthropic-beta"].split(","))] = each
    grades, told = [], []
    for path in sorted((ROOT / "2.1.325").rglob("*.jsonl")):
        for request in rebuilt(sound(path)):
            raw = next((by_id[name] for name in request.request_ids if name in by_id), by_digest.get(request.digest))
            assert raw is not None, (path.name, request.id)
            assert normal(request.body) == normal(raw["body"])
            assert request.missing == ()
            grades.append(request.fidelity)
            told.append(normal(request.body))

    assert (len(grades), grades.count(Fidelity.EXACT)) == (104, 88)
    untold = [each for each in captured if normal(each["body"]) not in told]
    assert len(untold) == 3
    assert all("[compaction prompt" in each["body"]["messages"][-1]["content"][-1]["text"] for each in untold)


def sound(path):
    for line in path.read_bytes().splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue


def test_an_edited_transcript_is_no_longer_vouched_for():
    path = next((ROOT / "2.1.325/multi-turn-tools/transcripts").glob("*.jsonl"))
    records = [json.loads(line) for line in path.read_bytes().splitlines()]
    blob = next(record for record in records if record["type"] == "api-request-blob")
    blob["message"]["content"] = "something else"

    first = rebuilt(records)[0]

    assert (first.fidelity, first.missing) == (Fidelity.PARTIAL, ("message 0",))
    assert (
        rebuilt([record for record in records if record["type"] != "api-request-shape"])[0]
        .missing[-1]
        .startswith("system")
    )
    assert rebuilt([record for record in records if record["type"] in {"user", "assistant"}]) == []


@pytest.mark.parametrize("version", ["1.0.128", "2.0.76", "2.1.100", "2.1.325"])
def test_subagents_are_told_apart_in_every_client_version(version):
    case = "subagent-foreground" if version == "2.1.325" else "subagent"
    recogniser = Recogniser()
    ours = [each for each in captured_requests() if (each["version"], each["case"]) == (version, case)]

    found = [recogniser.read(each["headers"], json.dumps(each["body"]).encode()).context.value for each in ours]

    assert [context for context in found if context != "side"] == ["main", "subagent", "subagent", "main"]


def test_a_stream_cut_anywhere_gives_the_message_so_far():
    block = {"type": "tool_use", "id": "t", "name": "Bash", "input": {}}
    told = [
        {
            "type": "message_start",
            "message": {"id": "m", "content": [], "usage": {"input_tokens": 3, "output_tokens": 1}},
        },
        {"type": "ping"},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "sig"}},
        {"type": "content_block_start", "index": 1, "content_block": block},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"a":'}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "1}"}},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ]
    data = b"".join(b"event: x\r\ndata: " + json.dumps(each).encode() + b"\r\n\r\n" for each in told)

    whole = sse.answer(data)
    parts_of = [sse.answer(data[:at]) for at in range(len(data))]

    assert whole.is_whole
    assert whole.usage == {"input_tokens": 3, "output_tokens": 9}
    assert whole.message["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {**block, "input": {"a": 1}},
    ]
    assert not any(part.is_whole for part in parts_of[: len(data) - 2])
    assert any(
        p.message and p.message["content"][-1:] == [{**block, "input": {"partial_json": '{"a":'}}] for p in parts_of
    )
    assert sse.answer(sse.rendered(whole)) == whole
    assert sse.answer(b'{"type":"error","error":{}}').error == {"type": "error", "error": {}}
    assert sse.answer(b'{"id":"m","usage":{}}').message == {"id": "m", "usage": {}}


def test_capturing_stops_with_nothing_left_running(tmp_path):
    import threading

    before = threading.active_count()
    recorder = Recorder(exchanges(tmp_path / "x"))
    with capturing(Settings("http://127.0.0.1:1", TOKEN, str), recorder):
        assert threading.active_count() > before

    assert threading.active_count() == before
