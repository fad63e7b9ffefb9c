"""A replay whose process is killed: nothing of it stays, and each branch is taken up where it was."""

import json
import random
import signal
import subprocess
from pathlib import Path

import pytest

from support.cli_runs import FLIGHTLOG
from support.replays import fingerprint
from support.waiting import processes, until


def harness(ground, *words):
    command = [str(FLIGHTLOG), "lab", *words, "--runs-dir", str(ground.root / "runs"), "--json"]
    return subprocess.Popen(
        command, env=ground.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def at_work(ground):
    """Processes whose environment or command says that they belong to a branch."""
    word = str(ground.root / "runs" / ".work-replay")
    return [
        pid
        for pid in processes()
        if word in read_process_file(pid, "environ") or word in read_process_file(pid, "cmdline")
    ]


def read_process_file(pid, name):
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


def kill_and_resume(ground, count, after_s):
    before = fingerprint(ground.work), fingerprint(ground.root / "runs" / "run")
    runs = ground.root / "runs"
    known = set(runs.glob("replay_*"))
    running = harness(
        ground, "replay", "run", "--session", "3", "--turn", "4", "--count", str(count)
    )
    until(lambda: len(at_work(ground)) > 0 or running.poll() is not None, 30)
    try:
        running.wait(after_s)
    except subprocess.TimeoutExpired:
        running.send_signal(signal.SIGKILL)
    running.communicate()

    until(lambda: not at_work(ground), 10)
    assert str(ground.root) not in Path("/proc/self/mountinfo").read_text()
    looked = harness(ground, "list")
    looked.communicate(timeout=60)
    assert not list(runs.glob(".work-*/tree")), "the next command throws private trees away"
    branches = sorted(set(runs.glob("replay_*")) - known)
    assert len(branches) == count
    for path in branches:
        again = harness(ground, "run", "--resume", path.name, "--again")
        out, err = again.communicate(timeout=120)
        assert again.returncode == 0, err
        assert json.loads(out)["replay_verdict"] == "exact"
    assert not list(runs.glob(".work-*"))
    assert (fingerprint(ground.work), fingerprint(runs / "run")) == before


def test_killed_replay_leaves_nothing_behind_and_is_resumed(ground):
    kill_and_resume(ground, 2, 0.7)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_eight_branches_killed_at_random_points_are_resumed(ground, seed):
    kill_and_resume(ground, 8, random.Random(seed).uniform(0.1, 6.0))
