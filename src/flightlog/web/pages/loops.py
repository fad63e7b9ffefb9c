"""The loop pages: sessions of the current project with tasks, gates, decisions and breaker.

An open question can be answered here.
"""

from collections import deque
from itertools import islice
from pathlib import Path
from typing import Any

from aiohttp import web

from flightlog.app.runtime import IdleTimer
from flightlog.loop import service
from flightlog.loop.analysis import CALIBRATION_MIN, measure_calibration, pair_outcomes
from flightlog.loop.decide.gates import check_answer
from flightlog.loop.directories import iter_events, open_loop_session
from flightlog.loop.layout import build_progress, performance_figures
from flightlog.loop.logs import DecisionLog, ErrorLog
from flightlog.loop.runner.driver import ControlRequest
from flightlog.loop.session_overview import (
    agent_statements,
    changed_files,
    describe_change,
    format_duration,
    task_outcome,
)
from flightlog.loop.status import build_status
from flightlog.model.errors import Conflict
from flightlog.model.runtime import Runtime
from flightlog.model.text import format_utc_time
from flightlog.privacy.service import make_redactor
from flightlog.web.context import CONTEXT, NavSection, make_page, redirect_to, run_blocking

DECISIONS_SHOWN = 100
TAKEN_WITHIN_S = 2.0  # wait for the runner to take an answer, before the page is shown again
ERRORS_SHOWN = 50


def _loops_context(request: web.Request) -> dict[str, Any]:
    runtime = request.app[CONTEXT].runtime
    now, paths = runtime.clock.now_s(), reversed(service.all_sessions(runtime))
    rows = [build_status(open_loop_session(path), now) for path in paths]
    return {"rows": rows, "directory": service.loops_dir(runtime).name}


async def answer_question(request: web.Request) -> web.StreamResponse:
    """Send an answer to the open question and redirect to the session."""
    name = request.match_info["name"]
    answer = str((await request.post()).get("answer", ""))
    await run_blocking(_submit_answer, request.app[CONTEXT].runtime, name, answer)
    raise redirect_to(request, f"/loops/{name}")


def _submit_answer(runtime: Runtime, name: str, answer: str) -> None:
    question = service.open_question(runtime, name)
    check_answer(question, answer)
    control = ControlRequest("answer", question.question_id, answer, "on the page")
    if not service.send_request(runtime, name, control):
        problem = f"the answer is stored, but {name} is not running"
        raise Conflict(problem, hint=f"flightlog loop resume --session {name}")
    directory, timer = service.find_session(runtime, name), IdleTimer(TAKEN_WITHIN_S, look_s=0.1)
    while _is_open(directory, question.question_id) and timer.pause():
        pass


def _is_open(directory: Path, question: str) -> bool:
    pending = open_loop_session(directory).state.question
    return pending is not None and pending.event.question_id == question


def _loop_context(request: web.Request) -> dict[str, Any]:
    runtime = request.app[CONTEXT].runtime
    directory = service.find_session(runtime, request.match_info["name"])
    loop_session = open_loop_session(directory)
    plan = loop_session.read_plan(make_redactor(runtime))
    decisions, errors = DecisionLog({task.task_id: task.name for task in plan.tasks}), ErrorLog()
    shown: deque[dict[str, Any]] = deque(maxlen=DECISIONS_SHOWN)
    records = list(iter_events(directory))
    for record in records:
        decisions.add_event(record.seq, record.timestamp, record.event)
        errors.add_event(record.seq, record.timestamp, record.event)
        shown.extend(decisions.drain_entries())
    shown.extend(decisions.pending)
    state = loop_session.state
    progress = build_progress(state, plan)
    pending = state.question
    project = (directory / state.project).resolve()
    calibration = measure_calibration(pair_outcomes(records))
    return {
        "brief": build_status(loop_session, runtime.clock.now_s()),
        "outcomes": {task.task_id: task_outcome(state, task.task_id) for task in plan.tasks},
        "sessions": {name: task.sessions for name, task in state.tasks.items()},
        "duration": format_duration,
        "said": agent_statements(state),
        "files": [(file, describe_change(file)) for file in changed_files(state, project)],
        "timeline": [(format_utc_time(entry.at), entry) for entry in state.timeline],
        "progress": progress,
        "figures": performance_figures(state, state.last_at),
        "breaker": state.breaker,
        "trips": errors.trips[::-1],
        "errors": list(islice(reversed(errors.errors), ERRORS_SHOWN)),
        "decisions": list(reversed(shown)),
        "calibration": calibration if calibration.decisions >= CALIBRATION_MIN else None,
        "calibration_min": CALIBRATION_MIN,
        "question": pending.event if pending else None,
        "deadline": format_utc_time(pending.asked_at + pending.event.timeout_s) if pending else "",
    }


_NAME = r"{name:[\w.-]+}"  # no directory: an encoded slash does not match
LOOPS_SECTION = NavSection(
    "Loops",
    "/loops",
    ("loops", "loop"),
    (
        web.get("/loops", make_page("loops.html", _loops_context)),
        web.get(f"/loops/{_NAME}", make_page("loop.html", _loop_context)),
        web.post(f"/loops/{_NAME}/answer", answer_question),
    ),
    "Plans carried out unattended: tasks, decisions, open questions.",
)
