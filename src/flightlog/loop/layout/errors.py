"""`errors-and-retries.json`: each error with what was done about it, each time the breaker opened."""

from typing import Any

from flightlog.loop import events as e
from flightlog.loop.core.times import format_utc_time

_TAKEN = {
    "pause_and_request_help": "paused_and_requested_help",
    "pause_and_review": "paused_and_reviewed",
    "stop": "stopped",
}


class ErrorLog:
    """Folds events into errors and trips."""

    def __init__(self) -> None:
        """Begin without any."""
        self.errors: list[dict[str, Any]] = []
        self.trips: list[dict[str, Any]] = []
        self._open: dict[str, list[tuple[dict[str, Any], float]]] = {}
        self._opened: list[tuple[dict[str, Any], float]] = []

    def add_event(self, seq: int, at: float, event: e.Event) -> None:
        """Take one event into account."""
        match event:
            case e.AttemptEnded() if event.result in {"failure", "timeout", "limited"}:
                kind = "api_limit" if event.result == "limited" else event.error_type
                self._add_error(seq, at, event.task, kind, event.error_message, event.severity or "low")
            case e.TaskVerified() if not event.passed:
                self._add_error(seq, at, event.task, "validation", event.error_message, "medium")
            case e.RecoveryStarted() if self._open.get(event.task):
                self._open[event.task][-1][0]["recovery_action"] = event.action
            case e.TaskEnded():
                self._resolve_errors(at, event)
            case e.BreakerChanged():
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

    def _resolve_errors(self, at: float, event: e.TaskEnded) -> None:
        for entry, since in self._open.pop(event.task, []):
            entry["resolved"] = event.result in {"success", "skipped"}
            entry["resolution_time_seconds"] = round(at - since, 3) if entry["resolved"] else None
            if event.result == "skipped" and entry["recovery_action"] in {None, "skip"}:
                entry["recovery_action"] = "skipped_to_next"

    def _apply_breaker_change(self, seq: int, at: float, event: e.BreakerChanged) -> None:
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
