"""Order the records of a session, and build turns, steps and tool calls from one thread.

A record comes after the one it replies to. Between free choices the earlier time comes first,
then the smaller key, so the order does not depend on how the files were read. A record whose
parent is missing is a root; a cycle, which only a damaged file can hold, is sorted by time at
the end.

A turn starts with a prompt of a person, a finished background task or a slash command. What the
client adds by itself (editor context, reminders, hook feedback, compaction, failures, prompts
written again, unknown records) is a note inside the turn. A response is one step, however many
lines it has.
"""

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import assert_never

from msgspec.structs import replace

from flightlog.model.entries import (
    ApiError,
    AssistantReply,
    ClientNote,
    ClientTotalReported,
    ContextCompacted,
    ContextInjected,
    Entry,
    Ignored,
    PromptKind,
    PromptQueued,
    QueueTakenBack,
    RequestLogged,
    SessionSummarized,
    SessionTitled,
    Text,
    Thinking,
    ToolInputRewritten,
    ToolResult,
    ToolUse,
    UnknownRecord,
    UserPrompt,
    text_of,
)
from flightlog.model.session import Note, NoteKind, Step, ToolCall, Turn
from flightlog.model.usage import Cost, CostSource, Usage, UsageQuality, usage_fields
from flightlog.views.session.prompts import MESSAGES, find_replayed, follow_queue, prompt_blocks

Rank = tuple[int, str]  # time, key
_TURN_STARTS = frozenset({PromptKind.HUMAN, PromptKind.TASK, PromptKind.COMMAND})
_NOTES = {
    PromptKind.CLIENT: NoteKind.CLIENT,
    PromptKind.HOOK: NoteKind.HOOK,
    PromptKind.SUMMARY: NoteKind.SUMMARY,
    PromptKind.INTERRUPTION: NoteKind.INTERRUPTION,
    PromptKind.COMMAND_OUTPUT: NoteKind.COMMAND,
}
_BOUNDARIES = (NoteKind.COMPACTION, NoteKind.SUMMARY)
REPEATED = "written again: "  # how the note of a prompt begins that the client wrote twice
# Events that make no row; their records may come at any time.
ROWLESS = (
    ContextInjected,
    ClientTotalReported,
    Ignored,
    QueueTakenBack,
    RequestLogged,
    SessionSummarized,
    SessionTitled,
)
Pricer = Callable[[str, Usage, int | None], Cost]


def sort_entries(entries: Iterable[Entry]) -> list[Entry]:
    """Return `entries`, each after its parent."""
    pool = sorted(entries, key=rank)
    by_uuid: dict[str, int] = {}
    for index, entry in enumerate(pool):
        if entry.uuid:
            by_uuid.setdefault(entry.uuid, index)
    waiting = defaultdict(list)
    ready = []
    moved = _parents_after_compaction(pool, by_uuid)
    for index, entry in enumerate(pool):
        parent_uuid = moved.get(entry.key, entry.parent_uuid)
        parent = by_uuid.get(parent_uuid) if parent_uuid else None
        if parent is None or parent == index or pool[parent].uuid == entry.uuid:
            ready.append(index)
        else:
            waiting[parent].append(index)
    return _release_children(pool, ready, waiting)


def _parents_after_compaction(pool: list[Entry], by_uuid: Mapping[str, int]) -> dict[str, str]:
    """Return the parents, by key, of records that a compaction put after its summary.

    A client that keeps the last records of the old context has the next one reply to them. A session
    that resumes writes them after the summary, so the compaction has nothing before it.
    """
    moved: dict[str, str] = {}
    boundaries: dict[str, Entry] = {}
    for boundary in pool:
        if not isinstance(boundary.event, ContextCompacted) or not boundary.event.summary_uuid:
            continue
        seen, uuid = {""}, boundary.event.last_kept_uuid
        while uuid not in seen and uuid in by_uuid:
            seen.add(uuid)
            uuid = pool[by_uuid[uuid]].parent_uuid
        if boundary.event.summary_uuid in seen:
            moved[boundary.key] = ""
        else:
            boundaries[boundary.event.last_kept_uuid] = boundary
    for entry in pool if boundaries else ():
        before = boundaries.get(entry.parent_uuid)
        if before is None or entry.path != before.path or entry.offset <= before.offset:
            continue
        assert isinstance(before.event, ContextCompacted)
        moved[entry.key] = before.event.summary_uuid
    return moved


def _release_children(
    pool: list[Entry], ready: list[int], waiting: dict[int, list[int]]
) -> list[Entry]:
    ordered: list[Entry] = []
    placed = [False] * len(pool)
    heapq.heapify(ready)
    while ready:
        index = heapq.heappop(ready)
        placed[index] = True
        ordered.append(pool[index])
        for child in waiting.pop(index, ()):
            heapq.heappush(ready, child)
    ordered.extend(entry for index, entry in enumerate(pool) if not placed[index])
    return ordered


def rank(entry: Entry) -> Rank:
    """Return the sort key of a record: its time, then its key."""
    return (entry.order_ms, entry.key)


def starts_turn(entry: Entry) -> bool:
    """Whether a record is a prompt that starts a turn."""
    return isinstance(entry.event, UserPrompt) and entry.event.kind in _TURN_STARTS


def follow_replies(ordered: Sequence[Entry]) -> tuple[set[str], str]:
    """Return the records that lead to the last one, and the first parent that is not among them."""
    parents = {entry.uuid: entry.parent_uuid for entry in ordered if entry.uuid}
    messages = (
        entry for entry in reversed(ordered) if entry.uuid and isinstance(entry.event, MESSAGES)
    )
    uuid = next((entry.uuid for entry in messages), "")
    chain: set[str] = set()
    while uuid in parents and uuid not in chain:
        chain.add(uuid)
        uuid = parents[uuid]
    return chain, uuid


def build_turns(ordered: Sequence[Entry], price: Pricer) -> list[Turn]:
    """Return the turns of one thread; `ordered` comes from `sort_entries`."""
    builder = _TurnBuilder(ordered, price)
    for entry in ordered:
        builder.add(entry)
    return builder.build_turns()


class _TurnBuilder:
    def __init__(self, entries: Sequence[Entry], price: Pricer) -> None:
        self._price = price
        self._lines: dict[str, list[Entry]] = {}
        self._results: dict[str, Entry] = {}
        self._ran: dict[str, dict[str, object]] = {}
        self._rewound = _find_rewound(entries)
        self._replayed = find_replayed(entries)
        unsent = (at for at, sent in follow_queue(entries).items() if sent is None)
        self._queued = {entries[position].key for position in unsent}
        self._turns: list[tuple[Entry | None, list[str | Note]]] = []

    def add(self, entry: Entry) -> None:
        match entry.event:
            case UserPrompt():
                self._add_prompt(entry, entry.event)
            case PromptQueued():
                if entry.key in self._queued:
                    event = UserPrompt(entry.event.kind, entry.event.content)
                    self._add_prompt(replace(entry, event=event), event)
            case AssistantReply():
                self._add_reply(entry, entry.event)
            case ToolResult():
                self._results.setdefault(entry.event.tool_call_id, entry)
            case ToolInputRewritten():
                self._ran[entry.event.tool_call_id] = entry.event.input
            case ContextCompacted() | ApiError() | ClientNote() | UnknownRecord():
                self._add_note(entry, *describe_note(entry.event))
            case _:
                assert isinstance(entry.event, ROWLESS)

    def build_turns(self) -> list[Turn]:
        """Return the turns; a first turn without prompt and items is left out."""
        turns: list[Turn] = []
        for prompt, parts in self._turns:
            items = self._build_items(parts)
            if prompt is None and not items:
                continue
            event = prompt.event if prompt is not None else None
            assert event is None or isinstance(event, UserPrompt)
            turns.append(
                Turn(
                    number=len(turns) + 1,
                    kind=event.kind if event else None,
                    prompt=event.content if event else (),
                    at_ms=prompt.at_ms if prompt else next((item.at_ms for item in items), None),
                    items=items,
                    is_rewound=prompt is not None and prompt.key in self._rewound,
                    uuid=prompt.uuid if prompt else "",
                )
            )
        return turns

    def _add_prompt(self, entry: Entry, event: UserPrompt) -> None:
        if entry.key in self._replayed:
            text = text_of(prompt_blocks(entry)) or "an image"
            self._add_note(entry, NoteKind.CLIENT, f"{REPEATED}{text}")
            return
        if event.kind in _TURN_STARTS and self._is_opening():
            self._turns[-1] = (entry, self._turns[-1][1])
        elif event.kind in _TURN_STARTS:
            self._turns.append((entry, []))
        elif (
            text := text_of(event.content)
        ).strip() or event.kind is not PromptKind.COMMAND_OUTPUT:
            self._add_note(entry, _NOTES[event.kind], text)
        for block in event.context:
            self._add_note(entry, NoteKind.CLIENT, text_of((block,)))

    def _add_reply(self, entry: Entry, event: AssistantReply) -> None:
        if event.is_synthetic:
            kind = NoteKind.API_FAILURE if event.error else NoteKind.CLIENT
            self._add_note(entry, kind, text_of(event.content))
            return
        name = event.message_id or event.request_id or entry.key
        if name not in self._lines:
            self._lines[name] = []
            self._current().append(name)
        self._lines[name].append(entry)

    def _add_note(self, entry: Entry, kind: NoteKind, text: str) -> None:
        """Add a note, unless it repeats the one before, as the text of a hook does."""
        items = self._current()
        before = items[-1] if items else None
        earlier = before.text if isinstance(before, Note) and before.kind is kind else None
        if earlier is None or not (text == earlier or (kind is NoteKind.HOOK and text in earlier)):
            items.append(Note(kind, text, entry.at_ms))

    def _is_opening(self) -> bool:
        """Whether notes alone, and no compaction, came before the first prompt: they are its turn's."""
        if len(self._turns) != 1 or self._turns[0][0] is not None or self._lines:
            return False
        notes = (note for note in self._turns[0][1] if isinstance(note, Note))
        return not any(note.kind in _BOUNDARIES for note in notes)

    def _current(self) -> list[str | Note]:
        if not self._turns:
            self._turns.append((None, []))
        return self._turns[-1][1]

    def _build_items(self, parts: list[str | Note]) -> tuple[Step | Note, ...]:
        numbers = count(1)
        return tuple(
            part if isinstance(part, Note) else self._build_step(next(numbers), self._lines[part])
            for part in parts
        )

    def _build_step(self, number: int, lines: list[Entry]) -> Step:
        replies = [
            (entry, entry.event) for entry in lines if isinstance(entry.event, AssistantReply)
        ]
        replies.sort(key=lambda pair: pair[1].block_index)
        _, whole = max(
            replies,
            key=lambda pair: (
                pair[1].quality is not UsageQuality.MISSING,
                pair[1].output_tokens,
                -pair[0].order_ms,
                pair[0].key,
            ),
        )
        at_ms = min((entry.at_ms for entry, _ in replies if entry.at_ms is not None), default=None)
        # A resumed session may hold the lines of a response twice.
        lines_once = {_line_key(*pair): pair for pair in reversed(replies)}
        once = reversed(lines_once.values())
        blocks = [(entry, block) for entry, reply in once for block in reply.content]
        return Step(
            number=number,
            message_id=whole.message_id,
            at_ms=at_ms,
            model=whole.model,
            content=tuple(block for _, block in blocks if not isinstance(block, ToolUse)),
            tool_calls=tuple(
                self._build_call(entry, block)
                for entry, block in blocks
                if isinstance(block, ToolUse)
            ),
            **usage_fields(whole.usage, self._price_reply(whole, at_ms)),
            stop_reason=next((reply.stop_reason for _, reply in replies if reply.stop_reason), ""),
            request_id=whole.request_id,
            record_uuids=tuple(entry.uuid for entry, _ in replies),
            is_aborted=any(reply.is_aborted for _, reply in replies),
            effort=whole.effort,
        )

    def _price_reply(self, reply: AssistantReply, at_ms: int | None) -> Cost:
        if reply.quality is UsageQuality.MISSING:
            return Cost(None, CostSource.UNKNOWN, lacks_tokens=True)
        is_lower_bound = reply.quality is UsageQuality.LOWER_BOUND
        cost = self._price(reply.model, reply.usage, at_ms)
        return replace(cost, is_lower_bound=True, lacks_tokens=True) if is_lower_bound else cost

    def _build_call(self, entry: Entry, use: ToolUse) -> ToolCall:
        given, at_ms = self._ran.get(use.id), entry.at_ms
        call = ToolCall(use.id, use.name, use.input, executed_input=given, started_ms=at_ms)
        answer = self._results.get(use.id)
        if answer is None:
            return call
        assert isinstance(answer.event, ToolResult)
        return replace(
            call,
            result=answer.event.content,
            is_error=answer.event.is_error,
            denial_reason=answer.event.denial_reason,
            result_file=answer.event.result_file,
            ended_ms=answer.at_ms,
            subagent=answer.event.subagent,
            detail=answer.event.detail,
            result_uuid=answer.uuid,
            permission_decision=answer.event.permission_decision
            or ("deny" if answer.event.denial_reason else ""),
        )


def _line_key(entry: Entry, reply: AssistantReply) -> object:
    names = [
        block.id
        if isinstance(block, ToolUse)
        else block.text
        if isinstance(block, Text | Thinking)
        else ""
        for block in reply.content
    ]
    return (reply.block_index, *names) if any(names) else entry.key


def describe_note(
    event: ContextCompacted | ApiError | ClientNote | UnknownRecord,
) -> tuple[NoteKind, str]:
    """Return the kind and the text of the note for what the client did by itself."""
    match event:
        case ContextCompacted():
            after = f" to {event.tokens_after:,}" if event.tokens_after else ""
            size = f"from {event.tokens_before:,}{after} tokens"
            return NoteKind.COMPACTION, f"context compacted ({event.trigger or 'unsaid'}), {size}"
        case ApiError():
            again = f", try {event.attempt}" if event.attempt else ""
            status = f"status {event.status}" if event.status else "no reason on record"
            return NoteKind.API_FAILURE, f"{event.message or status}{again}"
        case ClientNote():
            return (NoteKind.HOOK if event.kind == "hook" else NoteKind.REMARK), event.text
        case UnknownRecord():
            return NoteKind.UNKNOWN, f"{event.kind} with {', '.join(event.fields)}"
        case _:
            assert_never(event)


def _find_rewound(entries: Sequence[Entry]) -> set[str]:
    """Return the keys of prompts taken back and of the records that follow from them."""
    living, _ = follow_replies(entries)
    dead: set[str] = set()
    keys = set()
    for entry in entries:
        leaves = entry.parent_uuid in dead or (starts_turn(entry) and entry.parent_uuid in living)
        if entry.uuid and entry.uuid not in living and leaves:
            dead.add(entry.uuid)
            keys.add(entry.key)
    return keys
