"""Work shared out among forked children, which deliver results while they go on.

Children take task numbers from a shared pipe until none is left, so a busy core does not delay the
others. A child that dies costs time, never a result: what it did not deliver is left to the caller.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

import msgspec

if TYPE_CHECKING:
    from io import RawIOBase

TICKETS_MAX = 4096
_TICKET_BYTES = 4
_LENGTH_BYTES = 4
_PARCEL_BYTES = 1 << 18
_PIPE_BYTES = 1 << 20

_encode = msgspec.msgpack.Encoder().encode
T = TypeVar("T")


def may_fork() -> bool:
    """Return whether this is the only thread; a forked child would never get the locks of others."""
    threading = sys.modules.get("threading")
    return threading is None or threading.active_count() == 1


def run_forked(
    count: int, work: Callable[[int], T], decode: Callable[[bytes | bytearray], T], workers: int
) -> Iterator[T]:
    """Yield the results of `work` for each number below `count` (at most `TICKETS_MAX`), in any order."""
    tickets, box = os.pipe()
    os.write(box, b"".join(number.to_bytes(_TICKET_BYTES, "big") for number in range(count)))
    os.close(box)

    def parcels() -> Iterator[bytearray]:
        done = bytearray()
        while ticket := os.read(tickets, _TICKET_BYTES):
            made = _encode(work(int.from_bytes(ticket, "big")))  # at once: a small process is a quick one
            done += len(made).to_bytes(_LENGTH_BYTES, "big") + made
            if len(done) > _PARCEL_BYTES:
                yield done
                done = bytearray()
        yield done

    children = [_start_worker(parcels) for _ in range(workers)]
    os.close(tickets)
    return _receive(children, decode)


def _start_worker(parcels: Callable[[], Iterable[bytearray]]) -> tuple[int, int]:
    import fcntl  # noqa: PLC0415 - a report after little growth does not come here

    results, outbox = os.pipe()
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with suppress(OSError):  # room for a parcel or two, where it is to be had
            fcntl.fcntl(outbox, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    child = os.fork()
    if child:
        os.close(outbox)
        return child, results
    status = 1
    try:
        os.close(results)
        with os.fdopen(outbox, "wb", buffering=0) as file:
            for parcel in parcels():
                _write_parcel(file, parcel)
        status = 0
    finally:
        os._exit(status)


def _write_parcel(file: "RawIOBase", parcel: bytearray) -> None:
    rest = memoryview(parcel)
    while rest:
        rest = rest[file.write(rest) or 0 :]


def _receive(children: Sequence[tuple[int, int]], decode: Callable[[bytes | bytearray], T]) -> Iterator[T]:
    """Yield results as they arrive; an incomplete one of a dead child is dropped."""
    import select  # noqa: PLC0415 - as above

    parts = {results: bytearray() for _, results in children}
    news = select.poll()
    for results in parts:
        news.register(results, select.POLLIN)
    while parts:
        for results, _ in news.poll():
            sent = os.read(results, _PARCEL_BYTES)
            if sent:
                parts[results] += sent
                yield from _complete_messages(parts[results], decode)
            else:
                news.unregister(results)
                os.close(results)
                del parts[results]
    for child, _ in children:
        os.waitpid(child, 0)


def _complete_messages(part: bytearray, decode: Callable[[bytes | bytearray], T]) -> Iterator[T]:
    """Yield the complete messages in `part` and remove them from it."""
    at = 0
    while len(part) - at >= _LENGTH_BYTES:
        start = at + _LENGTH_BYTES
        end = start + int.from_bytes(part[at:start], "big")
        if len(part) < end:
            break
        with suppress(msgspec.DecodeError):
            yield decode(part[start:end])
        at = end
    del part[:at]
