"""A session of a run and its steps, as `harness inspect` shows them; and going back to before a step from here.

A replay is asked for twice: the page first says what it will probably cost. It runs as a process
of the server's own and is followed on a page.
"""

import re
from typing import Any

from aiohttp import web
from msgspec import Struct

from flightlog.lab import service
from flightlog.lab.inspect import RunAddress, inspect_address
from flightlog.lab.layout import run_meta
from flightlog.lab.replay.branch_points import BranchEstimate, estimate_branch
from flightlog.lab.replay.source import ReplaySource
from flightlog.lab.store import RunStore
from flightlog.model.errors import Invalid
from flightlog.model.runtime import Runtime
from flightlog.web.context import DESK, BackgroundProcess, redirect_to, run_blocking

TEMPLATES = ("lab_session", "lab_step", "lab_replay", "lab_errand")
PROMPT_CHARS_MAX = 4000
DIFF_LINES_MAX = 400
HEAD_LINES = 2
POINTS_SHOWN = 50
_SESSION = "/{session:[1-9][0-9]{0,5}(?:r[1-9][0-9]{0,3})?}"
_TURN = "/{turn:[1-9][0-9]{0,6}}"
_LANE = re.compile(r"[A-Za-z0-9_-]{0,80}", re.ASCII)


async def show_lab_session(request: web.Request) -> web.StreamResponse:
    """Show one session turn by turn."""
    return await request.app[DESK].answer_with("lab_session.html", _session_context, _location_from_request(request))


async def show_branch_points(request: web.Request) -> web.StreamResponse:
    """Show the turns worth going back to; trees are compared for it, so it comes by itself."""
    return await request.app[DESK].answer_with(
        "lab_points_part.html", _branch_points_context, _location_from_request(request)
    )


async def show_step(request: web.Request) -> web.StreamResponse:
    """Show one step with its request, tools, changes and cost."""
    return await request.app[DESK].answer_with("lab_step.html", _step_context, _location_from_request(request))


async def show_replay_form(request: web.Request) -> web.StreamResponse:
    """Say what a replay would be and cost, and ask."""
    given = _check_replay_input(request.query.get("prompt", ""), request.query.get("count", "1"))
    return await request.app[DESK].answer_with(
        "lab_replay.html", _replay_form_context, _location_from_request(request), *given
    )


async def start_replay(request: web.Request) -> web.StreamResponse:
    """Start a replay and show it."""
    runtime = request.app[DESK].runtime
    form = await request.post()
    where = _location_from_request(request)
    prompt, count = _check_replay_input(str(form.get("prompt", "")), str(form.get("count", "1")))
    await run_blocking(_check_replayable, request.app[DESK].runtime, where)
    wanted = service.ReplayRequest(where.run, where.session, where.replicate, where.turn, prompt, count)
    errand = await run_blocking(
        request.app[DESK].errands.start_process, wanted, lambda: service.start_replay(runtime, wanted)
    )
    raise redirect_to(request, f"/lab/replays/{errand.number}")


async def show_replay(request: web.Request) -> web.StreamResponse:
    """Show a replay that was started here."""
    return await _render_replay(request, "lab_errand.html")


async def show_replay_part(request: web.Request) -> web.StreamResponse:
    """Show what changes of it, alone."""
    return await _render_replay(request, "lab_errand_part.html")


async def _render_replay(request: web.Request, template: str) -> web.StreamResponse:
    desk = request.app[DESK]
    found = desk.errands.find_process(int(request.match_info["number"]))
    return await desk.render_response(template, **await run_blocking(_replay_context, request.app[DESK].runtime, found))


class ChangedFile(Struct, frozen=True):
    """A changed file with the lines of its diff, each with what kind of line it is."""

    told: dict[str, Any]
    lines: list[tuple[str, str]]
    more: int


def _location_from_request(request: web.Request) -> RunAddress:
    number, _, replicate = request.match_info["session"].partition("r")
    lane = request.query.get("lane", "")
    if not _LANE.fullmatch(lane):
        raise Invalid("not a subagent's name", hint="flightlog lab inspect RUN#SESSION")
    turn = int(request.match_info.get("turn", 0))
    return RunAddress(request.match_info["run"], int(number), int(replicate or 0), lane, turn)


def _check_replay_input(prompt: str, count: str) -> tuple[str, int]:
    if len(prompt) > PROMPT_CHARS_MAX:
        raise Invalid(
            f"a prompt of at most {PROMPT_CHARS_MAX} characters",
            hint="flightlog lab replay RUN --turn TURN --prompt TEXT",
        )
    if not (count.isascii() and count.isdecimal() and 1 <= int(count) <= service.COUNT_MAX):
        raise Invalid(f"1 to {service.COUNT_MAX} branches", hint="flightlog lab replay RUN --turn TURN --count COUNT")
    return prompt.strip(), int(count)


def _session_context(runtime: Runtime, where: RunAddress) -> dict[str, Any]:
    book = service.find_run(runtime, where.run)
    told = inspect_address(book, where, runtime.program_path)
    return {"run": book.name, "told": told, "where": where, "spot": _session_segment(where)}


def _branch_points_context(runtime: Runtime, where: RunAddress) -> dict[str, Any]:
    found = ReplaySource(service.find_run(runtime, where.run), where.session, where.replicate, runtime.program_path)
    return {"where": where, "spot": _session_segment(where), "points": found.suggest_branches()[:POINTS_SHOWN]}


def _step_context(runtime: Runtime, where: RunAddress) -> dict[str, Any]:
    book = service.find_run(runtime, where.run)
    told = inspect_address(book, where, runtime.program_path)
    found = ReplaySource(book, where.session, where.replicate, runtime.program_path)
    here = found.list_turns()[where.turn - 1] if not where.lane else None
    steps = found.read.own_steps(where.lane)
    return {
        "run": book.name,
        "told": told,
        "where": where,
        "spot": _session_segment(where),
        "changes": [_shorten_diff(each) for each in told["changes"]],
        "last": len(steps),
        "why_not": here.why_not if here else "only a main thread can be gone back into",
        "guess": estimate_branch(steps, where.turn) if here else None,
        "count_max": service.COUNT_MAX,
        "prompt_max": PROMPT_CHARS_MAX,
    }


def _replay_form_context(runtime: Runtime, where: RunAddress, prompt: str, count: int) -> dict[str, Any]:
    book, guess = _check_replayable(runtime, where)
    budget = book.config.max_budget_usd
    return {
        "where": where,
        "spot": _session_segment(where),
        "prompt": prompt,
        "count": count,
        "guess": guess,
        "budget": budget,
    }


def _check_replayable(runtime: Runtime, where: RunAddress) -> tuple[RunStore, BranchEstimate]:
    """Refuse what cannot be gone back to; a replay that could not begin is no replay."""
    book = service.find_run(runtime, where.run)
    service.check_permission(runtime, book)
    found = ReplaySource(book, where.session, where.replicate, runtime.program_path)
    found.build_branch_point(where.turn)
    return book, estimate_branch(found.read.own_steps(), where.turn)


def _replay_context(runtime: Runtime, found: BackgroundProcess) -> dict[str, Any]:
    wanted = found.about
    assert isinstance(wanted, service.ReplayRequest), "replays are all that is started here"
    source = (wanted.run, wanted.session, wanted.replicate, wanted.turn, wanted.prompt)
    branches = [
        run_meta(book.name, book.config, book.state)
        for book in service.all_runs(runtime)[0]
        if (said := book.state.branch) is not None
        and (said.source_run, said.source_session, said.replicate, said.turn, said.prompt) == source
    ]
    return {
        "errand": found,
        "wanted": wanted,
        "said": list(found.said),
        "code": found.exit_code,
        "branches": branches[::-1],
    }


def _session_segment(where: RunAddress) -> str:
    """The session in an address."""
    return f"{where.session}r{where.replicate}" if where.replicate else str(where.session)


def _shorten_diff(told: dict[str, Any]) -> ChangedFile:
    text = "" if told["binary"] or "diff_encoding" in told else str(told["diff"])
    lines = text.splitlines()
    kinds = {"+": "added", "-": "removed", "@": "place"}
    shown = [
        ("place" if number < HEAD_LINES else kinds.get(line[:1], "kept"), line)
        for number, line in enumerate(lines[:DIFF_LINES_MAX])
    ]
    return ChangedFile(told, shown, max(len(lines) - DIFF_LINES_MAX, 0))


def lab_step_routes(run: str) -> tuple[web.RouteDef, ...]:
    """The addresses below a run's, and those of replays."""
    replay = run + _SESSION + _TURN + "/replay"
    number = "/lab/replays/{number:[1-9][0-9]{0,8}}"
    return (
        web.get(run + _SESSION, show_lab_session),
        web.get(run + _SESSION + "/points", show_branch_points),
        web.get(run + _SESSION + _TURN, show_step),
        web.get(replay, show_replay_form),
        web.post(replay, start_replay),
        web.get(number, show_replay),
        web.get(number + "/part", show_replay_part),
    )
