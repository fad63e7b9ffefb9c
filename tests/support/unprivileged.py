"""Running a function as a user for whom permissions count; as root, none of them does."""

import os
import pickle
from collections.abc import Callable
from typing import Any

NO_LIMITS = 65534


def run_unprivileged(act: Callable[[], Any]) -> Any:
    """Return what `act` returns when a plain user runs it; only what is imported already is at hand."""
    if os.getuid() != 0:
        return act()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setgroups([])
            os.setgid(NO_LIMITS)
            os.setuid(NO_LIMITS)
            os.write(writer, pickle.dumps(act()))
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    assert status == 0, "the function failed"
    return pickle.loads(answer)
