"""A model with known habits is asked for real: what is reported of it holds, and sampling stops when it is known."""

import random
import threading

import pytest

from flightlog.app.runtime import open_runtime
from flightlog.lab.resample import service
from flightlog.lab.resample.layout import SampleItem
from flightlog.lab.resample.plan import Sweep
from flightlog.lab.resample.send import StoppingRule
from flightlog.lab.resample.state import BatchLimits, SampleTarget
from flightlog.lab.service import open_run
from flightlog.lab.statistics.service import analyze_runs
from flightlog.model.errors import NotFound
from support import sampled
from support.paying import PaidReply, message, paying

HABITS = {"ls": 0.6, "pwd": 0.25, "": 0.15}


@pytest.fixture
def book(run):
    return sampled.book(run)


def model(seed):
    """Answer with the habits above; whoever comes next gets the next draw, so counts do not hang on who is first."""
    draw, lock = random.Random(seed), threading.Lock()

    def say(asked):
        with lock:
            (command,) = draw.choices(list(HABITS), HABITS.values())
        tool = [
            {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": command}}
        ]
        words = [{"type": "text", "text": "done"}]
        return PaidReply(
            body=message(asked) | {"content": tool if command else words, "stop_reason": "end_turn"}
        )

    return say


def resample_request(book, url, count, **limits):
    sent = service.SamplingOptions(BatchLimits(**limits), lambda *_: None, base_url=url)
    return service.resample_grid(
        open_runtime(), book, Sweep(session=1, requests=(2,), count=count), sent, dry_run=False
    )


def shares(book):
    (group,) = (
        analyze_runs(open_runtime(), [open_run(open_runtime(), book.path.parent, "run")])
        .questions[0]
        .groups
    )
    return group, {action.label.removeprefix("Bash "): action for action in group.actions}


def test_intervals_contain_the_true_shares_of_a_simulated_model(book):
    with paying(model(3)) as till:
        batch = resample_request(book, till.url, 80)

    group, seen = shares(book)
    assert (batch["samples"], group.n, group.is_stopped_early) == (80, 80, False)
    for command, share in HABITS.items():
        action = seen[command or "(words only)"]
        assert action.interval.low <= share <= action.interval.high
        assert len(action.addresses) == action.count


def test_sampling_stops_when_every_share_reaches_the_width(book):
    with paying(model(4)) as till:
        batch = resample_request(book, till.url, 400, until_width=0.35, parallel=4)

    group, seen = shares(book)
    assert (batch["stop_reason"], batch["remaining"], batch["errors"]) == ("width_reached", 0, 0)
    assert 30 < batch["samples"] == group.n == len(till.came) < 200
    assert group.is_stopped_early
    for command, share in HABITS.items():
        action = seen[command or "(words only)"]
        assert action.interval.high - action.interval.low <= 0.35
        assert action.interval.low <= share <= action.interval.high
    with pytest.raises(NotFound):
        service.resume_batch(
            open_runtime(),
            open_run(open_runtime(), book.path.parent, "run"),
            "",
            service.SamplingOptions(BatchLimits(), lambda *_: None, base_url=till.url),
            {},
        )


def test_a_width_that_is_not_reached_costs_what_was_asked_for_and_no_more(book):
    with paying(model(5)) as till:
        batch = resample_request(book, till.url, 12, until_width=0.05)

    assert (batch["stop_reason"], batch["samples"], len(till.came)) == ("completed", 12, 12)


def test_an_answer_is_read_once_and_a_broken_one_tells_nothing(tmp_path):
    target = SampleTarget("session_01", 1, 0, "", 1, 9)
    widths = StoppingRule(tmp_path, 1.0, "")
    (tmp_path / SampleItem("session_01", 1, 0, 1).answer_file).parent.mkdir(parents=True)
    for number in range(1, 5):
        (tmp_path / SampleItem("session_01", 1, 0, number).answer_file).write_text(
            '{"content": [{"type": "text", "text": "x"}]}'
        )
    (tmp_path / SampleItem("session_01", 1, 0, 5).answer_file).write_text("[")

    assert widths.needs_more_samples(target)
    for number in range(1, 5):
        (tmp_path / SampleItem("session_01", 1, 0, number).answer_file).unlink()
    (tmp_path / SampleItem("session_01", 1, 0, 5).answer_file).write_text(
        '{"content": [{"type": "text", "text": "x"}]}'
    )
    assert not widths.needs_more_samples(target)
