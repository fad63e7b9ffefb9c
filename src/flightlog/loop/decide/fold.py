"""Fold events into the state of a session: `apply_event` applies one."""

from typing import Any, assert_never

from flightlog.loop import events
from flightlog.loop.state import (
    HOUR_S,
    RECENT,
    BreakerState,
    GateState,
    LoopState,
    OpenQuestion,
    PendingAnswer,
    TaskState,
)

FEATURE = {
    "feature_id": "", "name": "", "category": "unknown", "directory": "", "purpose": "", "key_files": [],
    "dependencies": [], "status": "discovered", "documented": False, "challenges_generated": False,
    "assumptions_count": 0,
}  # fmt: skip
CONTEXT: dict[str, Any] = {
    "features_discovered": [], "features_documented": [], "assumptions_identified": 0, "challenges_generated": [],
    "validations_planned": [], "validations_executed": [],
}  # fmt: skip
KINDS = ("feature", "metric", "artifact", "context", "confidence", "effect", "doc")
LIST_MAX = 10_000  # items of a list in the context, which every checkpoint contains
_RATE_MIN, _RATE_MAX = 0.01, 0.5  # so that the learning rate neither vanishes nor oscillates


def _apply_report(state: LoopState, event: events.TaskReported) -> None:
    task = state.ensure_task(event.task)
    match event.report_type:
        case "feature" if isinstance(event.value, dict):
            before = state.features.get(event.name, FEATURE)
            state.features[event.name] = {**before, **event.value, "feature_id": event.name}
        case "metric" if isinstance(event.value, int | float):
            state.metrics[event.name] = float(event.value)
        case "artifact" if event.name not in task.artifacts:
            task.artifacts.append(event.name)
        case "context" if isinstance(event.value, dict):
            _merge_context(state, event.value)
        case "confidence" if isinstance(event.value, int | float):
            task.reported_confidence = min(max(float(event.value), 0.0), 1.0)
        case "effect" if event.name not in task.effects:
            task.effects.append(event.name)
        case "doc" if isinstance(event.value, dict):
            state.docs = [document for document in state.docs if document.get("path") != event.name]
            state.docs.append({**event.value, "path": event.name, "task_id": event.task})


def _merge_context(state: LoopState, variables: dict[str, Any]) -> None:
    """Add new items to lists, and replace other variables."""
    for name, value in variables.items():
        old = state.context.get(name, CONTEXT.get(name))
        if isinstance(old, list) and isinstance(value, list):
            state.context[name] = [*old, *(item for item in value if item not in old)][:LIST_MAX]
        else:
            state.context[name] = value


def metric_value(state: LoopState, name: str) -> float | None:
    """Return a reported metric, or the value or list length of a context variable, or None."""
    if name in state.metrics:
        return state.metrics[name]
    value = state.context.get(name)
    if isinstance(value, list):
        return float(len(value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return None


def apply_event(state: LoopState, at: float, event: events.Event) -> None:
    """Apply an event that happened at `at`."""
    state.totals.events += 1
    resumed = isinstance(event, events.RunnerAcquired) and event.is_resumed
    if resumed and state.resting_since is None:
        state.rested_s += max(at - state.last_at, 0.0)  # no runner since the crash
    state.last_at = max(state.last_at, at)
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
        state.totals.help_requests += 1
        state.breaker.asked_question |= event.trigger.startswith("breaker")
    else:
        _apply_answer(state, at, event)


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
        case events.RunnerAcquired():
            state.epoch = event.epoch
        case events.LoopPaused() | events.LoopStopped():
            state.status, state.reason = "paused", event.reason
            state.question = state.verdict = None
            state.resting_since = at
            state.stop_signal = event.signal if isinstance(event, events.LoopStopped) else ""
        case events.LoopResumed():
            _apply_resume(state, at, event)
        case events.LoopEnded():
            state.status, state.reason = event.status, event.reason
            state.ended_at, state.question = at, None
        case _:
            assert_never(event)


def _apply_resume(state: LoopState, at: float, event: events.LoopResumed) -> None:
    """Continue after a rest: failed and deferred tasks are tried again, questions asked again."""
    if state.resting_since is not None:
        state.rested_s += at - state.resting_since
    state.status, state.reason, state.stop_signal = "in_progress", "", ""
    state.resting_since, state.ended_at = None, None
    state.budgets = event.budgets or state.budgets
    state.wait_until = 0.0
    if state.breaker.state == "open":
        state.breaker.state, state.breaker.probes, state.breaker.since = "half_open", 0, at
    for task in state.tasks.values():
        if task.status in {"deferred", "failed"}:
            task.status, task.stage, task.is_diagnosed = "pending", "idle", False
            task.failures = task.same_error_count = 0
            task.result, task.ended_at = None, None


def _apply_task_event(state: LoopState, at: float, event: events.TaskEvent) -> None:
    task = state.ensure_task(event.task)
    match event:
        case events.DecisionMade():
            state.totals.decisions += 1
            state.confidence = event.confidence
            state.breaker.confidences = [*state.breaker.confidences, event.confidence][-RECENT:]
            task.is_approved = task.is_approved and event.action == "escalate"
        case events.TaskStarted():
            _apply_task_start(state, task, at, event)
        case events.AttemptEnded():
            _apply_attempt_end(state, task, at, event)
        case events.TaskVerified():
            _apply_verification(state, task, event)
        case events.RecoveryStarted():
            if event.action in {"skip", "escalate"}:
                return  # the next event ends the task or asks a person
            task.stage, task.retry_at = "idle", at + event.wait_s
            task.is_diagnosed = task.is_diagnosed or event.action == "diagnose"
            task.mode = event.action if event.action in {"diagnose", "delegate"} else "work"
        case events.TaskEnded():
            status = {"success": "completed", "failure": "failed"}.get(event.result, event.result)
            task.status, task.stage = status, "idle"
            task.result, task.reason = event.result, event.reason
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
    task.effect_id, task.agent_session = event.effect_id, event.agent_session
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
    if event.result in {"interrupted", "budget"}:
        return  # the attempt has no result: it runs again under the same number and key
    if event.result == "limited":
        task.stage, task.retry_at = "idle", at + (event.limit_s or 0)
        state.wait_until = max(state.wait_until, at + (event.limit_s or 0))
        task.attempt -= 1
        return
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


def _apply_verification(state: LoopState, task: TaskState, event: events.TaskVerified) -> None:
    state.breaker.verify_count += 1
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
            if state.budgets.calls_per_hour and event.calls:
                state.call_times = [time for time in state.call_times if time > at - HOUR_S] + [at]
        case events.TaskReported():
            _apply_report(state, event)
        case events.GateChecked():
            before = state.gates.get(event.name)
            accepted = before is not None and before.is_accepted
            state.gates[event.name] = GateState(event.value, event.passed, accepted)
        case events.MilestoneReached():
            state.milestones[event.name] = at
        case events.WaitStarted():
            state.wait_until = event.until
        case events.AlertRaised():
            state.alerts.append(event.condition)
        case _:
            assert_never(event)


def _apply_breaker_change(state: LoopState, at: float, event: events.BreakerChanged) -> None:
    breaker, state.verdict = state.breaker, None
    if event.to_state == "closed":
        state.breaker = BreakerState(trips=breaker.trips)
        return
    breaker.state, breaker.since, breaker.probes, breaker.probe_result = event.to_state, at, 0, None
    if event.to_state == "open":
        breaker.trips += 1
        breaker.asked_question = False
        breaker.condition, breaker.action = event.condition, event.action


def _apply_answer(state: LoopState, at: float, event: events.QuestionAnswered) -> None:
    question, state.question = state.question, None
    state.totals.human_interventions += event.answered_by == "person"
    if question is None or question.event.question_id != event.question_id:
        return
    asked = question.event
    match asked.trigger, event.answer:
        case "start", "go":
            state.is_start_approved = True
        case "review", "continue":
            state.reviewed_points.append(asked.task)
        case "gate", "accept":
            state.gates.setdefault(asked.task, GateState(None, None)).is_accepted = True
        case (("confidence" | "always"), "execute"):
            state.ensure_task(asked.task).is_approved = True
        case "error", "retry":
            task = state.ensure_task(asked.task)
            task.stage, task.is_approved, task.retry_at = "idle", True, at
            task.failures = task.same_error_count = 0
        case _:
            answered = event.answered_by == "person"
            by = "a person answered" if answered else f"no answer within {asked.timeout_s:g} s"
            state.verdict = PendingAnswer(asked.trigger, asked.task, event.answer, by)
