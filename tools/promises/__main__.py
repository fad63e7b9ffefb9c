"""Breaks promises one after the other and prints a table; exit code 1 when a test did not notice."""

import sys
import tempfile
import time
from pathlib import Path

from tools.promises.breaks import BREAKS
from tools.promises.trial import copied, noticed, tried


def main(wanted: list[str]) -> int:
    """Try every break, or those of the promises that are named."""
    chosen = [each for each in BREAKS if not wanted or each.promise in wanted]
    with tempfile.TemporaryDirectory(prefix="promise-") as folder:
        if tried(copied(Path(folder)), sorted({each.test for each in chosen})):
            sys.stdout.write("with nothing broken a test fails already\n")
            return 1
    missed = 0
    for each in chosen:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="promise-") as folder:
            seen = noticed(each, Path(folder))
        missed += not seen
        took = f"{time.monotonic() - began:6.1f} s"
        sys.stdout.write(f"{each.promise:4} {took}  {'noticed' if seen else 'MISSED '}  {each.file}  {each.test}\n")
        sys.stdout.flush()
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
