"""Giving memory back after a large piece of work: a server lives for days."""

import ctypes
import gc
from contextlib import suppress


def give_back() -> None:
    """Collect what is no longer used and return it to the system, where the C library can."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
