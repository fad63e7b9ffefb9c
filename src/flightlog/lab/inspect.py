"""Looking at a run, at one of its sessions, or at one step with all that belongs to it.

    my-run            the run          my-run#2        session 2
    my-run#2.14       its turn 14      my-run#2r3.14   the same of replicate 3
    my-run#2@LANE.1   a subagent's

A turn is the source document's word for one model response of a thread. Reads what is on record,
never a page.
"""

import json
import re
from pathlib import Path
from typing import Any

from msgspec import Struct

from flightlog.lab.book import RunStore
from flightlog.lab.layout import run_meta
from flightlog.lab.plan import PlannedSession
from flightlog.lab.reading import RunSession, trees_of
from flightlog.model.errors import Invalid, NotFound
from flightlog.model.events import Text, Thinking, text_of
from flightlog.model.session import Step, ToolCall

_FORM = re.compile(
    r"(?P<run>[^#]+)(?:#(?P<session>[1-9]\d{0,5})(?:r(?P<replicate>[1-9]\d{0,3}))?"
    r"(?:@(?P<lane>[A-Za-z0-9_-]{1,80}))?(?:\.(?P<turn>[1-9]\d{0,6}))?)?",
    re.ASCII,
)


class RunAddress(Struct, frozen=True):
    """A place in a run; 0 means the whole."""

    run: str
    session: int = 0
    replicate: int = 0
    lane: str = ""
    turn: int = 0


def parse_run_address(written: str) -> RunAddress:
    """Read a place as a person writes it."""
    found = _FORM.fullmatch(written)
    if found is None:
        raise Invalid(f"not a place in a run: {written[:80]!r}", hint="write RUN, RUN#SESSION or RUN#SESSION.TURN")
    return RunAddress(
        found["run"],
        int(found["session"] or 0),
        int(found["replicate"] or 0),
        found["lane"] or "",
        int(found["turn"] or 0),
    )


def inspect_address(book: RunStore, where: RunAddress, programs: str) -> dict[str, Any]:
    """Tell what is at a place."""
    if not where.session:
        return _inspect_run(book, programs)
    read = RunSession(book, _find_planned_session(book, where), trees_of(book, programs))
    return _inspect_step(read, where) if where.turn else _inspect_session(read, where.lane)


def _inspect_run(book: RunStore, programs: str) -> dict[str, Any]:
    meta = run_meta(book.name, book.config, book.state)
    trees, state = trees_of(book, programs), book.state
    ended = [state.last_attempt(each.name) for each in book.planned_sessions()]
    done = [each for each in ended if each is not None and each.ended is not None]
    changes = []
    if trees is not None and state.baseline and state.baseline.tree and done and done[-1].ended:
        changes = trees.diff_snapshots(state.baseline.tree, done[-1].ended.tree)
    files = [{"path": each.path, "kind": each.kind, "added": each.added, "removed": each.removed} for each in changes]
    return {"what": "run", **meta, "file_changes": files, "unrecognised_events": state.unrecognised}


def _find_planned_session(book: RunStore, where: RunAddress) -> PlannedSession:
    same = [each for each in book.planned_sessions() if each.index == where.session]
    if not same:
        raise NotFound(
            f"{book.name} has no session {where.session}", hint=f"it has sessions 1 to {len(book.config.sessions)}"
        )
    found = [each for each in same if each.replicate == where.replicate or (not where.replicate and each is same[0])]
    if not found:
        raise NotFound(
            f"session {where.session} of {book.name} has no replicate {where.replicate}",
            hint=f"it has {same[0].count if same[0].replicate else 'none'}",
        )
    return found[0]


def _inspect_session(read: RunSession, lane: str) -> dict[str, Any]:
    meta = run_meta(read.book.name, read.book.config, read.book.state)
    own = next(each for each in meta["sessions"] if each["session_dir"] == read.planned.name)
    changed: dict[str | None, int] = {}
    for entry in read.iter_changes():
        changed[entry["message_id"]] = changed.get(entry["message_id"], 0) + 1
    turns = [
        {
            "turn": number,
            "message_id": step.message_id,
            "at_ms": step.at_ms,
            "text": text_of(step.content),
            "tools": [call.name for call in step.calls],
            "cost_usd": step.cost.usd,
            "files_changed": changed.get(step.message_id, 0),
        }
        for number, step in enumerate(read.own_steps(lane), 1)
    ]
    threads = {name: len(read.own_steps(name)) for name in read.list_threads() if name}
    prompt = read.book.config.sessions[read.planned.index - 1].prompt
    return {"what": "session", **own, "prompt": prompt, "lane": lane, "turns": turns, "subagents": threads}


def _inspect_step(read: RunSession, where: RunAddress) -> dict[str, Any]:
    steps = read.own_steps(where.lane)
    if where.turn > len(steps):
        has = f"it has {len(steps)}" + (f" in {where.lane}" if where.lane else "")
        raise NotFound(f"{read.planned.name} has no turn {where.turn}", hint=has)
    step = steps[where.turn - 1]
    mapped = read.lineage.build_uuid_map(read.inherited_message_ids) if read.lineage else {"turns": [], "subagents": {}}
    rows = mapped["subagents"].get(where.lane, []) if where.lane else mapped["turns"]
    return {
        "what": "step",
        "run": read.book.name,
        "session_dir": read.planned.name,
        "turn": where.turn,
        "lane": where.lane,
        "model": step.model,
        "thinking": [block.text for block in step.content if isinstance(block, Thinking) and block.text],
        "text": [block.text for block in step.content if isinstance(block, Text)],
        "tools": [_tool_call_fields(call) for call in step.calls],
        "stop_reason": step.stop_reason,
        "usage": step.usage,
        "cost_usd": step.cost.usd,
        "cost_source": step.cost.source.value,
        "request": _request_fields(read, step),
        "changes": list(read.iter_changes(step)),
        "lineage": rows[where.turn - 1] if rows else None,
    }


def _tool_call_fields(call: ToolCall) -> dict[str, Any]:
    return {
        "id": call.id,
        "name": call.name,
        "input": call.input,
        "ran_input": call.ran_input,
        "output": call.output,
        "is_error": call.is_error,
        "denied": call.denied or None,
    }


def _request_fields(read: RunSession, step: Step) -> dict[str, Any] | None:
    call = read.lineage.find_request(step) if read.lineage else None
    if call is None:
        return None
    exchange = call.exchange
    return {
        "index": exchange.index,
        "file": str(Path("raw_dumps") / f"request_{exchange.index:03d}.json"),
        "context": exchange.request.context.value,
        "messages": exchange.request.messages,
        "bytes": exchange.request.sent.size,
        "sha256": exchange.request.sent.digest,
        "is_compaction": exchange.request.is_compaction,
        "status": exchange.response.status if exchange.response else None,
        "request_id": exchange.response.request_id if exchange.response else None,
        "first_byte_ms": exchange.response.first_byte_ms if exchange.response else None,
        "system_and_tools": _system_and_tools(read, call.index),
    }


def _system_and_tools(read: RunSession, index: int) -> dict[str, Any]:
    exchange = next(each.exchange for each in read.calls if each.index == index)
    try:
        body = json.loads(read.exchanges.sent_body(exchange))
    except (ValueError, NotFound):
        return {}
    tools = body.get("tools") if isinstance(body, dict) else None
    names = [str(tool.get("name")) for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
    return {"tools": names, "system_chars": len(json.dumps(body.get("system"))) if isinstance(body, dict) else 0}
