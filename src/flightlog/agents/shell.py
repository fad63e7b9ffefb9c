"""Running a command to its end: its last words kept, its whole family ended when it must stop.

Only the tail of what it says is held, so that a command that never stops talking costs nothing.
"""

import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from flightlog.agents.process import STOP_GRACE_S, terminate

TAIL_BYTES = 16_384


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
