"""The guardian: a small process that ends a runner's tasks when the runner itself is killed.

Started as a script of its own, so it imports the standard library only. It reads process ids
from standard input («+12», «-12»); when that closes, whatever is left is killed: the groups
of these processes, and every process that carries the session's mark in its environment.
"""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

ROUNDS = 50
MARK = "FLIGHTLOG_LOOP"


def main() -> None:
    """Watch until standard input closes, then kill."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    mark = f"{MARK}={sys.argv[1]}".encode()
    alive: set[int] = set()
    for line in sys.stdin:
        with contextlib.suppress(ValueError):
            (alive.add if line[0] == "+" else alive.discard)(int(line[1:]))
    if alive:
        kill_groups(alive, mark)


def kill_groups(groups: set[int], mark: bytes) -> None:
    """Kill these groups and everything that carries `mark`, until nothing is left."""
    quiet = 0
    for _ in range(ROUNDS):
        for group in groups:
            with contextlib.suppress(OSError):
                os.killpg(group, signal.SIGKILL)
        found = processes_with_marker(mark)
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        # One that is just becoming another program shows no environment for a moment: look twice.
        quiet = 0 if found else quiet + 1
        if quiet > 1:
            return
        time.sleep(0.02)


def processes_with_marker(mark: bytes) -> list[int]:
    """Every process whose environment holds `mark`; none where the system does not tell."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark in path.read_bytes().split(b"\0") and int(path.parent.name) != os.getpid():
                found.append(int(path.parent.name))
    return found


if __name__ == "__main__":
    main()
