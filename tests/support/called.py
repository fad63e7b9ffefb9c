"""Which modules of flightlog are called, in the order of their first call."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_IS_FUNCTION = 1  # the flag CO_OPTIMIZED: bodies of modules and classes are no calls


@contextmanager
def called_modules() -> Iterator[list[str]]:
    """Give the modules called in the block by this thread and by threads that start in it."""
    called: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        name = frame.f_code.co_filename
        if event == "call" and frame.f_code.co_flags & _IS_FUNCTION and "/flightlog/" in name:
            module = name.rpartition("/flightlog/")[2].removesuffix(".py")
            if module not in called:
                called.append(module)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield called
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
