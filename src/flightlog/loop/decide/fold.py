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
    match event.what:
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
            task.said_confidence = min(max(float(event.value), 0.0), 1.0)
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
    if isinstance(event, events.RunnerAcquired) and event.resumed and state.resting_since is None:
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
        state.asked += 1
        state.totals.help_requests += 1
        state.breaker.asked = state.breaker.asked or event.about.startswith("breaker")
    else:
        _apply_answer(state, at, event)


def _apply_session_event(state: LoopState, at: float, event: events.SessionEvent) -> None:
    match event:
        case events.LoopStarted():
            state.session_id, state.session_name = event.session_id, event.session_name
            state.plan, state.plan_digest, state.project = event.plan, event.plan_digest, event.project
            state.config, state.budgets, state.autonomous = event.config, event.budgets, event.autonomous
            state.context, state.calibration = dict(event.context), event.calibration
            state.tasks_total = event.tasks_total
            state.learning_rate, state.mark = event.config.learning_rate, event.mark
            state.status, state.started_at = "in_progress", at
        case events.RunnerAcquired():
            state.epoch = event.epoch
        case events.LoopPaused() | events.LoopStopped():
            state.status, state.why, state.question, state.verdict = "paused", event.why, None, None
            state.resting_since = at
            state.stop_signal = event.signal if isinstance(event, events.LoopStopped) else ""
        case events.LoopResumed():
            _apply_resume(state, at, event)
        case events.LoopEnded():
            state.status, state.why, state.ended_at, state.question = event.status, event.why, at, None
        case _:
            assert_never(event)


def _apply_resume(state: LoopState, at: float, event: events.LoopResumed) -> None:
    """Continue after a rest: failed and deferred tasks are tried again, questions asked again."""
    if state.resting_since is not None:
        state.rested_s += at - state.resting_since
    state.status, state.why, state.stop_signal = "in_progress", "", ""
    state.resting_since, state.ended_at = None, None
    state.budgets = event.budgets or state.budgets
    state.wait_until = 0.0
    if state.breaker.state == "open":
        state.breaker.state, state.breaker.probes, state.breaker.since = "half_open", 0, at
    for task in state.tasks.values():
        if task.status in {"deferred", "failed"}:
            task.status, task.stage, task.failures, task.same, task.diagnosed = "pending", "idle", 0, 0, False
            task.result, task.ended_at = None, None


def _apply_task_event(state: LoopState, at: float, event: events.TaskEvent) -> None:
    task = state.ensure_task(event.task)
    match event:
        case events.DecisionMade():
            state.totals.decisions += 1
            state.confidence = event.confidence
            state.breaker.confidences = [*state.breaker.confidences, event.confidence][-RECENT:]
            task.approved = task.approved and event.action == "escalate"
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
            task.diagnosed = task.diagnosed or event.action == "diagnose"
            task.mode = event.action if event.action in {"diagnose", "delegate"} else "work"
        case events.TaskEnded():
            status = {"success": "completed", "failure": "failed"}.get(event.result, event.result)
            task.status, task.stage, task.result, task.why = status, "idle", event.result, event.why
            task.ended_at, task.duration_s = at, event.duration_s
            state.verdict = None
            state.current = "" if state.current == event.task else state.current
        case _:
            assert_never(event)


def _apply_task_start(state: LoopState, task: TaskState, at: float, event: events.TaskStarted) -> None:
    task.status, task.stage = "in_progress", "running"
    task.attempt, task.mode = event.attempt, event.mode
    task.key, task.agent_session, task.exit_ready = event.key, event.agent_session, False
    task.started_at = at if task.started_at is None else task.started_at
    state.current = event.task
    state.iterations += 1
    if state.breaker.state == "half_open":
        state.breaker.probes += 1


def _apply_attempt_end(state: LoopState, task: TaskState, at: float, event: events.AttemptEnded) -> None:
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
    breaker.denials = breaker.denials + 1 if event.denials else 0
    if event.progress is not None:
        breaker.idle = 0 if event.progress or event.asked else breaker.idle + 1
    task.exit_ready = event.exit_signal and len(event.indicators) >= 2
    if event.result == "success":
        task.stage, task.rounds = "ran", task.rounds + 1
        task.diagnosis = event.said if task.mode == "diagnose" else task.diagnosis
        if event.progress and breaker.state == "half_open":
            breaker.probed = True
    else:
        _record_failure(state, task, event.error_type, event.error_message, event.signature)
        task.severity, task.verify_failed = event.severity, False


def _apply_verification(state: LoopState, task: TaskState, event: events.TaskVerified) -> None:
    state.breaker.verifies += 1
    if event.passed:
        task.stage = "right"
        _update_expectation(state, right=True)
        state.totals.successes += 1
        _record_outcome(state.breaker, right=True)
        return
    state.breaker.verify_failures += 1
    _record_failure(state, task, "validation", event.error_message, event.error_message[:200])
    task.severity, task.verify_failed = "medium", True


def _record_failure(state: LoopState, task: TaskState, error_type: str, message: str, signature: str) -> None:
    state.totals.errors += 1
    task.stage, task.failures = "failed", task.failures + 1
    task.same = task.same + 1 if signature and signature == task.signature else 1
    task.error_type, task.error_message, task.signature = error_type, message, signature
    _update_expectation(state, right=False)
    breaker = state.breaker
    breaker.same = breaker.same + 1 if signature and signature == breaker.signature else 1
    breaker.signature = signature
    _record_outcome(breaker, right=False)


def _record_outcome(breaker: BreakerState, *, right: bool) -> None:
    breaker.recent = [*breaker.recent, right][-RECENT:]
    breaker.consecutive = 0 if right else breaker.consecutive + 1
    if right:
        breaker.same, breaker.signature = 0, ""
    if breaker.state == "half_open":
        breaker.probed = right


def _update_expectation(state: LoopState, *, right: bool) -> None:
    """Move the expected success rate towards the outcome; successes raise the learning rate."""
    state.history += state.learning_rate * (float(right) - state.history)
    rate = state.learning_rate * (1.1 if right else 0.9)
    state.learning_rate = min(max(rate, _RATE_MIN), _RATE_MAX)


def _apply_note_event(state: LoopState, at: float, event: events.NoteEvent) -> None:
    match event:
        case events.UsageRecorded():
            state.totals.calls += event.calls
            state.totals.tokens += event.tokens
            state.totals.usd += event.usd or 0.0
            state.totals.unpriced += event.usd is None
            if state.budgets.calls_per_hour and event.calls:
                state.calls_at = [time for time in state.calls_at if time > at - HOUR_S] + [at]
        case events.TaskReported():
            _apply_report(state, event)
        case events.GateChecked():
            before = state.gates.get(event.name)
            accepted = before is not None and before.accepted
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
    if event.after == "closed":
        state.breaker = BreakerState(trips=breaker.trips)
        return
    breaker.state, breaker.since, breaker.probes, breaker.probed = event.after, at, 0, None
    if event.after == "open":
        breaker.trips += 1
        breaker.asked = False
        breaker.condition, breaker.action = event.condition, event.action


def _apply_answer(state: LoopState, at: float, event: events.QuestionAnswered) -> None:
    question, state.question = state.question, None
    state.totals.human += event.by == "person"
    if question is None or question.asked.question != event.question:
        return
    asked = question.asked
    match asked.about, event.answer:
        case "start", "go":
            state.agreed = True
        case "review", "continue":
            state.reviewed.append(asked.task)
        case "gate", "accept":
            state.gates.setdefault(asked.task, GateState(None, None)).accepted = True
        case (("confidence" | "always"), "execute"):
            state.ensure_task(asked.task).approved = True
        case "error", "retry":
            task = state.ensure_task(asked.task)
            task.stage, task.approved, task.retry_at, task.failures, task.same = "idle", True, at, 0, 0
        case _:
            answered = event.by == "person"
            by = "a person answered" if answered else f"no answer within {asked.timeout_s:g} s"
            state.verdict = PendingAnswer(asked.about, asked.task, event.answer, by)
