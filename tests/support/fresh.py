"""Seeds nobody has seen before, the same in every process of one test run."""

import os
import random


def seeds(count):
    """Return fresh seeds; the processes that share a test run's work must agree on its tests."""
    draw = random.Random(
        os.environ.get("PYTEST_XDIST_TESTRUNUID") or random.SystemRandom().random()
    )
    return [draw.randrange(10**6) for _ in range(count)]
