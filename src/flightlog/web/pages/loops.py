"""Loops: the sessions of the project the server was started in, each with its tasks, gates, decisions and breaker.

A question that waits for an answer can be answered here.
"""

from collections import deque
from itertools import islice
from pathlib import Path
from typing import Any

from aiohttp import web

from flightlog.app import Watch, loop_look
from flightlog.app.privacy import redactor
from flightlog.loop.core.times import stamp
from flightlog.loop.layout.decisions import Decisions
from flightlog.loop.layout.errors import Errors
from flightlog.loop.layout.pages import performance, progress
from flightlog.loop.look.calibration import calibration, pairs
from flightlog.loop.look.session import look
from flightlog.loop.look.status import brief
from flightlog.loop.run.world import Request
from flightlog.model.errors import Conflict, Invalid
from flightlog.model.runtime import Runtime
from flightlog.web.desk import DESK, aside, see_other
from flightlog.web.family import Family

DECISIONS_SHOWN = 100
TAKEN_WITHIN_S = 2.0
ERRORS_SHOWN = 50


async def loops(request: web.Request) -> web.StreamResponse:
    """List the sessions."""
    runtime = request.app[DESK].runtime
    rows = await aside(lambda: [brief(look(path)) for path in reversed(loop_look.all_sessions(runtime))])
    return await request.app[DESK].answer("loops.html", rows=rows, where=str(loop_look.root(runtime).name))


async def one(request: web.Request) -> web.StreamResponse:
    """Show one session."""
    return await request.app[DESK].answer_with("loop.html", _told, request.match_info["name"])


async def answer(request: web.Request) -> web.StreamResponse:
    """Take an answer to the question that is open, and show the session as it is then."""
    name = request.match_info["name"]
    given = str((await request.post()).get("answer", ""))
    await aside(_answer, request.app[DESK].runtime, name, given)
    raise see_other(request, f"/loops/{name}")


def _answer(runtime: Runtime, name: str, given: str) -> None:
    from flightlog.app import loop  # noqa: PLC0415 - only an answer needs the half that runs things

    asked = loop_look.open_question(runtime, name)
    if given not in asked.options:
        raise Invalid(f"not an answer: {given[:40]!r}", hint=f"one of: {', '.join(asked.options)}")
    if not loop.request(runtime, name, Request("answer", asked.question, given, "on the page")):
        raise Conflict(f"nobody is at work on {name}", hint=f"flightlog loop resume --session {name}")
    directory, watch = loop_look.found(runtime, name), Watch(TAKEN_WITHIN_S, look_s=0.1)
    while _is_open(directory, asked.question) and watch.pause():
        pass


def _is_open(directory: Path, question: str) -> bool:
    open_one = look(directory).state.question
    return open_one is not None and open_one.asked.question == question


def _told(runtime: Runtime, name: str) -> dict[str, Any]:
    directory = loop_look.found(runtime, name)
    seen = look(directory)
    plan = seen.plan(redactor(runtime))
    decisions, errors = Decisions({task.task_id: task.name for task in plan.tasks}), Errors()
    made: deque[dict[str, Any]] = deque(maxlen=DECISIONS_SHOWN)
    whole = list(loop_look.told(directory))
    for each in whole:
        decisions.take(each.seq, each.at, each.event)
        errors.take(each.seq, each.at, each.event)
        made.extend(decisions.fresh())
    made.extend(decisions.pending)
    tracked = progress(seen.state, plan)
    open_one = seen.state.question
    return {
        "brief": brief(seen),
        "names": {task.task_id: task.name for task in plan.tasks},
        "tracked": tracked,
        "figures": performance(seen.state, seen.state.last_at),
        "breaker": seen.state.breaker,
        "trips": errors.trips[::-1],
        "errors": list(islice(reversed(errors.errors), ERRORS_SHOWN)),
        "decisions": list(reversed(made)),
        "sure": calibration(pairs(whole)),
        "question": open_one.asked if open_one else None,
        "deadline": stamp(open_one.at + open_one.asked.timeout_s) if open_one else "",
    }


_NAME = "{name:session-[0-9]+(?:-[a-z0-9-]*)?}"
FAMILY = Family(
    "Loops",
    "/loops",
    ("loops", "loop"),
    (web.get("/loops", loops), web.get(f"/loops/{_NAME}", one), web.post(f"/loops/{_NAME}/answer", answer)),
)
