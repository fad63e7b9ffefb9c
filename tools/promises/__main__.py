"""Breaks promises, two at a time, and prints a table; exit code 1 when a test did not notice.

python -m tools.promises [R7 ...] [--runs 3]
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.promises.breaks import BREAKS, Break
from tools.promises.trial import copy_project, is_noticed, run_tests

AT_ONCE = 2  # most of these tests wait for disks and processes; with more, those that measure time fail by themselves


def main(arguments: Sequence[str]) -> int:
    """Run the named tests unbroken once, then every break, or those of the promises that are named."""
    parser = argparse.ArgumentParser(prog="python -m tools.promises")
    parser.add_argument("promises", nargs="*", metavar="R1")
    parser.add_argument("--runs", type=int, default=1, help="Try each break this many times.")
    given = parser.parse_args(arguments)
    chosen = [broken for broken in BREAKS if not given.promises or broken.promise in given.promises]
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="promise-", ignore_cleanup_errors=True) as folder:
        if run_tests(copy_project(Path(folder)), sorted({broken.test for broken in chosen})):
            sys.stdout.write("with nothing broken a test fails already\n")
            return 1
    _say("", time.monotonic() - began, "sound", f"{len({broken.test for broken in chosen})} tests")
    wanted = sorted(chosen, key=lambda broken: broken.test) * given.runs
    with ThreadPoolExecutor(AT_ONCE) as pool:
        missed = sum(not seen for seen in pool.map(_try, wanted))
    _say("", time.monotonic() - began, "all", f"{len(wanted)} breaks, {missed} missed")
    return int(missed > 0)


def _try(broken: Break) -> bool:
    """Say whether the break was noticed, and print its row of the table."""
    began = time.monotonic()
    # A broken promise may leave a process that still writes there.
    with tempfile.TemporaryDirectory(prefix="promise-", ignore_cleanup_errors=True) as folder:
        seen = is_noticed(broken, Path(folder))
    _say(
        broken.promise,
        time.monotonic() - began,
        "noticed" if seen else "MISSED",
        f"{broken.file}  {broken.test}",
    )
    return seen


def _say(promise: str, seconds: float, word: str, what: str) -> None:
    sys.stdout.write(f"{promise:4} {seconds:7.1f} s  {word:8} {what}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
