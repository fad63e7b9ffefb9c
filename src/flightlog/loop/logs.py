"""Execution log, decision history, errors and retries."""

from typing import Any

import msgspec

from flightlog.loop import events
from flightlog.loop.events import Event
from flightlog.model.text import format_utc_time

_TAKEN = {
    "pause_and_request_help": "paused_and_requested_help",
    "pause_and_review": "paused_and_reviewed",
    "stop": "stopped",
}
_NAMED = {"task", "result", "duration_s"}


class DecisionLog:
    """Folds events into decisions: `settled` will not change any more, `pending` may."""

    def __init__(self, names: dict[str, str]) -> None:
        """Begin without any."""
        self._names = names
        self.settled: list[dict[str, Any]] = []
        self.pending: list[dict[str, Any]] = []

    def add_event(self, seq: int, at: float, event: events.Event) -> None:
        """Take one event into account."""
        match event:
            case events.DecisionMade():
                self.pending.append(self._build_entry(seq, at, event))
            case events.AttemptEnded() if event.result in {"failure", "timeout", "limited"}:
                self._record_outcome(event.task, event.result)
            case events.RecoveryStarted() if event.action == "repeat" or event.why.startswith("the diagnosis"):
                self._record_outcome(event.task, "success")
            case events.TaskVerified():
                self._record_outcome(event.task, "success" if event.passed else "failure")
            case events.TaskEnded():
                self._record_outcome(event.task, event.result)
            case events.QuestionAnswered() if self.pending and self.pending[-1]["decision"]["action"] == "escalate":
                self._record_outcome(self.pending[-1]["task_id"], event.answer)
            case _:
                pass

    def drain_entries(self) -> list[dict[str, Any]]:
        """Hand over what was settled since the last call."""
        fresh, self.settled = self.settled, []
        return fresh

    def _record_outcome(self, task: str, outcome: str) -> None:
        for each in self.pending:
            if each["task_id"] == task:
                each["outcome"] = outcome
        while self.pending and self.pending[0]["outcome"] is not None:
            self.settled.append(self.pending.pop(0))

    def _build_entry(self, seq: int, at: float, event: events.DecisionMade) -> dict[str, Any]:
        offered = [event.action, *(name for name, _ in event.alternatives)]
        return {
            "timestamp": format_utc_time(at),
            "event": f"e{seq}",
            "task_id": event.task,
            "decision_type": event.decision_type,
            "context": {
                "current_task": self._names.get(event.task, event.task),
                "available_actions": offered,
                "risk_assessment": {name: round(value, 4) for name, value in event.risks.items()},
            },
            "decision": {
                "action": event.action,
                "confidence": event.confidence,
                "raw_confidence": event.raw,
                "rationale": event.rationale,
                "alternative_actions": [{"action": name, "score": score} for name, score in event.alternatives],
            },
            "outcome": None,
        }


class ErrorLog:
    """Folds events into errors and trips."""

    def __init__(self) -> None:
        """Begin without any."""
        self.errors: list[dict[str, Any]] = []
        self.trips: list[dict[str, Any]] = []
        self._open: dict[str, list[tuple[dict[str, Any], float]]] = {}
        self._opened: list[tuple[dict[str, Any], float]] = []

    def add_event(self, seq: int, at: float, event: events.Event) -> None:
        """Take one event into account."""
        match event:
            case events.AttemptEnded() if event.result in {"failure", "timeout", "limited"}:
                kind = "api_limit" if event.result == "limited" else event.error_type
                self._add_error(seq, at, event.task, kind, event.error_message, event.severity or "low")
            case events.TaskVerified() if not event.passed:
                self._add_error(seq, at, event.task, "validation", event.error_message, "medium")
            case events.RecoveryStarted() if self._open.get(event.task):
                self._open[event.task][-1][0]["recovery_action"] = event.action
            case events.TaskEnded():
                self._resolve_errors(at, event)
            case events.BreakerChanged():
                self._apply_breaker_change(seq, at, event)
            case _:
                pass

    def build_page(self, session_id: str) -> dict[str, Any]:
        """The page as it stands."""
        return {"session_id": session_id, "errors": self.errors, "circuit_breaker_trips": self.trips}

    def _add_error(self, seq: int, at: float, task: str, kind: str, message: str, severity: str) -> None:  # noqa: PLR0913, PLR0917
        before = self._open.setdefault(task, [])
        entry: dict[str, Any] = {
            "timestamp": format_utc_time(at),
            "event": f"e{seq}",
            "task_id": task,
            "error_type": kind,
            "error_message": message,
            "severity": severity,
            "retry_count": len(before),
            "recovery_action": None,
            "resolved": False,
            "resolution_time_seconds": None,
        }
        self.errors.append(entry)
        before.append((entry, at))

    def _resolve_errors(self, at: float, event: events.TaskEnded) -> None:
        for entry, since in self._open.pop(event.task, []):
            entry["resolved"] = event.result in {"success", "skipped"}
            entry["resolution_time_seconds"] = round(at - since, 3) if entry["resolved"] else None
            if event.result == "skipped" and entry["recovery_action"] in {None, "skip"}:
                entry["recovery_action"] = "skipped_to_next"

    def _apply_breaker_change(self, seq: int, at: float, event: events.BreakerChanged) -> None:
        if event.after == "open":
            trip: dict[str, Any] = {
                "timestamp": format_utc_time(at),
                "event": f"e{seq}",
                "condition": event.condition,
                "action_taken": _TAKEN.get(event.action, event.action),
                "duration_seconds": None,
                "resolved": False,
            }
            self.trips.append(trip)
            self._opened.append((trip, at))
        elif event.after == "closed":
            for trip, since in self._opened:
                trip["resolved"], trip["duration_seconds"] = True, round(at - since, 3)
            self._opened = []


def build_log_entry(seq: int, at: float, event: Event, names: dict[str, str]) -> dict[str, Any]:
    """One event as an entry of the log; `details` names the event and holds all the rest."""
    told = msgspec.to_builtins(event)
    kind = told.pop("kind")
    shown: dict[str, Any] = {"timestamp": format_utc_time(at), "event_type": kind}
    if "task" in told:
        shown["task_id"] = told["task"]
        if told["task"] in names:
            shown["task_name"] = names[told["task"]]
    if "result" in told:
        shown["result"] = told["result"]
    if "duration_s" in told:
        shown["duration_seconds"] = round(told["duration_s"], 3)
    details = {name: value for name, value in told.items() if name not in _NAMED and value not in ("", None, [], {})}
    return {**shown, "details": {"event": f"e{seq}", **details}}
