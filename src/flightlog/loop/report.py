"""Final-report.md and insights, each with event numbers."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from flightlog.loop import layout
from flightlog.loop.analysis import LoopAccount, TaskHistory, build_account, measure_calibration
from flightlog.loop.directories import iter_events, open_loop_session
from flightlog.loop.plan.load import redact_event
from flightlog.loop.plan.schema import Plan
from flightlog.model.output_files import OutputFile, Tier
from flightlog.model.text import format_utc_time, one_line, pluralize
from flightlog.privacy.json_redactor import JsonRedactor
from flightlog.privacy.redactor import Redactor
from flightlog.store.output_files import write_output_files

_EVIDENCE_MAX = 8
_GAP_NOTABLE = 0.1
REPORT = "final-report.md"
_ROWS_MAX = 60


class Insight(Struct, frozen=True):
    """A sentence and its evidence: event ids as `logs` shows them."""

    about: str
    sentence: str
    events: tuple[str, ...]


def find_insights(whole: LoopAccount) -> list[Insight]:
    """Everything the events of a session support."""
    return [
        *_task_insights(whole),
        *_error_insights(whole),
        *_people_insights(whole),
        *_confidence_insights(whole),
        *_cost_insights(whole),
    ]


def event_ids(numbers: list[int]) -> tuple[str, ...]:
    """Event numbers as ids."""
    return tuple(f"e{number}" for number in numbers[:_EVIDENCE_MAX])


def _task_insights(whole: LoopAccount) -> Iterator[Insight]:
    done = {name: task for name, task in whole.tasks.items() if task.ended and task.ended[1] == "success"}
    first = [task for task in done.values() if not task.failures]
    if done:
        events = [task.ended[0] for task in done.values() if task.ended]
        share = f"{len(first)} of {len(done)} completed tasks were right at the first attempt"
        yield Insight("attempts", f"{share}.", event_ids(events))
    longest = max(done.items(), key=lambda item: _task_seconds(item[1]), default=None)
    whole_s = sum(_task_seconds(task) for task in done.values())
    if longest and len(done) > 1 and whole_s > 0:
        name, task = longest
        part = _task_seconds(task) / whole_s
        sentence = f"Task {name} took {_task_seconds(task):.1f} s, {part:.0%} of the time of all completed tasks."
        yield Insight("time", sentence, event_ids([task.started[0], task.ended[0]] if task.ended else []))
    for name, task in whole.tasks.items():
        if task.ended and task.ended[1] != "success":
            yield Insight(
                "left",
                f"Task {name} ended as {task.ended[1]}: {_shorten_sentence(task.ended[3])}",
                event_ids([task.ended[0]]),
            )


def _error_insights(whole: LoopAccount) -> Iterator[Insight]:
    kinds = Counter(kind for task in whole.tasks.values() for _, kind, _ in task.failures)
    for kind, count in kinds.most_common(3):
        found = [seq for task in whole.tasks.values() for seq, each, _ in task.failures if each == kind]
        saved = sum(
            1 for task in whole.tasks.values() if _has_failure(task, kind) and task.ended and task.ended[1] == "success"
        )
        hit = sum(1 for task in whole.tasks.values() if _has_failure(task, kind))
        times = "once" if count == 1 else f"{count} times"
        yield Insight(
            "errors",
            f"An error of kind {kind} came {times}; {saved} of {hit} tasks it hit were completed.",
            event_ids(found),
        )
    wasted = sum(task.wasted_s for task in whole.tasks.values())
    if wasted > 0:
        found = [seq for task in whole.tasks.values() for seq, _, _ in task.failures]
        yield Insight("errors", f"Failed attempts took {wasted:.1f} s.", event_ids(found))
    diagnosed = [
        (seq, name) for name, task in whole.tasks.items() for seq, act, _ in task.remedies if act == "diagnose"
    ]
    for seq, name in diagnosed:
        yield Insight(
            "errors", f"Task {name} failed the same way twice, so a diagnosis was made instead.", event_ids([seq])
        )
    for seq, condition, closed in whole.trips:
        end = "and closed again" if closed else "and did not close again"
        yield Insight(
            "breaker", f"The breaker opened ({condition}) {end}.", event_ids([seq, closed] if closed else [seq])
        )


def _people_insights(whole: LoopAccount) -> Iterator[Insight]:
    waiting = [at for at, _, _, by, _ in whole.questions if by == "timeout"]
    if waiting:
        sentence = (
            f"{len(waiting)} of {len(whole.questions)} questions got no answer in time, so the safe choice was made."
        )
        yield Insight("people", sentence, event_ids(waiting))
    answered = [at for at, _, _, by, _ in whole.questions if by == "person"]
    if answered:
        yield Insight(
            "people", f"A person answered {len(answered)} of {len(whole.questions)} questions.", event_ids(answered)
        )
    for seq, name, value, passed in whole.gates:
        if passed is None:
            yield Insight(
                "gates", f"The gate «{name}» could not be evaluated: nobody reported its metric.", event_ids([seq])
            )
        elif not passed:
            yield Insight("gates", f"The gate «{name}» failed at {value:g}.", event_ids([seq]))


def _confidence_insights(whole: LoopAccount) -> Iterator[Insight]:
    told = measure_calibration(whole.pairs)
    if told.gap is None or told.decisions < 3:
        return
    mean = sum(pair.confidence for pair in whole.pairs) / len(whole.pairs)
    right = sum(pair.right for pair in whole.pairs) / len(whole.pairs)
    how = "about right" if told.gap < _GAP_NOTABLE else "too sure" if mean > right else "not sure enough"
    sentence = f"Confidence was {how}: {mean:.0%} on average, {right:.0%} right, Brier score {told.brier:.3f}."
    yield Insight("confidence", sentence, event_ids([pair.event for pair in whole.pairs]))


def _cost_insights(whole: LoopAccount) -> Iterator[Insight]:
    totals = whole.state.totals
    if not totals.calls:
        return
    dear = max(whole.tasks.items(), key=lambda item: item[1].usd, default=None)
    cost = "an amount that is not known" if totals.unpriced else f"{totals.usd:.4f} USD"
    where = f"; most of it in task {dear[0]}" if dear and dear[1].usd and len(whole.tasks) > 1 else ""
    events = [task.started[0] for task in whole.tasks.values() if task.calls and task.started]
    yield Insight("cost", f"{pluralize(totals.calls, 'model call')} cost {cost}{where}.", event_ids(events))


def _task_seconds(task: TaskHistory) -> float:
    return task.ended[2] if task.ended else 0.0


def _has_failure(task: TaskHistory, kind: str) -> bool:
    return any(each == kind for _, each, _ in task.failures)


def _shorten_sentence(text: str) -> str:
    line = " ".join(text.split())
    return (line[:160] + "…" if len(line) > 160 else line).rstrip(".") + "."


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
    shown = layout.build_progress(whole.state, plan)["progress"]
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
    figures = layout.performance_figures(whole.state, whole.state.last_at)
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
