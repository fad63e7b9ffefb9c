"""Subagents: which records belong to whose thread, and which tool call started it.

Three layouts exist: records marked as side thread inside the session's file, files that
carry the subagent's id, and either without a word on the call they answer to.
"""

from collections import defaultdict
from collections.abc import Iterable

from flightlog.model.events import Entry, Prompted, Replied, ToolReturned, ToolUse, words
from flightlog.model.session import Lane

INLINE = "?"


def by_lane(ordered: list[Entry]) -> dict[str, list[Entry]]:
    """Sort entries into threads; a response copied into a side thread stays with the main one."""
    homes = _inline_homes(ordered)
    lanes: dict[str, list[Entry]] = defaultdict(list)
    owners: dict[str, str] = {}
    for entry in sorted(ordered, key=lambda entry: entry.lane != ""):
        if isinstance(entry.event, Replied):
            owners.setdefault(entry.event.message_id or entry.key, homes.get(entry.key, entry.lane))
    for entry in ordered:
        lane = homes.get(entry.key, entry.lane)
        if isinstance(entry.event, Replied) and owners[entry.event.message_id or entry.key] != lane:
            continue
        lanes[lane].append(entry)
    return lanes


def _inline_homes(ordered: list[Entry]) -> dict[str, str]:
    """Name the threads of subagents that stand inside the session's own file, by their first record."""
    homes: dict[str, str] = {}
    by_uuid: dict[str, str] = {}
    for entry in ordered:
        if entry.lane == INLINE:
            home = (entry.parent and by_uuid.get(entry.parent)) or _inline_name(entry, set(homes.values()))
            homes[entry.key] = home
            if entry.uuid:
                by_uuid[entry.uuid] = home
    return homes


def _inline_name(first: Entry, taken: set[str]) -> str:
    """A name for a thread that a person can type, whatever its first record calls itself."""
    letters = [char for char in first.uuid or first.key if char.isascii() and char.isalnum()]
    name = f"inline-{''.join(letters[:8]) or '0'}"
    return next(
        each for each in (name, *(f"{name}-{place}" for place in range(2, len(taken) + 3))) if each not in taken
    )


def calls_by_lane(lanes: dict[str, list[Entry]], ordered: list[Entry]) -> dict[str, str]:
    """Find the tool call that started each thread: by the result that names it, else by its prompt."""
    named = {
        entry.event.agent_id: entry.event.call_id
        for entry in ordered
        if isinstance(entry.event, ToolReturned) and entry.event.agent_id
    }
    prompts: dict[str, list[str]] = defaultdict(list)
    for call in _tool_uses(ordered):
        if isinstance(call.input.get("prompt"), str):
            prompts[call.input["prompt"]].append(call.id)
    found: dict[str, str] = {}
    for lane, entries in lanes.items():
        said = next((words(entry.event.content) for entry in entries if isinstance(entry.event, Prompted)), "")
        free = [call for call in prompts.get(said, ()) if call not in found.values()]
        started_by = named.get(lane) or (free[0] if free else "")
        if started_by:
            found[lane] = started_by
    return found


def _tool_uses(ordered: list[Entry]) -> Iterable[ToolUse]:
    for entry in ordered:
        if isinstance(entry.event, Replied):
            yield from (block for block in entry.event.content if isinstance(block, ToolUse))


def asked(ordered: list[Entry], call_id: str) -> tuple[str, str]:
    for call in _tool_uses(ordered):
        if call.id == call_id:
            return str(call.input.get("subagent_type") or ""), str(call.input.get("description") or "")
    return "", ""


def begin(lane: Lane) -> int:
    return next((turn.at_ms for turn in lane.turns if turn.at_ms is not None), 0)
