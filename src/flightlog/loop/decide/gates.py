"""Quality gates, milestones, questions to a person.

No answer in time is an answer too: the safe choice, which never does more than was agreed.

A gate whose metric nobody reported is not evaluated, and that blocks: a missing tool is no pass.
"""

from collections.abc import Sequence

from flightlog.loop import events
from flightlog.loop.decide.fold import metric_value
from flightlog.loop.events import GateChecked, MilestoneReached
from flightlog.loop.plan.expression import COMPARE
from flightlog.loop.plan.schema import GateConfig, Plan, Task
from flightlog.loop.state import LoopState, PendingAnswer

PAUSE = "pause"
# what a question is about: which settings ask it, what can be answered, what is safe
ABOUT: dict[str, tuple[frozenset[str], tuple[str, ...], str]] = {
    "start": (frozenset({"ask_first", "always"}), ("go", PAUSE), PAUSE),
    "always": (frozenset({"always"}), ("execute", "skip", PAUSE), PAUSE),
    "confidence": (
        frozenset({"ask_first", "always", "on_low_confidence"}),
        ("execute", "skip", "defer", PAUSE),
        "defer",
    ),
    "error": (frozenset({"ask_first", "always", "on_error"}), ("retry", "skip", "fail", PAUSE), "fail"),
    "review": (frozenset({"ask_first", "always", "on_error", "on_low_confidence"}), ("continue", PAUSE), PAUSE),
    "gate": (frozenset({"ask_first", "always", "on_error"}), ("accept", PAUSE), PAUSE),
    "breaker": (frozenset({"ask_first", "always", "on_error"}), ("probe", PAUSE), "probe"),
    "breaker review": (frozenset({"ask_first", "always", "on_error"}), ("probe", PAUSE), PAUSE),
}
_OVER = frozenset({"completed", "failed", "skipped", "deferred"})


def should_ask(state: LoopState, about: str) -> bool:
    """Whether the session's setting asks a person about this."""
    return state.config.human_intervention in ABOUT[about][0]


def make_question(
    state: LoopState, about: str, task: str, text: str, timeout_s: float | None = None
) -> events.QuestionAsked:
    """Make a question."""
    _, options, safe = ABOUT[about]
    wait = state.config.answer_timeout_seconds if timeout_s is None else timeout_s
    return events.QuestionAsked(f"q{state.asked + 1}", about, task, text, options, safe, wait)


def make_answer_event(state: LoopState, answer: str, *, person: bool) -> events.QuestionAnswered:
    """The answer to the open question; what follows from it is decided next."""
    assert state.question is not None, "there is no question"
    return events.QuestionAnswered(state.question.asked.question, answer, "person" if person else "timeout")


def events_after_answer(state: LoopState, verdict: PendingAnswer) -> Sequence[events.Event]:
    """The events that carry out an answer."""
    spent = 0.0
    if verdict.task in state.tasks:
        began = state.tasks[verdict.task].started_at
        spent = state.last_at - began if began is not None else 0.0
    match verdict.answer:
        case "pause":
            return [events.LoopPaused(f"{verdict.about}: {verdict.by} said pause")]
        case "skip":
            return [events.TaskEnded(verdict.task, "skipped", spent, f"{verdict.by} said skip")]
        case "defer":
            return [events.TaskEnded(verdict.task, "deferred", spent, f"confidence too low; answered by {verdict.by}")]
        case "fail":
            return [
                events.TaskEnded(
                    verdict.task, "failure", spent, state.task_state(verdict.task).error_message or "failed"
                )
            ]
        case _:
            return [events.BreakerChanged("open", "half_open", state.breaker.condition, "probing")]


def safe_choice(state: LoopState, about: str, task: Task) -> Sequence[events.Event]:
    """What is done where nobody is asked."""
    return events_after_answer(
        state, PendingAnswer(about, task.task_id, ABOUT[about][2], "the setting, which asks nobody,")
    )


def gate_events(state: LoopState, plan: Plan) -> list[GateChecked]:
    """Look at each gate whose phase is over and whose answer would be another than before."""
    found = []
    for gate in plan.quality_gates:
        if not is_phase_over(state, plan, gate.phase):
            continue
        value = metric_value(state, gate.metric)
        passed = None if value is None else bool(COMPARE[gate.operator](value, gate.threshold))
        before = state.gates.get(gate.name)
        if before is not None and before.passed and gate.phase is not None:
            continue  # what began behind an open gate is not called back
        if before is None or (before.value, before.passed) != (value, passed):
            found.append(GateChecked(gate.name, value, passed))
    return found


def find_blocking_gate(state: LoopState, plan: Plan, phase: int | None) -> GateConfig | None:
    """The gate that keeps tasks of `phase` from beginning, or the session (None) from being completed."""
    for gate in plan.quality_gates:
        if phase is not None and (gate.phase is None or gate.phase >= phase):
            continue
        told = state.gates.get(gate.name)
        if told is None or not (told.passed or told.accepted):
            return gate
    return None


def milestone_events(state: LoopState, plan: Plan) -> list[MilestoneReached]:
    """Milestones reached and not yet told."""
    found = []
    for each in plan.milestones:
        wanted = each.tasks or [task.task_id for task in plan.tasks if each.phase in (None, task.phase)]
        if each.name not in state.milestones and all(state.task_state(name).status == "completed" for name in wanted):
            found.append(MilestoneReached(each.name))
    return found


def is_phase_over(state: LoopState, plan: Plan, phase: int | None) -> bool:
    """Whether every task up to `phase` has come to an end; None is the whole plan."""
    return all(
        state.task_state(task.task_id).status in _OVER for task in plan.tasks if phase is None or task.phase <= phase
    )
