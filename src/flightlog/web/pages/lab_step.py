"""The lab pages of a session, its steps and replays.

A replay needs a confirmation: a page first shows its expected cost. It runs as a background process
of the server, and a page shows its progress.
"""

import re
from functools import partial
from typing import Any

from aiohttp import web
from markupsafe import Markup, escape
from msgspec import Struct

from flightlog.lab import service
from flightlog.lab.inspect import RunAddress, inspect_address
from flightlog.lab.layout import run_meta
from flightlog.lab.replay.branch_points import BranchEstimate, estimate_branch
from flightlog.lab.replay.source import ReplaySource
from flightlog.lab.store import RunStore
from flightlog.model.errors import Invalid
from flightlog.model.runtime import Runtime
from flightlog.model.text import make_inert
from flightlog.web.context import CONTEXT, make_page, redirect_to, run_blocking
from flightlog.web.highlight import highlight_lines

TEMPLATES = ("lab_session", "lab_step", "lab_replay", "lab_replay_status")
PROMPT_CHARS_MAX = 4000
DIFF_LINES_MAX = 400  # of one file, to keep the page quick
HEAD_LINES = 2  # the ---/+++ lines of a diff
POINTS_SHOWN = 50
_SESSION = "/{session:[1-9][0-9]{0,5}(?:r[1-9][0-9]{0,3})?}"
_TURN = "/{turn:[1-9][0-9]{0,6}}"
_SUBAGENT = re.compile(r"[A-Za-z0-9_-]{0,80}", re.ASCII)


async def start_replay(request: web.Request) -> web.StreamResponse:
    """Start a replay and redirect to its page."""
    context, address = request.app[CONTEXT], _location_from_request(request)
    form = await request.post()
    prompt, count = _check_replay_input(str(form.get("prompt", "")), str(form.get("count", "1")))
    await run_blocking(_check_replayable, context.runtime, address)
    place = (address.run, address.session, address.replicate, address.turn)
    replay = service.ReplayRequest(*place, prompt, count)
    begin = partial(service.start_replay, context.runtime, replay)
    process = await run_blocking(context.processes.start_process, replay, begin)
    raise redirect_to(request, f"/lab/replays/{process.number}")


class ChangedFile(Struct, frozen=True):
    """A changed file with the lines of its diff as pairs of kind and text."""

    fields: dict[str, Any]
    lines: list[tuple[str, Markup]]
    omitted_lines: int


def _location_from_request(request: web.Request) -> RunAddress:
    number, _, replicate = request.match_info["session"].partition("r")
    subagent = request.query.get("subagent", "")
    if not _SUBAGENT.fullmatch(subagent):
        raise Invalid("not a subagent id", hint="flightlog lab inspect RUN#SESSION")
    turn = int(request.match_info.get("turn", 0))
    return RunAddress(request.match_info["run"], int(number), int(replicate or 0), subagent, turn)


def _check_replay_input(prompt: str, count: str) -> tuple[str, int]:
    if len(prompt) > PROMPT_CHARS_MAX:
        hint = "flightlog lab replay RUN --turn TURN --prompt TEXT"
        raise Invalid(f"the prompt is longer than {PROMPT_CHARS_MAX} characters", hint=hint)
    if not (count.isascii() and count.isdecimal() and 1 <= int(count) <= service.COUNT_MAX):
        hint = "flightlog lab replay RUN --turn TURN --count COUNT"
        raise Invalid(f"the number of branches is 1 to {service.COUNT_MAX}", hint=hint)
    return prompt.strip(), int(count)


def _session_context(request: web.Request) -> dict[str, Any]:
    runtime, address = request.app[CONTEXT].runtime, _location_from_request(request)
    store = service.find_run(runtime, address.run)
    session = inspect_address(store, address, runtime.program_path)
    segment = _session_segment(address)
    return {"run": store.name, "session": session, "address": address, "segment": segment}


def _branch_points_context(request: web.Request) -> dict[str, Any]:
    """Return suggested branch points; loaded later, because file trees are compared for it."""
    runtime, address = request.app[CONTEXT].runtime, _location_from_request(request)
    store = service.find_run(runtime, address.run)
    source = ReplaySource(store, address.session, address.replicate, runtime.program_path)
    points = source.suggest_branches()[:POINTS_SHOWN]
    return {"address": address, "segment": _session_segment(address), "points": points}


def _step_context(request: web.Request) -> dict[str, Any]:
    runtime, address = request.app[CONTEXT].runtime, _location_from_request(request)
    store = service.find_run(runtime, address.run)
    step = inspect_address(store, address, runtime.program_path)
    source = ReplaySource(store, address.session, address.replicate, runtime.program_path)
    turn = source.list_turns()[address.turn - 1] if not address.subagent else None
    steps = source.read.own_steps(address.subagent)
    recorded = steps[address.turn - 1]
    return {
        "run": store.name,
        "step": step,
        "usage": recorded.usage,
        "calls": recorded.tool_calls,
        "cost": recorded.cost,
        "address": address,
        "segment": _session_segment(address),
        "changes": [_shorten_diff(change) for change in step["file_changes"]],
        "step_count": len(steps),
        "blocked_reason": turn.blocked_reason if turn else "a subagent cannot be replayed",
        "estimate": estimate_branch(steps, address.turn) if turn else None,
        "count_max": service.COUNT_MAX,
        "prompt_max": PROMPT_CHARS_MAX,
    }


def _replay_form_context(request: web.Request) -> dict[str, Any]:
    """Return the expected cost of a replay, which a person has to confirm."""
    address, given = _location_from_request(request), request.query
    prompt, count = _check_replay_input(given.get("prompt", ""), given.get("count", "1"))
    store, estimate = _check_replayable(request.app[CONTEXT].runtime, address)
    return {
        "address": address,
        "segment": _session_segment(address),
        "prompt": prompt,
        "count": count,
        "estimate": estimate,
        "budget": store.config.max_budget_usd,
    }


def _check_replayable(runtime: Runtime, address: RunAddress) -> tuple[RunStore, BranchEstimate]:
    """Raise if the turn cannot be replayed; otherwise return the run and the expected cost."""
    store = service.find_run(runtime, address.run)
    service.check_permission(runtime, store)
    source = ReplaySource(store, address.session, address.replicate, runtime.program_path)
    source.build_branch_point(address.turn)
    return store, estimate_branch(source.read.own_steps(), address.turn)


def _origin(run: RunStore) -> tuple[object, ...]:
    at = run.state.branch
    return (at.source_run, at.source_session, at.replicate, at.turn, at.prompt) if at else ()


def _replay_context(request: web.Request) -> dict[str, Any]:
    context = request.app[CONTEXT]
    process = context.processes.find_process(int(request.match_info["number"]))
    replay = process.about
    assert isinstance(replay, service.ReplayRequest), "the server starts only replays"
    source = (replay.run, replay.session, replay.replicate, replay.turn, replay.prompt)
    stores = [store for store in service.all_runs(context.runtime)[0] if _origin(store) == source]
    branches = [run_meta(store.name, store.config, store.state) for store in stores]
    return {
        "process": process,
        "replay": replay,
        "output": list(process.output),
        "code": process.exit_code,
        "branches": branches[::-1],
    }


def _session_segment(address: RunAddress) -> str:
    """Return the session's part of a page address."""
    return f"{address.session}r{address.replicate}" if address.replicate else str(address.session)


def _shorten_diff(change: dict[str, Any]) -> ChangedFile:
    text = "" if change["binary"] or "diff_encoding" in change else str(change["diff"])
    lines = text.splitlines()
    kinds = {"+": "added", "-": "removed", "@": "place"}
    # The sign is not part of the text that is colored.
    texts = [make_inert(line[1:]) for line in lines[:DIFF_LINES_MAX]]
    colored = highlight_lines(texts, str(change["file_path"]))
    shown = [
        ("place", escape(make_inert(line)))
        if number < HEAD_LINES
        else (kinds.get(line[:1], "kept"), escape(line[:1]) + text)
        for number, (line, text) in enumerate(zip(lines, colored, strict=False))
    ]
    return ChangedFile(change, shown, max(len(lines) - DIFF_LINES_MAX, 0))


def lab_step_routes(run: str) -> tuple[web.RouteDef, ...]:
    """Return the routes of sessions, steps and replays."""
    replay = run + _SESSION + _TURN + "/replay"
    number = "/lab/replays/{number:[1-9][0-9]{0,8}}"
    return (
        web.get(run + _SESSION, make_page("lab_session.html", _session_context)),
        web.get(
            run + _SESSION + "/points", make_page("lab_points_part.html", _branch_points_context)
        ),
        web.get(run + _SESSION + _TURN, make_page("lab_step.html", _step_context)),
        web.get(replay, make_page("lab_replay.html", _replay_form_context)),
        web.post(replay, start_replay),
        web.get(number, make_page("lab_replay_status.html", _replay_context)),
        web.get(number + "/part", make_page("lab_replay_status_part.html", _replay_context)),
    )
