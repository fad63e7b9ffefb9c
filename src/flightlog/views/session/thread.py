"""Fold one thread in bounded memory: old entries become rows, the last ones stay entries.

Entries are evicted only up to a position that nothing later can refer back over, except tool
results, which are attached to their row. An entry that does refer back raises `OutOfOrder`.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from flightlog.model.entries import (
    AssistantReply,
    Block,
    Entry,
    Image,
    PromptQueued,
    SubagentInfo,
    Text,
    Thinking,
    ToolInputRewritten,
    ToolResult,
    ToolUse,
    UserPrompt,
    text_of,
)
from flightlog.model.errors import Damage
from flightlog.views.session.prompts import EvictedPrompts, queue_reach
from flightlog.views.session.rows import Locations, RowBuilder, add_location
from flightlog.views.session.turns import (
    ROWLESS,
    Pricer,
    Rank,
    build_turns,
    follow_replies,
    rank,
    sort_entries,
    starts_turn,
)

LINKS_MAX = 4_096  # records of the last evicted turn that a reply may still name as its parent
_START = (1 << 62, "")  # later than any record


class OutOfOrder(Exception):
    """The entries come in an order that does not allow to evict old ones."""


class Eviction(NamedTuple):
    """With `at` entries, all but the last `keep` are evicted; these are folded for every outline."""

    at: int
    keep: int


EVICTION = Eviction(at=2_000, keep=200)  # a few MB; folding 200 entries takes a few milliseconds


class SeenRecords:
    """The records and responses of a session that were added, by hash to save memory."""

    def __init__(self) -> None:
        self.keys: set[int] = set()
        self._lanes: dict[int, str | None] = {}  # of each response; None if it is a row already

    def has_record(self, uuid: str) -> bool:
        """Return whether a record with this id was added."""
        return hash(f"{uuid}:0") in self.keys

    def add_response(self, entry: Entry) -> None:
        """Add a line of a response, or raise `OutOfOrder` if its other lines are elsewhere."""
        if self._lanes.setdefault(_hash_response(entry), entry.subagent) != entry.subagent:
            raise OutOfOrder("a response is in two threads, or goes on after it became a row")

    def close_responses(self, entries: Iterable[Entry]) -> None:
        """Allow no more lines of these responses."""
        replies = (entry for entry in entries if isinstance(entry.event, AssistantReply))
        self._lanes.update((_hash_response(entry), None) for entry in replies)


def _hash_response(entry: Entry) -> int:
    name = entry.event.message_id if isinstance(entry.event, AssistantReply) else ""
    return hash(name or entry.key)


class ThreadFold:
    """One thread: the rows of evicted entries, and the entries after them."""

    def __init__(self, price: Pricer, seen: SeenRecords, eviction: Eviction) -> None:
        """Start without entries; all threads of a session share `seen`."""
        self._price, self._seen = price, seen
        self._eviction = eviction
        self._entries: dict[str, Entry] = {}
        self._locations: Locations = {}
        self._rows = RowBuilder()
        self._evicted: Rank | None = None  # entries before this one are rows
        self._calls: set[str] = set()
        self._stray_results: set[str] = set()
        self._missing_parents: set[str] = set()
        self._links: set[str] = set()
        self._old_prompts = EvictedPrompts()
        self._next = eviction.at
        self._first_prompt: tuple[Rank, str] = (_START, "")
        self.first: Rank = _START

    @property
    def first_prompt(self) -> str:
        """Return the text of the earliest prompt."""
        return self._first_prompt[1]

    def add(self, entry: Entry, file: int) -> bool:
        """Add an entry; return whether it is a new one."""
        before = self._entries.get(entry.key)
        key = hash(entry.key)
        if before is None and key in self._seen.keys:
            if isinstance(entry.event, ROWLESS) and not entry.uuid:
                return False
            raise OutOfOrder("an old record is repeated")
        if before is None and (self._reaches_back(entry) or self._old_prompts.may_repeat(entry)):
            raise OutOfOrder("a record comes late, or repeats a part of an old prompt")
        if isinstance(entry.event, AssistantReply):
            self._seen.add_response(entry)
        self.first = min(self.first, rank(entry))
        if isinstance(entry.event, UserPrompt) and rank(entry) < self._first_prompt[0]:
            self._first_prompt = (rank(entry), text_of(entry.event.content))
        result = entry.event
        if isinstance(result, ToolResult) and result.tool_call_id in self._rows.open_calls:
            has_failed = result.is_error or result.denial_reason
            if has_failed and result.tool_call_id in self._rows.open_edits:
                raise OutOfOrder("an edit that is a row already failed")
            self._rows.attach_result(result, (file, entry.offset, entry.length))
        self._calls.update(_tool_use_ids(entry))
        if before is None or fuller(before, entry) is not before:
            self._entries[entry.key] = entry
            add_location(self._locations, entry, file)
        self._seen.keys.add(key)
        if len(self._entries) >= self._next:
            self._evict_old_entries()
        return before is None

    def build_rows(self) -> RowBuilder:
        """Return all rows, those of the last entries included."""
        ordered = sort_entries(self._entries.values())
        if self._evicted is not None:
            self._check_not_rewound(ordered, self._find_chain(ordered))
        rows = self._rows.clone()
        turns, goes_on = build_turns(ordered, self._price), self._evicted is not None
        rows.add(turns, self._locations, goes_on=goes_on)
        return rows

    def _reaches_back(self, entry: Entry) -> bool:
        """Return whether an entry belongs before the evicted ones, or changes them."""
        if self._evicted is None:
            return False
        event = entry.event
        if isinstance(event, ToolInputRewritten) and event.tool_call_id not in self._calls:
            return True
        if rank(entry) < self._evicted and not self._may_come_late(entry):
            return True
        has_result = not self._stray_results.isdisjoint(_tool_use_ids(entry))
        return entry.uuid in self._missing_parents or has_result

    def _may_come_late(self, entry: Entry) -> bool:
        """Return whether an entry makes no row of its own: a result is part of its call's row."""
        if isinstance(entry.event, ToolResult):
            name = entry.event.tool_call_id
            return name in self._calls or name in self._rows.open_calls
        return isinstance(entry.event, ROWLESS)

    def _evict_old_entries(self) -> None:
        """Turn old entries into rows, if there is a position to cut."""
        ordered = sort_entries(self._entries.values())
        chain = self._find_chain(ordered)
        cut = self._find_eviction_point(ordered)
        self._next = max(self._eviction.at, 2 * (len(ordered) - cut))
        if not cut:
            return
        old, rest = ordered[:cut], ordered[cut:]
        self._check_not_rewound(ordered, chain)
        calls = {call for entry in old for call in _tool_use_ids(entry)}
        results = [
            entry
            for entry in rest
            if isinstance(entry.event, ToolResult) and entry.event.tool_call_id in calls
        ]
        built = build_turns([*old, *results], self._price)
        turns = [replace(turn, is_rewound=False) for turn in built]
        self._rows.add(turns, self._locations, goes_on=self._evicted is not None)
        self._stray_results |= _result_ids(old) - calls
        parents = {entry.parent_uuid for entry in old if entry.parent_uuid}
        self._missing_parents |= {uuid for uuid in parents if not self._seen.has_record(uuid)}
        self._link_evicted(old, chain)
        self._seen.close_responses(old)
        self._old_prompts.add(old)
        if any(map(self._old_prompts.may_repeat, rest)):
            raise OutOfOrder("a part of an old prompt is written again")
        self._evicted = rank(rest[0])
        self._keep_only(rest)

    def _keep_only(self, rest: Sequence[Entry]) -> None:
        self._entries = {entry.key: entry for entry in rest}
        self._calls = {call for entry in rest for call in _tool_use_ids(entry)}
        names = {entry.uuid for entry in rest} | {f"result:{call}" for call in _result_ids(rest)}
        rewrites = [entry.event for entry in rest if isinstance(entry.event, ToolInputRewritten)]
        names |= {f"rewrite:{event.tool_call_id}" for event in rewrites}
        self._locations = {name: self._locations[name] for name in self._locations.keys() & names}

    def _find_eviction_point(self, ordered: Sequence[Entry]) -> int:
        """Return the last position that no later entry refers back over, at least `keep` from the end."""
        count = len(ordered)
        first_of: dict[str, int] = {}
        calls_at: dict[str, int] = {}
        tops = [-1]  # the latest time of a row before each position
        for position, entry in enumerate(ordered):
            first_of.setdefault(_response_name(entry), position)
            calls_at.update((call, position) for call in _tool_use_ids(entry))
            is_rowless = isinstance(entry.event, ROWLESS)
            tops.append(tops[-1] if is_rowless else max(tops[-1], entry.order_ms))
        parents = _furthest_parents(ordered)
        reach, floor_ms = count, _START[0]  # the earliest position and time of what comes after
        # Notes before the first prompt belong to its turn, so they are not evicted without it.
        starts = (position for position, entry in enumerate(ordered) if _can_start_rows(entry))
        opening = next(starts, count) if self._evicted is None else 0
        for position in range(count - 1, opening, -1):
            entry = ordered[position]
            if not isinstance(entry.event, ROWLESS):
                floor_ms = min(floor_ms, entry.order_ms)
            if isinstance(entry.event, AssistantReply):
                reach = min(reach, first_of[_response_name(entry)])
            if isinstance(entry.event, ToolInputRewritten):
                reach = min(reach, calls_at.get(entry.event.tool_call_id, reach))
            is_clear = (
                reach >= position > parents[position - 1]
                and tops[position] < floor_ms == entry.order_ms
            )
            if is_clear and position <= count - self._eviction.keep and _can_start_rows(entry):
                return position
        return 0

    def _find_chain(self, ordered: Sequence[Entry]) -> set[str]:
        """Return the records that lead to the last one; the evicted ones must lead to them."""
        chain, parent = follow_replies(ordered)
        is_linked = self._evicted is None or parent in self._links
        if not is_linked and self._seen.has_record(parent):
            raise OutOfOrder("the thread goes on from an older record")
        return chain

    def _check_not_rewound(self, ordered: Sequence[Entry], chain: set[str]) -> None:
        living = chain | self._links
        for entry in ordered:
            is_dead = entry.uuid and entry.uuid not in chain
            if is_dead and starts_turn(entry) and entry.parent_uuid in living:
                raise OutOfOrder("a prompt was taken back")

    def _link_evicted(self, old: Sequence[Entry], chain: set[str]) -> None:
        """Keep the ids of the last evicted turn: they may be parents of the next records."""
        links = list(self._links)
        for entry in old:
            if entry.uuid in chain:
                if starts_turn(entry):
                    links.clear()
                links.append(entry.uuid)
        self._links = set(links[-LINKS_MAX:])


def fuller(entry: Entry, other: Entry) -> Entry:
    """Return the version of a record in the main thread, else with more output or more bytes."""
    return max(entry, other, key=_fullness)


def _fullness(entry: Entry) -> tuple[bool, int, int, str, int, str]:
    # A copy of the history in a subagent's file has the ids of the main thread's records.
    is_main = not entry.subagent
    output = entry.event.usage.output_tokens if isinstance(entry.event, AssistantReply) else 0
    # A title given again is the last one given; the rest only makes the order total.
    return (is_main, output, entry.length, repr(entry.event), entry.order_ms, repr(entry))


def _tool_use_ids(entry: Entry) -> list[str]:
    content = entry.event.content if isinstance(entry.event, AssistantReply) else ()
    return [block.id for block in content if isinstance(block, ToolUse)]


def _result_ids(entries: Iterable[Entry]) -> set[str]:
    return {entry.event.tool_call_id for entry in entries if isinstance(entry.event, ToolResult)}


def _response_name(entry: Entry) -> str:
    event = entry.event
    if isinstance(event, AssistantReply):
        return event.message_id or event.request_id or entry.key
    return ""


def _can_start_rows(entry: Entry) -> bool:
    """Return whether rows can start here; a note before a prompt is part of the next turn."""
    is_reply = isinstance(entry.event, AssistantReply) and not entry.event.is_synthetic
    return is_reply or starts_turn(entry)


def _furthest_parents(ordered: Sequence[Entry]) -> list[int]:
    """Return for each position the furthest record that those up to it refer to."""
    position_of = {entry.uuid: position for position, entry in enumerate(ordered) if entry.uuid}
    queue = queue_reach(ordered)
    parents, furthest = [], -1
    for position, entry in enumerate(ordered):
        furthest = max(furthest, position_of.get(entry.parent_uuid, -1), queue.get(position, -1))
        parents.append(furthest)
    return parents


SHORT_BYTES = 2_000  # a record of that size is not worth shortening
TEXT_CHARS_MAX = 400  # more than any title or row shows
ITEMS_MAX = 20  # of a list or an object in a tool's input
PROMPT_CHARS_MAX = 100_000  # a subagent is matched to its call by its whole prompt


def shorten_texts(entry: Entry | Damage | SubagentInfo) -> Entry | Damage | SubagentInfo:
    """Return an entry without its long texts, for an outline that has to keep every entry."""
    if not isinstance(entry, Entry) or entry.length <= SHORT_BYTES:
        return entry
    event = entry.event
    if isinstance(event, AssistantReply | ToolResult | UserPrompt | PromptQueued):
        is_prompt = isinstance(event, UserPrompt | PromptQueued)
        limit = PROMPT_CHARS_MAX if is_prompt else TEXT_CHARS_MAX
        content = tuple(_shorten_block(block, limit) for block in event.content)
        event = replace(event, content=content)
    if isinstance(event, UserPrompt):
        context = tuple(_shorten_block(block, TEXT_CHARS_MAX) for block in event.context)
        event = replace(event, context=context)
    if isinstance(event, ToolResult):
        event = replace(event, detail=None)
    if isinstance(event, ToolInputRewritten):
        event = replace(event, input=_shorten_input(event.input))
    return replace(entry, event=event)


def _shorten_block(block: Block, limit: int) -> Block:
    match block:
        case Text() | Thinking():
            return replace(block, text=_shorten_text(block.text, limit))
        case ToolUse():
            return replace(block, input=_shorten_input(block.input))
        case Image():
            return replace(block, data="")
        case _:
            return block


def _shorten_input(arguments: dict[str, Any]) -> dict[str, Any]:
    # Subagents are matched to calls by `prompt`.
    return {
        key: value if key == "prompt" else _shorten_value(value) for key, value in arguments.items()
    }


def _shorten_value(value: Any) -> Any:
    if isinstance(value, str):
        return _shorten_text(value, TEXT_CHARS_MAX)
    return "…" if isinstance(value, list | dict) and len(value) > ITEMS_MAX else value


def _shorten_text(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[:limit] + "…"
