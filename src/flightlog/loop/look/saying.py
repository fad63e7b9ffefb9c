"""What a runner says while it works: a line for what a person would want to know at once."""

from collections.abc import Mapping

from flightlog.loop import events as e
from flightlog.loop.core.times import format_utc_time
from flightlog.model.text import one_line

_WORDS_MAX = 200
_ENDS = {"success": "completed", "failure": "failed", "skipped": "skipped", "deferred": "put off"}


def describe_event(event: e.Event, names: Mapping[str, str], session: str) -> str:
    """One event in a line, or nothing; a question comes with the command that answers it."""
    match event:
        case e.TaskStarted():
            mode = "" if event.mode == "work" else f", {event.mode}"
            line = f"{_task_label(event.task, names)}: attempt {event.attempt}{mode}"
        case e.AttemptEnded() if event.result != "success":
            why = event.error_message or event.error_type
            line = f"{event.task} attempt {event.attempt}: {event.result}" + _reason_suffix(why)
        case e.TaskVerified(passed=False):
            wrong = [command for command, code in event.commands if code != 0] or list(event.missing)
            line = f"{event.task} attempt {event.attempt}: not verified" + _reason_suffix(", ".join(wrong))
        case e.TaskEnded():
            line = f"{event.task} {_ENDS[event.result]} after {event.duration_s:.1f} s" + _reason_suffix(event.why)
        case e.BreakerChanged():
            line = f"breaker {event.after.replace('_', ' ')}" + _reason_suffix(event.condition)
        case e.QuestionAsked():
            answers = " | ".join(event.options)
            line = (
                f"question: {one_line(event.text, _WORDS_MAX).strip()}\n"
                f"  flightlog loop answer --session {session} {answers}\n"
                f"  without an answer: {event.safe} after {event.timeout_s:.0f} s"
            )
        case e.QuestionAnswered(by="timeout"):
            line = f"no answer came: {event.answer}"
        case e.WaitStarted():
            line = f"waiting until {format_utc_time(event.until)}" + _reason_suffix(event.why)
        case _:
            line = ""
    return line


def _task_label(task: str, names: Mapping[str, str]) -> str:
    return f"{task} {one_line(names.get(task, ''), _WORDS_MAX)}".strip()


def _reason_suffix(why: str) -> str:
    return f": {one_line(why, _WORDS_MAX)}" if why else ""
