"""Whether an agent's process still runs, where the hook could not record its start."""

import os
import subprocess
import time

from flightlog.agents.claude_code.hooks import ClientStatus, StatusPayload
from flightlog.live.observe import ObservedSession, is_alive
from flightlog.sources.hook_log import StatusLaunch


def make_session(pid, at_s):
    status = ClientStatus(int(at_s * 1000), StatusLaunch(pid=pid), StatusPayload())
    return ObservedSession("s", status=status)


def test_without_proc_a_process_younger_than_its_record_is_another(tmp_path):
    ended = subprocess.Popen(["true"])
    ended.wait()

    assert is_alive(make_session(os.getpid(), time.time()), tmp_path)
    assert not is_alive(make_session(os.getpid(), time.time() - 86_400), tmp_path)
    assert not is_alive(make_session(ended.pid, time.time()), tmp_path)
    assert is_alive(make_session(0, time.time()), tmp_path) is None
