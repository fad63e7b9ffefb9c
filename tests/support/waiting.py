"""Waiting for other processes, and looking at them."""

import time
from pathlib import Path


def until(question, limit_s=20):
    """Ask again until the answer is true, and return it."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if answer := question():
            return answer
        time.sleep(0.02)
    raise AssertionError(f"{question} stayed false for {limit_s} s")


def command_line(pid):
    """What a process runs; nothing when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def alive(pid):
    """Whether a process still runs."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def processes():
    """The ids of all processes."""
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def below(pid):
    """The processes a process started, and theirs."""
    parents = {}
    for process in processes():
        try:
            parents[process] = int(
                Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1]
            )
        except OSError:
            continue
    descendants = {pid}
    while (
        more := {child for child, parent in parents.items() if parent in descendants} - descendants
    ):
        descendants |= more
    return descendants - {pid}


def environ(pid):
    """The environment a process was started with; nothing when it is gone."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes() + b"\0"
    except OSError:
        return b""
