"""Child processes: agents that write JSON lines, shell commands, CommandDriver.

Every child gets its own process session. Tools of an agent may leave it, so before SIGKILL the
descendants are found with `ps`.
"""

import errno
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
from flightlog.model.errors import Invalid
from flightlog.sources.foreign_json import parse_object

STOP_GRACE_S = 3.0  # between SIGTERM and SIGKILL
TAIL_BYTES = 16_384  # what is stored of a command's output, so that an endless one costs no memory
# For the last output after the end; a tool that outlived its parent may hold the pipe.
_READER_S = 0.5
_PLACEHOLDER = re.compile(r"\{(prompt|session_id|resume|model)\}")


class AgentProcess:
    """A running agent whose stdout is read line by line; `session_of` returns its session's id."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: Path,
        environment: Mapping[str, str],
        session_of: Callable[[Sequence[dict[str, Any]]], str],
        stdin: bytes = b"",
    ) -> None:
        """Start `command` with exactly `environment` and only `stdin` on its stdin."""
        pipe = subprocess.PIPE
        self._child = _start_child(command, cwd, environment, pipe, has_input=bool(stdin))
        if self._child.stdin is not None:
            arguments = (self._child.stdin, stdin)
            threading.Thread(target=_write_input, args=arguments, daemon=True).start()
        self._session_of = session_of
        self._read = 0
        self._lines: list[bytes] = []
        self._errors: list[bytes] = []
        self._readers = [
            threading.Thread(target=_collect_lines, args=arguments, daemon=True)
            for arguments in ((self._child.stdout, self._lines), (self._child.stderr, self._errors))
        ]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        """The agent's process id, which is also that of its group."""
        return self._child.pid

    def records(self) -> list[dict[str, Any]]:
        """Return the JSON objects written so far."""
        return _decode_records(list(self._lines))

    def news(self) -> list[dict[str, Any]]:
        """Return the JSON objects written since the last call."""
        lines = self._lines[self._read :]
        self._read += len(lines)
        return _decode_records(lines)

    def signal(self, number: int) -> None:
        """Send a signal to the agent alone, not to its descendants."""
        self._child.send_signal(number)

    def look(self, timeout_s: float) -> AgentOutcome | None:
        """Return the outcome if the agent ends within `timeout_s`, else None."""
        try:
            return self._outcome(self._child.wait(timeout_s))
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout_s: float) -> AgentOutcome:
        """Return the outcome; after `timeout_s`, stop the agent and its descendants."""
        outcome = self.look(timeout_s)
        return outcome or self._outcome(terminate(self._child, STOP_GRACE_S), timed_out=True)

    def stop(self) -> AgentOutcome:
        """Stop the agent and its descendants: SIGTERM first, then SIGKILL."""
        return self._outcome(terminate(self._child, STOP_GRACE_S))

    def kill(self) -> AgentOutcome:
        """Kill the agent and its descendants at once."""
        with suppress(ProcessLookupError):  # frozen first, so that it starts no more of them
            self._child.send_signal(signal.SIGSTOP)
        send_signal({self.pid, *find_descendants(self.pid)}, signal.SIGKILL)
        return self._outcome(self._child.wait())

    def _outcome(self, code: int, *, timed_out: bool = False) -> AgentOutcome:
        for reader in self._readers:
            reader.join(_READER_S)
        records = tuple(self.records())
        plain = b"".join(line for line in list(self._lines) if parse_object(line) is None)
        stderr, text = (data.decode("utf-8", "replace") for data in (b"".join(self._errors), plain))
        return AgentOutcome(code, self._session_of(records), records, stderr, timed_out, text)


def terminate(child: "subprocess.Popen[bytes]", grace_s: float) -> int:
    """Stop a child and its descendants with SIGTERM, then SIGKILL, and return its exit code."""
    pids = {child.pid, *find_descendants(child.pid)}
    send_signal(pids, signal.SIGTERM)
    try:
        child.wait(grace_s)
    except subprocess.TimeoutExpired:
        pids |= find_descendants(child.pid)
    send_signal(pids, signal.SIGKILL)
    return child.wait()


def end_process_tree(pid: int) -> None:
    """Stop a process that is not our child, and its descendants; the caller has verified the id."""
    pids = {pid, *find_descendants(pid)}
    send_signal(pids, signal.SIGTERM)
    deadline = time.monotonic() + STOP_GRACE_S
    while time.monotonic() < deadline and any(_exists(process) for process in pids):
        time.sleep(0.05)
    send_signal(pids | find_descendants(pid), signal.SIGKILL)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def find_descendants(pid: int) -> set[int]:
    """Return the ids of all processes below `pid`; none if there is no `ps`."""
    try:
        table = subprocess.run(
            ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=False
        ).stdout
    except OSError:
        return set()
    lines = (line.split() for line in table.splitlines())
    parents = {int(child): int(parent) for child, parent in lines}
    descendants: set[int] = set()
    while (
        more := {child for child, parent in parents.items() if parent in descendants | {pid}}
        - descendants
    ):
        descendants |= more
    return descendants


def send_signal(pids: set[int], number: int) -> None:
    """Send a signal to each process that still exists."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _start_child(
    command: Sequence[str],
    cwd: Path,
    environment: Mapping[str, str],
    stderr: int,
    *,
    has_input: bool = False,
) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(
            list(command),
            cwd=cwd,
            env=dict(environment),
            stdin=subprocess.PIPE if has_input else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
        )
    except OSError as error:
        if error.errno != errno.E2BIG:
            raise
        longest = max(len(os.fsencode(word)) for word in command)
        hint = "shorten the prompt, or let it name a file to read"
        text = f"an argument of the agent is too long for this system: {longest:,} bytes"
        raise Invalid(text, hint=hint) from None


def _write_input(stream: IO[bytes], data: bytes) -> None:
    with suppress(BrokenPipeError), stream:  # the agent may end without reading all of it
        stream.write(data)


def _collect_lines(stream: IO[bytes], lines: list[bytes]) -> None:
    with stream:
        lines.extend(iter(stream.readline, b""))


def _decode_records(lines: Iterable[bytes]) -> list[dict[str, Any]]:
    return [record for line in lines if (record := parse_object(line)) is not None]


class CommandDriver(Struct, frozen=True):
    """Drives any program that takes a prompt; its command is `words` with placeholders replaced.

    If no word contains `{prompt}`, the prompt becomes the last word. If the program prints records
    that name a session as Claude Code's stream does, that is its session.
    """

    words: tuple[str, ...]
    agent: str = "command"
    model: str = ""
    said_version: str = ""

    def version(self, environment: Mapping[str, str]) -> str:  # noqa: ARG002 - the protocol's signature
        """Return the version given to the constructor: not every program can report its own."""
        return self.said_version

    def start(self, prompt: AgentPrompt) -> AgentProcess:
        """Start the program and return at once."""
        values = {
            "prompt": prompt.prompt,
            "session_id": prompt.session,
            "resume": prompt.resume,
            "model": self.model,
        }
        # One pass, so that a prompt that contains `{model}` is passed on unchanged.
        words = [_PLACEHOLDER.sub(lambda match: values[match[1]], word) for word in self.words]
        last = () if any("{prompt}" in word for word in self.words) else (prompt.prompt,)
        return AgentProcess(
            [*prompt.before, *words, *prompt.arguments, *last],
            cwd=prompt.cwd,
            environment=without_proxy(prompt.environment),
            session_of=read_session_id,
        )


def scripted_driver(model: str, version: str) -> CommandDriver:
    """Return a driver of the scripted agent."""
    options = tuple(
        "--session-id={session_id} --resume={resume} --model={model} --prompt={prompt}".split()
    )
    command = (sys.executable, "-m", "flightlog.agents.scripted.agent", *options)
    return CommandDriver(command, "scripted", model, version)


class ShellCommand:
    """A running command, of whose output only the tail is stored."""

    def __init__(
        self, command: str | Sequence[str], *, cwd: Path, environment: Mapping[str, str]
    ) -> None:
        """Start it with exactly `environment`; the shell runs a string."""
        words = ["/bin/sh", "-c", command] if isinstance(command, str) else command
        self._child = _start_child(words, cwd, environment, stderr=subprocess.STDOUT)
        self._tail, self._unread = bytearray(), bytearray()
        assert self._child.stdout is not None
        buffers = (self._child.stdout, self._tail, self._unread)
        self._reader = threading.Thread(target=_collect_tail, args=buffers, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The command's process id, which is also that of its group."""
        return self._child.pid

    def new_output(self) -> str:
        """Return the complete lines since the last call; very fast output is shown in part."""
        ended = self._child.poll() is not None
        end = len(self._unread) if ended else self._unread.rfind(b"\n") + 1
        data = bytes(self._unread[:end])
        del self._unread[:end]  # the reader only appends
        return data.decode("utf-8", "replace").rstrip("\n")

    def output_tail(self) -> str:
        """Return the last complete lines: redaction would not recognize half a secret."""
        data = bytes(self._tail)
        if len(data) == TAIL_BYTES:  # earlier output was dropped
            end = b"\n" if b"\n" in data[:-1] else b" "
            data = data.partition(end)[2]
        return data.decode("utf-8", "replace")

    def wait(self, timeout_s: float) -> int | None:
        """Return the exit code, or None if the command runs longer than `timeout_s`."""
        try:
            code = self._child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        self._reader.join(_READER_S)
        return code

    def stop(self, grace_s: float = STOP_GRACE_S) -> int:
        """Stop the command and its descendants and return its exit code."""
        code = terminate(self._child, grace_s)
        self._reader.join(_READER_S)
        return code


def _collect_tail(stream: IO[bytes], tail: bytearray, unread: bytearray) -> None:
    with stream:
        while part := stream.read1(65536):  # type: ignore[attr-defined]
            tail += part
            del tail[:-TAIL_BYTES]
            unread += part[: max(TAIL_BYTES - len(unread), 0)]
