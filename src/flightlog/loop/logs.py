"""Entries of the execution log, the decision history, and errors and retries."""

from typing import Any

import msgspec

from flightlog.loop import events
from flightlog.loop.events import Event
from flightlog.model.text import format_utc_time

_ACTIONS_TAKEN = {
    "pause_and_request_help": "paused_and_requested_help",
    "pause_and_review": "paused_and_reviewed",
    "stop": "stopped",
}
# Kinds of errors and recoveries in the source document's words.
_ERROR_TYPES = {"permission": "file_access_error", "api_limit": "api_limit"}
_RECOVERY_ACTIONS = {
    "retry": "retried", "skip": "skipped_to_next", "diagnose": "diagnosed", "delegate": "delegated",
    "escalate": "requested_help", "ask": "requested_help", "repeat": "continued",
}  # fmt: skip
_OWN_KEYS = {"task", "result", "duration_s", "counts"}
_FAILED = {"failure", "timeout", "limited"}


class DecisionLog:
    """Folds events into decisions: `settled` ones are final, `pending` ones may change."""

    def __init__(self, names: dict[str, str]) -> None:
        """Start an empty log; `names` are the tasks' names by id."""
        self._names = names
        self._diagnosed: set[str] = set()
        self.settled: list[dict[str, Any]] = []
        self.pending: list[dict[str, Any]] = []

    def add_event(self, seq: int, at: float, event: events.Event) -> None:
        """Apply one event."""
        match event:
            case events.DecisionMade():
                self.pending.append(self._build_entry(seq, at, event))
            case events.TaskStarted(mode="diagnose"):
                self._diagnosed.add(event.task)
            case events.TaskStarted():
                self._diagnosed.discard(event.task)
            case events.AttemptEnded() if event.result in _FAILED:
                self._diagnosed.discard(event.task)
                self._record_outcome(event.task, event.result)
            case events.RecoveryStarted(action="repeat" | "retry") if (
                event.action == "repeat" or event.task in self._diagnosed
            ):
                self._record_outcome(event.task, "success")
            case events.TaskVerified():
                self._record_outcome(event.task, "success" if event.passed else "failure")
            case events.TaskEnded():
                self._record_outcome(event.task, event.result)
            case events.QuestionAnswered() if (
                self.pending and self.pending[-1]["decision"]["action"] == "escalate"
            ):
                self._record_outcome(self.pending[-1]["task_id"], event.answer)
            case _:
                pass

    def drain_entries(self) -> list[dict[str, Any]]:
        """Return and clear the settled decisions."""
        settled, self.settled = self.settled, []
        return settled

    def _record_outcome(self, task: str, outcome: str) -> None:
        for entry in self.pending:
            if entry["task_id"] == task:
                entry["outcome"] = outcome
        while self.pending and self.pending[0]["outcome"] is not None:
            self.settled.append(self.pending.pop(0))

    def _build_entry(self, seq: int, at: float, event: events.DecisionMade) -> dict[str, Any]:
        alternatives = [{"action": name, "score": score} for name, score in event.alternatives]
        return {
            "timestamp": format_utc_time(at),
            "event": f"e{seq}",
            "task_id": event.task,
            "decision_type": event.decision_type,
            "context": {
                "current_task": self._names.get(event.task, event.task),
                "available_actions": [event.action, *(name for name, _ in event.alternatives)],
                "risk_assessment": {name: round(value, 4) for name, value in event.risks.items()},
            },
            "decision": {
                "action": event.action,
                "confidence": event.confidence,
                "raw_confidence": event.raw_confidence,
                "rationale": event.rationale,
                "alternative_actions": alternatives,
            },
            "outcome": None,
        }


class ErrorLog:
    """Folds events into errors and trips of the circuit breaker."""

    def __init__(self) -> None:
        """Start an empty log."""
        self.errors: list[dict[str, Any]] = []
        self.trips: list[dict[str, Any]] = []
        self._open: dict[str, list[tuple[dict[str, Any], float]]] = {}
        self._opened: list[tuple[dict[str, Any], float]] = []
        self._asked: set[str] = set()

    def add_event(self, seq: int, at: float, event: events.Event) -> None:
        """Apply one event."""
        match event:
            case events.AttemptEnded() if event.result in _FAILED:
                kind = "api_limit" if event.result == "limited" else event.error_type
                self._add_error(seq, at, event, (kind, event.severity or "low"))
            case events.TaskVerified() if not event.passed:
                self._add_error(seq, at, event, ("validation", "medium"))
            case events.RecoveryStarted() if self._open.get(event.task):
                action = _RECOVERY_ACTIONS.get(event.action, event.action)
                self._open[event.task][-1][0]["recovery_action"] = action
            case events.QuestionAsked():
                self._asked.add(event.task)
            case events.TaskEnded():
                self._resolve_errors(at, event)
            case events.BreakerChanged():
                self._apply_breaker_change(seq, at, event)
            case _:
                pass

    def build_page(self, session_id: str) -> dict[str, Any]:
        """Return the content of `errors-and-retries.json`."""
        errors = {"session_id": session_id, "errors": self.errors}
        return errors | {"circuit_breaker_trips": self.trips}

    def _add_error(
        self,
        seq: int,
        at: float,
        event: events.AttemptEnded | events.TaskVerified,
        kind: tuple[str, str],
    ) -> None:
        before = self._open.setdefault(event.task, [])
        entry: dict[str, Any] = {
            "timestamp": format_utc_time(at),
            "event": f"e{seq}",
            "task_id": event.task,
            "error_type": _ERROR_TYPES.get(kind[0], f"{kind[0]}_error"),
            "error_message": event.error_message,
            "severity": kind[1],
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
            if event.result == "skipped":
                entry["recovery_action"] = _RECOVERY_ACTIONS["skip"]
            elif entry["recovery_action"] == "requested_help" and event.task not in self._asked:
                entry["recovery_action"] = "gave_up"  # `never` asks no person

    def _apply_breaker_change(self, seq: int, at: float, event: events.BreakerChanged) -> None:
        if event.to_state == "open":
            trip: dict[str, Any] = {
                "timestamp": format_utc_time(at),
                "event": f"e{seq}",
                "condition": event.condition,
                "action_taken": _ACTIONS_TAKEN.get(event.action, event.action),
                "duration_seconds": None,
                "resolved": False,
            }
            self.trips.append(trip)
            self._opened.append((trip, at))
        elif event.to_state == "closed":
            for trip, since in self._opened:
                trip["resolved"], trip["duration_seconds"] = True, round(at - since, 3)
            self._opened = []


def build_log_entry(seq: int, at: float, event: Event, names: dict[str, str]) -> dict[str, Any]:
    """Return an event as an entry of the execution log; `details` has the remaining fields."""
    fields = msgspec.to_builtins(event)
    entry: dict[str, Any] = {"timestamp": format_utc_time(at), "event_type": fields.pop("kind")}
    if "task" in fields:
        entry["task_id"] = fields["task"]
        if fields["task"] in names:
            entry["task_name"] = names[fields["task"]]
    if "result" in fields:
        entry["result"] = fields["result"]
    if "duration_s" in fields:
        entry["duration_seconds"] = round(fields["duration_s"], 3)
    others = {name: value for name, value in fields.items() if name not in _OWN_KEYS}
    details = {name: value for name, value in others.items() if value not in ("", None, [], {})}
    return {**entry, "details": {"event": f"e{seq}", **details, **(fields.get("counts") or {})}}
