"""What filled the context window at each request, and what carrying it cost.

Requests are append-only inside a thread, so the growth of the prompt from one request to the next
is exactly what was appended: the response in between, whose tokens were counted as output, and its
tool results or the next prompt. A piece is exact if it is alone in such a difference; several share
it by their characters, or by their words if those explain the counts of the session's responses
better (`fit_measure`). The first request of a window (of a thread, after a compaction) has nothing
to be compared with, so it is one exact part, `start`, with estimated shares.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from copy import copy
from itertools import accumulate

from msgspec import Struct
from msgspec.structs import replace

from flightlog.analysis.context_parts import (
    CHARS_PER_TOKEN,
    FRAME_CHARS,
    ContextBlock,
    ContextPart,
    PromptPiece,
    RequestContext,
    SessionContext,
    TextMeasure,
    WindowStart,
    fit_measure,
    kept_messages,
    reply_pieces,
    shape_pieces,
    split_start,
    split_tokens,
)
from flightlog.analysis.requests import ModelRequest, RequestStart
from flightlog.model.addresses import Address
from flightlog.model.entries import Block, Text
from flightlog.model.session import ContextItem, NoteKind, Session, Step, ThreadContext, Turn
from flightlog.usage.prices import token_rates
from flightlog.views.session.timeline import all_steps
from flightlog.views.session.turns import REPEATED

# More tokens than that in one difference are not those of the recorded text, in any language.
_TOKENS_PER_CHAR_MAX, _SPARE_TOKENS = 3, 200
# Fewer tokens than one for so many characters: a part of the response was not sent again.
_CHARS_PER_TOKEN_MAX = 16
_USD_DIGITS = 9  # what is left of rates that were added and taken away again is smaller
# What the client sent to the model besides prompts.
_SENT_NOTES = {
    *(NoteKind.CLIENT, NoteKind.HOOK, NoteKind.INTERRUPTION, NoteKind.COMMAND, NoteKind.SUMMARY)
}


AddedContext = dict[str, dict[str, ContextItem]]  # by thread, and by the key of its record


def measure_context(
    requests: Iterable[ModelRequest],
    session: Session,
    contexts: Mapping[str, ThreadContext],
    added: AddedContext,
) -> SessionContext:
    """Return what filled each request of `session`.

    `contexts` has the system prompt and tools of threads whose requests are not logged, `added`
    what the client put into each thread by itself.
    """
    found = {request.address: request for request in requests}
    threads = [("", session.turns), *((agent.id, agent.turns) for agent in session.subagents)]
    measure = fit_measure(all_steps(session))
    starts: list[WindowStart] = []
    measured: list[RequestContext] = []
    blocks: list[ContextBlock] = []
    for name, turns in threads:
        context = contexts.get(name, ThreadContext())
        context = replace(context, context=tuple(added.get(name, {}).values()))
        window = _ThreadWindow(Address(session.id, subagent=name), found, context, starts)
        window.measure = measure
        for turn in turns:
            window.add_turn(turn)
        measured += window.requests
        blocks += window.close_window()
    blocks.sort(key=lambda block: (-(block.carrying_cost_usd or 0.0), -block.tokens, block.address))
    return SessionContext(tuple(starts), tuple(measured), tuple(blocks))


class _WindowState(Struct):
    pieces: list[PromptPiece] = []  # in the order of the prompt
    fixed: int = 0  # so many of them are the start
    doubtful: int = 0  # so many of them are exact no longer, because tokens were removed
    start: int = 0
    pending: list[PromptPiece] = []  # appended since the request `before`
    reply: list[PromptPiece] = []  # of the last response, whose tokens were counted
    before: ModelRequest | None = None


class _ThreadWindow:
    """The window of one thread while its turns are added in order."""

    def __init__(
        self,
        thread: Address,
        requests: Mapping[str, ModelRequest],
        context: ThreadContext,
        starts: list[WindowStart],
    ) -> None:
        self.requests: list[RequestContext] = []
        self.measure = TextMeasure()
        self._thread, self._found, self._context, self._starts = thread, requests, context, starts
        items = (item for item in context.context if item.text)
        self._waiting = sorted(items, key=lambda item: item.at_ms or 0, reverse=True)
        self._state = _WindowState()
        self._saved: _WindowState | None = None  # before turns that were taken back
        self._ends: list[int] = []  # where each piece ends in the prompt
        self._totals: Counter[tuple[str, str, bool]] = Counter()
        self._is_over = self._is_new_turn = self._had_thinking = self._is_priced = False
        self._rates: list[float] = []  # dollars per token of all pieces up to each
        self._read_count = 0
        self._blocks: list[ContextBlock] = []

    def add_turn(self, turn: Turn) -> None:
        if turn.is_rewound and self._saved is None:
            state, copies = self._state, self._state.pieces[:]
            appended = (list(map(copy, state.pending)), list(map(copy, state.reply)))
            sizes = (state.fixed, state.doubtful, state.start)
            self._saved = _WindowState(copies, *sizes, *appended, state.before)
        elif not turn.is_rewound:
            self._leave_rewound()
        self._is_new_turn = True
        address = str(replace(self._thread, turn=turn.number))
        if turn.prompt:
            self._await_request("prompt", "", address, turn.prompt)
        for item in turn.items:
            if isinstance(item, Step):
                self._add_step(item, f"{address}.{item.number}")
            elif item.kind is NoteKind.COMPACTION:
                self._is_over, self._state.pending, self._state.reply = True, [], []
            elif item.kind in _SENT_NOTES and not item.text.startswith(REPEATED):
                kind = "summary" if item.kind is NoteKind.SUMMARY else "context"
                self._await_request(kind, item.kind.value, address, (Text(item.text),))

    def close_window(self) -> list[ContextBlock]:
        """Return the blocks of all windows; the last one ends here."""
        self._leave_rewound()
        self._close_pieces()
        return self._blocks

    def _leave_rewound(self) -> None:
        """Go back to the window before the turns that were taken back, if there are any."""
        if self._saved is not None:
            self._close_pieces()
            self._state, self._saved = self._saved, None
            self._recount_window()

    def _await_request(self, kind: str, name: str, address: str, content: Iterable[Block]) -> None:
        """Add a piece that the next request sends."""
        self._state.pending.append(self.measure.make_piece(kind, name, address, content))

    def _add_step(self, step: Step, address: str) -> None:
        while self._waiting and (self._waiting[-1].at_ms or 0) <= (step.at_ms or 0):
            item = self._waiting.pop()
            memory = item.memory.items()
            files = [PromptPiece("memory", path, address, size) for path, size in memory]
            text = (Text(item.text),)
            if not files:
                files = [self.measure.make_piece("context", item.kind, address, text)]
            self._state.pending += files
        request = self._found.get(address)
        if request is not None:
            self._measure_request(request)
        reply = reply_pieces(step, address, self.measure)
        self._had_thinking |= reply[0].kind == "thinking"
        if request is None or step.is_lower_bound or step.is_aborted:
            self._state.pending += reply
        else:
            split_tokens(step.output_tokens, reply)
            reply[0].exact = len(reply) == 1
            self._state.reply = reply
        for call in step.tool_calls:
            if call.result is not None:
                self._await_request("tool_result", call.name, address, call.result)

    def _measure_request(self, request: ModelRequest) -> None:
        state, prompt = self._state, request.usage.prompt_tokens
        is_new = request.begins in (RequestStart.CLEARED, RequestStart.COMPACTED)
        if not state.pieces or self._is_over or is_new:
            self._start_window(request)
        elif self._has_changed_shape(request):
            self._replace_start(request)
        else:
            self._extend_window(request, prompt - self._ends[-1])
        sums = sorted(self._totals.items())
        parts = tuple(ContextPart(*key[:2], tokens, key[2]) for key, tokens in sums if tokens)
        place = (request.address, request.thread)
        self.requests.append(RequestContext(*place, prompt, state.start, parts))
        state.before, state.pending, state.reply = request, [], []
        self._had_thinking &= not self._is_new_turn
        self._is_over = self._is_new_turn = False

    def _start_window(self, request: ModelRequest) -> None:
        """Begin a window with all that its first request holds."""
        state, prompt = self._state, request.usage.prompt_tokens
        self._close_pieces()
        shape = shape_pieces(request, self._context)
        pieces = [*shape, *state.reply, *state.pending, *kept_messages(request, state.pending)]
        missing = {"system", "tools"} - {piece.kind for piece in shape}
        if missing:  # what was recorded has about its usual size, so they have the rest
            name = f"{' and '.join(sorted(missing))}, not recorded"
            rest = prompt * CHARS_PER_TOKEN - sum(piece.chars + FRAME_CHARS for piece in pieces)
            pieces.append(PromptPiece("other", name, request.address, max(rest, 0)))
        split_start(prompt, pieces)
        state.pieces, state.fixed, state.doubtful = [], len(pieces), 0
        self._recount_window()
        self._push_pieces(pieces)
        self._add_start(request.address)

    def _has_changed_shape(self, request: ModelRequest) -> bool:
        before, logged = self._state.before, request.logged
        if before is None or before.logged is None or logged is None or logged.shape is None:
            return False
        return logged.shape_id != before.logged.shape_id

    def _replace_start(self, request: ModelRequest) -> None:
        """Measure a request with another system prompt or other tools.

        What they have and what was appended is one sum, so this becomes a part of the start.
        """
        state = self._state
        first, messages = state.pieces[: state.fixed], state.pieces[state.fixed :]
        rest = [piece for piece in first if piece.kind not in {"tools", "system"}]
        fresh = [*shape_pieces(request, self._context), *state.pending]
        known = sum(piece.tokens for piece in (*messages, *state.reply))
        if request.usage.prompt_tokens - known < len(fresh):
            return self._start_window(request)
        self._settle_costs()
        self._add_blocks(piece for piece in first if piece.kind in {"tools", "system"})
        split_start(request.usage.prompt_tokens - known, [*fresh, *rest])
        state.pieces = [*rest, *messages]
        self._recount_window()
        self._charge_reads(request)
        self._settle_costs()
        for piece in fresh:
            piece.entered_count = self._read_count
        state.pieces, state.fixed = [*fresh, *state.pieces], len(fresh) + len(rest)
        state.doubtful = 0
        self._recount_window()
        self._push_pieces(piece for piece in state.reply if piece.tokens)
        return self._add_start(request.address)

    def _add_start(self, address: str) -> None:
        pieces = self._state.pieces[: self._state.fixed]
        shares = tuple(
            ContextPart(piece.kind, piece.name, piece.tokens, exact=False) for piece in pieces
        )
        for piece in pieces:
            piece.exact = False
        self._state.start = len(self._starts)
        self._starts.append(WindowStart(address, self._ends[len(pieces) - 1], shares))

    def _extend_window(self, request: ModelRequest, growth: int) -> None:
        """Share out the growth of the prompt among what was appended since the last request."""
        reply, rest = self._state.reply, self._state.pending
        free = growth - sum(piece.tokens for piece in reply)
        if free > sum(_TOKENS_PER_CHAR_MAX * piece.chars + _SPARE_TOKENS for piece in rest):
            unseen = CHARS_PER_TOKEN * free - round(sum(piece.weight for piece in rest))
            rest = [*rest, PromptPiece("other", "not recorded", request.address, unseen)]
        if free >= bool(rest):
            split_tokens(free, rest)
            chars = sum(piece.chars for piece in rest)
            is_sure = self._is_append_only(request) and chars <= free * _CHARS_PER_TOKEN_MAX
            # Several results of one tool are one part, exact as a sum.
            is_one_part = len({(piece.kind, piece.name) for piece in rest}) == 1
            for piece in rest:
                piece.exact = is_sure and len(rest) == 1 and piece.kind != "other"
                piece.in_exact_sum = is_sure and is_one_part and piece.kind != "other"
            for piece in reply:
                piece.exact &= is_sure
                piece.in_exact_sum = piece.exact
        else:  # some of the window was removed, or the thinking of the response was not sent
            sent = [piece for piece in (*reply, *rest) if piece.kind != "thinking"]
            reply, rest = [], sent or [*reply, *rest]
            if growth < bool(rest):
                size = round(sum(piece.weight for piece in rest)) // CHARS_PER_TOKEN
                if self._ends[self._state.fixed - 1] + size > request.usage.prompt_tokens:
                    return self._start_window(request)
                self._shrink_messages(size - growth)
                growth = size
            split_tokens(growth, rest)
            for piece in rest:
                piece.exact = piece.in_exact_sum = False
        self._charge_reads(request)
        return self._push_pieces(piece for piece in (*reply, *rest) if piece.tokens)

    def _is_append_only(self, request: ModelRequest) -> bool:
        """Return whether nothing but appended messages can have changed the prompt's size."""
        before, logged = self._state.before, request.logged
        if before is None or before.model != request.model:
            return False  # another model may count the same text differently
        if self._is_new_turn and self._had_thinking:
            return False  # some models drop the thinking of earlier turns
        if logged is None:
            return True
        # The response is one message, a single result or prompt another.
        is_alone = len(self._state.pending) != 1 or len(logged.new_messages) <= 2
        return is_alone and logged.kept_messages >= logged.previous_messages

    def _shrink_messages(self, tokens: int) -> None:
        """Take out tokens that the client removed, from the end; which ones it were is not known."""
        state, sums = self._state, list(self._totals.items())
        self._totals = Counter()
        for (kind, name, _), amount in sums:
            self._totals[kind, name, False] += amount
        while tokens:
            piece, rate = state.pieces[-1], self._rates[-1]
            taken = min(tokens, piece.tokens)
            tokens -= taken
            self._totals[piece.kind, piece.name, False] -= taken
            piece.cost += piece.tokens * rate
            self._rates[-2] += rate
            self._rates[-1] = 0.0
            if taken < piece.tokens:
                piece.tokens -= taken
                self._ends[-1] -= taken
            else:
                piece.exact &= len(state.pieces) > state.doubtful
                self._add_blocks([state.pieces.pop()])
                del self._ends[-1], self._rates[-1]
        state.doubtful = len(state.pieces)

    def _recount_window(self) -> None:
        state = self._state
        self._ends = list(accumulate(piece.tokens for piece in state.pieces))
        self._rates = [0.0] * len(state.pieces)
        for piece in state.pieces[: state.doubtful]:
            piece.exact = piece.in_exact_sum = False
        self._totals = Counter()
        for piece in state.pieces[state.fixed :]:
            self._totals[piece.kind, piece.name, piece.in_exact_sum] += piece.tokens

    def _push_pieces(self, pieces: Iterable[PromptPiece]) -> None:
        end = self._ends[-1] if self._ends else 0
        for piece in pieces:
            end += piece.tokens
            piece.entered_count = self._read_count
            self._state.pieces.append(piece)
            self._ends.append(end)
            self._rates.append(0.0)
            if len(self._ends) > self._state.fixed:
                self._totals[piece.kind, piece.name, piece.in_exact_sum] += piece.tokens

    def _charge_reads(self, request: ModelRequest) -> None:
        """Add the cost of reading the window again: read from the cache, written, or neither.

        A rate holds for all pieces up to one, so a request changes three rates however long the
        window is.
        """
        self._read_count += 1
        rates = token_rates(request.model, request.usage, request.at_ms)
        if rates is None or not self._ends:
            return
        self._is_priced = True
        read, write, fresh = rates
        cached, window = min(request.usage.cache_read_tokens, self._ends[-1]), self._ends[-1]
        written = min(cached + request.usage.cache_write_tokens, window)
        for edge, rate in ((window, fresh), (written, write - fresh), (cached, read - write)):
            at = bisect_right(self._ends, edge)
            before = self._ends[at - 1] if at else 0
            if at:
                self._rates[at - 1] += rate
            if at < len(self._ends):
                self._state.pieces[at].cost += (edge - before) * rate

    def _settle_costs(self) -> None:
        """Charge each piece at the rates that hold for it."""
        rate = 0.0
        for piece, step in zip(reversed(self._state.pieces), reversed(self._rates), strict=True):
            rate += step
            piece.cost += piece.tokens * rate

    def _close_pieces(self) -> None:
        """Make blocks of the window, except of pieces that come back after a rewind."""
        state = self._state
        self._settle_costs()
        for piece in state.pieces[: state.doubtful]:
            piece.exact = False
        living = set(map(id, self._saved.pieces)) if self._saved is not None else set()
        self._add_blocks(piece for piece in state.pieces if id(piece) not in living)

    def _add_blocks(self, pieces: Iterable[PromptPiece]) -> None:
        for piece in pieces:
            times = self._read_count - piece.entered_count
            usd = max(round(piece.cost, _USD_DIGITS), 0.0) if self._is_priced or not times else None
            values = (piece.address, piece.kind, piece.name, piece.chars, piece.tokens)
            self._blocks.append(ContextBlock(*values, piece.exact, times, usd))
