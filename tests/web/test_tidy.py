"""Memory is given back."""

import gc
from pathlib import Path

from flightlog.web.tidy import give_back


def resident_mb():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


def test_what_nobody_uses_any_more_is_given_back():
    gc.disable()
    try:
        for _ in range(100_000):
            ring = [bytes(300)]
            ring.append(ring)
        before = resident_mb()
        give_back()
    finally:
        gc.enable()

    assert before - resident_mb() > 20
