"""Where a branch works when there is no room of its own, and what it leaves in a store that is the person's own."""

import json
import os
import signal
import subprocess
import sys

import pytest
from msgspec.structs import replace

from flightlog.agents.sandbox import IsolationMode
from flightlog.agents.scripted.scenario import parse_scenario
from flightlog.agents.scripted.server import serve_scenario
from flightlog.app.runtime import open_runtime
from flightlog.lab import service
from flightlog.lab.config import dump_run_config
from flightlog.lab.replay.branch import ReplayOptions, prepare_branch
from flightlog.lab.replay.source import ReplaySource
from flightlog.lab.runner.run import continue_run
from flightlog.model.errors import Invalid
from support.cli_runs import FLIGHTLOG
from support.labs import bash, config, environment, rewrite_config, run, script
from support.replays import fingerprint
from support.waiting import command_line, environ, processes, until

SCENARIO = script([bash("echo one > a")], [bash("cp a b; echo two > a")], "done")


def test_branch_without_a_sandbox_restores_the_directory(tmp_path):
    book = run(tmp_path, config(tmp_path, SCENARIO, "do it", engine="scripted"))
    setting = replace(
        service.prepare_run(open_runtime(environment(tmp_path)), lambda *_: None),
        isolation_mode=IsolationMode.NONE,
        parent_death_prefix=(),
    )
    (tmp_path / "work" / "mine").write_text("since then\n")
    before = fingerprint(tmp_path / "work")
    point = ReplaySource(book, 1, 0, os.environ["PATH"]).build_branch_point(2)

    branch = prepare_branch(book, point, ReplayOptions(), (tmp_path / "runs" / "b", 1), setting)
    continue_run(branch, setting, again=False)

    last = branch.state.last_attempt("session_01")
    assert (last.stop_reason, last.certificate.verdict) == ("completed", "exact")
    patch = (branch.path / "session_01" / "session_diff.patch").read_text()
    assert "+two" in patch
    assert "mine" not in patch
    assert fingerprint(tmp_path / "work") == before
    with pytest.raises(Invalid):
        prepare_branch(book, point, ReplayOptions(count=2), (tmp_path / "runs" / "c", 1), setting)


def test_a_file_name_that_is_not_utf8_is_part_of_an_exact_branch(tmp_path):
    given = config(tmp_path, SCENARIO, "do it", engine="scripted")
    (tmp_path / "work" / os.fsdecode(b"name-\xff")).write_text("x\n")
    book = run(tmp_path, given)
    setting = service.prepare_run(open_runtime(environment(tmp_path)), lambda *_: None)
    point = ReplaySource(book, 1, 0, os.environ["PATH"]).build_branch_point(2)

    branch = prepare_branch(book, point, ReplayOptions(), (tmp_path / "runs" / "b", 1), setting)
    continue_run(branch, setting, again=False)

    assert branch.state.last_attempt("session_01").certificate.verdict == "exact"


def test_replay_leaves_the_persons_own_sessions_unchanged(tmp_path):
    home = tmp_path / "home" / ".claude"
    home.mkdir(parents=True)
    (home / "settings.json").write_text(
        json.dumps({"apiKeyHelper": "echo sk-" + "fake-" + "0" * 12})
    )
    with serve_scenario(parse_scenario(SCENARIO)) as model:
        given = config(tmp_path, None, "do it", base_url=model.url, load_project_settings=True)
        book = run(tmp_path, given)
        before = fingerprint(home / "projects")
        assert before
        setting = service.prepare_run(open_runtime(environment(tmp_path)), lambda *_: None)
        point = ReplaySource(book, 1, 0, os.environ["PATH"]).build_branch_point(2)

        branch = prepare_branch(book, point, ReplayOptions(), (tmp_path / "runs" / "b", 1), setting)
        continue_run(branch, setting, again=False)

    assert branch.state.last_attempt("session_01").certificate.verdict == "exact"
    assert fingerprint(home / "projects") == before


def test_a_branch_can_read_the_long_outputs_that_its_context_names(tmp_path):
    path = {"from_result": r"saved to: ([^\s\\\\]+)"}
    read = {"tool": "Read", "input": {"file_path": path, "offset": 19_000, "limit": 2}}
    first, second = [bash("seq 20000")], [read]
    with serve_scenario(parse_scenario(script(first, second, "done"))) as model:
        given = config(tmp_path, None, "do it", base_url=model.url)
        key = {"ANTHROPIC_API_KEY": "sk-" + "fake-" + "0" * 12}
        book = run(tmp_path, given, env=environment(tmp_path, **key))
        setting = service.prepare_run(open_runtime(environment(tmp_path, **key)), lambda *_: None)
        results = []
        for turn in (1, 2):
            point = ReplaySource(book, 1, 0, os.environ["PATH"]).build_branch_point(turn)
            where = (tmp_path / "runs" / f"replay_{turn}", 1)
            branch = prepare_branch(book, point, ReplayOptions(), where, setting)
            continue_run(branch, setting, again=False)
            attempt = branch.state.last_attempt("session_01")
            assert attempt.certificate.verdict == "exact"
            results.append((attempt.later_requests.compared, attempt.later_requests.equal))

    assert "19001" in str(model.requests[-1].body["messages"][-1])
    assert results == [(2, 2), (1, 1)]
    assert not list((tmp_path / "runs").glob(".work-*"))


KILLED = """
import os, signal, sys
from pathlib import Path
from msgspec.structs import replace
from flightlog.agents.sandbox import IsolationMode
from flightlog.app.runtime import open_runtime
from flightlog.lab.service import prepare_run
from flightlog.lab.store import RunStore
from flightlog.lab.runner.run import continue_run
setting = prepare_run(open_runtime(dict(os.environ)), lambda *_: None)
setting = replace(setting, isolation_mode=IsolationMode.NONE, parent_death_prefix=())
book = RunStore(Path(sys.argv[1]), now=setting.runtime.clock.timestamp, new_id=setting.runtime.new_id)
continue_run(book, setting, again=False)
"""


def test_the_next_command_restores_the_directory_of_a_killed_branch(tmp_path):
    slow = script([bash("echo one > a")], [bash("echo two > a; touch ../wrote; sleep 60")], "done")
    quick = script([bash("echo one > a")], [bash("echo two > a")], "done")
    env = environment(tmp_path)
    book = run(tmp_path, config(tmp_path, quick, "do it", engine="scripted"))
    setting = replace(
        service.prepare_run(open_runtime(env), lambda *_: None),
        isolation_mode=IsolationMode.NONE,
        parent_death_prefix=(),
    )
    (tmp_path / "work" / "mine").write_text("since then\n")
    before = fingerprint(tmp_path / "work")
    point = ReplaySource(book, 1, 0, os.environ["PATH"]).build_branch_point(2)
    branch = prepare_branch(book, point, ReplayOptions(), (tmp_path / "runs" / "b", 1), setting)
    rewrite_config(
        branch.path, dump_run_config(replace(branch.config, scenario=parse_scenario(slow)))
    )
    running = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(branch.path)], env=env, start_new_session=True
    )
    until((tmp_path / "wrote").exists, 30)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    assert fingerprint(tmp_path / "work") != before

    looked = subprocess.run(
        [FLIGHTLOG, "lab", "list"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )

    assert fingerprint(tmp_path / "work") == before
    assert not [
        pid
        for pid in processes()
        if "sleep 60" in command_line(pid) and str(tmp_path) in environ(pid).decode()
    ]
    assert "to its state before b" in looked.stderr
    assert not (branch.path / ".in_place").exists()
    assert not subprocess.run(
        [FLIGHTLOG, "lab", "list"], cwd=tmp_path, env=env, capture_output=True, check=True
    ).stderr
