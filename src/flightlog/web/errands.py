"""Processes started from a page: what they are, what they said last, whether they still run.

Holds them as long as the server runs; those that still run when it ends are interrupted, as Ctrl-C
would, and leave what can be taken up again.
"""

import contextlib
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable

from flightlog.model.errors import Conflict, NotFound

AT_ONCE = 4
LINES_KEPT = 200
KEPT = 100
PATIENCE_S = 10.0


class BackgroundProcess:
    """One process."""

    def __init__(self, number: int, about: object, process: "subprocess.Popen[str]") -> None:
        """Listen to what it says."""
        self.number = number
        self.about = about
        self.said: deque[str] = deque(maxlen=LINES_KEPT)
        self._process = process
        self._thread = threading.Thread(target=self._read_stderr, name=f"errand-{number}", daemon=True)
        self._thread.start()

    @property
    def exit_code(self) -> int | None:
        """How it ended; None while it runs."""
        return None if self._thread.is_alive() else self._process.returncode

    def stop(self) -> None:
        """Interrupt it."""
        if self.exit_code is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGINT)

    def close(self) -> None:
        """Interrupt it and wait; one that does not end in time is killed."""
        self.stop()
        self._thread.join(PATIENCE_S)
        if self._thread.is_alive():
            self._process.kill()
            self._thread.join(PATIENCE_S)

    def _read_stderr(self) -> None:
        assert self._process.stderr is not None, "its talk is piped"
        for line in self._process.stderr:
            self.said.append(line.rstrip("\n")[:1000])
        self._process.stderr.close()
        self._process.wait()


class BackgroundProcesses:
    """Those of one server."""

    def __init__(self) -> None:
        """Begin with none."""
        self._lock = threading.Lock()
        self._all: dict[int, BackgroundProcess] = {}
        self._last = 0

    def start_process(self, about: object, begin: "Callable[[], subprocess.Popen[str]]") -> BackgroundProcess:
        """Start one, unless too many run."""
        with self._lock:
            if sum(each.exit_code is None for each in self._all.values()) >= AT_ONCE:
                raise Conflict(f"{AT_ONCE} replays are running already", hint="wait until one of them ended")
            self._last += 1
            errand = self._all[self._last] = BackgroundProcess(self._last, about, begin())
            ended = [number for number, each in self._all.items() if each.exit_code is not None]
            for number in ended[: max(len(self._all) - KEPT, 0)]:
                del self._all[number]
            return errand

    def find_process(self, number: int) -> BackgroundProcess:
        """The one with this number."""
        found = self._all.get(number)
        if found is None:
            raise NotFound(f"no replay {number} was started by this server", hint="flightlog lab list")
        return found

    def list_processes(self) -> list[BackgroundProcess]:
        """Those it knows, the latest first."""
        return list(self._all.values())[::-1]

    def close_all(self) -> None:
        """End what runs."""
        for each in self.list_processes():
            each.stop()
        for each in self.list_processes():
            each.close()
