"""One file of a recorded session, as a directory listing shows it."""

from msgspec import Struct


class SessionFile(Struct, frozen=True):
    """The main thread of a session, or one of its subagents.

    `device`, `inode`, `size` and `changed_ns` are the file's state when it was listed; the index
    compares them with the state it has read.
    """

    path: str
    session: str
    size: int
    changed_ns: int
    lane: str = ""
    device: int = 0
    inode: int = 0
