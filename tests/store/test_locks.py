"""Locks between processes: time limits, holders, leases."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flightlog.model.errors import Conflict
from flightlog.store.locks import (
    Lease,
    exclusive_lock,
    find_holder,
    holder_note,
    read_process,
    was_interrupted,
)
from support.strace_points import run
from support.waiting import until

SOURCE = Path(__file__).parents[2] / "src" / "flightlog"


def test_a_lease_is_held_by_one_and_says_by_whom(tmp_path):
    lease = Lease(tmp_path / "l", "the first")

    with pytest.raises(Conflict, match="held by the first"):
        Lease(tmp_path / "l", "the second")

    assert holder_note(tmp_path / "l") == "the first"
    lease.release()
    assert holder_note(tmp_path / "l") == ""
    Lease(tmp_path / "l", "the second").release()


def test_holder_of_a_stolen_lease_learns_it_and_clears_nothing(tmp_path):
    old = Lease(tmp_path / "l", "the old one")
    new = Lease(tmp_path / "l", "the new one", steal=True)

    with pytest.raises(Conflict, match="the new one"):
        old.check_owner()
    old.release()

    new.check_owner()
    assert holder_note(tmp_path / "l") == "the new one"
    with pytest.raises(Conflict):
        Lease(tmp_path / "l", "a third")
    new.release()


def test_a_missing_lock_file_has_no_holder(tmp_path):
    assert holder_note(tmp_path / "none") == ""


def test_a_second_holder_learns_who_holds_the_lock(tmp_path):
    with (
        exclusive_lock(tmp_path / "made" / "lock", who="loop 7"),
        pytest.raises(Conflict, match="held by loop 7"),
        exclusive_lock(tmp_path / "made" / "lock"),
    ):
        pass  # pragma: no cover

    with exclusive_lock(tmp_path / "made" / "lock"):
        assert (tmp_path / "made" / "lock").read_text() == f"process {os.getpid()}"


def test_a_lock_dies_with_its_holder(tmp_path):
    code = """
from flightlog.store.locks import exclusive_lock
with exclusive_lock(root / "lock"): os.kill(os.getpid(), 9)
"""
    assert run(code, tmp_path, "-o", os.devnull, "-e", "trace=flock").returncode == -9

    with exclusive_lock(tmp_path / "lock"):
        pass


@pytest.mark.parametrize("error", ["ENOLCK", "EOPNOTSUPP", "ENOSYS", "EIO"])
def test_a_file_system_without_locks_is_said_to_have_none(tmp_path, error):
    code = """
from flightlog.store.locks import exclusive_lock
from flightlog.model.errors import Unavailable
try:
    with exclusive_lock(root / "lock"): ack("held")
except Unavailable as error: ack("refused")
"""
    done = run(
        code, tmp_path, "-o", os.devnull, "-e", "trace=flock", "-e", f"inject=flock:error={error}"
    )

    assert done.stdout.split() == ["refused"]


def test_a_waiting_lock_gives_up_at_its_limit(tmp_path):
    with exclusive_lock(tmp_path / "lock"):
        start = time.monotonic()

        with (
            pytest.raises(Conflict, match="held by process"),
            exclusive_lock(tmp_path / "lock", limit_s=0.05),
        ):
            pass  # pragma: no cover

        assert 0.05 <= time.monotonic() - start < 1


def test_a_lock_that_was_released_leaves_no_note(tmp_path):
    with exclusive_lock(tmp_path / "lock", who="a settle"):
        assert holder_note(tmp_path / "lock") == "a settle"

    assert find_holder(tmp_path / "lock") is None
    assert not was_interrupted(tmp_path / "lock")


def test_a_holder_that_died_leaves_its_note(tmp_path):
    code = f"""
import os
from pathlib import Path
from flightlog.store.locks import exclusive_lock
with exclusive_lock(Path({str(tmp_path / "lock")!r}), who="a settle"): os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", code], check=False)

    assert was_interrupted(tmp_path / "lock")
    assert holder_note(tmp_path / "lock") == ""


def test_a_stopped_holder_is_named_with_pid_command_and_start(tmp_path):
    code = f"import fcntl, time; f = open({str(tmp_path / 'lock')!r}, 'w'); fcntl.flock(f, 2); time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", code])
    try:
        until(lambda: find_holder(tmp_path / "lock"))
        os.kill(child.pid, signal.SIGSTOP)
        until(lambda: find_holder(tmp_path / "lock").state == "stopped")

        with pytest.raises(Conflict) as refused, exclusive_lock(tmp_path / "lock"):
            pass  # pragma: no cover

        assert (
            f"held by process {child.pid}, running {sys.executable} -c import fcntl"
            in refused.value.message
        )
        assert time.strftime("since %Y-%m-%d", time.gmtime()) in refused.value.message
        assert ", stopped: " in refused.value.message
        assert refused.value.hint == f"kill -CONT {child.pid}"
    finally:
        child.kill()
        child.wait()


def test_without_proc_ps_describes_the_holder_of_a_lock(tmp_path):
    child = subprocess.Popen(["sleep", "60"])
    try:
        os.kill(child.pid, signal.SIGSTOP)
        until(lambda: read_process(child.pid, tmp_path)[0] == "stopped")

        state, started_s, command = read_process(child.pid, tmp_path)

        assert (state, command) == ("stopped", "sleep 60")
        assert abs(started_s - time.time()) < 60
    finally:
        child.kill()
        child.wait()
    assert read_process(child.pid, tmp_path) == ("gone", 0.0, "")


def test_only_this_module_and_the_hook_lock_files():
    users = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if re.search(r"\b(flock|lockf)\(", path.read_text("utf-8"))
    }

    assert users == {"store/locks.py", "hooks/settle_gate.py", "hooks/writer.py"}
