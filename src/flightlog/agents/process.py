"""A child process that speaks JSON lines, and its end without orphans.

The child gets a session of its own, so that one signal reaches it and what it started. Tools
of an agent may have left that group: before the last blow their parents are asked (`ps`).
Knows nothing of any agent.
"""

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from flightlog.agents.driver import Outcome

STOP_GRACE_S = 3.0


ReadSessionId = Callable[[Sequence[Mapping[str, Any]]], str]


class JsonProcess:
    """A running child whose stdout is read line by line while it works."""

    def __init__(self, command: Sequence[str], *, cwd: Path, environment: Mapping[str, str]) -> None:
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
        self._lines: list[bytes] = []
        self._errors: list[bytes] = []
        self._readers = [
            threading.Thread(target=_collect, args=pair, daemon=True)
            for pair in ((self._child.stdout, self._lines), (self._child.stderr, self._errors))
        ]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        """The child's process id, which is its group's too."""
        return self._child.pid

    def records(self) -> list[dict[str, Any]]:
        """The JSON objects among the lines said so far."""
        return [record for line in list(self._lines) if (record := _record(line)) is not None]

    def records_after(self, line: int) -> tuple[list[dict[str, Any]], int]:
        """The JSON objects among the lines after the first `line`, and how many lines there are now."""
        lines = self._lines[line:]
        return [record for each in lines if (record := _record(each)) is not None], line + len(lines)

    def plain(self) -> str:
        """The lines said so far that are no JSON objects."""
        return b"".join(line for line in list(self._lines) if _record(line) is None).decode("utf-8", "replace")

    def stderr(self) -> str:
        """What it complained about so far."""
        return b"".join(self._errors).decode("utf-8", "replace")

    def signal(self, number: int) -> None:
        """Send a signal to the child alone."""
        self._child.send_signal(number)

    def wait(self, timeout_s: float) -> int | None:
        """Wait for the end and return the exit code, or None when time ran out."""
        try:
            code = self._child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        self._finish()
        return code

    def stop(self) -> int:
        """End the child and all it started: ask first, then kill."""
        code = ended(self._child, STOP_GRACE_S)
        self._finish()
        return code

    def kill(self) -> int:
        """End the child and all it started without another word: frozen first, so that nothing more is begun."""
        with suppress(ProcessLookupError):
            self._child.send_signal(signal.SIGSTOP)
        send({self.pid, *descendants(self.pid)}, signal.SIGKILL)
        code = self._child.wait()
        self._finish()
        return code

    def _finish(self) -> None:
        # A tool that outlived the agent may still hold the pipe; what it says is not the agent's.
        for reader in self._readers:
            reader.join(0.5)


class AgentProcess:
    """An agent at work that prints JSON lines."""

    def __init__(self, process: JsonProcess, read_session_id: ReadSessionId) -> None:
        """Watch `process`; `read_session_id` finds the session in the records it prints."""
        self._process, self._read_session_id = process, read_session_id
        self._read = 0

    @property
    def pid(self) -> int:
        """The client's process."""
        return self._process.pid

    def records(self) -> list[dict[str, Any]]:
        """The stream records so far."""
        return self._process.records()

    def news(self) -> list[dict[str, Any]]:
        """The stream records since the last call."""
        records, self._read = self._process.records_after(self._read)
        return records

    def look(self, timeout_s: float) -> Outcome | None:
        """Wait a little for the end; None while the client is at work."""
        code = self._process.wait(timeout_s)
        return None if code is None else self._outcome(code)

    def kill(self) -> Outcome:
        """End the client at once, with everything it started: not one more call."""
        return self._outcome(self._process.kill())

    def signal(self, number: int) -> None:
        """Send a signal to the client alone."""
        self._process.signal(number)

    def wait(self, timeout_s: float) -> Outcome:
        """Wait for the end; past the limit the client is stopped with everything it started."""
        code = self._process.wait(timeout_s)
        return self._outcome(self._process.stop(), timed_out=True) if code is None else self._outcome(code)

    def stop(self) -> Outcome:
        """End the client now, with everything it started."""
        return self._outcome(self._process.stop())

    def _outcome(self, code: int, *, timed_out: bool = False) -> Outcome:
        records = tuple(self._process.records())
        return Outcome(
            code, self._read_session_id(records), records, self._process.stderr(), timed_out, self._process.plain()
        )


def ended(child: "subprocess.Popen[bytes]", grace_s: float) -> int:
    """End a child of ours and all it started, asking first and then killing, and return its exit code."""
    family = {child.pid, *descendants(child.pid)}
    send(family, signal.SIGTERM)
    try:
        child.wait(grace_s)
    except subprocess.TimeoutExpired:
        family |= descendants(child.pid)
    send(family, signal.SIGKILL)
    return child.wait()


def end_family(pid: int) -> None:
    """End a process that is not our child, and all it started; the caller knows that it is the right one."""
    family = {pid, *descendants(pid)}
    send(family, signal.SIGTERM)
    deadline = time.monotonic() + STOP_GRACE_S
    while time.monotonic() < deadline and any(_is_there(each) for each in family):
        time.sleep(0.05)
    send(family | descendants(pid), signal.SIGKILL)


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def descendants(pid: int) -> set[int]:
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


def send(pids: set[int], number: int) -> None:
    """Send a signal to each of them that is still there."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def _collect(stream: IO[bytes], into: list[bytes]) -> None:
    with stream:
        into.extend(iter(stream.readline, b""))


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None
