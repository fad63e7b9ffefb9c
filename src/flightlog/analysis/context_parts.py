"""The parts of a prompt as they are reported, and the recorded pieces that tokens are shared among."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate, islice, pairwise

from msgspec import Struct

from flightlog.analysis.requests import ModelRequest, RequestStart
from flightlog.model.entries import Block, Text, Thinking, ToolUse, count_chars
from flightlog.model.session import Step, ThreadContext

CHARS_PER_TOKEN = 4  # a usual estimate for English text and code
FRAME_CHARS = 2  # a block costs a little more than its text; decides only for the shortest
# What tokens may be in proportion to besides characters: words, words and signs, pieces of words.
_UNITS = tuple(map(re.compile, (r"\S+", r"\w+|[^\w\s]", r"\w{1,5}|[^\w\s]+")))
_SAMPLES_MAX = 200  # responses that decide; more change nothing and take time
_PLAIN_MIN = 3  # responses without thinking are enough: thinking may be recorded in short


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
    text_weight: float | None = None
    in_exact_sum: bool = False
    cost: float = 0.0
    entered_count: int = 0

    @property
    def weight(self) -> float:
        """The share of a sum that it gets."""
        return (self.chars if self.text_weight is None else self.text_weight) + FRAME_CHARS


class TextMeasure(Struct, frozen=True):
    """What the tokens of a session's texts are in proportion to; characters if there is no `unit`.

    A unit is as much as `chars_per_unit` characters, so that texts and sizes can be compared.
    """

    unit: re.Pattern[str] | None = None
    chars_per_unit: float = 1.0

    def make_piece(
        self, kind: str, name: str, address: str, content: Iterable[Block]
    ) -> PromptPiece:
        """Return a piece of a prompt with the size and the weight of its blocks."""
        blocks = tuple(content)
        piece = PromptPiece(kind, name, address, sum(map(count_chars, blocks)))
        if self.unit is not None:
            piece.text_weight = sum(map(self._weigh_block, blocks))
        return piece

    def weigh_text(self, text: str) -> float:
        """Return the size of a text, in characters of an average one."""
        return len(self.unit.findall(text)) * self.chars_per_unit if self.unit else len(text)

    def _weigh_block(self, block: Block) -> float:
        return self.weigh_text(_text_of(block)) or count_chars(block)


def fit_measure(steps: Iterable[Step]) -> TextMeasure:
    """Return the measure that the counted tokens of responses are most in proportion to."""
    usable = (step for step in steps if step.output_tokens and not step.is_lower_bound)
    replies = [(_reply_blocks(step), step.output_tokens) for step in islice(usable, _SAMPLES_MAX)]
    seen = [reply for reply in replies if all(map(_text_of, reply[0]))]
    plain = [reply for reply in seen if not any(isinstance(block, Thinking) for block in reply[0])]
    chosen = plain if len(plain) >= _PLAIN_MIN else seen
    samples = [("\n".join(map(_text_of, blocks)), tokens) for blocks, tokens in chosen]
    chars = sum(len(text) for text, _ in samples) or 1
    rate = sum(tokens for _, tokens in samples) / chars
    measures = [TextMeasure()]
    for unit in _UNITS:
        count = sum(len(unit.findall(text)) for text, _ in samples)
        measures.append(TextMeasure(unit, chars / (count or 1)))

    def sum_errors(measure: TextMeasure) -> float:
        return sum(abs(tokens - rate * measure.weigh_text(text)) for text, tokens in samples)

    return min(measures, key=sum_errors)


def _text_of(block: Block) -> str:
    """Return the text of a block as it is counted; "" for an image, which has none."""
    if isinstance(block, ToolUse):
        return block.name + json.dumps(block.input)
    return block.text if isinstance(block, Text | Thinking) else ""


def _reply_blocks(step: Step) -> list[Block]:
    return [*step.content, *(ToolUse(call.id, call.name, call.input) for call in step.tool_calls)]


def reply_pieces(step: Step, address: str, measure: TextMeasure) -> list[PromptPiece]:
    """Return the thinking of a response, if any, and the rest of it with its tool calls."""
    words = [block for block in _reply_blocks(step) if not isinstance(block, Thinking)]
    response = measure.make_piece("response", "", address, words)
    thoughts = [block for block in step.content if isinstance(block, Thinking)]
    if not thoughts:
        return [response]
    thinking = measure.make_piece("thinking", "", address, thoughts)
    if not thinking.chars:  # it was withheld, and is what the rest does not explain
        thinking.chars = max(step.output_tokens * CHARS_PER_TOKEN - response.chars, 0)
        thinking.text_weight = None
    return [thinking, response] if response.chars else [thinking]


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
    chars = sent - sum(piece.chars for piece in pending)
    return [PromptPiece("other", "kept messages", request.address, chars)] if chars > 0 else []


def split_start(tokens: int, pieces: Sequence[PromptPiece]) -> None:
    """Give `tokens` to the pieces by their characters: of tools and system, only these are known."""
    for piece in pieces:
        piece.text_weight = None
    split_tokens(tokens, pieces)


def split_tokens(tokens: int, pieces: Sequence[PromptPiece]) -> None:
    """Give `tokens` to the pieces by their weight; nothing is lost or left over."""
    ends = list(accumulate((piece.weight for piece in pieces), initial=0))
    cuts = [round(tokens * end / (ends[-1] or 1)) for end in ends]
    for piece, (begin, end) in zip(pieces, pairwise(cuts), strict=True):
        piece.tokens = end - begin
