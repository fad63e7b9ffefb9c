"""Child processes that speak JSON lines; shell commands; CommandDriver.

The child gets a session of its own, so that one signal reaches it and what it started. Tools
of an agent may have left that group: before SIGKILL, its descendants are found with `ps`.
Knows nothing of any agent.

What it prints as JSON lines is kept; if it names a session as Claude Code's stream does, that is its
session. Where no word holds `{prompt}`, the prompt is the last word. The scripted agent is driven so.

Only the tail of what it says is held, so that a command that never stops talking costs nothing.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from msgspec import Struct

from flightlog.agents.claude_code.stream import read_session_id
from flightlog.agents.protocol import AgentOutcome, AgentPrompt, without_proxy

STOP_GRACE_S = 3.0
_PLACE = re.compile(r"\{(prompt|session_id|resume|model)\}")
TAIL_BYTES = 16_384


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


class CommandDriver(Struct, frozen=True):
    """A program that takes a prompt and works on it."""

    words: tuple[str, ...]
    agent: str = "command"
    model: str = ""
    said_version: str = ""

    def version(self, environment: Mapping[str, str]) -> str:  # noqa: ARG002 - the protocol's signature
        """What was said when the driver was made: there is no way to ask any program."""
        return self.said_version

    def start(self, ask: AgentPrompt) -> AgentProcess:
        """Start the program and return at once."""
        environment = without_proxy(ask.environment)
        command = [*ask.before, *self._fill_template(ask)]
        return AgentProcess(command, cwd=ask.cwd, environment=environment, session_of=read_session_id)

    def _fill_template(self, ask: AgentPrompt) -> list[str]:
        known = {"prompt": ask.prompt, "session_id": ask.session, "resume": ask.resume, "model": self.model}
        # In one pass, so that a prompt which speaks of `{model}` is passed on as it is.
        words = [_PLACE.sub(lambda found: known[found[1]], word) for word in self.words]
        asked = any("{prompt}" in word for word in self.words)
        return [*words, *ask.arguments] if asked else [*words, *ask.arguments, ask.prompt]


def scripted_driver(model: str, version: str) -> CommandDriver:
    """The scripted agent as a process of its own."""
    named = ("--session-id={session_id}", "--resume={resume}", "--model={model}", "--prompt={prompt}")
    return CommandDriver((sys.executable, "-m", "flightlog.agents.scripted.agent", *named), "scripted", model, version)


class ShellCommand:
    """A running command."""

    def __init__(self, command: str | Sequence[str], *, cwd: Path, environment: Mapping[str, str]) -> None:
        """Start it with exactly `environment`; a text is for the shell."""
        words = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
        self._child = subprocess.Popen(
            words,
            cwd=cwd,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._tail = bytearray()
        assert self._child.stdout is not None
        self._reader = threading.Thread(target=_collect_tail, args=(self._child.stdout, self._tail), daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The command's process, which is its group's too."""
        return self._child.pid

    def output_tail(self) -> str:
        """Return the last whole lines it said: the half of a value is not recognized as one."""
        data = bytes(self._tail)
        if len(data) == TAIL_BYTES:  # something before it is lost
            end = b"\n" if b"\n" in data[:-1] else b" "
            data = data.partition(end)[2]
        return data.decode("utf-8", "replace")

    def wait(self, timeout_s: float) -> int | None:
        """Wait for its end; None when time ran out."""
        try:
            code = self._child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        self._reader.join(0.5)  # something it left behind may still hold the pipe
        return code

    def stop(self, grace_s: float = STOP_GRACE_S) -> int:
        """End it and all it started: ask first, then kill."""
        code = terminate(self._child, grace_s)
        self._reader.join(0.5)
        return code


def _collect_tail(stream: IO[bytes], into: bytearray) -> None:
    with stream:
        while part := stream.read1(65536):  # type: ignore[attr-defined]
            into += part
            del into[:-TAIL_BYTES]
