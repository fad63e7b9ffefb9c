"""The parts of a prompt as they are reported, and the recorded pieces that tokens are shared among."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise

from msgspec import Struct

from flightlog.analysis.requests import ModelRequest, RequestStart
from flightlog.model.entries import Thinking, count_chars
from flightlog.model.session import Step, ThreadContext

CHARS_PER_TOKEN = 4  # a usual estimate for English text and code
_FRAME_CHARS = 2  # a block costs a little more than its text; decides only for the shortest


# The kinds from the bottom of a chart to its top, and what a person reads for each.
_LABELS = {
    "system": "system prompt",
    "tools": "tools, {name}",
    "memory": "memory file {name}",
    "context": "context, {name}",
    "summary": "compaction summary",
    "prompt": "prompt",
    "response": "response",
    "thinking": "thinking",
    "tool_result": "{name} result",
    "other": "{name}",
}
KIND_ORDER = tuple(_LABELS)


class ContextPart(Struct, frozen=True, array_like=True):
    """Tokens of one kind in a prompt; exact, or a share of a known sum by characters."""

    kind: str
    name: str
    tokens: int
    exact: bool


class WindowStart(Struct, frozen=True):
    """What the first request of a window held, one exact sum; `shares` of it are estimates."""

    address: str
    tokens: int
    shares: tuple[ContextPart, ...]


class RequestContext(Struct, frozen=True, array_like=True):
    """The composition of one prompt: the start number `start`, and `parts`; they sum to it."""

    address: str
    thread: str
    input_tokens: int
    start: int
    parts: tuple[ContextPart, ...]


class ContextBlock(Struct, frozen=True, array_like=True):
    """One piece of a prompt, and the cost of reading it again in later requests.

    `carrying_cost_usd` is without the request that first sent it; None if no price is known.
    """

    address: str
    kind: str
    name: str
    chars: int
    tokens: int
    exact: bool
    times_read: int
    carrying_cost_usd: float | None

    @property
    def label(self) -> str:
        """What it is, with its size if that is large: `38 KB Bash result`."""
        is_large = self.chars >= 1_000 and self.kind != "other"
        size = f"{self.chars / 1_000:,.0f} KB " if is_large else ""
        return f"{size}{describe_part(self.kind, self.name)}"


def describe_part(kind: str, name: str) -> str:
    """Return the name of a part for a person."""
    return _LABELS[kind].format(name=name)


class SessionContext(Struct, frozen=True):
    """The composition of every request of a session, and its blocks, the most expensive first."""

    starts: tuple[WindowStart, ...] = ()
    requests: tuple[RequestContext, ...] = ()
    blocks: tuple[ContextBlock, ...] = ()

    def sum_kinds(self, request: RequestContext) -> dict[str, int]:
        """Return the tokens of each kind in a request."""
        sums: Counter[str] = Counter()
        for part in self.list_shares(request):
            sums[part.kind] += part.tokens
        return dict(sums)

    def list_shares(self, request: RequestContext) -> tuple[ContextPart, ...]:
        """Return all parts of a request, with the shares of its start instead of the start."""
        return (*self.starts[request.start].shares, *request.parts)


class PromptPiece(Struct, eq=False):
    """A block of the window; `entered_count` requests were sent before the one that it came in with.

    `in_exact_sum` is whether it is exact together with others of its kind and name.
    """

    kind: str
    name: str
    address: str
    chars: int
    tokens: int = 0
    exact: bool = False
    in_exact_sum: bool = False
    cost: float = 0.0
    entered_count: int = 0

    @property
    def weight(self) -> int:
        """The share of a sum that it gets."""
        return self.chars + _FRAME_CHARS


def reply_pieces(step: Step, address: str) -> list[PromptPiece]:
    """Return the thinking of a response, if any, and the rest of it with its tool calls."""
    thoughts = [block for block in step.content if isinstance(block, Thinking)]
    words = [block for block in step.content if not isinstance(block, Thinking)]
    calls = [len(call.name) + len(json.dumps(call.input)) for call in step.tool_calls]
    chars = sum(map(count_chars, words)) + sum(calls)
    # Thinking that was withheld is what the rest does not explain.
    unseen = max(step.output_tokens * CHARS_PER_TOKEN - chars, 0)
    thinking = sum(map(count_chars, thoughts)) or unseen
    pieces = [PromptPiece("thinking", "", address, thinking)] if thoughts else []
    return [*pieces, PromptPiece("response", "", address, chars)] if chars or not pieces else pieces


def shape_pieces(request: ModelRequest, context: ThreadContext) -> list[PromptPiece]:
    """Return the tools of each MCP server and the system prompt, as far as they are recorded."""
    if request.logged is not None and (shape := request.logged.shape) is not None:
        system = shape.system_chars
        sizes = {name: tool.chars for name, tool in shape.tools.items() if not tool.is_deferred}
    else:
        system = len(context.system)
        sizes = {str(tool.get("name")): len(json.dumps(tool)) for tool in context.tools}
    servers: Counter[str] = Counter()
    for name, size in sizes.items():
        servers[find_server(name) or "built-in"] += size
    pieces = [PromptPiece("tools", server, request.address, servers[server]) for server in servers]
    return [*pieces, PromptPiece("system", "", request.address, system)] if system else pieces


def find_server(tool: str) -> str:
    """Return the MCP server of a tool, `mcp__SERVER__tool`; "" for one of the client's own."""
    prefix, _, rest = tool.partition("__")
    server, mark, _ = rest.partition("__")
    return server if prefix == "mcp" and mark else ""


def kept_messages(request: ModelRequest, pending: Iterable[PromptPiece]) -> list[PromptPiece]:
    """Return the messages that a compaction kept: what the request holds beside new ones."""
    if request.logged is None or request.begins is not RequestStart.COMPACTED:
        return []
    sent = sum(block.chars for message in request.logged.new_messages for block in message.blocks)
    kept = sent - sum(piece.chars for piece in pending)
    return [PromptPiece("other", "kept messages", request.address, kept)] if kept > 0 else []


def split_tokens(tokens: int, pieces: Sequence[PromptPiece]) -> None:
    """Give `tokens` to the pieces by their weight; nothing is lost or left over."""
    ends = list(accumulate((piece.weight for piece in pieces), initial=0))
    cuts = [round(tokens * end / (ends[-1] or 1)) for end in ends]
    for piece, (begin, end) in zip(pieces, pairwise(cuts), strict=True):
        piece.tokens = end - begin
