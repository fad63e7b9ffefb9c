"""Running programs against each other: interleaved, medians, memory of the whole family."""

import json
import os
import resource
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple


class Contender(NamedTuple):
    """A command to time; `before` brings its surroundings into the state to be measured."""

    name: str
    command: Sequence[str]
    env: dict[str, str]
    before: Callable[[], None] = lambda: None


class Run(NamedTuple):
    """One run: seconds until the last byte of the report, until the end, of CPU; megabytes at most; the report."""

    printed_s: float
    wall_s: float
    cpu_s: float
    rss_mb: float
    output: str


class Result(NamedTuple):
    """Medians of several runs."""

    name: str
    printed_s: float
    wall_s: float
    cpu_s: float
    rss_mb: float
    output: str


def race(contenders: Sequence[Contender], rounds: int) -> dict[str, Result]:
    """Run all contenders `rounds` times, taking turns; their memory is watched in a turn of its own before.

    To look at the memory of a family takes processor time and the lock it maps files with. A single round is both.
    """
    runs: dict[str, list[Run]] = {contender.name: [] for contender in contenders}
    peaks: dict[str, float] = {}
    for turn in range(rounds + 1 if rounds > 1 else 1):
        for contender in contenders:
            contender.before()
            done = run(contender.command, contender.env, watched=not turn)
            peaks[contender.name] = max(done.rss_mb, peaks.get(contender.name, 0.0))
            if turn or rounds == 1:
                runs[contender.name].append(done)
    return {
        name: _median(name, measured)._replace(rss_mb=peaks[name])
        for name, measured in runs.items()
    }


def run(command: Sequence[str], env: dict[str, str], *, watched: bool = True) -> Run:
    """Run a program to its end, and watch its memory if told so."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = last = time.perf_counter()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=errors)
        watch = _Memory(process.pid) if watched else None
        assert process.stdout is not None
        parts = []
        while part := os.read(process.stdout.fileno(), 1 << 20):
            parts.append(part)
            last = time.perf_counter()
        process.stdout.close()
        process.wait()
        wall = time.perf_counter() - began
        peak = watch.stop() if watch else 0.0
        errors.seek(0)
        if process.returncode:
            raise SystemExit(
                f"{command[0]} failed: {errors.read().decode(errors='replace')[-2000:]}"
            )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Run(last - began, wall, cpu, peak, b"".join(parts).decode(errors="replace"))


def clear(path: Path) -> Callable[[], None]:
    """Return a step that empties a cache."""
    return lambda: shutil.rmtree(path, ignore_errors=True)


def parse_report(result: Result) -> dict[str, object]:
    """Return a JSON report."""
    value = json.loads(result.output)
    assert isinstance(value, dict)
    return value


def family_mb(process: int) -> float:
    """Return the resident memory of a process and its children."""
    return sum(map(_proportional_kb, _family(process))) / 1024


class _Memory:
    """Samples the resident memory of a process and its children."""

    def __init__(self, process: int) -> None:
        self.process, self.peak_kb = process, 0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()

    def stop(self) -> float:
        self.ended.set()
        self.thread.join()
        return self.peak_kb / 1024

    def _watch(self) -> None:
        while not self.ended.wait(0.02):
            self.peak_kb = max(self.peak_kb, sum(map(_proportional_kb, _family(self.process))))


def _family(process: int) -> list[int]:
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return [process]
    return [process, *(one for child in children for one in _family(int(child)))]


def _proportional_kb(process: int) -> int:
    """Resident memory, pages shared with a parent counted once."""
    try:
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    except OSError:
        pass
    return 0


def _median(name: str, runs: list[Run]) -> Result:
    printed, walls, cpus, peaks, outputs = zip(*runs, strict=True)
    middle = statistics.median
    return Result(name, middle(printed), middle(walls), middle(cpus), max(peaks), outputs[-1])


def plain_env(**more: str) -> dict[str, str]:
    """Return an environment that holds nothing of this machine but the path."""
    return {"PATH": os.environ["PATH"], "TZ": "UTC", "LANG": "C.UTF-8", **more}
