"""Classify failures and choose the recovery: retry, diagnose, delegate, skip or escalate."""

import re
from typing import NamedTuple

from flightlog.agents.claude_code import allow_tools
from flightlog.loop.decide import gates
from flightlog.loop.plan.schema import Task
from flightlog.loop.state import LoopState, TaskState
from flightlog.model.text import one_line, pluralize

_CLASSES = (
    ("permission", r"permission denied|not permitted|forbidden|unauthori[sz]ed|eacces|denied by"),
    (
        "network",
        r"connection|timed? ?out|network|dns|unreachable|reset by peer|overloaded|\b(429|502|503|529)\b",
    ),
    ("resource", r"no space left|out of memory|cannot allocate|too many open files|quota"),
    ("dependency", r"no such file|not found|modulenotfound|no module named|importerror|missing"),
    ("validation", r"assert|invalid|validation|expected|mismatch|verify"),
)
_PATTERNS = [(name, re.compile(pattern, re.IGNORECASE)) for name, pattern in _CLASSES]
_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+|[0-9a-f]{8}-[0-9a-f-]{27}")
_SIGNATURE_CHARS = 200
VERIFY = "verify: "  # the first line of a verification error is its command
# A full disk or memory may recover in seconds; more tries rarely help.
_RESOURCE_TRIES, _RESOURCE_WAIT_S = 2, 5.0


class RecoveryAction(NamedTuple):
    """The action that follows a failure, the time to wait before it, and the reason."""

    action: str
    wait_s: float
    reason: str


def classify_error(
    message: str, exit_code: int | None, *, timed_out: bool = False
) -> tuple[str, str]:
    """Return the type and the severity of an error."""
    if timed_out:
        return "timeout", "medium"
    for name, pattern in _PATTERNS:
        if pattern.search(message[-4000:]):
            return name, "high" if name in {"permission", "resource"} else "medium"
    return ("execution", "medium") if exit_code else ("unknown", "low")


def error_signature(message: str) -> str:
    """Return the last line of an error without numbers, ids and spacing, for comparison."""
    last = next((line for line in reversed(message.strip().splitlines()) if line.strip()), "")
    return " ".join(_NUMBERS.sub("#", last).split())[:_SIGNATURE_CHARS]


def explain_error(message: str, width: int = 300) -> str:
    """Return the line of an error that says what is wrong: the last one, after a failed command."""
    lines = [line.strip() for line in message.splitlines() if line.strip(" \t^~")]
    if not lines:
        return ""
    command = f"{lines[0]}: " if lines[0].startswith(VERIFY) and len(lines) > 1 else ""
    return one_line(command + lines[-1], width)


def choose_recovery(state: LoopState, task: Task) -> RecoveryAction:  # noqa: PLR0911 - one per rule
    """Return the action that follows the failure of `task`."""
    at = state.task_state(task.task_id)
    limit = task.max_retries if task.max_retries is not None else state.config.max_retries
    may_ask = at.failures <= limit or not at.questions_asked
    if at.question and may_ask and gates.should_ask(state, "agent"):
        return RecoveryAction("ask", 0, "the agent asks a question")
    if denied := denied_tools(state, task.task_id):
        names, option = " and ".join(denied), ", ".join(allow_tools(denied))
        why = f"the agent may not use {names}: a plan allows it by `arguments: [{option}]`"
        return _give_up(task, at, why)
    if at.failures > limit:
        return _give_up(task, at, f"{pluralize(at.failures, 'failure')}; retries allowed: {limit}")
    if at.error_type == "permission":
        return RecoveryAction("escalate", 0, "permission was denied; a retry would be denied, too")
    if at.error_type == "resource" and at.failures > _RESOURCE_TRIES:
        return _give_up(task, at, "resources stayed exhausted")
    if task.error_handling.on_failure == "skip" and limit == 0:
        return RecoveryAction("skip", 0, "the plan says to skip it")
    if task.error_handling.on_failure == "escalate":
        return RecoveryAction("escalate", 0, "the plan says to ask a person")
    repeats = at.same_error_count >= 2 and at.error_type not in {"network", "timeout", "resource"}
    if repeats and (alternative := _alternative_recovery(task, at)):
        return alternative
    backoff = state.config.retry_base_seconds * 2.0 ** min(at.failures - 1, 30)
    wait = min(backoff, state.config.retry_max_seconds)
    wait = _RESOURCE_WAIT_S if at.error_type == "resource" else wait
    why = f"{at.error_type} error, try {at.failures + 1} of {limit + 1}"
    return RecoveryAction("retry", wait, why)


def denied_tools(state: LoopState, task_id: str) -> list[str]:
    """Return the tools that the last attempt of a task was denied and no person allowed since."""
    denied = state.task_state(task_id).denied_tools
    return [name for name in denied if name not in state.allowed_tools]


def _alternative_recovery(task: Task, at: TaskState) -> RecoveryAction | None:
    """Return what to do instead of a plain retry after the same failure twice, if anything."""
    why = f"the same failure {pluralize(at.same_error_count, 'time')}"
    if not at.is_diagnosed and (task.run.agent is not None or task.diagnose):
        return RecoveryAction("diagnose", 0, f"{why}: diagnosis instead of another retry")
    if task.delegate is not None and at.mode != "delegate":
        return RecoveryAction("delegate", 0, f"{why}: delegated")
    if task.run.agent is not None and at.same_error_count <= 3:
        return RecoveryAction("retry", 0, f"{why}: retry with the diagnosis")
    return None


def _give_up(task: Task, at: TaskState, why: str) -> RecoveryAction:
    if task.error_handling.on_failure == "skip":
        return RecoveryAction("skip", 0, f"{why}; the plan says to skip it")
    if task.delegate is not None and at.mode != "delegate":
        return RecoveryAction("delegate", 0, f"{why}; delegated")
    return RecoveryAction("escalate", 0, why)
