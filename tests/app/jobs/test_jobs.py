"""The same jobs on a real cluster as here: the same files, whatever becomes of a worker."""

import asyncio
import hashlib
import json
import os
import threading
import time

import pytest

from flightlog.app.jobs import open_executor
from flightlog.app.jobs.executors import carry_out, open_job_queue
from flightlog.app.jobs.executors import connect_cluster as dask
from flightlog.app.runtime import open_runtime
from flightlog.lab.replay.branch import ReplayOptions
from flightlog.lab.replay.service import open_replay_source, replay_session
from flightlog.lab.resample import service
from flightlog.lab.resample.plan import Sweep, SweepVariant
from flightlog.lab.resample.service import SamplingOptions
from flightlog.lab.resample.state import BatchLimits
from flightlog.lab.runner.run import start_run
from flightlog.lab.service import attach_executor, open_run, prepare_run
from flightlog.model.errors import Invalid, Unavailable
from flightlog.model.runtime import Job
from support import labs
from support.cluster import cluster
from support.paying import PaidReply, message, paying
from support.sampled import KEY, SCRIPT, copy_run, holds, make_run
from support.waiting import below, command_line, until

GRID = Sweep(
    requests=(2, 3),
    models=("claude-opus-5-5", "claude-haiku-4-5"),
    variants=(SweepVariant("cold", {"temperature": 0}),),
    count=5,
)
ALL = 2 * 2 * 2 * 5


@pytest.fixture(scope="module")
def source_run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("made"))


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    with _cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def failing_cluster(tmp_path_factory):
    """Machines of which one will die."""
    with _cluster(tmp_path_factory.mktemp("doomed")) as running:
        yield running


def _cluster(folder):
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "ANTHROPIC_API_KEY": KEY,
        "LANG": "C.UTF-8",
    }
    return cluster(folder, env)


def answer_by_body(asked):
    """An answer that depends on what was asked and nothing else."""
    name = hashlib.sha256(json.dumps(asked.body, sort_keys=True).encode()).hexdigest()[:12]
    return PaidReply(body=message(asked, f"to {name}", id=f"msg_{name}"), delay_s=0.1)


def ask(run, url, on, sweep=GRID, **limits):
    sent = SamplingOptions(
        BatchLimits(**({"parallel": 4, "wait_s": 0.01} | limits)), lambda *_: None, url
    )
    return service.resample_grid(
        open_runtime(on=on),
        open_run(open_runtime(), run.parent, run.name),
        sweep,
        sent,
        dry_run=False,
    )


def samples_of(run):
    return {str(path.relative_to(run)): path.read_bytes() for path in run.rglob("sample_*.json")}


def test_rate_limit_holds_across_all_machines(source_run, machines, tmp_path):
    run = copy_run(source_run, tmp_path)

    with paying() as till:
        ask(run, till.url, machines.address, Sweep(requests=(2,), count=8))
        del till.at[:]
        began = time.monotonic()
        batch = ask(run, till.url, machines.address, Sweep(requests=(2,), count=16), per_minute=600)

    assert batch["samples"] == 16
    # A busy machine makes one late, never early.
    assert all(at - began >= 0.1 * number for number, at in enumerate(sorted(till.at)))


def test_a_cluster_leaves_the_same_files_even_when_a_worker_dies(
    source_run, failing_cluster, tmp_path, monkeypatch
):
    here, there = copy_run(source_run, tmp_path / "here"), copy_run(source_run, tmp_path / "there")
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    with paying(answer_by_body) as till:
        local = ask(here, till.url, "local")

    # The key is the workers' own: whoever asks has none.
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    with paying(answer_by_body) as till:
        victim = threading.Thread(target=_kill_in_the_middle, args=(failing_cluster, till))
        victim.start()
        spread = ask(there, till.url, failing_cluster.address)
        victim.join()

    assert (local["samples"], spread["samples"], spread["errors"]) == (ALL, ALL, 0)
    assert samples_of(there) == samples_of(here)
    assert len(samples_of(there)) == ALL
    assert failing_cluster.workers[0].poll() is not None
    # What the dead worker had on its way was asked once more, and nothing else.
    assert sum(till.paid.values()) - ALL <= 2
    assert max(till.paid.values()) <= 2
    assert holds(there, KEY) == []


def _kill_in_the_middle(machines, till):
    while len(till.came) < ALL // 2:
        time.sleep(0.005)
    machines.workers[0].kill()
    machines.workers[0].wait()


async def _enter_cluster(there):
    async with there:
        raise AssertionError("nobody is there")


def test_unknown_executor_address_is_refused():
    with pytest.raises(Invalid, match="not an executor"):
        asyncio.run(_enter_cluster(open_executor("ssh://somewhere", 1)))


def test_unreachable_scheduler_is_reported():
    with pytest.raises(Unavailable, match="no scheduler answers"):
        asyncio.run(_enter_cluster(dask("tcp://127.0.0.1:1", 0.5)))


def test_worker_reports_an_unknown_kind_of_job(machines):
    with open_job_queue(machines.address) as submit:
        asked = submit(Job("flightlog-test-1", "brew coffee", b""))

        with pytest.raises(Invalid, match="does not know the job kind"):
            asked.result(30)


def test_a_job_in_its_own_process_reports_its_error_and_hint(tmp_path, monkeypatch):
    monkeypatch.setenv("FLIGHTLOG_HOME", str(tmp_path))

    with pytest.raises(Unavailable, match="no such run: ") as caught:
        carry_out("replay", str(tmp_path / "absent").encode(), b"")

    assert "\t" not in caught.value.message
    assert caught.value.hint == "flightlog lab list"


def list_endings(book):
    return [
        (session.session_dir, book.state.last_attempt(session.session_dir).stop_reason)
        for session in book.planned_sessions()
    ]


def test_replicates_of_a_run_are_carried_out_by_workers(tmp_path, machines):
    given = labs.config(tmp_path, SCRIPT, {"prompt": "do it", "count": 3}, engine="scripted")
    runtime = open_runtime(labs.environment(tmp_path), on=machines.address)
    with attach_executor(prepare_run(runtime, lambda *_: None)) as setting:
        book = start_run(tmp_path / "runs" / "spread", given, setting)
    (tmp_path / "again").mkdir()
    same = labs.config(
        tmp_path / "again", SCRIPT, {"prompt": "do it", "count": 3}, engine="scripted"
    )
    here = labs.run(tmp_path / "again", same)

    assert list_endings(book) == list_endings(here)
    assert [name for name, reason in list_endings(book) if reason == "completed"] == [
        f"session_01_r0{number}" for number in (1, 2, 3)
    ]
    mine, theirs = labs.meta(book), labs.meta(here)
    assert [
        mine[key] for key in ("total_steps", "total_cost_usd", "total_file_writes", "stop_reason")
    ] == [
        theirs[key] for key in ("total_steps", "total_cost_usd", "total_file_writes", "stop_reason")
    ]
    assert b"+hi" in (book.path / "full_diff.patch").read_bytes()
    assert not list((tmp_path / "work").iterdir())
    assert not (tmp_path / "runs" / ".work-spread").exists()


def test_branches_are_carried_out_by_workers_and_a_dead_one_costs_a_try(
    tmp_path, failing_cluster, capfd
):
    slow = {
        "rules": [{"replies": [{"blocks": [labs.bash("ls")]}, {"text": "done", "delay_s": 1.5}]}]
    }
    labs.run(tmp_path, labs.config(tmp_path, slow, "do it", engine="scripted"))
    source = open_replay_source(open_runtime(), tmp_path / "runs", "run", 1, 0)
    before = failing_cluster.workers[0].poll()

    def strike():
        worker = failing_cluster.workers[0]
        until(
            lambda: [
                process for process in below(worker.pid) if "scripted" in command_line(process)
            ],
            limit_s=60,
        )
        worker.kill()

    striking = threading.Thread(target=strike)
    striking.start()
    books = replay_session(
        open_runtime(on=failing_cluster.address), source, 2, ReplayOptions(count=4), lambda *_: None
    )
    striking.join()

    assert before is None
    assert [branch.state.end.stop_reason for branch in books] == ["completed"] * 4
    assert [branch.state.last_attempt("session_01").stop_reason for branch in books] == [
        "completed"
    ] * 4
    tries = [len(branch.state.attempts["session_01"]) for branch in books]
    assert max(tries) <= 2
    assert sum(tries) > 4, "a worker died with a branch on its hands"
    shown = capfd.readouterr().err
    assert shown.count("1 worker lost; other workers run the jobs again") == 1
    assert "distributed" not in shown
    assert len(list((tmp_path / "runs").glob("replay_*"))) == 4


def test_a_cluster_without_workers_says_so_and_ends(tmp_path, capsys):
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8"}

    async def submit_job(address):
        async with dask(address, worker_s=6.0) as jobs:
            await jobs.submit(Job("flightlog-test-none", "archive", b""))

    with (
        cluster(tmp_path, env, workers=0) as idle,
        pytest.raises(Unavailable, match="no worker joined tcp") as raised,
    ):
        asyncio.run(submit_job(idle.address))

    assert raised.value.hint.startswith("start one: dask worker tcp://")
    assert "waiting up to 6 s for one" in capsys.readouterr().err
