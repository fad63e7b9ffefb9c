"""A child process that speaks JSON lines, and its end without orphans.

The child gets a session of its own, so that one signal reaches it and what it started. Tools
of an agent may have left that group: before SIGKILL, its descendants are found with `ps`.
Knows nothing of any agent.
"""

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from flightlog.agents.driver import AgentOutcome

STOP_GRACE_S = 3.0


class AgentProcess:
    """A running agent whose stdout is read line by line; `session_of` names the session of its records."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: Path,
        environment: Mapping[str, str],
        session_of: Callable[[Sequence[dict[str, Any]]], str],
    ) -> None:
        """Start `command` with exactly `environment` and nothing on its stdin."""
        self._child = subprocess.Popen(
            list(command),
            cwd=cwd,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._session_of = session_of
        self._read = 0
        self._lines: list[bytes] = []
        self._errors: list[bytes] = []
        self._readers = [
            threading.Thread(target=_collect_lines, args=pair, daemon=True)
            for pair in ((self._child.stdout, self._lines), (self._child.stderr, self._errors))
        ]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        """The agent's process id, which is its group's too."""
        return self._child.pid

    def records(self) -> list[dict[str, Any]]:
        """Return the JSON objects written so far."""
        return _records(list(self._lines))

    def news(self) -> list[dict[str, Any]]:
        """Return the JSON objects written since the last call."""
        lines = self._lines[self._read :]
        self._read += len(lines)
        return _records(lines)

    def signal(self, number: int) -> None:
        """Send a signal to the agent alone, as a person or the system would."""
        self._child.send_signal(number)

    def look(self, timeout_s: float) -> AgentOutcome | None:
        """Wait a little for the end; None while the agent is at work."""
        try:
            return self._outcome(self._child.wait(timeout_s))
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout_s: float) -> AgentOutcome:
        """Wait for the end; past the limit the agent is stopped with everything it started."""
        return self.look(timeout_s) or self._outcome(terminate(self._child, STOP_GRACE_S), timed_out=True)

    def stop(self) -> AgentOutcome:
        """End the agent and all it started: SIGTERM first, then SIGKILL."""
        return self._outcome(terminate(self._child, STOP_GRACE_S))

    def kill(self) -> AgentOutcome:
        """End the agent and all it started at once: frozen first, so that it begins nothing more."""
        with suppress(ProcessLookupError):
            self._child.send_signal(signal.SIGSTOP)
        send_signal({self.pid, *find_descendants(self.pid)}, signal.SIGKILL)
        return self._outcome(self._child.wait())

    def _outcome(self, code: int, *, timed_out: bool = False) -> AgentOutcome:
        # A tool that outlived the agent may still hold the pipe; what it writes is not the agent's.
        for reader in self._readers:
            reader.join(0.5)
        records = tuple(self.records())
        plain = b"".join(line for line in list(self._lines) if _decode_record(line) is None)
        stderr, other = (data.decode("utf-8", "replace") for data in (b"".join(self._errors), plain))
        return AgentOutcome(code, self._session_of(records), records, stderr, timed_out, other)


def terminate(child: "subprocess.Popen[bytes]", grace_s: float) -> int:
    """End a child of ours and all it started, asking first and then killing, and return its exit code."""
    family = {child.pid, *find_descendants(child.pid)}
    send_signal(family, signal.SIGTERM)
    try:
        child.wait(grace_s)
    except subprocess.TimeoutExpired:
        family |= find_descendants(child.pid)
    send_signal(family, signal.SIGKILL)
    return child.wait()


def end_process_tree(pid: int) -> None:
    """End a process that is not our child, and all it started; the caller knows that it is the right one."""
    family = {pid, *find_descendants(pid)}
    send_signal(family, signal.SIGTERM)
    deadline = time.monotonic() + STOP_GRACE_S
    while time.monotonic() < deadline and any(_is_there(each) for each in family):
        time.sleep(0.05)
    send_signal(family | find_descendants(pid), signal.SIGKILL)


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def find_descendants(pid: int) -> set[int]:
    """Every process below `pid`, as `ps` tells it; nothing when there is no `ps`."""
    try:
        table = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=False).stdout
    except OSError:
        return set()
    parents = {int(child): int(parent) for child, parent in (line.split() for line in table.splitlines())}
    found: set[int] = set()
    while more := {child for child, parent in parents.items() if parent in found | {pid}} - found:
        found |= more
    return found


def send_signal(pids: set[int], number: int) -> None:
    """Send a signal to each of them that is still there."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def _collect_lines(stream: IO[bytes], into: list[bytes]) -> None:
    with stream:
        into.extend(iter(stream.readline, b""))


def _records(lines: Iterable[bytes]) -> list[dict[str, Any]]:
    return [record for line in lines if (record := _decode_record(line)) is not None]


def _decode_record(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None
