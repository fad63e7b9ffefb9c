"""What an agent is told: the task's prompt, what must hold, what went wrong before, and how to report."""

from flightlog.loop.core.state import LoopState
from flightlog.loop.plan.schema import Task

_FAILURE_CHARS = 3000


def build_prompt(task: Task, words: str, state: LoopState, mode: str) -> str:
    """The whole prompt of an attempt."""
    at = state.task_state(task.task_id)
    parts = [words]
    if task.acceptance_criteria:
        parts.append("It is done when:\n" + "\n".join(f"- {each}" for each in task.acceptance_criteria))
    if task.verify:
        parts.append("These commands must succeed afterwards:\n" + "\n".join(f"- {each}" for each in task.verify))
    if at.failures:
        kind = "verification" if at.verify_failed else "the attempt"
        parts.append(f"Attempt {at.attempt - 1}: {kind} failed:\n{at.error_message[-_FAILURE_CHARS:]}")
    if at.diagnosis:
        parts.append(f"A diagnosis was made:\n{at.diagnosis[-_FAILURE_CHARS:]}")
    if mode == "diagnose":
        parts.append(
            f"This failed {at.same} times in the same way. Change nothing now: find the cause, and say in a few "
            "sentences what it is and what would remove it."
        )
    elif task.run.repeat:
        parts.append(
            "Do one part of this, then stop. End your answer with these lines:\n"
            "STATUS: IN_PROGRESS, COMPLETE or BLOCKED\nTESTS_STATUS: PASSING, FAILING or NOT_RUN\n"
            "EXIT_SIGNAL: true only if nothing is left to do, otherwise false"
        )
    return "\n\n".join(parts)
