"""The same jobs on a real cluster as here: the same files, whatever becomes of a worker."""

import hashlib
import json
import os
import threading
import time

import pytest

from cluster import cluster
from flightlog.app import lab, lab_resample
from flightlog.app.jobs import place
from flightlog.app.lab_resample import Sent
from flightlog.lab.resampling.events import Limits
from flightlog.lab.resampling.sweep import Change, Sweep
from flightlog.model.errors import Invalid, Unavailable
from paying import Said, message, paying
from sampled import KEY, copied, finished, holds

GRID = Sweep(
    requests=(2, 3),
    models=("claude-opus-5-5", "claude-haiku-4-5"),
    variants=(Change("cold", {"temperature": 0}),),
    count=5,
)
ALL = 2 * 2 * 2 * 5


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return finished(tmp_path_factory.mktemp("made"))


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster")
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "ANTHROPIC_API_KEY": KEY, "LANG": "C.UTF-8"}
    with cluster(folder, env) as running:
        yield running


def said_by_body(asked):
    """An answer that depends on what was asked and nothing else."""
    name = hashlib.sha256(json.dumps(asked.body, sort_keys=True).encode()).hexdigest()[:12]
    return Said(body=message(asked, f"to {name}", id=f"msg_{name}"), delay_s=0.1)


def ask(run, url, on, sweep=GRID, **limits):
    sent = Sent(Limits(**({"parallel": 4, "wait_s": 0.01} | limits)), lambda *_: None, on, url)
    return lab_resample.resampled(lab.open_book(run.parent, run.name), sweep, sent, dry_run=False)


def samples_of(run):
    return {str(path.relative_to(run)): path.read_bytes() for path in run.rglob("sample_*.json")}


def test_a_rate_holds_for_all_machines_together(made, machines, tmp_path):
    run = copied(made, tmp_path)

    with paying() as till:
        told = ask(run, till.url, machines.address, Sweep(requests=(2,), count=8), per_minute=600)

    assert told["samples"] == 8
    assert till.at[-1] - till.at[0] >= 0.1 * 7 - 0.05


def test_a_cluster_leaves_the_same_files_as_this_machine_also_when_a_worker_dies(made, machines, tmp_path, monkeypatch):
    here, there = copied(made, tmp_path / "here"), copied(made, tmp_path / "there")
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    with paying(said_by_body) as till:
        local = ask(here, till.url, "local")

    # The key is the workers' own: whoever asks has none.
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    with paying(said_by_body) as till:
        victim = threading.Thread(target=_killed_in_the_middle, args=(machines, till))
        victim.start()
        spread = ask(there, till.url, machines.address)
        victim.join()

    assert (local["samples"], spread["samples"], spread["errors"]) == (ALL, ALL, 0)
    assert samples_of(there) == samples_of(here)
    assert len(samples_of(there)) == ALL
    assert machines.workers[0].poll() is not None
    # What the dead worker had on its way was asked once more, and nothing else.
    assert sum(till.paid.values()) - ALL <= 2
    assert max(till.paid.values()) <= 2
    assert holds(there, KEY) == []


def _killed_in_the_middle(machines, till):
    while len(till.came) < ALL // 2:
        time.sleep(0.005)
    machines.workers[0].kill()
    machines.workers[0].wait()


async def _opened(on):
    async with place(on, 1):
        raise AssertionError("nobody is there")


def test_a_place_that_is_none_is_said():
    import asyncio

    with pytest.raises(Invalid, match="not a place"):
        asyncio.run(_opened("ssh://somewhere"))


def test_a_scheduler_that_does_not_answer_is_said(monkeypatch):
    import asyncio

    from flightlog.app.jobs import cluster as module

    monkeypatch.setattr(module, "_CONNECT_S", 0.5)

    with pytest.raises(Unavailable, match="no scheduler answers"):
        asyncio.run(_opened("tcp://127.0.0.1:1"))
