"""Runs as people really start them: behind a gateway and a proxy, with long prompts, old clients, crashes."""

import json
import os
import signal
import socket
import subprocess
import threading

import pytest

from flightlog.agents.scripted.scenario import parse_scenario
from flightlog.agents.scripted.server import serve_scenario
from flightlog.app.runtime import open_runtime
from flightlog.cli.lab.replay import _print_branches
from flightlog.lab import service
from flightlog.lab.config import parse_run_config
from flightlog.lab.inspect import compare_runs, inspect_address, parse_run_address
from flightlog.lab.layout import run_meta
from flightlog.lab.replay.branch import ReplayOptions
from flightlog.lab.replay.certificate import replay_meta
from flightlog.lab.replay.service import open_replay_source, replay_session
from flightlog.lab.runner.run import continue_run
from flightlog.model.errors import Invalid, Misconfigured, NotFound
from support.captures import bytes_on_disk
from support.cli_runs import FLIGHTLOG
from support.labs import again, config, environment, meta, run, script
from support.real_agent import agent_program
from support.waiting import until

HELLO = {"rules": [{"replies": [{"text": "hello"}]}]}
FAKE = "key-" + "x" * 20


def bash(command):
    return {"tool": "Bash", "input": {"command": command, "description": "x"}}


class Proxy:
    """Accepts connections and stores what arrives, as a corporate proxy would see it."""

    def __init__(self):
        self.seen = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                peer, _ = self._socket.accept()
            except OSError:
                return
            self.seen.append(peer.recv(4096))
            peer.close()

    def close(self):
        self._socket.close()


@pytest.mark.parametrize("captured", [True, False])
def test_a_run_and_its_replay_use_the_gateway_and_no_proxy(tmp_path, captured):
    proxy = Proxy()
    with serve_scenario(parse_scenario(HELLO)) as model:
        more = {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": FAKE}
        env = environment(tmp_path, HTTP_PROXY=proxy.url, HTTPS_PROXY=proxy.url, **more)
        given = config(tmp_path, None, "go", capture_api_requests=captured)
        book = run(tmp_path, given, env=env)
        sent = len(model.requests)
        replayed = []
        if captured:
            runtime = open_runtime(env)
            source = open_replay_source(runtime, tmp_path / "runs", "run", 1, 0)
            replayed = replay_session(runtime, source, 1, ReplayOptions(), lambda *_: None)
    proxy.close()

    assert meta(book)["stop_reason"] == "completed"
    assert sent
    assert all(meta(branch)["stop_reason"] == "completed" for branch in replayed)
    assert [line for line in proxy.seen if b"127.0.0.1" in line] == []


def test_prompts_over_128_kib_reach_the_model(tmp_path):
    long, system = "word " * 40_000, "rule " * 40_000
    with serve_scenario(parse_scenario(HELLO)) as model:
        given = config(
            tmp_path, None, f"{long}END", system_prompt=f"{system}END", base_url=model.url
        )
        book = run(tmp_path, given, env=environment(tmp_path, ANTHROPIC_API_KEY=FAKE))

    assert meta(book)["stop_reason"] == "completed", meta(book)["errors"]
    body = next((book.path / "session_01" / "raw_dumps").glob("request_*1.json")).read_text()
    assert f"{long}END" in body
    assert f"{system}END" in body


def test_a_command_that_cannot_take_a_long_prompt_is_refused(tmp_path):
    given = config(
        tmp_path, None, "word " * 40_000, engine="command", command=["echo", "{prompt}"],
        capture_api_requests=False,
    )  # fmt: skip

    with pytest.raises(Invalid, match="too long for this system: 200,000 bytes"):
        run(tmp_path, given)


def test_an_escaped_emoji_is_one_character_and_half_of_one_an_error():
    text = 'model: m\nwork_dir: w\nsessions: [{session_index: 1, prompt: "go %s"}]\n'

    whole = parse_run_config(text % "\\ud83d\\ude80")

    assert whole.sessions[0].prompt == "go \U0001f680"
    with pytest.raises(Misconfigured, match=r"half a character: \\ud83d"):
        parse_run_config(text % "\\ud83d")


def test_a_branch_that_ends_with_the_same_files_is_equal(tmp_path):
    steps = [{"blocks": [bash(f"echo {name} > {name}.txt")]} for name in "abc"]
    scenario = {"rules": [{"replies": [*steps, {"text": "done"}]}]}
    with serve_scenario(parse_scenario(scenario)) as model:
        env = environment(tmp_path, ANTHROPIC_API_KEY=FAKE)
        book = run(tmp_path, config(tmp_path, None, "go", base_url=model.url), env=env)
        runtime = open_runtime(env)
        source = open_replay_source(runtime, tmp_path / "runs", "run", 1, 0)
        (branch,) = replay_session(runtime, source, 3, ReplayOptions(), lambda *_: None)

    (compared,) = compare_runs([book, branch], runtime.program_path)["sessions"]

    assert compared["files_different"] == []
    assert compared["files_equal"] == ["a.txt", "b.txt", "c.txt"]
    first = json.loads((branch.path / "session_01" / "trajectory.json").read_text())
    assert first["extra"]["started_at"] > meta(branch)["started_at"]
    (book.path / "session_01" / "transcript.jsonl").unlink()
    source = open_replay_source(runtime, tmp_path / "runs", "run", 1, 0)
    with pytest.raises(NotFound, match="the transcript is gone"):
        source.build_branch_point(1)
    with pytest.raises(NotFound, match="the transcript is gone"):
        inspect_address(book, parse_run_address("run#1.1"), runtime.program_path)


def test_a_refused_run_can_be_corrected_under_its_name(tmp_path):
    (tmp_path / "work").mkdir()
    env = environment(tmp_path) | {"HOME": str(tmp_path / "work")}

    given = config(tmp_path, HELLO, "go", engine="scripted")
    with pytest.raises(Invalid, match="a home directory is not snapshotted"):
        run(tmp_path, given, env=env)
    assert not (tmp_path / "runs").exists()

    book = run(tmp_path, given)

    assert run_meta(book.name, book.config, book.state)["stop_reason"] == "completed"


def test_a_killed_run_is_interrupted(tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "run.yaml").write_text(
        f"model: claude-opus-5-5\nengine: scripted\nwork_dir: {tmp_path / 'work'}\nrun_name: run\n"
        "scenario: {rules: [{replies: [{blocks: [{tool: Bash, input: {command: sleep 60}}]}]}]}\n"
        "sessions: [{session_index: 1, prompt: go}]\nmemory_file: null\n"
    )
    command = [FLIGHTLOG, "lab", "run", tmp_path / "run.yaml", "--runs-dir", tmp_path / "runs"]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    child = subprocess.Popen(command, env=environment(tmp_path), **pipes)
    journal = tmp_path / "runs" / "run" / ".journal.jsonl"
    until(lambda: journal.exists() and "agent_started" in journal.read_text(), 30)
    alive = again(tmp_path)
    child.send_signal(signal.SIGKILL)
    child.wait()

    dead = again(tmp_path)

    assert run_meta("run", alive.config, alive.state)["stop_reason"] == "running"
    journal.write_text("garbage\n")
    lost = again(tmp_path)
    lost = run_meta("run", lost.config, lost.state)
    assert (lost["stop_reason"], len(lost["errors"])) == ("interrupted", 1)
    document = run_meta("run", dead.config, dead.state)
    assert document["stop_reason"] == "interrupted"
    assert [session["stop_reason"] for session in document["sessions"]] == ["interrupted"]


@pytest.mark.parametrize(("version", "tool"), [("2.0.76", "Task"), ("2.1.325", "Agent")])
def test_subagents_of_the_configuration_work_in_old_and_new_clients(tmp_path, version, tool):
    call = {"description": "d", "prompt": "SUB", "subagent_type": "helper"}
    sub = {"when": {"first": "SUB"}, "replies": [{"text": "sub done"}]}
    main = {
        "when": {"first": "go"},
        "replies": [{"blocks": [{"tool": tool, "input": call}]}, {"text": "done"}],
    }
    helper = {"name": "helper", "description": "helps", "prompt": "You help"}
    given = config(
        tmp_path,
        {"rules": [sub, main, *HELLO["rules"]]},
        "go",
        agents=[helper],
        allowed_tools=["Read", "Bash"],
    )

    book = run(
        tmp_path, given, env=environment(tmp_path, FLIGHTLOG_CLAUDE=str(agent_program(version)))
    )

    assert meta(book)["stop_reason"] == "completed", meta(book)["errors"]
    assert meta(book)["sessions"][0]["subagent_count"] >= 1
    body = next((book.path / "session_01" / "raw_dumps").glob("request_*1.json")).read_text()
    offered = json.loads(body)
    offered = offered.get("body", offered)["tools"]
    assert tool in {tool_offered["name"] for tool_offered in offered}
    path = os.environ["PATH"]
    threads = inspect_address(book, parse_run_address("run#1"), path)["subagents"]
    name = next(name for name, turns in threads.items() if turns)
    shown = inspect_address(book, parse_run_address(f"run#1@{name[:-1]}.1"), path)
    assert shown["subagent"] == name
    with pytest.raises(NotFound, match="no subagent begins with zzz"):
        inspect_address(book, parse_run_address("run#1@zzz.1"), path)


def test_a_client_without_an_option_is_called_too_old(tmp_path):
    env = environment(tmp_path, FLIGHTLOG_CLAUDE=str(agent_program("1.0.128")))

    book = run(tmp_path, config(tmp_path, HELLO, "go"), env=env)

    assert meta(book)["stop_reason"] == "error"
    assert "this client is too old: it has no option --tools" in meta(book)["sessions"][0]["error"]


def test_a_refused_branch_says_what_was_sent_before(tmp_path, capsys):
    replies = [{"blocks": [bash("echo a > a.txt")]}, {"text": "done"}]
    priced = {"input_tokens": 1000, "output_tokens": 10}
    rules = [{"replies": [reply | {"usage": priced} for reply in replies]}]
    with serve_scenario(parse_scenario({"rules": rules})) as model:
        env = environment(tmp_path, ANTHROPIC_API_KEY=FAKE)
        run(tmp_path, config(tmp_path, None, "go", base_url=model.url), env=env)
        old = open_runtime(env | {"FLIGHTLOG_CLAUDE": str(agent_program("2.0.76"))})
        source = open_replay_source(old, tmp_path / "runs", "run", 1, 0)
        before = len(model.requests)
        stores = replay_session(old, source, 2, ReplayOptions(), lambda *_: None)
        sent = len(model.requests) - before
        older = open_runtime(env | {"FLIGHTLOG_CLAUDE": str(agent_program("1.0.128"))})
        source = open_replay_source(older, tmp_path / "runs", "run", 1, 0)
        stores += replay_session(older, source, 2, ReplayOptions(), lambda *_: None)

    metas = [
        run_meta(store.name, store.config, store.state) | {"replay": replay_meta(store.state)}
        for store in stores
    ]
    _print_branches(metas, tmp_path)

    errors = capsys.readouterr().err
    assert sent
    assert "refused after requests of the client's own, $" in errors
    assert f"{stores[1].name}: this client is too old: it has no option --tools" in errors


def test_a_referenced_secret_reaches_the_agent_but_no_file_of_the_run(tmp_path):
    secret = "tk" + "-9fK2" * 5
    command = bash('echo "env=$SHOP_TOKEN"; tr "\\0" " " < /proc/$PPID/cmdline')
    given = config(
        tmp_path,
        script([command], "done"),
        "go",
        env={"SHOP_TOKEN": "${SHOP_TOKEN}", "PLAIN": "${PLAIN_NAME}"},
        args=["--append-system-prompt", "the token is ${SHOP_TOKEN}"],
        mcp_config={"mcpServers": {"s": {"command": "false", "env": {"T": "${SHOP_TOKEN}"}}}},
    )
    own = {"SHOP_TOKEN": secret, "PLAIN_NAME": "shown"}

    book = run(tmp_path, given, env=environment(tmp_path, **own))

    assert meta(book)["sessions"][0]["stop_reason"] == "completed"
    assert secret.encode() not in bytes_on_disk(tmp_path / "runs")
    transcript = (book.path / "session_01" / "transcript.jsonl").read_text()
    assert "env=[scrubbed]" in transcript
    assert '"${SHOP_TOKEN}"' in transcript.replace("\\", "")
    sent = book.path.joinpath("session_01").rglob("*request*")
    assert any(b"the token is [scrubbed]" in path.read_bytes() for path in sent if path.is_file())
    frozen = (book.path / "config.yaml").read_text()
    assert frozen.count("${SHOP_TOKEN}") == 3

    with pytest.raises(Misconfigured, match="not set in the environment: SHOP_TOKEN"):
        run(tmp_path, given, "second", env=environment(tmp_path, PLAIN_NAME="x"))
    bare = service.prepare_run(open_runtime(environment(tmp_path)), lambda *_: None)
    with pytest.raises(Misconfigured, match="not set in the environment: SHOP_TOKEN"):
        continue_run(again(tmp_path), bare, again=True)
    assert not (tmp_path / "runs" / "second").exists()
