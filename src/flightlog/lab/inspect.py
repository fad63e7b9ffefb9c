"""Show, compare and align runs, sessions and steps.

A place in a run is written as an address:

    my-run            the run          my-run#2        session 2, or my-run/session_02
    my-run#2.14       its turn 14      my-run#2r3.14   turn 14 of replicate 3
    my-run#2@LANE.1   turn 1 of a subagent

A turn is one model response of a thread, as in the source document. A branch is aligned with its
source from the turn it goes back to. Comparisons count and compare bytes; whether a difference is
significant is decided in `statistics`. Reads what is on record, never an output file.
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
from msgspec.structs import replace

from flightlog.lab.layout import run_meta
from flightlog.lab.run_reader import RunSession, trees_of
from flightlog.lab.store import RunStore, find_planned_session
from flightlog.model.entries import Text, Thinking, text_of
from flightlog.model.errors import Invalid, NotFound
from flightlog.model.exchange import Exchange
from flightlog.model.session import Step, ToolCall
from flightlog.model.text import one_line
from flightlog.model.usage import usage_fields

_SAID_CHARS_MAX = 160
PAIR = 2
_RUN_KEYS = ("run_name", "model", "session_mode", "stop_reason", "total_cost_usd", "tags")
_NUMBERS = tuple(
    "step_count num_turns tool_call_count total_cost_usd file_writes subagent_count".split()
)
_FORM = re.compile(
    r"(?P<run>[^#]+?)(?:(?:#|/session_0*)(?P<session>[1-9]\d{0,5})"
    r"(?:_?r0*(?P<replicate>[1-9]\d{0,3}))?"
    r"(?:@(?P<subagent>[A-Za-z0-9_-]{1,80}))?(?:\.(?P<turn>[1-9]\d{0,6}))?)?",
    re.ASCII,
)


def align_steps(left: Sequence[Step], right: Sequence[Step], *, first: int = 1) -> dict[str, Any]:
    """Return two sequences of steps side by side; `first` is the turn of the first pair."""
    rows = []
    divergence: int | None = None
    other_results: int | None = None
    for turn, (one, other) in enumerate(zip_longest(left, right), first):
        same = same_results = False
        if one is not None and other is not None:
            same = _step_actions(one) == _step_actions(other)
            same_results = same and _step_results(one) == _step_results(other)
        if divergence is None and not same:
            divergence = turn
        if divergence is None and other_results is None and not same_results:
            other_results = turn
        rows.append(
            {
                "turn": turn,
                "left": _describe_step(one),
                "right": _describe_step(other),
                "is_same": same,
                "has_same_results": same_results,
            }
        )
    return {"first_divergence": divergence, "first_result_difference": other_results, "steps": rows}


def _step_actions(step: Step) -> tuple[Any, ...]:
    texts = tuple(block.text for block in step.content if isinstance(block, Text))
    return texts, tuple((call.name, call.input) for call in step.tool_calls)


def _step_results(step: Step) -> tuple[Any, ...]:
    return tuple((call.output, call.is_error) for call in step.tool_calls)


def _describe_step(step: Step | None) -> str:
    if step is None:
        return ""
    calls = [
        f"{call.name} {_input_summary(call.input)}{' (failed)' if call.is_error else ''}"
        for call in step.tool_calls
    ]
    texts = [block.text for block in step.content if isinstance(block, Text)]
    return one_line(" · ".join([*texts, *calls]), _SAID_CHARS_MAX)


def _input_summary(arguments: dict[str, Any]) -> str:
    values = (arguments.get(name) for name in ("command", "file_path", "prompt"))
    return str(next(filter(None, values), arguments))


def compare_runs(runs: Sequence[RunStore], programs: str) -> dict[str, Any]:
    metas = [run_meta(run.name, run.config, run.state) for run in runs]
    last = max(len(run.config.sessions) for run in runs)
    return {
        "runs": [{key: meta[key] for key in _RUN_KEYS} for meta in metas],
        "config_differences": _differing_settings(runs),
        "sessions": [
            _compare_session(runs, metas, index, programs) for index in range(1, last + 1)
        ],
        "side_by_side": _side_by_side(runs, programs) if len(runs) == PAIR else None,
    }


def _side_by_side(runs: Sequence[RunStore], programs: str) -> dict[str, Any] | None:
    """Align the first sessions of two runs; a branch is aligned from the turn it goes back to."""
    left, right = runs
    branch = right.state.branch or left.state.branch
    aligned: list[Sequence[Step]] = []
    first = 1
    for run, other in ((left, right), (right, left)):
        sessions = {planned.session_dir: planned for planned in run.planned_sessions()}
        name, turn, origin = next(iter(sessions)), 1, other.state.branch
        if origin is not None and origin.source_run == run.name and run.state.branch is None:
            name, turn = origin.source_session_dir, origin.turn
            first = turn
        if name not in sessions or run.state.last_attempt(name) is None:
            return None
        steps = RunSession(run, sessions[name], trees_of(run, programs)).own_steps()
        aligned.append(steps[turn - 1 :])
    first = branch.turn if branch is not None and first == 1 else first
    return align_steps(*aligned, first=first)


def _differing_settings(runs: Sequence[RunStore]) -> dict[str, list[Any]]:
    own = {"run_name", "sessions", "work_dir"}
    names = [name for name in runs[0].config.__struct_fields__ if name not in own]
    values = {name: [getattr(run.config, name) for run in runs] for name in names}
    return {
        name: settings
        for name, settings in values.items()
        if any(value != settings[0] for value in settings)
    }


def _compare_session(
    runs: Sequence[RunStore], metas: Sequence[dict[str, Any]], index: int, programs: str
) -> dict[str, Any]:
    groups = []
    ended: list[tuple[set[str], dict[str, str]]] = []
    for run, meta in zip(runs, metas, strict=True):
        rows = [row for row in meta["sessions"] if row["session_index"] == index]
        files = [_changed_files(run, row["session_dir"], programs) for row in rows]
        ended += [file for file in files if file is not None]
        groups.append(_summarize_replicates(run.name, rows))
    # A branch changes fewer files than its source: what counts is what each session left.
    paths = sorted({path for changed, _ in ended for path in changed})
    same = [path for path in paths if len({files.get(path) for _, files in ended}) == 1]
    return {
        "session_index": index,
        "groups": groups,
        "files_changed": paths,
        "files_equal": same,
        "files_different": [path for path in paths if path not in same],
    }


def _summarize_replicates(run: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    summary: dict[str, Any] = {"run_name": run, "count": len(rows)}
    results = [result for row in rows for result in row["verifiers"]]
    names = dict.fromkeys(result["name"] for result in results)
    passed = Counter(result["name"] for result in results if result["passed"])
    summary["verifiers"] = {name: {"passed": passed[name], "total": len(rows)} for name in names}
    summary["stop_reasons"] = dict(Counter(row["stop_reason"] for row in rows))
    for name in _NUMBERS:
        values = [row[name] for row in rows if row["finished_at"] and row[name] is not None]
        spread = {"mean": mean(values), "sd": pstdev(values), "n": len(values)} if values else None
        summary[name] = spread
    return summary


def _changed_files(
    run: RunStore, session: str, programs: str
) -> tuple[set[str], dict[str, str]] | None:
    """Return the paths that a session changed, and the ids of all files it left; None if none."""
    last, trees = run.state.last_attempt(session), trees_of(run, programs)
    if last is None or last.end is None or trees is None:
        return None
    changes = trees.diff_snapshots(last.tree or None, last.end.tree)
    return {change.path for change in changes}, trees.list_file_ids(last.end.tree)


class RunAddress(Struct, frozen=True):
    """A place in a run; 0 means all of it."""

    run: str
    session: int = 0
    replicate: int = 0
    subagent: str = ""
    turn: int = 0


def parse_run_address(written: str) -> RunAddress:
    match = _FORM.fullmatch(written)
    if match is None:
        hint = "write RUN, RUN#SESSION or RUN#SESSION.TURN"
        raise Invalid(f"not an address in a run: {written[:80]!r}", hint=hint)
    session, replicate, turn = (int(match[name] or 0) for name in ("session", "replicate", "turn"))
    return RunAddress(match["run"], session, replicate, match["subagent"] or "", turn)


def inspect_address(run: RunStore, address: RunAddress, programs: str) -> dict[str, Any]:
    if not address.session:
        return _inspect_run(run, programs)
    planned = find_planned_session(run, address.session, address.replicate)
    session = RunSession(run, planned, trees_of(run, programs))
    if address.subagent:
        address = replace(address, subagent=_find_subagent(session, address.subagent))
    if address.turn:
        return _inspect_step(session, address)
    return _inspect_session(session, address.subagent)


def _find_subagent(session: RunSession, prefix: str) -> str:
    threads = [thread for thread in session.list_threads() if thread]
    matches = [thread for thread in threads if thread.startswith(prefix)]
    if len(matches) != 1 and prefix not in matches:
        count = f"{len(matches)} subagents begin" if matches else "no subagent begins"
        hint = f"one of: {', '.join(threads)}" if threads else "it has no subagents"
        raise NotFound(f"{count} with {prefix[:80]}", hint=hint)
    return prefix if prefix in matches else matches[0]


def _inspect_run(run: RunStore, programs: str) -> dict[str, Any]:
    meta = run_meta(run.name, run.config, run.state)
    trees, state = trees_of(run, programs), run.state
    attempts = [state.last_attempt(planned.session_dir) for planned in run.planned_sessions()]
    ended = [attempt for attempt in attempts if attempt is not None and attempt.end is not None]
    changes = []
    if trees is not None and state.baseline and state.baseline.tree and ended and ended[-1].end:
        changes = trees.diff_snapshots(state.baseline.tree, ended[-1].end.tree)
    files = [
        {"path": change.path, "kind": change.kind, "added": change.added, "removed": change.removed}
        for change in changes
    ]
    return {
        "kind": "run",
        **meta,
        "file_changes": files,
        "unrecognized_events": state.unrecognized_events,
    }


def _inspect_session(session: RunSession, subagent: str) -> dict[str, Any]:
    meta = run_meta(session.run.name, session.run.config, session.run.state)
    session_dir = session.planned.session_dir
    session_meta = next(row for row in meta["sessions"] if row["session_dir"] == session_dir)
    change_counts = Counter(entry["message_id"] for entry in session.iter_changes())
    turns = [
        {
            "turn": number,
            "message_id": step.message_id,
            "at_ms": step.at_ms,
            "text": text_of(step.content),
            "tools": [call.name for call in step.tool_calls],
            "cost_usd": step.cost_usd,
            "cost_source": step.cost.source.value,
            "files_changed": change_counts[step.message_id],
        }
        for number, step in enumerate(session.own_steps(subagent), 1)
    ]
    threads = {name: len(session.own_steps(name)) for name in session.list_threads() if name}
    return {
        "kind": "session",
        **session_meta,
        "prompt": session.run.config.sessions[session.planned.session_index - 1].prompt,
        "subagent": subagent,
        "turns": turns,
        "subagents": threads,
    }


def _inspect_step(session: RunSession, address: RunAddress) -> dict[str, Any]:
    session.check_transcript()
    steps = session.own_steps(address.subagent)
    if address.turn > len(steps):
        hint = f"it has {len(steps)}" + (f" in {address.subagent}" if address.subagent else "")
        raise NotFound(f"{session.planned.session_dir} has no turn {address.turn}", hint=hint)
    step = steps[address.turn - 1]
    rows = []
    if session.lineage:
        uuid_map = session.lineage.build_uuid_map(session.inherited_message_ids)
        by_thread = {"": uuid_map["turns"], **uuid_map["subagents"]}
        rows = by_thread.get(address.subagent, [])
    return {
        "kind": "step",
        "run_name": session.run.name,
        "session_dir": session.planned.session_dir,
        "turn": address.turn,
        "subagent": address.subagent,
        "model": step.model,
        "thinking": [
            block.text for block in step.content if isinstance(block, Thinking) and block.text
        ],
        "text": [block.text for block in step.content if isinstance(block, Text)],
        "tools": [_tool_call_fields(call) for call in step.tool_calls],
        "stop_reason": step.stop_reason,
        **usage_fields(step.usage, step.cost),
        "request": _request_fields(session, step),
        "file_changes": list(session.iter_changes(step)),
        "uuid_map": rows[address.turn - 1] if rows else None,
    }


def _tool_call_fields(call: ToolCall) -> dict[str, Any]:
    return {
        "id": call.id,
        "name": call.name,
        "input": call.input,
        "executed_input": call.executed_input,
        "output": call.output,
        "is_error": call.is_error,
        "denial_reason": call.denial_reason or None,
    }


def _request_fields(session: RunSession, step: Step) -> dict[str, Any] | None:
    call = session.lineage.find_request(step) if session.lineage else None
    if call is None:
        return None
    exchange = call.exchange
    response = exchange.response
    return {
        "index": exchange.index,
        "file": str(Path("raw_dumps") / f"request_{exchange.index:03d}.json"),
        "agent_context": exchange.request.agent_context.value,
        "message_count": exchange.request.message_count,
        "size_bytes": exchange.request.sent_body.size_bytes,
        "sha256": exchange.request.sent_body.digest,
        "is_compaction": exchange.request.is_compaction,
        "status": response.status if response else None,
        "request_id": response.request_id if response else None,
        "first_byte_ms": response.first_byte_ms if response else None,
        "system_and_tools": _system_and_tools(session, exchange),
    }


def _system_and_tools(session: RunSession, exchange: Exchange) -> dict[str, Any]:
    try:
        body = json.loads(session.exchanges.sent_body(exchange))
    except (ValueError, NotFound):
        return {}
    if not isinstance(body, dict):
        return {"tools": [], "system_chars": 0}
    tools = body.get("tools")
    offered = tools if isinstance(tools, list) else []
    return {
        "tools": [str(tool.get("name")) for tool in offered if isinstance(tool, dict)],
        "system_chars": len(json.dumps(body.get("system"))),
    }


def iter_run_tree(metas: Sequence[dict[str, Any]]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield runs with their depth, each before its branches; a branch without source is a root."""
    names = {meta["run_name"] for meta in metas}
    branches: dict[str, list[dict[str, Any]]] = {}
    for meta in metas:
        source = str(meta.get("replay_source") or "")
        branches.setdefault(source if source in names - {meta["run_name"]} else "", []).append(meta)
    stack = [(0, meta) for meta in reversed(branches.get("", []))]
    while stack:
        depth, meta = stack.pop()
        yield depth, meta
        stack += [(depth + 1, branch) for branch in reversed(branches.pop(meta["run_name"], []))]
