"""A batch whose process is killed at any moment: nothing lost, nothing paid twice but what was in flight."""

import json
import random
import signal
import subprocess
import time

import pytest

from flightlog.lab.resample.samples import journal_events
from flightlog.lab.resample.state import SampleSent
from support.cli_runs import FLIGHTLOG
from support.labs import environment
from support.paying import PaidReply, message, paying
from support.sampled import KEY, answers, copy_run, holds, make_run

COUNT = 50
PARALLEL = 4


def asking(root, url, *words):
    command = [
        str(FLIGHTLOG),
        "lab",
        "resample",
        "run",
        *words,
        "--runs-dir",
        str(root / "runs"),
        "--json",
    ]
    env = environment(root, ANTHROPIC_API_KEY=KEY)
    return subprocess.Popen(
        [*command, "--base-url", url], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def kill_after_requests(process, till, before, chance):
    """Kill a process some moment after so many more requests came; say whether it was still there to be killed."""
    wanted = len(till.came) + before
    while len(till.came) < wanted and process.poll() is None:
        time.sleep(0.0005)
    time.sleep(chance.uniform(0, 0.03))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return process.returncode == -signal.SIGKILL


def kill_until_done(root, run, kills, chance):
    with paying(lambda _: PaidReply(delay_s=chance.uniform(0.001, 0.02))) as till:
        words = ("--request", "2", "--count", str(COUNT), "--parallel", str(PARALLEL))
        struck_times = 0
        before: dict[str, dict] = {}
        while struck_times < kills:
            process = asking(root, till.url, *words)
            if not kill_after_requests(
                process, till, chance.randrange(1, max(2, COUNT // (kills + 1))), chance
            ):
                break
            struck_times += 1
            now = answers(run)
            assert {name: now.get(name) for name in before} == before, (
                "what was there stays as it was"
            )
            before = now
            words = ("--resume",)
        done = asking(root, till.url, *words)
        out, err = done.communicate(timeout=120)
        assert done.returncode == 0, err
        return struck_times, json.loads(out), till


def check_batch(run, killed, batch, till):
    assert (batch["stop_reason"], batch["samples"], batch["errors"]) == ("completed", COUNT, 0)
    samples = answers(run)
    assert list(samples) == [f"sample_{number:02d}.json" for number in range(1, COUNT + 1)]
    # Each file holds the answer to its own request, which the server tells by its key.
    assert sorted(sample["id"] for sample in samples.values()) == sorted(
        {message(request)["id"] for request in till.came}
    )
    assert len(till.paid) == COUNT
    assert sum(till.paid.values()) - COUNT <= killed * PARALLEL
    assert max(till.paid.values()) <= killed + 1
    assert holds(run, KEY) == []
    sent = [event.item for event in journal_events(run) if isinstance(event, SampleSent)]
    assert len(sent) >= len(till.came), "nothing is sent that is not on record"
    meta = json.loads((run / "run_meta.json").read_text())
    assert meta["total_resamples"] == COUNT
    assert meta["total_resample_cost_usd"] == pytest.approx(batch["cost_usd"])


def test_a_batch_of_fifty_killed_at_random_points_is_paid_once(tmp_path):
    make_run(tmp_path)
    run = tmp_path / "runs" / "run"

    killed, batch, till = kill_until_done(tmp_path, run, 4, random.Random(7))

    assert killed == 4
    check_batch(run, killed, batch, till)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(20))
def test_a_batch_is_paid_once_through_many_kills(seed, tmp_path):
    made = tmp_path / "made"
    made.mkdir()
    run = copy_run(make_run(made), tmp_path)

    killed, batch, till = kill_until_done(tmp_path, run, 9, random.Random(seed))

    assert killed >= 5
    check_batch(run, killed, batch, till)


def test_an_interrupted_batch_records_answers_in_flight_and_resumes(tmp_path):
    make_run(tmp_path)
    run = tmp_path / "runs" / "run"
    with paying(lambda _: PaidReply(delay_s=0.3)) as till:
        process = asking(tmp_path, till.url, "--request", "2", "--count", "8", "--parallel", "2")
        while len(till.came) < 3:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        stored = len(answers(run))
        again = asking(tmp_path, till.url, "--resume")
        out, err = again.communicate(timeout=60)

    assert process.returncode == 130
    assert stored in {3, 4}
    assert again.returncode == 0, err
    assert json.loads(out)["samples"] == 8
    assert set(till.paid.values()) == {1}
