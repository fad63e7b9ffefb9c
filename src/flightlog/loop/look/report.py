"""`final-report.md`: the source document's headings, each sentence with its events, an empty section says why."""

from collections.abc import Iterator
from pathlib import Path

from flightlog.loop.core.times import format_utc_time
from flightlog.loop.layout import pages
from flightlog.loop.look.account import LoopAccount, build_account
from flightlog.loop.look.insights import find_insights
from flightlog.loop.look.session import iter_events, open_loop_session
from flightlog.loop.plan.schema import Plan
from flightlog.loop.plan.shown import redact_event
from flightlog.model.pages import OutputFile, Tier
from flightlog.model.text import one_line
from flightlog.privacy.records import JsonRedactor
from flightlog.privacy.redact import Redactor
from flightlog.store.pages import write_output_files

REPORT = "final-report.md"
_ROWS_MAX = 60


def write_report(directory: Path, redactor: Redactor) -> str:
    """Write the report of the session in `directory`, fit to be passed on, and return its text."""
    plan, records = open_loop_session(directory).read_plan(redactor), JsonRedactor(redactor)
    shown = (record._replace(event=redact_event(record.event, records)) for record in iter_events(directory))
    clean = redactor.redact_as_clean(render_report(build_account(shown), plan))
    write_output_files(directory, [OutputFile(REPORT, Tier.SHAREABLE, clean)])
    return clean.text


def render_report(whole: LoopAccount, plan: Plan) -> str:
    """The text of the report."""
    state = whole.state
    name = one_line(state.session_name, 120)
    head = [
        f"# Session Final Report: {state.session_id}",
        (
            f"**Session Name:** {name}  \n**Date:** {(format_utc_time(state.started_at) or '')[:10]}  \n"
            f"**Status:** {state.status}"
        ),
    ]
    sections = {
        "Executive Summary": _summary_lines(whole, plan),
        "Progress": _progress_lines(whole, plan),
        "Artifacts Generated": _artifact_lines(whole),
        "Metrics": _metric_lines(whole),
        "Challenges & Solutions": _challenge_lines(whole),
        "Lessons Learned": _lesson_lines(whole),
        "Next Steps": _next_step_lines(whole, plan),
        "Raw Data": iter(["- Execution log: `execution-log.json`", "- Progress tracking: `progress-tracking.yaml`",
                          "- Decision history: `decision-history.json`",
                          "- Journal: `journal.jsonl`; `e12` is event 12 there"]),
    }  # fmt: skip
    parts = [f"## {title}\n\n" + "\n".join(_limit_lines(list(lines))) for title, lines in sections.items()]
    return "\n\n".join([*head, *parts]) + "\n"


def _limit_lines(lines: list[str]) -> list[str]:
    left = len(lines) - _ROWS_MAX
    return [*lines[:_ROWS_MAX], f"- … and {left} more, in `execution-log.json`"] if left > 0 else lines


def _summary_lines(whole: LoopAccount, plan: Plan) -> Iterator[str]:
    state = whole.state
    how = {"completed": "was completed", "error": "ended in error", "paused": "rests and can be resumed"}
    end = f"e{whole.ending[0]}" if whole.ending else f"e{whole.last}"
    word = how.get(state.status, "is still going on")
    yield (
        f"The plan «{one_line(plan.plan, 100)}» {word}: "
        f"{state.completed_count} of {len(plan.tasks)} tasks were verified "
        f"[e{whole.first}, {end}]."
    )
    if state.why:
        yield f"\nReason: {one_line(state.why, 400)} [{end}]."


def _progress_lines(whole: LoopAccount, plan: Plan) -> Iterator[str]:
    shown = pages.build_progress(whole.state, plan)["progress"]
    done = [f"e{task.ended[0]}" for task in whole.tasks.values() if task.ended and task.ended[1] == "success"]
    some = f" [{', '.join(done[:8])}{', …' if len(done) > 8 else ''}]" if done else f" [e{whole.last}]"
    yield f"- Tasks completed: {whole.state.completed_count}/{len(plan.tasks)}{some}"
    yield f"- Overall progress: {shown['overall_progress']:g}%{some}"
    yield f"- Phase progress: {shown['phase_progress']:g}% of phase {shown['current_phase']}{some}"
    for seq, name in whole.milestones:
        yield f"- Milestone reached: {one_line(name, 120)} [e{seq}]"
    for seq, name, value, passed in whole.gates:
        said = "not evaluated, its metric was not reported" if passed is None else "passed" if passed else "failed"
        at = "" if value is None else f" at {value:g}"
        yield f"- Quality gate «{one_line(name, 120)}»: {said}{at} [e{seq}]"


def _artifact_lines(whole: LoopAccount) -> Iterator[str]:
    found = [(name, seq) for task in whole.tasks.values() for name, seq in task.artifacts.items()]
    for name, seq in found:
        yield f"- `{one_line(name, 200)}` [e{seq}]"
    for task_id, task in whole.state.tasks.items():
        ended = whole.tasks[task_id].ended if task_id in whole.tasks else None
        for session in task.sessions:
            yield f"- Task {task_id}: recorded session {session} [e{ended[0] if ended else whole.last}]"
        for diff in task.diffs:
            yield f"- Task {task_id}: changes in `{diff}` [e{ended[0] if ended else whole.last}]"
    if not found and not any(task.sessions or task.diffs for task in whole.state.tasks.values()):
        yield "None: no task wrote an `artifact` line to `$FLIGHTLOG_REPORT`."


def _metric_lines(whole: LoopAccount) -> Iterator[str]:
    figures = pages.performance_figures(whole.state, whole.state.last_at)
    span = f"[e{whole.first}-e{whole.last}]"
    took, each = figures["total_duration_seconds"], figures["average_task_duration"]
    yield f"- Total duration: {took / 3600:.2f} hours ({took:,.1f} s) {span}"
    yield f"- Average task duration: {each / 60:.2f} minutes ({each:,.1f} s) {span}"
    yield f"- Success rate: {figures['success_rate'] * 100:.1f}% of {whole.state.totals.attempts} attempts {span}"
    yield f"- Error count: {figures['error_count']} {span}"
    yield f"- Human interventions: {figures['human_interventions']} {span}"
    cost = "not known" if figures["cost_usd"] is None else f"{figures['cost_usd']:.4f} USD"
    yield f"- Model calls: {figures['model_calls']}, {figures['tokens']} tokens, {cost} {span}"
    for name, value in sorted(whole.state.metrics.items()):
        yield f"- {one_line(name, 80)}: {value:g} {span}"


def _challenge_lines(whole: LoopAccount) -> Iterator[str]:
    count = 0
    for task_id, task in whole.tasks.items():
        for seq, kind, message in task.failures:
            count += 1
            remedy = next((each for each in task.remedies if each[0] > seq), None)
            done = f"; then {remedy[1]}: {one_line(remedy[2], 120)} [e{seq}, e{remedy[0]}]" if remedy else f" [e{seq}]"
            yield f"- Task {task_id}, {kind}: {one_line(_last_line(message), 160)}{done}"
    for seq, condition, closed in whole.trips:
        count += 1
        end = f"closed again [e{seq}, e{closed}]" if closed else f"not closed again [e{seq}]"
        yield f"- The breaker opened: {one_line(condition, 200)}; {end}"
    if not count:
        span = f"[e{whole.first}-e{whole.last}]"
        yield f"None: no attempt failed, no verification failed, the breaker stayed closed {span}."


def _lesson_lines(whole: LoopAccount) -> Iterator[str]:
    found = find_insights(whole)
    for each in found:
        yield f"- {one_line(each.sentence, 300)} [{', '.join(each.events)}]"
    if not found:
        yield "None: too little happened for a sentence that its events would support."


def _next_step_lines(whole: LoopAccount, plan: Plan) -> Iterator[str]:
    state = whole.state
    if state.status == "completed":
        yield f"None: every task of the plan was verified [e{whole.last}]."
        return
    yield f"- `ralph-runtime resume --session {state.session_id}` goes on [e{whole.last}]"
    for task in plan.tasks:
        at = state.task_state(task.task_id)
        if at.status != "completed":
            why = f": {one_line(at.why or at.error_message, 160)}" if at.why or at.error_message else ""
            seqs = whole.tasks[task.task_id].started[-1:] if task.task_id in whole.tasks else []
            name = one_line(task.name, 80)
            yield f"- Task {task.task_id} ({name}) is {at.status}{why} [e{(seqs or [whole.last])[0]}]"


def _last_line(message: str) -> str:
    return next((line for line in reversed(message.splitlines()) if line.strip()), message)
