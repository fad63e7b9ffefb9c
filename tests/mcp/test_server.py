"""The protocol: handshake, errors, cancellation, hostile input, cost of an idle server."""

import json
import os
import random
import re
import resource
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest

from flightlog.mcp.server import LINE_BYTES_MAX, PROTOCOLS, TOOLS
from support.cli_runs import FLIGHTLOG, environment
from support.mcp_server import run_server
from support.transcripts import SESSION, assistant, user, write
from support.waiting import until

NAMES = ["search", "open", "sessions", "usage", "file_history"]


@pytest.fixture
def place(tmp_path):
    (tmp_path / "shop").mkdir()
    where = {"cwd": str(tmp_path / "shop")}
    block = {"type": "text", "text": "It is lit."}
    write(
        tmp_path, SESSION, user("light the lantern", 1, **where), assistant("m", 2, block, **where)
    )
    return tmp_path


def serve(place, *options):
    return run_server(environment(place), place / "shop", *options)


@pytest.mark.parametrize("asked", [*PROTOCOLS, "2026-07-28", "", None])
def test_a_known_version_is_taken_and_another_gets_the_newest(place, asked):
    with serve(place) as server:
        result = server.ask("initialize", protocolVersion=asked)["result"]

    assert result["protocolVersion"] == (asked if asked in PROTOCOLS else PROTOCOLS[0])
    assert result["capabilities"] == {"tools": {"listChanged": False}}
    assert result["serverInfo"]["name"] == "flightlog"


def test_the_tools_are_five_read_only_and_documented(place):
    with serve(place) as server:
        tools = server.ask("tools/list")["result"]["tools"]

    assert [tool["name"] for tool in tools] == NAMES
    assert all(tool["annotations"]["readOnlyHint"] for tool in tools)
    assert len(json.dumps(TOOLS)) < 3_600, "clients that load tools at once carry them always"


@pytest.mark.parametrize(
    ("method", "code"),
    [
        ("server/discover", -32601),
        ("resources/list", -32601),
        ("prompts/list", -32601),
        ("logging/setLevel", -32601),
        ("tools/call", -32602),
    ],
)
def test_unknown_method_or_tool_is_refused_at_once(place, method, code):
    with serve(place) as server:
        error = server.ask(method, name="destroy")["error"]

        assert error["code"] == code
        assert server.ask("ping")["result"] == {}


def test_a_canceled_call_gets_no_answer_and_the_next_one_does(place):
    call = {"name": "search", "arguments": {"query": "lantern"}}
    with serve(place) as server:
        for number in (101, 102, 103):
            request = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": call}
            server.send(request)
        for number in (101, 103):
            gone = {"requestId": number, "reason": "enough"}
            server.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": gone})

        assert server.receive()["id"] == 102
        assert server.call("search", query="lantern").startswith("[flightlog mcp] ")


def test_half_a_line_waits_for_its_end_and_long_ids_come_back(place):
    with serve(place) as server:
        server.process.stdin.write(b'{"id": 7, "meth')
        server.process.stdin.flush()
        time.sleep(0.1)
        server.send(b'od": "ping"}')

        assert server.receive()["id"] == 7
        for key in ("x" * 200_000, "", -5, 10**300):
            server.send({"id": key, "method": "ping"})
            assert server.receive()["id"] == key
        server.send(b'{"id": ' + b"9" * 5_000 + b', "method": "ping"}')
        assert server.receive()["error"]["code"] == -32700


def test_each_request_of_a_batch_is_answered(place):
    batch = [{"jsonrpc": "2.0", "id": key, "method": "ping"} for key in (7, "8")]
    with serve(place) as server:
        server.send([*batch, {"jsonrpc": "2.0", "method": "notifications/initialized"}, [batch]])

        for key in (7, "8", None):
            assert server.receive()["id"] == key


@pytest.mark.parametrize("streams", ["<&-", ">&-", ">/dev/full"])
def test_without_a_client_the_server_says_so_in_one_line(place, streams):
    line = f'echo \'{{"id": 1, "method": "ping"}}\' | {{ exec {FLIGHTLOG} mcp {streams}; }}'
    done = subprocess.run(
        ["sh", "-c", line], env=environment(place), capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    assert re.fullmatch(r"flightlog: no connection to a client: .*\n", done.stderr)


def test_a_full_pipe_that_does_not_block_loses_no_answer(place):
    read, write = os.pipe()
    os.set_blocking(write, False)
    process = subprocess.Popen(
        [FLIGHTLOG, "mcp"], env=environment(place), stdin=subprocess.PIPE, stdout=write
    )
    os.close(write)
    process.stdin.write(b'{"id": 1, "method": "tools/list"}\n' * 100)
    process.stdin.close()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1)  # it waits until someone reads
    with os.fdopen(read, "rb") as answers:
        assert len(answers.readlines()) == 100

    assert process.wait(10) == 0


def test_a_server_that_is_ended_leaves_no_process(place):
    with serve(place) as server:
        server.call("search", query="lantern")
    (index,) = (place / "home").glob("index-*.db")
    with closing(sqlite3.connect(index)) as database, serve(place) as server:
        database.execute("BEGIN IMMEDIATE")  # an update of the index waits for it
        call = {"name": "search", "arguments": {"query": "lantern"}}
        name, started, tries = str(server.process.pid), [], 0
        children = Path("/proc", name, "task", name, "children")
        while not started and tries < 1000:  # a call may end before its process is seen
            if tries % 20 == 0:
                server.send({"jsonrpc": "2.0", "id": tries, "method": "tools/call", "params": call})
            started, tries = children.read_text().split(), tries + 1
            time.sleep(0.005)
        server.process.terminate()
        server.process.wait(10)

        assert started
        # A process that was ended is listed until its new parent has taken note of it.
        until(lambda: not [pid for pid in started if Path("/proc", pid).exists()], 3)


def hostile_lines(draw):
    """Yield lines that no client should send."""
    nested: object = "x"
    for _ in range(90):
        nested = [nested]
    values = [
        None,
        True,
        -1,
        10**30,
        1e308,
        "",
        "x" * 5_000,
        "\ud800",
        "\0",
        [],
        {},
        nested,
        {"a": nested},
    ]
    for number in range(400):
        name = draw.choice([*NAMES, "", None, 7])
        given = {
            key: draw.choice(values)
            for key in ("query", "limit", "address", "around", "scope", "path", "line", "since")
        }
        params = {"name": name, "arguments": draw.choice([given, given, draw.choice(values)])}
        yield json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
    for number in range(300):
        key = draw.choice([number, f"s{number}", None, True, 1.5, [1], {}])
        method = draw.choice(["ping", "tools/list", "initialize", "", "\0", 5, None, "x" * 9_000])
        yield json.dumps({"id": key, "method": method, "params": draw.choice(values)})
    for number in range(296):
        yield draw.choice(
            ["{", "[]", "null", "1", '"x"', "[" * 5_000, "{}" * 50, "\x00\x01", '{"id":1}', "NaN"]
        ) + " " * (number % 3)
    yield '{"id": 1, "method": "ping", "params": "' + "x" * (LINE_BYTES_MAX + 10) + '"}'
    yield "9" * 5_000
    yield json.dumps({"id": 1, "result": {}})
    yield json.dumps({"method": "notifications/cancelled", "params": {"requestId": [1]}})


def test_a_thousand_hostile_lines_do_not_end_the_server(place):
    lines = list(hostile_lines(random.Random(29)))
    assert len(lines) == 1_000
    feed = place / "hostile.jsonl"
    feed.write_bytes(b"".join(line.encode("utf-8", "surrogatepass") + b"\n" for line in lines))
    last = {"jsonrpc": "2.0", "id": "last", "method": "ping"}

    with (place / "answers").open("wb") as out:
        process = subprocess.Popen(
            [FLIGHTLOG, "mcp"], cwd=place / "shop", env=environment(place), stdin=subprocess.PIPE, stdout=out
        )  # fmt: skip
    process.stdin.write(feed.read_bytes() + json.dumps(last).encode() + b"\n")
    process.stdin.flush()
    end = time.monotonic() + 60
    answers: list[dict] = []
    asked = {json.dumps(json.loads(line)["id"]) for line in lines[:400]}
    while time.monotonic() < end:
        answers = [json.loads(line) for line in (place / "answers").read_bytes().splitlines()]
        if asked <= {json.dumps(answer["id"]) for answer in answers}:
            break
        time.sleep(0.1)
    process.stdin.close()

    assert process.wait(10) == 0
    assert {"jsonrpc": "2.0", "id": "last", "result": {}} in answers
    assert asked <= {json.dumps(answer["id"]) for answer in answers}
    texts = [
        answer["result"]["content"][0]["text"]
        for answer in answers
        if "content" in str(answer.get("result"))
    ]
    assert "flightlog failed" not in "".join(texts)


def test_an_idle_server_uses_no_cpu_and_little_memory(place):
    with serve(place) as server:
        server.call("search", query="lantern")
        process = Path(f"/proc/{server.process.pid}")
        before = process.joinpath("stat").read_text().split()[13:15]
        time.sleep(1)

        assert process.joinpath("stat").read_text().split()[13:15] == before
        assert process.joinpath("task", process.name, "children").read_text() == ""
        status = dict(
            line.split(":", 1) for line in process.joinpath("status").read_text().splitlines()
        )
        assert int(status["VmRSS"].split()[0]) < 40_000


def test_the_first_answer_takes_little_cpu_time(place):
    requests = b'{"id":1,"method":"initialize","params":{}}\n{"id":2,"method":"tools/list"}\n'
    times = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [FLIGHTLOG, "mcp"],
            input=requests,
            env=environment(place),
            capture_output=True,
            check=True,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        assert done.stdout.count(b"\n") == 2

    assert sorted(times)[2] < 0.15


def test_only_the_standard_library_is_loaded_for_the_first_answer(place):
    program = (
        "import sys\nfrom flightlog.mcp import server\n"
        "print(sorted(name for name in sys.modules if name.startswith('flightlog')))"
    )
    done = subprocess.run(
        [os.path.realpath(FLIGHTLOG).replace("/flightlog", "/python"), "-c", program],
        capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert done.stdout.strip() == "['flightlog', 'flightlog.mcp', 'flightlog.mcp.server']"


def test_help_says_how_an_agent_starts_it():
    done = subprocess.run([FLIGHTLOG, "mcp", "--help"], capture_output=True, text=True, check=True)

    assert "claude mcp add flightlog -- flightlog mcp" in done.stdout
    assert "--all-projects" in done.stdout
