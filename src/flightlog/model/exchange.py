"""An exchange: one request to a model's API and the response, as seen on the wire.

An exchange refers to its bodies (`BodyRef`); `store.exchanges` returns them byte for byte.
A `LoggedRequest` is what a client itself wrote down about a request it sent.
"""

import enum
import ipaddress
from urllib.parse import urlsplit

from msgspec import Struct


def is_loopback(address: str) -> bool:
    """Return whether the URL of an API is on this machine."""
    host = urlsplit(address).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class RequestOrigin(enum.Enum):
    """Who sent a request: the session, a subagent, or the client itself (titles, probes)."""

    MAIN = "main"
    SUBAGENT = "subagent"
    SIDE = "side"


class ResponseOutcome(enum.Enum):
    """How a response ended.

    `open`: not ended when it was last written (the recorder may have died); `cut`: the upstream
    closed the connection early; `left`: the client did; `unanswered`: the upstream could not be
    reached, and the proxy itself answered.
    """

    OPEN = "open"
    COMPLETE = "complete"
    CUT = "cut"
    LEFT = "left"
    UNANSWERED = "unanswered"


class BodyRef(Struct, frozen=True):
    """A stored body: its digest, its size, and the chunks that joined are its bytes.

    A request that repeats another (exchange `base`) lists only new chunks: its chunks are the
    first `keep` of the other request, then `pieces`, then the last `tail` of the other request.
    """

    digest: str
    size_bytes: int
    chunks: tuple[str, ...] = ()
    base_index: int = 0
    prefix_chunks: int = 0
    suffix_chunks: int = 0


class ApiRequest(Struct, frozen=True, tag="requested"):
    """A request; `sent` is the body sent upstream, `given` the client's if it was rewritten."""

    index: int
    agent_context: RequestOrigin
    method: str
    path: str
    headers: dict[str, str]
    sent_body: BodyRef
    client_body: BodyRef | None = None
    agent_id: str = ""
    session_id: str = ""
    model: str = ""
    message_count: int = 0
    is_compaction: bool = False
    scrubbed_fields: tuple[str, ...] = ()
    url: str = ""
    replacements: tuple[str, ...] = ()


class ApiResponse(Struct, frozen=True, tag="answered"):
    """A response. `encoding` names a compression that the stored copy still has."""

    index: int
    status: int
    headers: dict[str, str]
    request_id: str
    ending: ResponseOutcome
    body: BodyRef | None = None
    encoding: str = ""
    first_byte_ms: float = 0.0
    total_ms: float = 0.0
    scrubbed_fields: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Exchange(Struct, frozen=True):
    """A request and its response, None until one is on record."""

    timestamp: str
    request: ApiRequest
    response: ApiResponse | None = None

    @property
    def index(self) -> int:
        """Its number in the capture, from 1, in order of arrival."""
        return self.request.index


class LoggedBlock(Struct, frozen=True):
    """One block of a message: its kind and its length."""

    kind: str
    chars: int


class LoggedMessage(Struct, frozen=True):
    """One message of a request; a message that the log only refers to has no role and no blocks."""

    id: str
    role: str = ""
    blocks: tuple[LoggedBlock, ...] = ()


class ToolShape(Struct, frozen=True):
    """A tool definition by its hash and its length; a deferred one is not in the prompt."""

    digest: str
    chars: int
    is_deferred: bool = False


class RequestShape(Struct, frozen=True):
    """The part of a request before its messages: system prompt (a text per block) and tools."""

    id: str
    system: tuple[str, ...] = ()
    tools: dict[str, ToolShape] = {}

    @property
    def system_chars(self) -> int:
        """The length of the system prompt."""
        return sum(map(len, self.system))


class LoggedRequest(Struct, frozen=True, kw_only=True):
    """A request as the client logged it, compared with the answered request before it.

    The message list is that of the request before up to `kept_messages`, then `new_messages`.
    If fewer are kept than the list before had (`previous_messages`), it was rewritten. The first
    request of a process or after a compaction has no base (`has_base`). `message_ids` are those
    of its responses. A request with `is_copied` was sent by another session, whose responses this
    one repeats; nothing else is known about it.
    """

    id: str
    thread: str = ""
    at_ms: int | None = None
    message_ids: tuple[str, ...] = ()
    is_copied: bool = False
    has_base: bool = False
    model: str = ""
    effort: str = ""
    thinking_mode: str = ""
    thinking_display: str = ""
    betas: tuple[str, ...] = ()
    cache_marks: tuple[str, ...] = ()
    cache_ttls: tuple[str, ...] = ()
    shape_id: str = ""
    shape: RequestShape | None = None
    kept_messages: int = 0
    previous_messages: int = 0
    new_messages: tuple[LoggedMessage, ...] = ()

    @property
    def message_count(self) -> int:
        """The number of messages that were sent."""
        return self.kept_messages + len(self.new_messages)
