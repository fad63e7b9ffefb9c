"""What readers of session files return: listings, and the usage found in a file."""

from msgspec import Struct

from flightlog.model.damage import Damage
from flightlog.model.session_file import SessionFile
from flightlog.model.usage import ClientTotals, Row

__all__ = ["FileListing", "SessionFile", "UsageScan"]


class FileListing(Struct, frozen=True):
    """The session files below some directories, and what could not be listed."""

    files: tuple[SessionFile, ...]
    damage: tuple[Damage, ...] = ()


class UsageScan(Struct, array_like=True):
    """The usage that the new bytes of one file report.

    The next scan starts at `end`; `fingerprint` is of the bytes before it. `first_ms` is the
    file's first timestamp, which only a scan from byte 0 finds. A scan by another process
    arrives with its rows and totals in `packed` and the keys of its responses in `keys`.
    """

    rows: list[Row]
    totals: list[ClientTotals]
    end: int = 0
    read: int = 0
    decoded: int = 0
    damaged: int = 0
    first_ms: int = 0
    fingerprint: int = 0
    error: str = ""
    packed: bytes = b""
    keys: bytes = b""
