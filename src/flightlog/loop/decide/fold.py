"""Fold events into the state of a session: `apply_event` applies one."""

from typing import assert_never

import msgspec

from flightlog.loop import events
from flightlog.loop.state import (
    FILES_MAX,
    HOUR_S,
    RECENT,
    TIMELINE_MAX,
    BreakerState,
    GateState,
    LoopState,
    OpenQuestion,
    PendingAnswer,
    TaskState,
    TimelineEntry,
    add_counts,
    apply_report,
)
from flightlog.model.text import format_utc_time, one_line

RESET = "reset by a person"  # the action of a breaker change that forgets its trips
_UNFINISHED = frozenset({"interrupted", "budget", "cut"})  # the attempt runs again
_TEXT_MAX = 300  # characters of a text in the timeline
_RATE_MIN, _RATE_MAX = 0.01, 0.5  # so that the learning rate neither vanishes nor oscillates


def apply_event(state: LoopState, at: float, event: events.Event) -> None:
    """Apply an event that happened at `at`."""
    state.totals.events += 1
    before, state.last_at = state.last_at, max(state.last_at, at)
    if isinstance(event, events.RunnerAcquired) and event.is_resumed:
        _apply_takeover(state, min(max(before, event.last_alive_at), at), at)
    if isinstance(event, events.SessionEvent):
        _apply_session_event(state, at, event)
    elif isinstance(event, events.TaskEvent):
        _apply_task_event(state, at, event)
    elif isinstance(event, events.NoteEvent):
        _apply_note_event(state, at, event)
    elif isinstance(event, events.BreakerChanged):
        _apply_breaker_change(state, at, event)
    elif isinstance(event, events.QuestionAsked):
        state.question = OpenQuestion(event, at)
        state.question_count += 1
        if event.trigger == "agent":
            state.ensure_task(event.task).questions_asked += 1
        _add_note(state, at, "question", event.text)
        state.totals.help_requests += 1
        state.breaker.asked_question |= event.trigger.startswith("breaker")
    else:
        _apply_answer(state, at, event)


def _apply_takeover(state: LoopState, alive_at: float, at: float) -> None:
    """Count the time since the last runner was alive as rest, and mark the run it left behind."""
    if state.status != "in_progress" or state.resting_since is not None:
        return
    state.rested_s += at - alive_at
    task = state.tasks.get(state.current_task)
    where = ""
    if task is not None and task.stage == "running" and task.run_started_at is not None:
        task.stage, task.cut_s = "cut", max(alive_at - task.run_started_at, 0.0)
        where = f" during task {state.current_task}, attempt {task.attempt}"
    _add_note(state, alive_at, "crash", f"the runner was killed{where}")
    _add_note(state, at, "resume", "another runner continued")


def _add_note(state: LoopState, at: float, kind: str, text: str) -> None:
    state.timeline.append(TimelineEntry(at, kind, one_line(text, _TEXT_MAX)))
    del state.timeline[:-TIMELINE_MAX]


def _apply_session_event(state: LoopState, at: float, event: events.SessionEvent) -> None:
    match event:
        case events.LoopStarted():
            state.session_id, state.session_name = event.session_id, event.session_name
            state.plan, state.plan_digest = event.plan, event.plan_digest
            state.project, state.is_autonomous = event.project, event.is_autonomous
            state.config, state.budgets = event.config, event.budgets
            state.context, state.calibration = dict(event.context), event.calibration
            state.tasks_total = event.tasks_total
            state.learning_rate, state.marker = event.config.learning_rate, event.marker
            state.status, state.started_at = "in_progress", at
            state.names, state.phase = dict(event.names), event.phase
            state.metrics = dict(event.metrics)
            _add_note(state, at, "start", f"plan «{event.plan}»")
        case events.RunnerAcquired():
            state.epoch = event.epoch
        case events.LoopPaused() | events.LoopStopped():
            state.status, state.reason = "paused", event.reason
            if state.verdict is not None and state.verdict.question is not None:
                state.question = state.verdict.question  # it can still be answered
            state.verdict, state.resting_since = None, at
            _add_note(state, at, "pause", event.reason)
            state.stop_signal = event.signal if isinstance(event, events.LoopStopped) else ""
        case events.LoopResumed():
            _apply_resume(state, at, event)
        case events.LoopEnded():
            state.status, state.reason = event.status, event.reason
            state.ended_at, state.question = at, None
            _add_note(state, at, "end", f"{event.status}: {event.reason}")
        case _:
            assert_never(event)


def _apply_resume(state: LoopState, at: float, event: events.LoopResumed) -> None:
    """Continue after a rest: failed and deferred tasks are tried again, questions stay open."""
    _add_note(state, at, "resume", event.reason)
    if state.resting_since is not None:
        state.rested_s += at - state.resting_since
    state.status, state.reason, state.stop_signal = "in_progress", "", ""
    state.resting_since, state.ended_at = None, None
    state.budgets = event.budgets or state.budgets
    if event.max_iterations is not None:
        state.config = msgspec.structs.replace(state.config, max_iterations=event.max_iterations)
    state.allowed_tools += event.allowed_tools
    if state.question is not None:
        state.question.asked_at = at
        if event.allowed_tools and state.question.event.trigger == "denied":
            state.question = None
    state.wait_until = 0.0
    if state.breaker.state == "open":
        state.breaker.state, state.breaker.probes, state.breaker.since = "half_open", 0, at
    for task in state.tasks.values():
        if task.status in {"deferred", "failed"} or (event.allowed_tools and task.denied_tools):
            _reopen_task(task)


def _reopen_task(task: TaskState) -> None:
    task.status, task.stage, task.is_diagnosed = "pending", "idle", False
    task.failures = task.same_error_count = task.questions_asked = 0
    task.result, task.ended_at, task.duration_s = None, None, None
    task.denied_tools, task.reason = [], ""


def _apply_redo(state: LoopState, task: TaskState, at: float, event: events.TaskReopened) -> None:
    if event.is_restored:
        task.changes = {}
        if task.ended_at is None:  # it continues when the session is resumed
            return
    _reopen_task(task)
    task.redo_count += 1
    task.is_approved, task.commit, task.retry_at = True, None, 0.0
    task.effects, task.question, task.answer = [], "", ""
    _add_note(state, at, "resume", f"task {event.task} is to be done again: {event.reason}")
    _close_question(state, "", event.task)
    if state.status in {"completed", "error"}:
        state.status, state.ended_at, state.resting_since = "paused", None, at
        state.reason = f"task {event.task} is to be done again"


def _apply_task_event(  # noqa: C901 - one case per event
    state: LoopState, at: float, event: events.TaskEvent
) -> None:
    task = state.ensure_task(event.task)
    match event:
        case events.DecisionMade():
            state.totals.decisions += 1
            state.confidence = event.confidence
            state.breaker.confidences = [*state.breaker.confidences, event.confidence][-RECENT:]
            task.is_approved = task.is_approved and event.action == "escalate"
        case events.TaskStarted():
            _apply_task_start(state, task, at, event)
        case events.AttemptRunStarted():
            task.snapshot = task.snapshot or event.snapshot
            task.run_snapshot, task.run_started_at = event.snapshot, at
            task.agent_session, task.is_unfinished = event.agent_session, False
            task.reports = {}  # the report of an attempt is read again as a whole
            if not event.is_resumed:
                task.session_tokens, task.session_usd = 0, 0.0
        case events.TaskReopened():
            _apply_redo(state, task, at, event)
        case events.TaskCommitted():
            task.commit = event.commit
        case events.AttemptEnded():
            _apply_attempt_end(state, task, at, event)
        case events.TaskVerified():
            _apply_verification(state, task, event)
        case events.RecoveryStarted():
            if event.action in {"skip", "escalate", "ask"}:
                return  # the next event ends the task or asks a person
            task.stage, task.retry_at = "idle", at + event.wait_s
            task.is_diagnosed = task.is_diagnosed or event.action == "diagnose"
            task.mode = event.action if event.action in {"diagnose", "delegate"} else "work"
        case events.TaskEnded():
            status = {"success": "completed", "failure": "failed"}.get(event.result, event.result)
            task.status, task.stage = status, "idle"
            task.result, task.reason = event.result, event.reason
            task.denied_tools = [] if status == "completed" else task.denied_tools
            task.ended_at, task.duration_s = at, event.duration_s
            state.verdict = None
            state.current_task = "" if state.current_task == event.task else state.current_task
        case _:
            assert_never(event)


def _apply_task_start(
    state: LoopState, task: TaskState, at: float, event: events.TaskStarted
) -> None:
    task.status, task.stage = "in_progress", "running"
    task.attempt, task.mode = event.attempt, event.mode
    task.effect_id, task.run_started_at = event.effect_id, None
    if not task.is_unfinished and not task.answer:
        task.agent_session = ""
    task.exit_ready = False
    task.started_at = at if task.started_at is None else task.started_at
    state.current_task = event.task
    state.iterations += 1
    if state.breaker.state == "half_open":
        state.breaker.probes += 1


def _apply_attempt_end(
    state: LoopState, task: TaskState, at: float, event: events.AttemptEnded
) -> None:
    if event.agent_session and event.agent_session not in task.sessions:
        task.sessions.append(event.agent_session)
    if event.diff:
        task.diffs.append(event.diff)
    for path, added, removed in event.changes:
        _add_change(task, path, added, removed)
    task.run_started_at, task.active_s = None, task.active_s + event.duration_s
    task.last_message = event.last_message or task.last_message
    task.is_unfinished = event.result in _UNFINISHED or event.result == "limited"
    if event.result in _UNFINISHED:
        # The attempt has no result: it runs again under the same number and key.
        task.stage, task.cut_count = "running", task.cut_count + (event.result == "cut")
        return
    if event.result == "limited":
        until = at + (event.limit_s or 0)
        task.stage, task.retry_at = "idle", until
        state.wait_until, state.wait_reason = max(state.wait_until, until), "the API's limit"
        _add_note(state, at, "wait", f"until {format_utc_time(until)}: the API's limit")
        task.attempt -= 1
        return
    task.question, task.answer = event.question, ""
    task.denied_tools = list(event.denied_tools)
    state.totals.attempts += 1
    breaker = state.breaker
    breaker.permission_denials = breaker.permission_denials + 1 if event.permission_denials else 0
    if event.made_progress is not None:
        breaker.no_progress_count = (
            0 if event.made_progress or event.asked_question else breaker.no_progress_count + 1
        )
    task.exit_ready = event.exit_signal and len(event.indicators) >= 2
    if event.result == "success":
        task.stage, task.round_count = "ran", task.round_count + 1
        task.diagnosis = event.last_message if task.mode == "diagnose" else task.diagnosis
        if event.made_progress and breaker.state == "half_open":
            breaker.probe_result = True
    else:
        _record_failure(state, task, event.error_type, event.error_message, event.signature)
        task.severity, task.verify_failed = event.severity, False


def _add_change(task: TaskState, path: str, added: int | None, removed: int | None) -> None:
    old = task.changes.get(path, (0, 0))
    if path in task.changes or len(task.changes) < FILES_MAX:
        task.changes[path] = (add_counts(old[0], added), add_counts(old[1], removed))


def _apply_verification(state: LoopState, task: TaskState, event: events.TaskVerified) -> None:
    state.breaker.verify_count += 1
    task.active_s += event.duration_s
    task.artifacts += [name for name in event.artifacts if name not in task.artifacts]
    if event.passed:
        task.stage = "right"
        _update_expectation(state, right=True)
        state.totals.successes += 1
        _record_outcome(state.breaker, right=True)
        return
    state.breaker.verify_failures += 1
    _record_failure(state, task, "validation", event.error_message, event.error_message[:200])
    task.severity, task.verify_failed = "medium", True


def _record_failure(
    state: LoopState, task: TaskState, error_type: str, message: str, signature: str
) -> None:
    state.totals.errors += 1
    task.stage, task.failures = "failed", task.failures + 1
    repeated = bool(signature) and signature == task.signature
    task.same_error_count = task.same_error_count + 1 if repeated else 1
    task.error_type, task.error_message, task.signature = error_type, message, signature
    _update_expectation(state, right=False)
    breaker = state.breaker
    repeated = bool(signature) and signature == breaker.signature
    breaker.same_error_count = breaker.same_error_count + 1 if repeated else 1
    breaker.signature = signature
    _record_outcome(breaker, right=False)


def _record_outcome(breaker: BreakerState, *, right: bool) -> None:
    breaker.recent_results = [*breaker.recent_results, right][-RECENT:]
    breaker.consecutive_failures = 0 if right else breaker.consecutive_failures + 1
    if right:
        breaker.same_error_count, breaker.signature = 0, ""
    if breaker.state == "half_open":
        breaker.probe_result = right


def _update_expectation(state: LoopState, *, right: bool) -> None:
    """Move the expected success rate towards the outcome; successes raise the learning rate."""
    state.history += state.learning_rate * (float(right) - state.history)
    rate = state.learning_rate * (1.1 if right else 0.9)
    state.learning_rate = min(max(rate, _RATE_MIN), _RATE_MAX)


def _apply_note_event(state: LoopState, at: float, event: events.NoteEvent) -> None:
    match event:
        case events.UsageRecorded():
            state.totals.calls += event.calls
            state.totals.total_tokens += event.total_tokens
            state.totals.cost_usd += event.cost_usd or 0.0
            state.totals.unpriced_calls += event.cost_usd is None
            task = state.ensure_task(event.task)
            task.calls += event.calls
            task.session_tokens += event.total_tokens
            task.session_usd += event.cost_usd or 0.0
            task.cost_usd += event.cost_usd or 0.0
            task.unpriced_calls += event.cost_usd is None
            if state.budgets.calls_per_hour and event.calls:
                state.call_times = [time for time in state.call_times if time > at - HOUR_S] + [at]
        case events.TaskReported():
            apply_report(state, event)
        case events.GateChecked():
            accepted = state.gates.get(event.name, GateState(None, None)).is_accepted
            state.gates[event.name] = GateState(event.value, event.passed, accepted)
        case events.MilestoneReached():
            state.milestones[event.name] = at
        case events.WaitStarted():
            state.wait_until, state.wait_reason = event.until, event.reason
            until = format_utc_time(event.until)
            _add_note(state, at, "wait", f"until {until}: {event.reason}")
        case events.GateAccepted():
            state.gates.setdefault(event.name, GateState(None, None)).is_accepted = True
            _close_question(state, "gate", event.name)
        case events.AlertRaised():
            state.alerts.append(event.condition)
        case _:
            assert_never(event)


def _apply_breaker_change(state: LoopState, at: float, event: events.BreakerChanged) -> None:
    breaker, state.verdict = state.breaker, None
    _add_note(state, at, "breaker", f"{event.to_state.replace('_', ' ')}: {event.condition}")
    if event.to_state == "closed":
        is_reset = event.action == RESET
        state.breaker = BreakerState(trips=0 if is_reset else breaker.trips)
        if is_reset:
            _close_question(state, "breaker")
        return
    breaker.state, breaker.since, breaker.probes, breaker.probe_result = event.to_state, at, 0, None
    if event.to_state == "open":
        breaker.trips += 1
        breaker.asked_question = False
        breaker.condition, breaker.action = event.condition, event.action


def _close_question(state: LoopState, trigger: str, task: str = "") -> None:
    asked = state.question.event if state.question else None
    if asked is not None and asked.trigger.startswith(trigger) and task in {"", asked.task}:
        state.question = None


def _apply_answer(state: LoopState, at: float, event: events.QuestionAnswered) -> None:
    question, state.question = state.question, None
    state.totals.human_interventions += event.answered_by == "person"
    if question is None or question.event.question_id != event.question_id:
        return
    asked = question.event
    by_person = event.answered_by == "person"
    how = event.answer if by_person else f"none within {asked.timeout_s:g} s, so: {event.answer}"
    _add_note(state, at, "answer", how)
    match asked.trigger, event.answer:
        case "start", "go":
            state.is_start_approved = True
        case "review", "continue":
            state.reviewed_points.append(asked.task)
        case "gate", "accept":
            state.gates.setdefault(asked.task, GateState(None, None)).is_accepted = True
        case (("confidence" | "always"), "execute"):
            state.ensure_task(asked.task).is_approved = True
        case ("error", "retry") | ("denied", "allow") | ("agent", _):
            task = state.ensure_task(asked.task)
            task.stage, task.is_approved, task.retry_at = "idle", True, at
            if by_person:
                task.failures = task.same_error_count = 0
            if asked.trigger == "agent":
                task.answer, task.answer_id = event.answer, event.question_id
            elif asked.trigger == "denied":
                state.allowed_tools += task.denied_tools
        case _:
            by = "a person answered" if by_person else f"no answer within {asked.timeout_s:g} s"
            state.verdict = PendingAnswer(
                asked.trigger, asked.task, event.answer, by, None if by_person else question
            )
