"""Dying, or failing, at every system call of a scenario: real processes under strace.

A scenario is Python source that calls `begin()` and `end()` around the part to be tried; its
first argument is the directory it works in. Ordinals are counted per call name from a baseline
run, because that is how strace counts.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CALLS = (
    "openat,write,pwrite64,fsync,fdatasync,rename,renameat,renameat2,ftruncate,flock,"
    "copy_file_range,ioctl,close,unlink,unlinkat,mkdir,mkdirat"
)
_PRELUDE = """
import os, sys
from pathlib import Path
def _mark(name):
    try: os.open(f"/no-such-directory/{name}", os.O_RDONLY)
    except OSError: pass
def begin(): _mark("begin")
def end(): _mark("end")
def ack(word): os.write(1, f"{word}\\n".encode())
root = Path(sys.argv[1])
"""
# Compiled modules of our own: those others write meanwhile would change how many calls an import takes.
_CACHE = tempfile.TemporaryDirectory(prefix="compiled-")
KEPT = ("PATH", "FLIGHTLOG_HOME")
_PYTHON = (sys.executable, "-I", "-X", f"pycache_prefix={_CACHE.name}")
Point = tuple[str, int]


def run(code: str, root: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a scenario in `root` under strace with these options."""
    program = [*_PYTHON, "-B", "-c", _PRELUDE + code, str(root)]
    return subprocess.run(
        ["strace", "-f", "-qq", *options, *program],
        capture_output=True,
        text=True,
        check=False,
        env={
            name: value
            for name, value in os.environ.items()
            if name in KEPT or name.startswith("COVERAGE")
        },
    )


def points(code: str, root: Path) -> list[Point]:
    """Run a scenario unharmed and name each system call between its marks."""
    imports = [line for line in code.splitlines() if re.match(r"(from |import |sys\.path)", line)]
    subprocess.run([*_PYTHON, "-c", _PRELUDE + "\n".join(imports), str(root)], check=True, env={})
    trace = root.with_name(root.name + ".trace")
    done = run(code, root, "-o", str(trace), "-e", f"trace={CALLS}")
    assert done.returncode == 0, done.stderr
    seen: Counter[str] = Counter()
    points_seen: list[Point] = []
    inside, main = False, ""
    for line in trace.read_text(errors="replace").splitlines():
        call = re.match(rf"{main or line.split(maxsplit=1)[0]}\s+(\w+)\(", line)
        if not call:
            continue
        # Faults are counted for each process on its own; the scenario is the first one.
        main = main or line.split(maxsplit=1)[0]
        seen[call[1]] += 1
        if "/no-such-directory/" in line:
            inside = "begin" in line
        elif inside and not line.partition("(")[2].startswith(
            "1,"
        ):  # an acknowledgement is no part of it
            points_seen.append((call[1], seen[call[1]]))
    return points_seen


def kill_everywhere(
    code: str,
    top: Path,
    prepare: Callable[[Path], None],
    check: Callable[[Path, list[str]], None],
    *,
    every: int = 1,
) -> list[Point]:
    """Kill a scenario at each point (or one in `every`), each time in a fresh directory, and check what it leaves."""
    _fresh(top / "baseline", prepare)
    named = points(code, top / "baseline")[::every]
    assert named, "the scenario does nothing"

    def kill(point: Point) -> None:
        root = _fresh(top / f"{point[0]}-{point[1]}", prepare)
        done = run(
            code,
            root,
            "-o",
            os.devnull,
            "-e",
            f"trace={point[0]}",
            "-e",
            inject(point, "signal=KILL"),
        )
        assert done.returncode in {-9, 137}, (point, done.returncode, done.stderr)
        check(root, done.stdout.split())

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(kill, named))
    return named


def fail_everywhere(
    code: str,
    top: Path,
    errors: list[str],
    prepare: Callable[[Path], None],
    check: Callable[[Path, list[str]], None],
) -> int:
    """Let each call of a scenario fail once with each error, and check what it leaves."""
    _fresh(top / "baseline", prepare)
    cases = [
        (point, error)
        for point in points(code, top / "baseline")
        for error in errors
        if point[0] != "close"
    ]

    def fail(case: tuple[Point, str]) -> None:
        point, error = case
        root = _fresh(top / f"{point[0]}-{point[1]}-{error}", prepare)
        trace = root.with_name(root.name + ".trace")
        options = ["--seccomp-bpf", "-o", str(trace), "-e", f"trace={point[0]}"]
        done = run(code, root, *options, "-e", inject(point, f"error={error}"))
        assert "(INJECTED)" in trace.read_text(errors="replace"), case
        assert "Traceback" not in done.stderr, (case, done.stderr)
        check(root, done.stdout.split())

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(fail, cases))
    return len(cases)


def inject(point: Point, what: str) -> str:
    """Name a fault the way strace wants it."""
    return f"inject={point[0]}:{what}:when={point[1]}"


def _fresh(root: Path, prepare: Callable[[Path], None]) -> Path:
    root.mkdir(parents=True)
    prepare(root)
    return root
