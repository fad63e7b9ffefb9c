"""Where a run works: in a copy, or in place; what the person's repository looks like afterwards."""

import asyncio
import json
import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from flightlog.app.runtime import open_runtime
from flightlog.lab import service
from flightlog.lab.runner.agent_setup import select_driver
from flightlog.lab.runner.capture import CaptureTarget, SharedSaver, _tree_recorder
from flightlog.lab.runner.context import RunContext, RunWorkTree
from flightlog.lab.runner.run import add_replicates
from flightlog.model.exchange import ApiRequest, BodyRef, RequestOrigin
from support.captures import BODY, exchanges, plain, running_proxy
from support.cli_runs import FLIGHTLOG
from support.labs import again, bash, config, environment, meta, run, script
from support.upstream import answering, call, parts
from support.waiting import until

GIT = {f"GIT_{who}_{what}": "x@x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
ENV = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"} | GIT
COMMIT = " ".join(f"{name}=x@x" for name in GIT)
BUSY = (
    f"echo a >> f; export {COMMIT}; git add -A; git commit -qm FUTURE; mkdir made; "
    "git log --oneline; echo count=$(git rev-list --count HEAD)"
)


def git(folder, *words):
    done = subprocess.run(
        ["git", *words], cwd=folder, env=ENV, capture_output=True, text=True, check=True
    )
    return done.stdout


def picture(*folders):
    """Bytes, modes and times of everything, git's own files included."""
    return {
        str(path): (
            path.lstat().st_mode,
            path.lstat().st_mtime_ns,
            b"" if path.is_dir() else path.read_bytes(),
        )
        for folder in folders
        for path in [folder, *sorted(folder.rglob("*"))]
    }


@pytest.fixture
def work(tmp_path):
    folder = tmp_path / "work"
    (folder / "sub").mkdir(parents=True)
    (folder / "f").write_text("one\n")
    (folder / "sub" / "g").write_text("two\n")
    git(folder, "init", "-qb", "main")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "zero")
    (folder / "f").write_text("not committed\n")
    return folder


def test_a_run_in_a_copy_leaves_the_repository_untouched(work, tmp_path):
    linked = tmp_path / "linked"
    git(work, "worktree", "add", "-q", str(linked))
    before = picture(work, linked)

    for name, folder in (("run", work), ("below", work / "sub"), ("linked", linked)):
        given = config(
            tmp_path, script([bash(BUSY)], "done"), "go", engine="scripted", work_dir=str(folder)
        )
        book = run(tmp_path, given, name)

        assert meta(book)["sessions"][0]["stop_reason"] == "completed"
        assert "FUTURE" in (book.path / "session_01" / "transcript.jsonl").read_text()
        assert picture(work, linked) == before, name


def test_a_replicate_does_not_see_what_another_committed(work, tmp_path):
    given = config(
        tmp_path, script([bash(BUSY)], "done"), {"prompt": "go", "count": 2}, engine="scripted"
    )
    book = run(tmp_path, given)
    book = add_replicates(
        book, 1, 1, service.prepare_run(open_runtime(environment(tmp_path)), lambda *_: None), None
    )

    for name in ("session_01_r01", "session_01_r02", "session_01_r03"):
        transcript = (book.path / name / "transcript.jsonl").read_text()
        assert "count=2" in transcript, name


@pytest.mark.parametrize("in_place", [True, "keep"])
def test_a_run_in_place_restores_the_directory_unless_it_is_kept(work, tmp_path, in_place):
    before = picture(work)

    run(
        tmp_path,
        config(tmp_path, script([bash(BUSY)], "done"), "go", engine="scripted", in_place=in_place),
    )

    assert (picture(work) == before) is (in_place is True)
    assert git(work, "log", "--format=%s").split()[0] == ("zero" if in_place is True else "FUTURE")


def test_after_a_kill_in_place_the_next_command_restores_the_directory(work, tmp_path):
    before = picture(work)
    slow = script([bash(f"{BUSY}; touch {tmp_path}/wrote; sleep 60")], "done")
    (tmp_path / "run.yaml").write_text(
        json.dumps(
            {
                "model": "claude-opus-5-5",
                "engine": "scripted",
                "work_dir": str(work),
                "scenario": slow,
                "sessions": [{"session_index": 1, "prompt": "go"}],
                "run_name": "run",
                "memory_file": None,
                "in_place": True,
            }
        )
    )
    env = environment(tmp_path)
    words = [str(FLIGHTLOG), "lab", "run", "run.yaml"]
    running = subprocess.Popen(words, cwd=tmp_path, env=env, start_new_session=True)
    until((tmp_path / "wrote").exists, 60)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()

    def flightlog(*words):
        return subprocess.run(
            [FLIGHTLOG, *words], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )

    assert picture(work) != before
    assert "run was killed while it worked in place" in flightlog("doctor").stdout
    assert picture(work) != before
    ran = flightlog("session", "list")
    assert "to its state before run" in ran.stderr
    assert picture(work) == before
    assert "killed while it worked" not in flightlog("doctor").stdout
    left = again(tmp_path).state.found_tree
    assert left.startswith("_found_")


def test_requests_at_the_same_time_share_a_snapshot(work, tmp_path):
    given = config(tmp_path, script("done"), "go", engine="scripted", in_place="keep")
    book = run(tmp_path, given)
    setting = service.prepare_run(open_runtime(environment(tmp_path)), lambda *_: None)
    context = RunContext(
        book, RunWorkTree(book, setting), setting, select_driver(book.config, setting)
    )
    target = CaptureTarget("session_01", 1, context.work_tree.main, tmp_path)
    saver = SharedSaver(_tree_recorder(context, target))
    requests = [
        ApiRequest(index, RequestOrigin.SUBAGENT, "POST", "/", {}, BodyRef("", 0))
        for index in range(101, 125)
    ]

    async def together():
        await asyncio.gather(*(saver.save(request) for request in requests))

    asyncio.run(together())

    saved = [
        snapshot
        for snapshot in book.state.last_attempt("session_01").snapshots
        if snapshot.request_index > 100
    ]
    assert [snapshot.request_index for snapshot in saved] == list(range(101, 125))
    assert len({snapshot.tree for snapshot in saved}) <= 2


def test_parallel_calls_through_the_proxy_wait_for_two_saves_at_most(tmp_path):
    ended, waits = [], []

    def save(requests):
        time.sleep(0.1)
        ended.append(len(requests))

    saver = SharedSaver(save)

    async def barrier(request):
        before = len(ended)
        await saver.save(request)
        waits.append(len(ended) - before)

    with (
        answering(plain(b"{}")) as upstream,
        running_proxy(upstream, tmp_path, barrier=barrier) as (url, recorder),
        ThreadPoolExecutor(24) as pool,
    ):
        statuses = [parts(answer)[0] for answer in pool.map(lambda _: call(url, BODY), range(24))]

    assert statuses == [200] * 24
    assert sum(ended) == len(waits) == 24
    assert max(waits) <= 2
    assert len(ended) <= 8
    assert recorder.losses == []
    notes = [exchange.response.notes for exchange in exchanges(tmp_path).read_exchanges()]
    assert notes == [()] * 24
