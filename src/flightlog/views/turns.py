"""One thread of records, told as turns of steps.

A turn begins with words from a person, a finished background task or a slash command. What
the client says by itself (reminders, hook feedback, compaction, failures, records nobody
knows) is a note inside the turn. A response is one step whatever the number of its lines.
"""

from collections.abc import Callable, Sequence
from typing import assert_never

from flightlog.model.events import (
    ApiFailed,
    Compacted,
    ContextGiven,
    CostStated,
    Entry,
    InputRewritten,
    Kept,
    Noted,
    Prompted,
    PromptKind,
    Replied,
    Requested,
    Summarised,
    Titled,
    ToolReturned,
    ToolUse,
    Unknown,
    words,
)
from flightlog.model.session import Note, NoteKind, Step, ToolCall, Turn
from flightlog.model.usage import Cost, Usage

STARTS = frozenset({PromptKind.HUMAN, PromptKind.TASK, PromptKind.COMMAND})
_NOTES = {
    PromptKind.CLIENT: NoteKind.CLIENT,
    PromptKind.HOOK: NoteKind.HOOK,
    PromptKind.SUMMARY: NoteKind.SUMMARY,
    PromptKind.INTERRUPTION: NoteKind.INTERRUPTION,
    PromptKind.COMMAND_OUTPUT: NoteKind.COMMAND,
}
Pricer = Callable[[str, Usage, int | None], Cost]


def turns(entries: Sequence[Entry], price: Pricer) -> list[Turn]:
    """Tell one thread; `entries` stand in order."""
    thread = _Thread(entries, price)
    for entry in entries:
        thread.add(entry)
    return thread.told()


class _Thread:
    def __init__(self, entries: Sequence[Entry], price: Pricer) -> None:
        self._price = price
        self._lines: dict[str, list[Entry]] = {}
        self._results: dict[str, Entry] = {}
        self._ran: dict[str, dict[str, object]] = {}
        self._rewound = _rewound(entries)
        self._turns: list[tuple[Entry | None, list[str | Note]]] = []

    def add(self, entry: Entry) -> None:
        match entry.event:
            case Prompted():
                self._prompt(entry, entry.event)
            case Replied():
                self._reply(entry, entry.event)
            case ToolReturned():
                self._results.setdefault(entry.event.call_id, entry)
            case InputRewritten():
                self._ran[entry.event.call_id] = entry.event.input
            case Compacted() | ApiFailed() | Noted() | Unknown():
                self._note(entry, *note_of(entry.event))
            case ContextGiven() | CostStated() | Titled() | Summarised() | Requested() | Kept():
                pass
            case _:
                assert_never(entry.event)

    def told(self) -> list[Turn]:
        """Return the turns; an opening without words or steps is left out."""
        told: list[Turn] = []
        for prompt, parts in self._turns:
            items = self._items(parts)
            if prompt is None and not items:
                continue
            event = prompt.event if prompt is not None else None
            assert event is None or isinstance(event, Prompted)
            told.append(
                Turn(
                    number=len(told) + 1,
                    kind=event.kind if event else None,
                    prompt=event.content if event else (),
                    at_ms=prompt.at_ms if prompt else next((item.at_ms for item in items), None),
                    items=items,
                    rewound=prompt is not None and prompt.key in self._rewound,
                    uuid=prompt.uuid if prompt else "",
                )
            )
        return told

    def _prompt(self, entry: Entry, event: Prompted) -> None:
        if event.kind in STARTS and self._is_opening():
            self._turns[-1] = (entry, self._turns[-1][1])
        elif event.kind in STARTS:
            self._turns.append((entry, []))
        else:
            self._note(entry, _NOTES[event.kind], words(event.content))

    def _reply(self, entry: Entry, event: Replied) -> None:
        if event.synthetic:
            self._note(entry, NoteKind.API_FAILURE if event.error else NoteKind.CLIENT, words(event.content))
            return
        name = event.message_id or event.request_id or entry.key
        if name not in self._lines:
            self._lines[name] = []
            self._current().append(name)
        self._lines[name].append(entry)

    def _note(self, entry: Entry, kind: NoteKind, said: str) -> None:
        """Add a note, unless the one before says the same; a hook's words come once framed and once bare."""
        items = self._current()
        before = items[-1] if items else None
        again = isinstance(before, Note) and before.kind is kind and _repeats(said, before)
        if not again:
            items.append(Note(kind, said, entry.at_ms))

    def _is_opening(self) -> bool:
        """Whether only notes came before the first prompt; they belong to its turn."""
        return len(self._turns) == 1 and self._turns[0][0] is None and not self._lines

    def _current(self) -> list[str | Note]:
        if not self._turns:
            self._turns.append((None, []))
        return self._turns[-1][1]

    def _items(self, parts: list[str | Note]) -> tuple[Step | Note, ...]:
        items: list[Step | Note] = []
        steps = 0
        for part in parts:
            if isinstance(part, Note):
                items.append(part)
            else:
                steps += 1
                items.append(self._step(steps, self._lines[part]))
        return tuple(items)

    def _step(self, number: int, lines: list[Entry]) -> Step:
        replies = [(entry, entry.event) for entry in lines if isinstance(entry.event, Replied)]
        replies.sort(key=lambda pair: pair[1].block_index)
        _, whole = max(replies, key=lambda pair: (pair[1].usage.output, -pair[0].order_ms, pair[0].key))
        at_ms = min((entry.at_ms for entry, _ in replies if entry.at_ms is not None), default=None)
        blocks = [(entry, block) for entry, reply in replies for block in reply.content]
        return Step(
            number=number,
            message_id=whole.message_id,
            at_ms=at_ms,
            model=whole.model,
            content=tuple(block for _, block in blocks if not isinstance(block, ToolUse)),
            calls=tuple(self._call(entry, block) for entry, block in blocks if isinstance(block, ToolUse)),
            usage=whole.usage,
            cost=self._price(whole.model, whole.usage, at_ms),
            stop_reason=next((reply.stop_reason for _, reply in replies if reply.stop_reason), ""),
            request_id=whole.request_id,
            uuids=tuple(entry.uuid for entry, _ in replies),
            aborted=any(reply.aborted for _, reply in replies),
            effort=whole.effort,
        )

    def _call(self, entry: Entry, asked: ToolUse) -> ToolCall:
        answer = self._results.get(asked.id)
        result = answer.event if answer is not None else None
        assert result is None or isinstance(result, ToolReturned)
        call = ToolCall(asked.id, asked.name, asked.input, ran_input=self._ran.get(asked.id), started_ms=entry.at_ms)
        if answer is None or result is None:
            return call
        return ToolCall(
            call.id,
            call.name,
            call.input,
            result=result.content,
            is_error=result.is_error,
            denied=result.denied,
            ran_input=call.ran_input,
            spilled=result.spilled,
            started_ms=call.started_ms,
            ended_ms=answer.at_ms,
            lane=result.agent_id,
            detail=result.detail,
            result_uuid=answer.uuid,
        )


def _repeats(said: str, before: Note) -> bool:
    return said == before.text or (before.kind is NoteKind.HOOK and said in before.text)


def note_of(event: Compacted | ApiFailed | Noted | Unknown) -> tuple[NoteKind, str]:
    """Say in a line what the client did by itself."""
    match event:
        case Compacted():
            size = f"{event.tokens_before:,}"
            after = f" to {event.tokens_after:,}" if event.tokens_after else ""
            return NoteKind.COMPACTION, f"context compacted ({event.trigger or 'unsaid'}), from {size}{after} tokens"
        case ApiFailed():
            again = f", try {event.attempt}" if event.attempt else ""
            return NoteKind.API_FAILURE, f"{event.message}{again}"
        case Noted():
            return (NoteKind.HOOK if event.kind == "hook" else NoteKind.REMARK), event.text
        case Unknown():
            return NoteKind.UNKNOWN, f"{event.kind} with {', '.join(event.fields)}"
        case _:
            assert_never(event)


def _rewound(entries: Sequence[Entry]) -> set[str]:
    """Find the prompts a person took back: they hang on the living thread but do not lead to its end."""
    parents = {entry.uuid: entry.parent for entry in entries if entry.uuid}
    living: set[str] = set()
    uuid = next((entry.uuid for entry in reversed(entries) if entry.uuid and _carries(entry)), "")
    while uuid in parents and uuid not in living:
        living.add(uuid)
        uuid = parents[uuid]
    dead: set[str] = set()
    keys = set()
    for entry in entries:
        starts = isinstance(entry.event, Prompted) and entry.event.kind in STARTS
        if entry.uuid and entry.uuid not in living and (entry.parent in dead or (starts and entry.parent in living)):
            dead.add(entry.uuid)
            keys.add(entry.key)
    return keys


def _carries(entry: Entry) -> bool:
    return isinstance(entry.event, Prompted | Replied | ToolReturned)
