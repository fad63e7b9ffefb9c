"""Quality gates, milestones, and questions to a person.

Without an answer in time the safe option is chosen, which never does more than was agreed. A gate
whose metric was not reported is not evaluated and blocks.
"""

from collections.abc import Sequence

from flightlog.loop import events
from flightlog.loop.events import GateChecked, MilestoneReached
from flightlog.loop.plan.expression import COMPARE
from flightlog.loop.plan.schema import GateConfig, Plan, Task
from flightlog.loop.state import LoopState, PendingAnswer, metric_value
from flightlog.model.errors import Invalid
from flightlog.model.text import one_line

PAUSE = "pause"
DECIDE = "Decide yourself."  # the answer to an agent if no person answers
_ON_ERROR = frozenset({"ask_first", "always", "on_error"})
_ON_LOW_CONFIDENCE = frozenset({"ask_first", "always", "on_low_confidence"})
# By topic: settings of human_intervention that ask, options (none: any text), safe option.
ABOUT: dict[str, tuple[frozenset[str], tuple[str, ...], str]] = {
    "start": (frozenset({"ask_first", "always"}), ("go", PAUSE), PAUSE),
    "always": (frozenset({"always"}), ("execute", "skip", PAUSE), PAUSE),
    "confidence": (_ON_LOW_CONFIDENCE, ("execute", "skip", "defer", PAUSE), "defer"),
    "error": (_ON_ERROR, ("retry", "skip", "fail", PAUSE), "fail"),
    "denied": (_ON_ERROR, ("allow", "skip", "fail", PAUSE), "fail"),
    "agent": (_ON_ERROR | _ON_LOW_CONFIDENCE, (), DECIDE),
    "review": (_ON_ERROR | _ON_LOW_CONFIDENCE, ("continue", PAUSE), PAUSE),
    "gate": (_ON_ERROR, ("accept", PAUSE), PAUSE),
    "breaker": (_ON_ERROR, ("probe", PAUSE), "probe"),
    "breaker review": (_ON_ERROR, ("probe", PAUSE), PAUSE),
}
_ANSWER_CHARS = 10_000  # a runner reads requests in pieces of 64 KB
_OVER = frozenset({"completed", "failed", "skipped", "deferred"})


def should_ask(state: LoopState, about: str) -> bool:
    """Return whether the session's settings ask a person about this topic."""
    return state.config.human_intervention in ABOUT[about][0]


def make_question(
    state: LoopState, about: str, task: str, text: str, timeout_s: float | None = None
) -> events.QuestionAsked:
    """Return the question about a topic."""
    _, options, safe = ABOUT[about]
    wait = state.config.answer_timeout_seconds if timeout_s is None else timeout_s
    question_id = f"q{state.question_count + 1}"
    return events.QuestionAsked(question_id, about, task, text, options, safe, wait)


def is_answer(question: events.QuestionAsked, answer: str) -> bool:
    """Return whether `answer` is an answer to the question: one of its options, or any text."""
    return answer in question.options if question.options else bool(answer.strip())


def check_answer(question: events.QuestionAsked, answer: str) -> None:
    """Raise `Invalid` unless `answer` is an answer to the question."""
    if not is_answer(question, answer) or len(answer) > _ANSWER_CHARS:
        what = f'not an answer: "{one_line(answer, 40)}"'
        options = ", ".join(question.options)
        hint = f"one of: {options}" if options else f"some text, at most {_ANSWER_CHARS} characters"
        raise Invalid(what, hint=hint)


def make_answer_event(state: LoopState, answer: str, *, person: bool) -> events.QuestionAnswered:
    """Return the answer to the open question."""
    assert state.question is not None, "there is no question"
    question_id = state.question.event.question_id
    return events.QuestionAnswered(question_id, answer, "person" if person else "timeout")


def events_after_answer(state: LoopState, verdict: PendingAnswer) -> Sequence[events.Event]:
    """Return the events that carry out an answer."""
    task = state.task_state(verdict.task)
    spent = task.active_s
    match verdict.answer:
        case "pause":
            return [events.LoopPaused(f"{verdict.trigger}: {verdict.answered_by}, so it paused")]
        case "skip":
            why = f"{verdict.answered_by}, so it was skipped"
            return [events.TaskEnded(verdict.task, "skipped", spent, why)]
        case "defer":
            why = f"confidence too low; {verdict.answered_by}"
            return [events.TaskEnded(verdict.task, "deferred", spent, why)]
        case "fail":
            why = task.error_message or "failed"
            return [events.TaskEnded(verdict.task, "failure", spent, why)]
        case _:
            return [events.BreakerChanged("open", "half_open", state.breaker.condition, "probing")]


def safe_choice(state: LoopState, about: str, task: Task) -> Sequence[events.Event]:
    """Return the events of the safe option, for settings that ask no person."""
    answer = PendingAnswer(about, task.task_id, ABOUT[about][2], "the settings ask no person")
    return events_after_answer(state, answer)


def gate_events(state: LoopState, plan: Plan) -> list[GateChecked]:
    """Evaluate the gates whose phase is over; return the results that changed."""
    checks = []
    for gate in plan.quality_gates:
        if not _is_phase_over(state, plan, gate.phase):
            continue
        value = metric_value(state, gate.metric)
        passed = None if value is None else bool(COMPARE[gate.operator](value, gate.threshold))
        before = state.gates.get(gate.name)
        if before is not None and before.passed and gate.phase is not None:
            continue  # a gate of a phase stays open: tasks behind it may have started
        if before is None or (before.value, before.passed) != (value, passed):
            checks.append(GateChecked(gate.name, value, passed))
    return checks


def find_blocking_gate(state: LoopState, plan: Plan, phase: int | None) -> GateConfig | None:
    """Return the gate that blocks tasks of `phase`, or the end of the session (None)."""
    for gate in plan.quality_gates:
        if phase is not None and (gate.phase is None or gate.phase >= phase):
            continue
        result = state.gates.get(gate.name)
        if result is None or not (result.passed or result.is_accepted):
            return gate
    return None


def milestone_events(state: LoopState, plan: Plan) -> list[MilestoneReached]:
    """Return the milestones that are reached but not recorded yet."""
    reached = []
    for milestone in plan.milestones:
        tasks = [task.task_id for task in plan.tasks if milestone.phase in (None, task.phase)]
        done = all(
            state.task_state(name).status == "completed" for name in milestone.tasks or tasks
        )
        if done and milestone.name not in state.milestones:
            reached.append(MilestoneReached(milestone.name))
    return reached


def _is_phase_over(state: LoopState, plan: Plan, phase: int | None) -> bool:
    """Return whether every task up to `phase` has ended; None is the whole plan."""
    tasks = [task for task in plan.tasks if phase is None or task.phase <= phase]
    return all(state.task_state(task.task_id).status in _OVER for task in tasks)
