"""The guardian: a small process that kills a runner's tasks if the runner itself is killed.

It runs as a script of its own, so it imports only the standard library. It reads process ids from
standard input («+12», «-12»). When that closes, it kills the groups of the remaining processes and
every process with the session's marker in its environment.
"""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

ROUNDS = 50  # one second at most; processes that fork faster than that cannot be caught
MARK = "FLIGHTLOG_LOOP"


def main() -> None:
    """Watch until standard input closes, then kill."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    mark = f"{MARK}={sys.argv[1]}".encode()
    alive: set[int] = set()
    for line in sys.stdin:
        with contextlib.suppress(ValueError):
            (alive.add if line[0] == "+" else alive.discard)(int(line[1:]))
    if alive:
        kill_groups(alive, mark)


def kill_groups(groups: set[int], mark: bytes) -> None:
    """Kill these process groups and every process with `mark`, until none is left."""
    quiet = 0
    for _ in range(ROUNDS):
        for group in groups:
            with contextlib.suppress(OSError):
                os.killpg(group, signal.SIGKILL)
        pids = processes_with_marker(mark)
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        # During `exec` a process shows no environment for a moment, so one empty result may be wrong.
        quiet = 0 if pids else quiet + 1
        if quiet > 1:
            return
        time.sleep(0.02)


def processes_with_marker(mark: bytes) -> list[int]:
    """Return the processes with `mark` in their environment; none on systems without /proc."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark in path.read_bytes().split(b"\0") and int(path.parent.name) != os.getpid():
                pids.append(int(path.parent.name))
    return pids


if __name__ == "__main__":
    main()
