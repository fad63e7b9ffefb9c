"""When a person is asked, what, and what follows from an answer.

No answer in time is an answer too: the safe choice, which never does more than was agreed.
"""

from collections.abc import Sequence

from flightlog.loop import events as e
from flightlog.loop.core.state import LoopState, PendingAnswer
from flightlog.loop.plan.schema import Task

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


def should_ask(state: LoopState, about: str) -> bool:
    """Whether the session's setting asks a person about this."""
    return state.config.human_intervention in ABOUT[about][0]


def make_question(
    state: LoopState, about: str, task: str, text: str, timeout_s: float | None = None
) -> e.QuestionAsked:
    """Make a question."""
    _, options, safe = ABOUT[about]
    wait = state.config.answer_timeout_seconds if timeout_s is None else timeout_s
    return e.QuestionAsked(f"q{state.asked + 1}", about, task, text, options, safe, wait)


def make_answer_event(state: LoopState, answer: str, *, person: bool) -> e.QuestionAnswered:
    """The answer to the open question; what follows from it is decided next."""
    assert state.question is not None, "there is no question"
    return e.QuestionAnswered(state.question.asked.question, answer, "person" if person else "timeout")


def events_after_answer(state: LoopState, verdict: PendingAnswer) -> Sequence[e.Event]:
    """The events that carry out an answer."""
    spent = 0.0
    if verdict.task in state.tasks:
        began = state.tasks[verdict.task].started_at
        spent = state.last_at - began if began is not None else 0.0
    match verdict.answer:
        case "pause":
            return [e.LoopPaused(f"{verdict.about}: {verdict.by} said pause")]
        case "skip":
            return [e.TaskEnded(verdict.task, "skipped", spent, f"{verdict.by} said skip")]
        case "defer":
            return [e.TaskEnded(verdict.task, "deferred", spent, f"confidence too low; answered by {verdict.by}")]
        case "fail":
            return [
                e.TaskEnded(verdict.task, "failure", spent, state.task_state(verdict.task).error_message or "failed")
            ]
        case _:
            return [e.BreakerChanged("open", "half_open", state.breaker.condition, "probing")]


def safe_choice(state: LoopState, about: str, task: Task) -> Sequence[e.Event]:
    """What is done where nobody is asked."""
    return events_after_answer(
        state, PendingAnswer(about, task.task_id, ABOUT[about][2], "the setting, which asks nobody,")
    )
