"""Which records belong to which subagent's thread, and which tool call started it.

Three layouts exist: side-thread records inside the session's own file, files that carry the
subagent's id, and either of them without the id of the call that started it. One call of a workflow
starts several subagents.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from flightlog.model.entries import AssistantReply, Entry, SubagentInfo, UserPrompt, text_of
from flightlog.model.session import Subagent, ToolCall
from flightlog.views.session.turns import Rank, rank

INLINE = "?"  # the lane of a side-thread record that does not name its subagent
# Parts of the input of calls that start agents: by a prompt, as a skill or as a workflow.
_INPUT_OF_SUBAGENT = frozenset(
    ["prompt", "subagent_type", "skill", "script", "scriptPath", "name", "resumeFromRunId"]
)
_WARMUP = "Warmup"  # the client's own first message to a subagent that it starts ahead of need


class SubagentCall(NamedTuple):
    """A call that may have started a subagent: its row and the parts of its input."""

    row: int
    prompt: str | None
    agent_type: str
    description: str
    started_ms: int


class SubagentThread(NamedTuple):
    """What tells a subagent's thread from the others."""

    first: Rank  # of its earliest record
    first_prompt: str
    first_turn: str  # text of the prompt of its first turn
    started_ms: int
    info: SubagentInfo


def split_threads(ordered: list[Entry]) -> dict[str, list[Entry]]:
    """Return the entries of each thread; a response in two threads belongs to the main one."""
    homes = _find_inline_threads(ordered)
    threads: dict[str, list[Entry]] = defaultdict(list)
    owners: dict[str, str] = {}
    for entry in sorted(ordered, key=lambda entry: entry.subagent != ""):
        if isinstance(entry.event, AssistantReply):
            name = entry.event.message_id or entry.key
            owners.setdefault(name, homes.get(entry.key, entry.subagent))
    for entry in ordered:
        thread = homes.get(entry.key, entry.subagent)
        if (
            isinstance(entry.event, AssistantReply)
            and owners[entry.event.message_id or entry.key] != thread
        ):
            continue
        threads[thread].append(entry)
    return threads


def _find_inline_threads(ordered: list[Entry]) -> dict[str, str]:
    """Return the thread of each side-thread record in the session's own file, by record key."""
    homes: dict[str, str] = {}
    by_uuid: dict[str, str] = {}
    for entry in ordered:
        if entry.subagent == INLINE:
            parent = by_uuid.get(entry.parent_uuid) if entry.parent_uuid else None
            home = parent or _inline_name(entry, set(homes.values()))
            homes[entry.key] = home
            if entry.uuid:
                by_uuid[entry.uuid] = home
    return homes


def _inline_name(first: Entry, taken: set[str]) -> str:
    """Return a new thread name that can be typed, whatever the id of its first record."""
    letters = [char for char in first.uuid or first.key if char.isascii() and char.isalnum()]
    name = f"inline-{''.join(letters[:8]) or '0'}"
    numbered = (f"{name}-{number}" for number in range(2, len(taken) + 3))
    return next(candidate for candidate in (name, *numbered) if candidate not in taken)


def first_prompt(entries: Iterable[Entry]) -> str:
    """Return the text of a thread's earliest prompt."""
    prompts = (entry for entry in entries if isinstance(entry.event, UserPrompt))
    first = min(prompts, key=rank, default=None)
    return text_of(first.event.content) if first and isinstance(first.event, UserPrompt) else ""


def find_subagent_calls(calls: Iterable[ToolCall], row: int = 0) -> dict[str, SubagentCall]:
    """Return those of `calls`, by id, whose input could have started a subagent."""
    started = {}
    for call in calls:
        if _INPUT_OF_SUBAGENT & call.input.keys():
            names = ("prompt", "subagent_type", "description")
            prompt, agent_type, description = map(call.input.get, names)
            text = prompt if isinstance(prompt, str) else None
            about = (str(agent_type or ""), str(description or ""))
            started[call.id] = SubagentCall(row, text, *about, call.started_ms or 0)
    return started


def sort_threads(threads: Iterable[SubagentThread]) -> list[SubagentThread]:
    """Return the threads by their earliest record."""
    return sorted(threads, key=lambda thread: (thread.first, thread.info.subagent))


def link_subagents(
    threads: Iterable[SubagentThread],
    calls: Mapping[str, SubagentCall],
    results: Mapping[str, str],
    runs: Mapping[str, Iterable[str]],
) -> tuple[Subagent, ...]:
    """Return the subagents by start time, without turns, each with the call that started it.

    That call is named beside the transcript, or by the tool result that names the subagent
    (`results`) or its workflow run (`runs`), or it has the same prompt as the thread. Of two
    threads with the same prompt the first one gets the first call.
    """
    by_prompt: dict[str, list[str]] = defaultdict(list)
    for call_id, call in calls.items():
        if call.prompt is not None:
            by_prompt[call.prompt].append(call_id)
    taken: set[str] = set()
    linked = []
    for thread in threads:
        named = by_prompt.get(thread.first_prompt, ())
        free = [call_id for call_id in named if call_id not in taken]
        likely = _find_named_call(thread.info.subagent, results)
        likely = likely or _find_call_of_run(thread, calls, runs)
        likely = likely or (free[0] if free else "")
        taken.add(likely)
        call_id = thread.info.tool_call_id or likely
        agent_type, description = thread.info.agent_type, thread.info.description
        if call_id in calls:
            agent_type = agent_type or calls[call_id].agent_type
            description = description or calls[call_id].description
        is_warmup = not call_id and thread.first_turn == _WARMUP
        is_side_call = is_warmup or thread.info.is_side_call
        kind = "warm-up" if is_warmup else agent_type
        subagent = Subagent(thread.info.subagent, kind, description, call_id, (), is_side_call)
        linked.append((thread.started_ms, subagent))
    return tuple(subagent for _, subagent in sorted(linked, key=lambda pair: (pair[0], pair[1].id)))


def _find_named_call(subagent: str, results: Mapping[str, str]) -> str:
    """Return the call whose result names `subagent`; a teammate `NAME@TEAM` has the id aNAME-HEX."""
    if subagent in results:
        return results[subagent]
    teammates = ((name.partition("@"), call_id) for name, call_id in results.items())
    return next(
        (
            call_id
            for (name, at, _), call_id in teammates
            if at and re.fullmatch(rf"a{re.escape(name)}-[0-9a-f]+", subagent)
        ),
        "",
    )


def _find_call_of_run(
    thread: SubagentThread, calls: Mapping[str, SubagentCall], runs: Mapping[str, Iterable[str]]
) -> str:
    """Return the call of a thread's workflow run; for a resumed run, the last before it."""
    begun = sorted(
        (calls[call_id].started_ms if call_id in calls else 0, call_id)
        for call_id in runs.get(thread.info.run, ())
    )
    before = [call_id for at_ms, call_id in begun if at_ms <= thread.first[0]]
    return before[-1] if before else begun[0][1] if begun else ""
