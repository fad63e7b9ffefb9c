"""Loops: the sessions of the project the server was started in, each with its tasks, gates, decisions and breaker.

A question that waits for an answer can be answered here.
"""

from collections import deque
from itertools import islice
from pathlib import Path
from typing import Any

from aiohttp import web

from flightlog.app.runtime import IdleTimer
from flightlog.loop import service
from flightlog.loop.analysis import measure_calibration, pair_outcomes
from flightlog.loop.directories import open_loop_session
from flightlog.loop.layout import build_progress, performance_figures
from flightlog.loop.logs import DecisionLog, ErrorLog
from flightlog.loop.runner.driver import ControlRequest
from flightlog.loop.status import build_status
from flightlog.model.errors import Conflict, Invalid
from flightlog.model.runtime import Runtime
from flightlog.model.text import format_utc_time
from flightlog.privacy.service import make_redactor
from flightlog.web.context import DESK, NavSection, redirect_to, run_blocking

DECISIONS_SHOWN = 100
TAKEN_WITHIN_S = 2.0
ERRORS_SHOWN = 50


async def list_loops(request: web.Request) -> web.StreamResponse:
    """List the sessions."""
    runtime = request.app[DESK].runtime
    rows = await run_blocking(
        lambda: [build_status(open_loop_session(path)) for path in reversed(service.all_sessions(runtime))]
    )
    return await request.app[DESK].render_response("loops.html", rows=rows, where=str(service.loops_dir(runtime).name))


async def show_loop(request: web.Request) -> web.StreamResponse:
    """Show one session."""
    return await request.app[DESK].answer_with("loop.html", _loop_context, request.match_info["name"])


async def answer_question(request: web.Request) -> web.StreamResponse:
    """Take an answer to the question that is open, and show the session as it is then."""
    name = request.match_info["name"]
    given = str((await request.post()).get("answer", ""))
    await run_blocking(_submit_answer, request.app[DESK].runtime, name, given)
    raise redirect_to(request, f"/loops/{name}")


def _submit_answer(runtime: Runtime, name: str, given: str) -> None:
    from flightlog.loop import service  # noqa: PLC0415 - only an answer needs the half that runs things

    asked = service.open_question(runtime, name)
    if given not in asked.options:
        raise Invalid(f"not an answer: {given[:40]!r}", hint=f"one of: {', '.join(asked.options)}")
    if not service.send_request(runtime, name, ControlRequest("answer", asked.question, given, "on the page")):
        raise Conflict(f"nobody is at work on {name}", hint=f"flightlog loop resume --session {name}")
    directory, watch = service.find_session(runtime, name), IdleTimer(TAKEN_WITHIN_S, look_s=0.1)
    while _is_open(directory, asked.question) and watch.pause():
        pass


def _is_open(directory: Path, question: str) -> bool:
    open_one = open_loop_session(directory).state.question
    return open_one is not None and open_one.asked.question == question


def _loop_context(runtime: Runtime, name: str) -> dict[str, Any]:
    directory = service.find_session(runtime, name)
    seen = open_loop_session(directory)
    plan = seen.read_plan(make_redactor(runtime))
    decisions, errors = DecisionLog({task.task_id: task.name for task in plan.tasks}), ErrorLog()
    made: deque[dict[str, Any]] = deque(maxlen=DECISIONS_SHOWN)
    whole = list(service.read_events(directory))
    for each in whole:
        decisions.add_event(each.seq, each.at, each.event)
        errors.add_event(each.seq, each.at, each.event)
        made.extend(decisions.drain_entries())
    made.extend(decisions.pending)
    tracked = build_progress(seen.state, plan)
    open_one = seen.state.question
    return {
        "brief": build_status(seen),
        "names": {task.task_id: task.name for task in plan.tasks},
        "tracked": tracked,
        "figures": performance_figures(seen.state, seen.state.last_at),
        "breaker": seen.state.breaker,
        "trips": errors.trips[::-1],
        "errors": list(islice(reversed(errors.errors), ERRORS_SHOWN)),
        "decisions": list(reversed(made)),
        "sure": measure_calibration(pair_outcomes(whole)),
        "question": open_one.asked if open_one else None,
        "deadline": format_utc_time(open_one.at + open_one.asked.timeout_s) if open_one else "",
    }


_NAME = "{name:session-[0-9]+(?:-[a-z0-9-]*)?}"
LOOPS_SECTION = NavSection(
    "Loops",
    "/loops",
    ("loops", "loop"),
    (
        web.get("/loops", list_loops),
        web.get(f"/loops/{_NAME}", show_loop),
        web.post(f"/loops/{_NAME}/answer", answer_question),
    ),
)
