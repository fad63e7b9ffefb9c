"""What jobs can be, by name: functions of bytes that a worker process finds by importing this package.

Each reads the environment of the machine it runs on, the key among it; a job carries none.
"""

import os
from collections.abc import Callable

from flightlog.model.errors import Invalid

Work = Callable[[bytes, bytes], bytes]


def sample(payload: bytes, shared: bytes) -> bytes:
    """Send one request to a model."""
    from flightlog.lab.resampling.sending import sent_alone  # noqa: PLC0415 - a worker imports what it does

    return sent_alone(payload, shared, os.environ)


WORKS: dict[str, Work] = {"sample": sample}


def carry_out(work: str, payload: bytes, shared: bytes) -> bytes:
    """Carry a job out."""
    if work not in WORKS:
        raise Invalid(f"this worker knows no work named {work[:40]!r}", hint="install the same flightlog everywhere")
    return WORKS[work](payload, shared)
