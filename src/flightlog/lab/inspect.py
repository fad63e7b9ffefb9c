"""Inspect, compare, align, branch tree.

A branch is laid beside its source from the turn it goes back to. Pure.

Says how each ended, what it took and what it changed, and in which files they agree byte for byte.
Counts only; whether a difference means something is a question for statistics.

my-run            the run          my-run#2        session 2
    my-run#2.14       its turn 14      my-run#2r3.14   the same of replicate 3
    my-run#2@LANE.1   a subagent's

A turn is the source document's word for one model response of a thread. Reads what is on record,
never a page.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from statistics import mean, pstdev
from typing import Any

from msgspec import Struct

from flightlog.lab.layout import run_meta
from flightlog.lab.run_reader import RunSession, trees_of
from flightlog.lab.store import PlannedSession, RunStore
from flightlog.model.entries import Text, Thinking, text_of
from flightlog.model.errors import Invalid, NotFound
from flightlog.model.session import Step, ToolCall
from flightlog.model.text import one_line

_SAID_CHARS_MAX = 160
PAIR = 2
_NUMBERS = ("step_count", "num_turns", "tool_call_count", "total_cost_usd", "file_writes", "subagent_count")
_FORM = re.compile(
    r"(?P<run>[^#]+)(?:#(?P<session>[1-9]\d{0,5})(?:r(?P<replicate>[1-9]\d{0,3}))?"
    r"(?:@(?P<lane>[A-Za-z0-9_-]{1,80}))?(?:\.(?P<turn>[1-9]\d{0,6}))?)?",
    re.ASCII,
)


def align_steps(left: Sequence[Step], right: Sequence[Step], *, first: int = 1) -> dict[str, Any]:
    """Lay two sequences of steps side by side; `first` is the turn the first pair has."""
    rows = []
    parted: int | None = None
    other_result: int | None = None
    for turn, (one, other) in enumerate(zip_longest(left, right), first):
        same = one is not None and other is not None and _step_actions(one) == _step_actions(other)
        same_results = same and one is not None and other is not None and _step_results(one) == _step_results(other)
        if parted is None and not same:
            parted = turn
        if parted is None and other_result is None and not same_results:
            other_result = turn
        rows.append(
            {
                "turn": turn,
                "left": _describe_step(one),
                "right": _describe_step(other),
                "same": same,
                "same_results": same_results,
            }
        )
    return {"first_divergence": parted, "first_other_result": other_result, "steps": rows}


def _step_actions(step: Step) -> tuple[Any, ...]:
    texts = tuple(block.text for block in step.content if isinstance(block, Text))
    return texts, tuple((call.name, call.input) for call in step.calls)


def _step_results(step: Step) -> tuple[Any, ...]:
    return tuple((call.output, call.is_error) for call in step.calls)


def _describe_step(step: Step | None) -> str:
    if step is None:
        return ""
    calls = [f"{call.name} {_input_summary(call.input)}{' (failed)' if call.is_error else ''}" for call in step.calls]
    texts = [block.text for block in step.content if isinstance(block, Text)]
    return one_line(" · ".join([*texts, *calls]), _SAID_CHARS_MAX)


def _input_summary(given: dict[str, Any]) -> str:
    return str(given.get("command") or given.get("file_path") or given.get("prompt") or given)


def compare_runs(runs: Sequence[RunStore], programs: str) -> dict[str, Any]:
    """Compare runs, session index by session index."""
    metas = [run_meta(run.name, run.config, run.state) for run in runs]
    last = max(len(run.config.sessions) for run in runs)
    return {
        "runs": [
            {key: meta[key] for key in ("run_name", "model", "session_mode", "stop_reason", "total_cost_usd", "tags")}
            for meta in metas
        ],
        "config": _differing_settings(runs),
        "sessions": [_compare_session(runs, metas, index, programs) for index in range(1, last + 1)],
        "side_by_side": _side_by_side(runs, programs) if len(runs) == PAIR else None,
    }


def _side_by_side(runs: Sequence[RunStore], programs: str) -> dict[str, Any] | None:
    """The first sessions of two runs, step by step; a branch beside its source begins at the turn it goes back to."""
    left, right = runs
    branch = right.state.branch or left.state.branch
    turns: list[Sequence[Step]] = []
    first = 1
    for run, other in ((left, right), (right, left)):
        origin = other.state.branch
        is_source = origin is not None and origin.source_run == run.name and run.state.branch is None
        index = origin.source_dir if origin is not None and is_source else run.planned_sessions()[0].name
        planned = next((each for each in run.planned_sessions() if each.name == index), None)
        if planned is None or run.state.last_attempt(planned.name) is None:
            return None
        steps = RunSession(run, planned, trees_of(run, programs)).own_steps()
        if origin is not None and is_source:
            first = origin.turn
            steps = steps[first - 1 :]
        turns.append(steps)
    first = branch.turn if branch is not None and first == 1 else first
    return align_steps(*turns, first=first)


def _differing_settings(runs: Sequence[RunStore]) -> dict[str, list[Any]]:
    """The settings in which the runs differ."""
    names = [name for name in runs[0].config.__struct_fields__ if name not in {"run_name", "sessions", "work_dir"}]
    values = {name: [getattr(run.config, name) for run in runs] for name in names}
    return {name: said for name, said in values.items() if any(each != said[0] for each in said)}


def _compare_session(
    runs: Sequence[RunStore], metas: Sequence[dict[str, Any]], index: int, programs: str
) -> dict[str, Any]:
    groups = []
    final: list[dict[str, str]] = []
    for run, meta in zip(runs, metas, strict=True):
        rows = [each for each in meta["sessions"] if each["session_index"] == index]
        files = [_changed_files(run, row["session_dir"], programs) for row in rows]
        final += [file for file in files if file is not None]
        groups.append(_summarize_replicates(run.name, rows))
    paths = sorted({path for each in final for path in each})
    same = [path for path in paths if len({each.get(path) for each in final}) == 1]
    return {
        "session_index": index,
        "groups": groups,
        "files_changed": paths,
        "files_equal": same,
        "files_different": [path for path in paths if path not in same],
    }


def _summarize_replicates(run: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    told: dict[str, Any] = {"run": run, "count": len(rows)}
    said = [one for row in rows for one in row["verifiers"]]
    names = dict.fromkeys(one["name"] for one in said)
    told["verifiers"] = {
        name: {"passed": sum(one["passed"] for one in said if one["name"] == name), "of": len(rows)} for name in names
    }
    told["stop_reasons"] = dict(Counter(row["stop_reason"] for row in rows))
    for name in _NUMBERS:
        values = [row[name] for row in rows if row["finished_at"] and row[name] is not None]
        told[name] = {"mean": mean(values), "sd": pstdev(values), "n": len(values)} if values else None
    return told


def _changed_files(run: RunStore, session: str, programs: str) -> dict[str, str] | None:
    """What a session changed, by path and the name of what stands there then; None where it did not end."""
    last, trees = run.state.last_attempt(session), trees_of(run, programs)
    if last is None or last.ended is None or trees is None:
        return None
    return {snapshot.path: snapshot.id for snapshot in trees.diff_snapshots(last.tree or None, last.ended.tree)}


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


def inspect_address(run: RunStore, where: RunAddress, programs: str) -> dict[str, Any]:
    """Tell what is at a place."""
    if not where.session:
        return _inspect_run(run, programs)
    read = RunSession(run, _find_planned_session(run, where), trees_of(run, programs))
    return _inspect_step(read, where) if where.turn else _inspect_session(read, where.lane)


def _inspect_run(run: RunStore, programs: str) -> dict[str, Any]:
    meta = run_meta(run.name, run.config, run.state)
    trees, state = trees_of(run, programs), run.state
    ended = [state.last_attempt(planned.name) for planned in run.planned_sessions()]
    done = [each for each in ended if each is not None and each.ended is not None]
    changes = []
    if trees is not None and state.baseline and state.baseline.tree and done and done[-1].ended:
        changes = trees.diff_snapshots(state.baseline.tree, done[-1].ended.tree)
    files = [
        {"path": change.path, "kind": change.kind, "added": change.added, "removed": change.removed}
        for change in changes
    ]
    return {"what": "run", **meta, "file_changes": files, "unrecognised_events": state.unrecognised}


def _find_planned_session(run: RunStore, where: RunAddress) -> PlannedSession:
    same = [planned for planned in run.planned_sessions() if planned.index == where.session]
    if not same:
        raise NotFound(
            f"{run.name} has no session {where.session}", hint=f"it has sessions 1 to {len(run.config.sessions)}"
        )
    found = [each for each in same if each.replicate == where.replicate or (not where.replicate and each is same[0])]
    if not found:
        raise NotFound(
            f"session {where.session} of {run.name} has no replicate {where.replicate}",
            hint=f"it has {same[0].count if same[0].replicate else 'none'}",
        )
    return found[0]


def _inspect_session(read: RunSession, lane: str) -> dict[str, Any]:
    meta = run_meta(read.run.name, read.run.config, read.run.state)
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
    prompt = read.run.config.sessions[read.planned.index - 1].prompt
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
        "run": read.run.name,
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
    exchange = next(call.exchange for call in read.calls if call.index == index)
    try:
        body = json.loads(read.exchanges.sent_body(exchange))
    except (ValueError, NotFound):
        return {}
    tools = body.get("tools") if isinstance(body, dict) else None
    names = [str(tool.get("name")) for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
    return {"tools": names, "system_chars": len(json.dumps(body.get("system"))) if isinstance(body, dict) else 0}


def iter_run_tree(metas: Sequence[dict[str, Any]]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Runs in order, each with its branches below it; a branch whose source is gone stands for itself."""
    names = {meta["run_name"] for meta in metas}
    branches: dict[str, list[dict[str, Any]]] = {}
    for meta in metas:
        source = str(meta.get("replay_source") or "")
        branches.setdefault(source if source in names - {meta["run_name"]} else "", []).append(meta)
    waiting = [(0, meta) for meta in reversed(branches.get("", []))]
    while waiting:
        depth, meta = waiting.pop()
        yield depth, meta
        waiting += [(depth + 1, each) for each in reversed(branches.pop(meta["run_name"], []))]
