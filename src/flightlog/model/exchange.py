"""An exchange: one request to a model's API and what came back, as it was seen on the wire.

Bodies are not here: an exchange names them (`Body`), and the store gives them back byte for
byte. Knows nothing of files, servers or transcripts.
"""

import enum
import ipaddress
from urllib.parse import urlsplit

from msgspec import Struct


def is_loopback(address: str) -> bool:
    """Return whether an API's address is on this machine."""
    host = urlsplit(address).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class RequestOrigin(enum.Enum):
    """Who asked: the session itself, one of its subagents, or the client on the side (titles, probes)."""

    MAIN = "main"
    SUBAGENT = "subagent"
    SIDE = "side"


class ResponseOutcome(enum.Enum):
    """How a response ended.

    `open`: not ended when it was last written (the recorder may have died); `cut`: the upstream
    broke off; `left`: the client went away; `unanswered`: no upstream, the answer is our own.
    """

    OPEN = "open"
    COMPLETE = "complete"
    CUT = "cut"
    LEFT = "left"
    UNANSWERED = "unanswered"


class BodyRef(Struct, frozen=True):
    """A body that is kept: its digest, its size, and the pieces its bytes are joined from.

    A request that repeats another (exchange `base`) names only what is new: its pieces are the
    first `keep` of that one's, then `pieces`, then the last `tail` of that one's.
    """

    digest: str
    size: int
    pieces: tuple[str, ...] = ()
    base: int = 0
    keep: int = 0
    tail: int = 0


class ApiRequest(Struct, frozen=True, tag="requested"):
    """What was asked. `sent` is the body that went upstream; `given` the client's own where a rewrite changed it."""

    index: int
    context: RequestOrigin
    method: str
    path: str
    headers: dict[str, str]
    sent: BodyRef
    given: BodyRef | None = None
    agent_id: str = ""
    session_id: str = ""
    model: str = ""
    messages: int = 0
    is_compaction: bool = False
    scrubbed: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()


class ApiResponse(Struct, frozen=True, tag="answered"):
    """What came back. `encoding` names a compression the copy could not be freed of."""

    index: int
    status: int
    headers: dict[str, str]
    request_id: str
    ending: ResponseOutcome
    body: BodyRef | None = None
    encoding: str = ""
    first_byte_ms: float = 0.0
    total_ms: float = 0.0
    scrubbed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Exchange(Struct, frozen=True):
    """A request and its response, which is missing while none is on record."""

    at: str
    request: ApiRequest
    response: ApiResponse | None = None

    @property
    def index(self) -> int:
        """Its number in the capture, from 1, in order of arrival."""
        return self.request.index
