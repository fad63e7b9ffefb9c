"""The processor time that one block of a test takes."""

import gc
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def measure_cpu() -> Iterator[list[float]]:
    """Give a list that holds the seconds of the block, once the block has ended.

    Counted is the work of this thread and of the processes that the block started and waited for.
    Objects of earlier tests are frozen meanwhile: a worker that ran thousands of tests needs a second
    for one full garbage collection, which would be counted as work of the block.
    """
    seconds: list[float] = []
    gc.freeze()
    began = _work_so_far()
    try:
        yield seconds
    finally:
        seconds.append(_work_so_far() - began)
        gc.unfreeze()


def _work_so_far() -> float:
    times = os.times()
    return time.thread_time() + times.children_user + times.children_system
