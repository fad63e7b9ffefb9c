"""Prompts that a transcript holds twice: queued and sent, or written again by a resumed session."""

from collections.abc import Iterable, Sequence

from flightlog.model.entries import (
    AssistantReply,
    Block,
    Entry,
    Image,
    PromptKind,
    PromptQueued,
    QueueTakenBack,
    Text,
    ToolResult,
    UserPrompt,
    text_of,
)

MESSAGES = (UserPrompt, AssistantReply, ToolResult)
QUEUE_RECORDS_MAX = 1_000  # between a queued prompt and the record that it is sent with


def follow_queue(ordered: Sequence[Entry]) -> dict[int, int | None]:
    """Return the position of each queued prompt, and the one of the record that replaces it, if any.

    That is the prompt that repeats it, or the record that takes it back.
    """
    sent: dict[int, int | None] = {}
    waiting: dict[int, str] = {}
    for position, entry in enumerate(ordered):
        event = entry.event
        if isinstance(event, PromptQueued):
            sent[position] = None
            waiting[position] = f"\n{text_of(event.content).strip()}\n"
        elif waiting and isinstance(event, QueueTakenBack):
            drafts = [queued for queued in waiting if not _is_task(ordered[queued])]
            sent.update(dict.fromkeys(drafts, position))
            waiting = {queued: words for queued, words in waiting.items() if queued not in drafts}
        elif waiting and isinstance(event, UserPrompt):
            text = f"\n{text_of(event.content).strip()}\n"
            for queued, words in list(waiting.items()):
                # Prompts that waited together are sent as one.
                is_late = position - queued > QUEUE_RECORDS_MAX
                if is_late or words in text:
                    sent[queued] = None if is_late else position
                    del waiting[queued]
    return sent


def _is_task(entry: Entry) -> bool:
    """Return whether a queued prompt is a task's report, which stays in the queue."""
    return isinstance(entry.event, PromptQueued) and entry.event.kind is PromptKind.TASK


def queue_reach(ordered: Sequence[Entry]) -> dict[int, int]:
    """Return the position up to which records may still decide about each queued prompt."""
    return {
        position: position + QUEUE_RECORDS_MAX if sent is None else sent
        for position, sent in follow_queue(ordered).items()
    }


def find_replayed(ordered: Sequence[Entry]) -> set[str]:
    """Return the keys of prompts that repeat an earlier one, whole or block by block.

    A client that resumes a session may write the history again with its old times, an editor each
    block of a prompt as a record of its own. One block alone may be a person who repeats a prompt;
    two in a row are a copy, and so is one with the time of the prompt that it is a block of.
    """
    prompts = [(entry.at_ms, prompt_blocks(entry)) for entry in ordered if entry.at_ms is not None]
    parts = {(at_ms, block) for at_ms, blocks in prompts if len(blocks) > 1 for block in blocks}
    whole: set[tuple[int | None, tuple[Block, ...]]] = set()
    known: set[Block] = set()
    replayed: set[str] = set()
    run: list[str] = []
    for entry in ordered:
        if not isinstance(entry.event, MESSAGES):
            continue
        blocks = prompt_blocks(entry)
        at_time = (entry.at_ms, blocks)
        is_part = len(blocks) == 1 and (entry.at_ms, blocks[0]) in parts
        if is_part or (blocks and entry.at_ms is not None and at_time in whole):
            replayed.add(entry.key)
            continue
        whole.add(at_time)
        if len(blocks) == 1 and blocks[0] in known:
            run.append(entry.key)
            continue
        replayed.update(run if len(run) > 1 else ())
        run = []
        known.update(blocks if len(blocks) > 1 else ())
    return replayed.union(run if len(run) > 1 else ())


class EvictedPrompts:
    """The blocks of old prompts that had several, and all at their times, by hash to save memory."""

    def __init__(self) -> None:
        self._hashes: set[int] = set()

    def add(self, entries: Iterable[Entry]) -> None:
        """Add the prompts among `entries`."""
        for entry in entries:
            if blocks := prompt_blocks(entry):
                self._hashes.add(hash((entry.at_ms, blocks)))
                self._hashes.update(map(hash, blocks if len(blocks) > 1 else ()))

    def may_repeat(self, entry: Entry) -> bool:
        """Return whether an entry is an old prompt or one block of it."""
        blocks = prompt_blocks(entry) if self._hashes else ()
        parts = [(entry.at_ms, blocks), *(blocks if len(blocks) == 1 else ())]
        return any(hash(part) in self._hashes for part in parts)


def prompt_blocks(entry: Entry) -> tuple[Block, ...]:
    """Return the blocks of a prompt with what the client added to them."""
    event = entry.event
    blocks = (*event.content, *event.context) if isinstance(event, UserPrompt) else ()
    return tuple(block for block in blocks if isinstance(block, Text | Image))
