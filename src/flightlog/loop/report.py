"""Insights of a session and `final-report.md`, with event numbers as evidence."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from msgspec import Struct

from flightlog.loop import analysis, directories, layout, session_overview
from flightlog.loop.decide.recovery import explain_error
from flightlog.loop.plan.schema import Plan
from flightlog.model.output_files import OutputFile, Tier
from flightlog.model.text import format_utc_time, one_line, pluralize
from flightlog.privacy.json_redactor import JsonRedactor
from flightlog.privacy.redactor import Redactor
from flightlog.store.output_files import write_output_files

_EVIDENCE_MAX = 8  # event ids behind a sentence
_GAP_NOTABLE = 0.1  # mean gap of confidence and outcome above which confidence was wrong
REPORT = "final-report.md"
_ROWS_MAX = 60  # lines of one section of the report
_RAW_DATA = (
    "- Execution log: `execution-log.json`",
    "- Progress tracking: `progress-tracking.yaml`",
    "- Decision history: `decision-history.json`",
    "- Journal: `journal.jsonl`; `e12` is event 12 there",
)


class Insight(Struct, frozen=True):
    """A sentence and its evidence: event ids as in the execution log."""

    topic: str
    text: str
    event_ids: tuple[str, ...]


def find_insights(whole: analysis.LoopAccount) -> list[Insight]:
    """Return every insight that the events of a session support."""
    return [
        *_task_insights(whole),
        *_error_insights(whole),
        *_people_insights(whole),
        *_confidence_insights(whole),
        *_cost_insights(whole),
    ]


def _make_insight(about: str, sentence: str, numbers: Iterable[int]) -> Insight:
    return Insight(about, sentence, tuple(f"e{seq}" for seq in islice(numbers, _EVIDENCE_MAX)))


def _task_insights(whole: analysis.LoopAccount) -> Iterator[Insight]:
    done = {name: task for name, task in whole.tasks.items() if _is_completed(task)}
    if done:
        first = sum(not (task.failures or task.cuts) for task in done.values())
        sentence = f"{first} of {len(done)} completed tasks were right at the first attempt."
        ends = [task.ended[0] for task in done.values() if task.ended]
        yield _make_insight("attempts", sentence, ends)
    total_s = sum(_task_seconds(task) for task in done.values())
    if len(done) > 1 and total_s > 0:
        name, task = max(done.items(), key=lambda item: _task_seconds(item[1]))
        spent_s = _task_seconds(task)
        share = f"{spent_s / total_s:.0%} of the time of all completed tasks"
        numbers = [task.start_events[0], *(task.ended[:1] if task.ended else ())]
        spent = session_overview.format_duration(spent_s)
        yield _make_insight("time", f"Task {name} took {spent}, {share}.", numbers)
    for name, task in whole.tasks.items():
        if task.ended and not _is_completed(task):
            seq, result, _, why = task.ended
            sentence = f"Task {name} ended as {result}: {one_line(why, 160).rstrip('.')}."
            yield _make_insight("left", sentence, [seq])


def _error_insights(whole: analysis.LoopAccount) -> Iterator[Insight]:
    failures = [(failure, task) for task in whole.tasks.values() for failure in task.failures]
    for kind, count in Counter(failure[1] for failure, _ in failures).most_common(3):
        numbers = [failure[0] for failure, _ in failures if failure[1] == kind]
        kinds = ((task, {other for _, other, _ in task.failures}) for task in whole.tasks.values())
        hit = [task for task, others in kinds if kind in others]
        saved = sum(_is_completed(task) for task in hit)
        times = "once" if count == 1 else f"{count} times"
        result = f"{saved} of {len(hit)} affected tasks were completed"
        yield _make_insight(
            "errors", f"An error of kind {kind} occurred {times}; {result}.", numbers
        )
    wasted_s = sum(task.wasted_s for task in whole.tasks.values())
    if wasted_s > 0:
        numbers = [failure[0] for failure, _ in failures]
        yield _make_insight("errors", f"Failed attempts took {wasted_s:.1f} s.", numbers)
    for name, task in whole.tasks.items():
        sentence = f"Task {name} failed the same way twice, so a diagnosis was made instead."
        diagnoses = [seq for seq, action, _ in task.remedies if action == "diagnose"]
        yield from (_make_insight("errors", sentence, [seq]) for seq in diagnoses)
    for seq, condition, closed in whole.trips:
        end = "and closed again" if closed else "and did not close again"
        sentence = f"The breaker opened ({condition}) {end}."
        yield _make_insight("breaker", sentence, [seq, closed] if closed else [seq])


def _people_insights(whole: analysis.LoopAccount) -> Iterator[Insight]:
    total = len(whole.questions)
    timeouts = [seq for seq, _, _, by, _ in whole.questions if by == "timeout"]
    if timeouts:
        count = f"{len(timeouts)} of {total} questions got no answer in time"
        yield _make_insight("people", f"{count}, so the safe option was chosen.", timeouts)
    answered = [seq for seq, _, _, by, _ in whole.questions if by == "person"]
    if answered:
        sentence = f"A person answered {len(answered)} of {total} questions."
        yield _make_insight("people", sentence, answered)
    for seq, name, value, passed in whole.gates:
        if passed is None:
            sentence = f"The gate «{name}» could not be evaluated: its metric was not reported."
            yield _make_insight("gates", sentence, [seq])
        elif not passed:
            yield _make_insight("gates", f"The gate «{name}» failed at {value:g}.", [seq])


def _confidence_insights(whole: analysis.LoopAccount) -> Iterator[Insight]:
    score = analysis.measure_calibration(whole.pairs)
    if score.calibration_gap is None or score.decisions < analysis.CALIBRATION_MIN:
        return
    mean = sum(pair.confidence for pair in whole.pairs) / len(whole.pairs)
    right = sum(pair.is_correct for pair in whole.pairs) / len(whole.pairs)
    biased = "overconfident" if mean > right else "underconfident"
    verdict = "well calibrated" if score.calibration_gap < _GAP_NOTABLE else biased
    figures = (
        f"{mean:.0%} confidence on average, {right:.0%} right, Brier score {score.brier_score:.3f}"
    )
    numbers = [pair.event for pair in whole.pairs]
    yield _make_insight("confidence", f"Decisions were {verdict}: {figures}.", numbers)


def _cost_insights(whole: analysis.LoopAccount) -> Iterator[Insight]:
    totals = whole.state.totals
    if not totals.calls:
        return
    name, task = max(
        whole.tasks.items(), key=lambda item: item[1].cost_usd, default=("", analysis.TaskHistory())
    )
    cost = "an amount that is not known" if totals.unpriced_calls else f"{totals.cost_usd:.4f} USD"
    most = f"; most of it in task {name}" if task.cost_usd and len(whole.tasks) > 1 else ""
    numbers = [
        task.start_events[0] for task in whole.tasks.values() if task.calls and task.start_events
    ]
    calls = pluralize(totals.calls, "model call")
    yield _make_insight("cost", f"{calls} cost {cost}{most}.", numbers)


def _task_seconds(task: analysis.TaskHistory) -> float:
    return task.ended[2] if task.ended else 0.0


def _is_completed(task: analysis.TaskHistory) -> bool:
    return task.ended is not None and task.ended[1] == "success"


def write_report(directory: Path, redactor: Redactor) -> str:
    """Write the redacted report of the session in `directory` and return its text."""
    session = directories.open_loop_session(directory)
    plan = session.read_plan(redactor)
    account = analysis.build_account(
        analysis.redact_records(directories.iter_events(directory), JsonRedactor(redactor))
    )
    account.state.names = account.state.names or {task.task_id: task.name for task in plan.tasks}
    runner = session.runner if account.state.status == "in_progress" else ""
    session = session._replace(state=account.state, runner=runner)
    clean = redactor.redact_as_clean(render_report(session, account, plan))
    write_output_files(directory, [OutputFile(REPORT, Tier.SHAREABLE, clean)])
    return clean.text


def render_report(session: directories.LoopSession, whole: analysis.LoopAccount, plan: Plan) -> str:
    """Return the text of the report."""
    state = whole.state
    files = session_overview.changed_files(state, (session.directory / state.project).resolve())
    date = (format_utc_time(state.started_at) or "")[:10]
    head = [
        f"# Session Final Report: {state.session_id}",
        f"**Session Name:** {one_line(state.session_name, 120)}  \n**Date:** {date}  \n**Status:** {state.status}",
    ]
    sections = {
        "Executive Summary": _summary_lines(session, whole, plan),
        "Progress": _progress_lines(whole, plan),
        "Tasks": _task_lines(session, whole),
        "What the Agents Said": _statement_lines(whole),
        "Changed Files": _file_lines(whole, files),
        "Timeline": _timeline_lines(whole),
        "Artifacts Generated": _artifact_lines(whole),
        "Metrics": _metric_lines(whole),
        "Challenges & Solutions": _challenge_lines(whole),
        "Lessons Learned": _lesson_lines(whole),
        "Next Steps": _next_step_lines(session, whole),
        "Raw Data": iter(_RAW_DATA),
    }
    parts = [
        f"## {title}\n\n" + "\n".join(_limit_lines(list(lines)))
        for title, lines in sections.items()
    ]
    return "\n\n".join([*head, *parts]) + "\n"


def _limit_lines(lines: list[str]) -> list[str]:
    left = len(lines) - _ROWS_MAX
    more = [f"- … and {left} more, in `execution-log.json`"] if left > 0 else []
    return lines[:_ROWS_MAX] + more


def _summary_lines(
    session: directories.LoopSession, whole: analysis.LoopAccount, plan: Plan
) -> Iterator[str]:
    state = whole.state
    endings = {"completed": "was completed", "error": "ended in error"}
    endings["paused"] = "is paused and can be resumed"
    ending = endings.get(
        state.status, "is still in progress" if session.runner else "was cut short"
    )
    end = f"e{whole.ending[0]}" if whole.ending else f"e{whole.last}"
    verified = sum(session_overview.task_outcome(state, name) == "verified" for name in state.tasks)
    yield (
        f"The plan «{one_line(plan.plan, 100)}» {ending}: "
        f"{state.completed_count} of {pluralize(len(plan.tasks), 'task')} completed, {verified} of "
        f"them verified [e{whole.first}, {end}]."
    )
    figures = layout.performance_figures(state, state.last_at)
    took = session_overview.format_duration(figures["total_duration_seconds"])
    ran = session_overview.format_duration(sum(task.active_s for task in state.tasks.values()))
    cost = "an unknown amount" if figures["cost_usd"] is None else f"{figures['cost_usd']:.4f} USD"
    calls = pluralize(state.totals.calls, "model call")
    yield f"\nIt took {took} without pauses; tasks ran for {ran} of it and cost {cost} for {calls}."
    if state.reason:
        yield f"\nReason: {one_line(state.reason, 400)} [{end}]."
    if state.question is not None:
        asked = format_utc_time(state.question.asked_at)
        yield f"\nA question is open since {asked}: {one_line(state.question.event.text, 600)}"
        command = session_overview.answer_command(session.directory.name, state)
        yield f"\nAnswer: `{command}`{session_overview.other_answers(state)}"
    if session.damaged_lines:
        lost = pluralize(session.damaged_lines, "line")
        yield f"\nThe journal is damaged: {lost} cannot be read; what they recorded is missing here."


def _task_lines(session: directories.LoopSession, whole: analysis.LoopAccount) -> Iterator[str]:
    yield "| task | name | outcome | attempts | duration | cost (USD) |"
    yield "|---|---|---|--:|--:|--:|"
    for row in session_overview.task_rows(session):
        name = one_line(row.name, 80).replace("|", "/")
        cuts = len(whole.tasks.get(row.id, analysis.TaskHistory()).cuts)
        attempts = f"{row.attempts} ({cuts} cut short)" if cuts else str(row.attempts)
        outcome = session_overview.task_outcome(whole.state, row.id)
        figures = f"{session_overview.format_duration(row.duration_s)} | {session_overview.format_cost(row.cost_usd)}"
        yield f"| {row.id} | {name} | {outcome} | {attempts} | {figures} |"


def _statement_lines(whole: analysis.LoopAccount) -> Iterator[str]:
    statements = session_overview.agent_statements(whole.state)
    for task_id, text in statements:
        yield f"- Task {task_id}: {text} [e{whole.tasks[task_id].last_end}]"
    if not statements:
        yield "None: no agent ran."


def _file_lines(
    whole: analysis.LoopAccount, files: Sequence[session_overview.LoopFileChange]
) -> Iterator[str]:
    for file in files:
        tasks, path = ", ".join(file.tasks), one_line(file.path, 200)
        evidence = ", ".join(f"e{whole.tasks[name].last_end}" for name in file.tasks)
        yield f"- `{path}` {session_overview.describe_change(file)} (task {tasks}) [{evidence}]"
    if not files:
        yield "None."


def _timeline_lines(whole: analysis.LoopAccount) -> Iterator[str]:
    for seq, entry in whole.timeline:
        yield f"- {format_utc_time(entry.at)} {entry.kind}: {entry.text} [e{seq}]"


def _progress_lines(whole: analysis.LoopAccount, plan: Plan) -> Iterator[str]:
    progress = layout.build_progress(whole.state, plan)["progress"]
    done = [
        f"e{task.ended[0]}" for task in whole.tasks.values() if task.ended and _is_completed(task)
    ]
    more = ["…"] if len(done) > _EVIDENCE_MAX else []
    evidence = f" [{', '.join([*done[:_EVIDENCE_MAX], *more] or [f'e{whole.last}'])}]"
    yield f"- Tasks completed: {whole.state.completed_count}/{len(plan.tasks)}{evidence}"
    yield f"- Overall progress: {progress['overall_progress']:g}%{evidence}"
    phase = f"{progress['phase_progress']:g}% of phase {progress['current_phase']}"
    yield f"- Phase progress: {phase}{evidence}"
    for seq, name in whole.milestones:
        yield f"- Milestone reached: {one_line(name, 120)} [e{seq}]"
    for seq, name, value, passed in whole.gates:
        result = "passed" if passed else "failed"
        result = "not evaluated, its metric was not reported" if passed is None else result
        at = "" if value is None else f" at {value:g}"
        yield f"- Quality gate «{one_line(name, 120)}»: {result}{at} [e{seq}]"


def _artifact_lines(whole: analysis.LoopAccount) -> Iterator[str]:
    lines = [
        f"- `{one_line(name, 200)}` [e{history.artifacts.get(name, whole.last)}]"
        for task_id, history in whole.tasks.items()
        for name in whole.state.task_state(task_id).artifacts
    ]
    for task_id, task in whole.state.tasks.items():
        ended = whole.tasks[task_id].ended if task_id in whole.tasks else None
        seq = ended[0] if ended else whole.last
        lines += [f"- Task {task_id}: recorded session {name} [e{seq}]" for name in task.sessions]
        lines += [f"- Task {task_id}: changes in `{diff}` [e{seq}]" for diff in task.diffs]
    yield from lines or ["None: no task declared `output_artifacts` or reported an `artifact`."]


def _metric_lines(whole: analysis.LoopAccount) -> Iterator[str]:
    figures = layout.performance_figures(whole.state, whole.state.last_at)
    span = f"[e{whole.first}-e{whole.last}]"
    total, average = figures["total_duration_seconds"], figures["average_task_duration"]
    yield f"- Total duration: {total / 3600:.2f} hours ({total:,.1f} s, without pauses) {span}"
    yield f"- Average task duration: {average / 60:.2f} minutes ({average:,.1f} s) {span}"
    rate, attempts = figures["success_rate"], whole.state.totals.attempts
    yield f"- Success rate: {rate * 100:.1f}% of {pluralize(attempts, 'attempt')} {span}"
    yield f"- Error count: {figures['error_count']} {span}"
    yield f"- Human interventions: {figures['human_interventions']} {span}"
    cost = "not known" if figures["cost_usd"] is None else f"{figures['cost_usd']:.4f} USD"
    yield f"- Model calls: {figures['model_calls']}, {figures['total_tokens']} tokens, {cost} {span}"
    for name, value in sorted(whole.state.metrics.items()):
        yield f"- {one_line(name, 80)}: {value:g} {span}"


def _challenge_lines(whole: analysis.LoopAccount) -> Iterator[str]:
    for task_id, task in whole.tasks.items():
        for seq, kind, message in task.failures:
            remedy = next((remedy for remedy in task.remedies if remedy[0] > seq), None)
            end = f" [e{seq}]"
            if remedy:
                end = f"; then {remedy[1]}: {one_line(remedy[2], 120)} [e{seq}, e{remedy[0]}]"
            yield f"- Task {task_id}, {kind}: {explain_error(message, 200)}{end}"
        for seq, seconds in task.cuts:
            took = session_overview.format_duration(seconds)
            yield f"- Task {task_id}: the runner was killed {took} into the attempt [e{seq}]"
    for seq, condition, closed in whole.trips:
        end = f"closed again [e{seq}, e{closed}]" if closed else f"not closed again [e{seq}]"
        yield f"- The breaker opened: {one_line(condition, 200)}; {end}"
    if not whole.trips and not any(task.failures or task.cuts for task in whole.tasks.values()):
        span = f"[e{whole.first}-e{whole.last}]"
        yield f"None: no attempt failed, no verification failed, the breaker stayed closed {span}."


def _lesson_lines(whole: analysis.LoopAccount) -> Iterator[str]:
    insights = find_insights(whole)
    for insight in insights:
        yield f"- {one_line(insight.text, 300)} [{', '.join(insight.event_ids)}]"
    if not insights:
        yield "None: the session has too few events."


def _next_step_lines(
    session: directories.LoopSession, whole: analysis.LoopAccount
) -> Iterator[str]:
    if whole.state.status == "completed":
        yield f"None: every task of the plan is completed [e{whole.last}]."
        return
    if command := session_overview.next_command(session):
        yield f"- `{command}` continues [e{whole.last}]"
    for row in session_overview.task_rows(session):
        if row.status == "completed":
            continue
        history = whole.tasks.get(row.id, analysis.TaskHistory())
        seq = (history.start_events or [whole.last])[-1]
        why = f": {row.cause}" if row.cause else ""
        name, status = one_line(row.name, 80), row.status.replace("_", " ")
        step = f". Next: `{row.next}`" if row.next else ""
        yield f"- Task {row.id} ({name}) is {status}{why}{step} [e{seq}]"
