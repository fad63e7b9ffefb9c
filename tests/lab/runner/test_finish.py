"""R3: a run killed at any system call of its end stays readable and comes to that end the next time."""

import shutil

import pytest

from flightlog.app.runtime import open_runtime
from flightlog.lab import service
from flightlog.lab.runner.run import continue_run
from flightlog.lab.store import RunStore
from flightlog.model.errors import Damage
from flightlog.store.jsonl import read_together
from support import strace_points
from support.labs import config, environment, meta, run

FINISH = """
from flightlog.app.runtime import open_runtime
from flightlog.lab.service import prepare_run
from flightlog.lab.store import RunStore
from flightlog.lab.runner.run import continue_run
setting = prepare_run(open_runtime({**os.environ, "HOME": str(root)}), lambda *_: None)
book = RunStore(root / "runs" / "run", now=setting.runtime.clock.timestamp, new_id=setting.runtime.new_id)
begin()
continue_run(book, setting, again=False)
end()
"""


@pytest.fixture
def unfinished_run(tmp_path):
    """A run whose sessions ended and that was never told to be over."""
    plain = {"engine": "command", "command": ("sh", "-c", "echo one > a"), "track_changes": False}
    path = run(
        tmp_path, config(tmp_path, None, "do it", "and more", capture_api_requests=False, **plain)
    ).path
    journal = path / ".journal.jsonl"
    lines = [
        line
        for line in journal.read_bytes().splitlines(keepends=True)
        if b'"run_ended"' not in line
    ]
    assert len(lines) < len(journal.read_bytes().splitlines())
    journal.write_bytes(b"".join(lines))
    (path / "run_meta.json").unlink()
    return tmp_path


def kill_at_points(unfinished_run, every):
    def prepare(root):
        shutil.copytree(unfinished_run / "runs", root / "runs")

    def check(root, _):
        path = root / "runs" / "run"
        assert not [
            record
            for record in read_together(path / ".journal.jsonl")
            if isinstance(record, Damage)
        ]
        setting = service.prepare_run(open_runtime(environment(root)), lambda *_: None)
        book = continue_run(
            RunStore(path, now=setting.runtime.clock.timestamp, new_id=setting.runtime.new_id),
            setting,
            again=False,
        )
        document = meta(book)
        assert (
            document["stop_reason"],
            [session["attempts"] for session in document["sessions"]],
        ) == (
            "completed",
            [1, 1],
        )
        assert not list(path.parent.glob(".work-*"))

    return strace_points.kill_everywhere(
        FINISH, unfinished_run / "points", prepare, check, every=every
    )


def test_run_killed_at_every_tenth_finishing_call_completes(unfinished_run):
    assert len(kill_at_points(unfinished_run, 10)) >= 3


@pytest.mark.soak
def test_run_killed_at_any_finishing_call_completes(unfinished_run):
    assert len(kill_at_points(unfinished_run, 1)) >= 20
