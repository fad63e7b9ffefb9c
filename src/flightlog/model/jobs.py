"""Jobs: pieces of work that can be carried out here or on any machine, with the same result.

A job is a name of a work that both sides know, a key and bytes; its result is bytes. The same key
is the same job: carried out twice, as when a worker dies, it has one result. Pure: who carries
jobs out is wired in `app.jobs`.
"""

from typing import Protocol

from msgspec import Struct


class Job(Struct, frozen=True):
    """One job. `shared` are bytes that many jobs have in common; they travel once."""

    key: str
    work: str
    payload: bytes
    shared: bytes = b""


class JobError(Exception):
    """A job could not be carried out anywhere; the message says why."""


class JobExecutor(Protocol):
    """Where jobs are carried out."""

    async def submit(self, job: Job) -> bytes:
        """Carry one job out and return its result."""
