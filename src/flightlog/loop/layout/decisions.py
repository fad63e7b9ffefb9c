"""`decision-history.json`: each decision with what it was made of, and its outcome once that is known."""

from typing import Any

from flightlog.loop import events as e
from flightlog.loop.core.times import format_utc_time


class DecisionLog:
    """Folds events into decisions: `settled` will not change any more, `pending` may."""

    def __init__(self, names: dict[str, str]) -> None:
        """Begin without any."""
        self._names = names
        self.settled: list[dict[str, Any]] = []
        self.pending: list[dict[str, Any]] = []

    def add_event(self, seq: int, at: float, event: e.Event) -> None:
        """Take one event into account."""
        match event:
            case e.DecisionMade():
                self.pending.append(self._build_entry(seq, at, event))
            case e.AttemptEnded() if event.result in {"failure", "timeout", "limited"}:
                self._record_outcome(event.task, event.result)
            case e.RecoveryStarted() if event.action == "repeat" or event.why.startswith("the diagnosis"):
                self._record_outcome(event.task, "success")
            case e.TaskVerified():
                self._record_outcome(event.task, "success" if event.passed else "failure")
            case e.TaskEnded():
                self._record_outcome(event.task, event.result)
            case e.QuestionAnswered() if self.pending and self.pending[-1]["decision"]["action"] == "escalate":
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

    def _build_entry(self, seq: int, at: float, event: e.DecisionMade) -> dict[str, Any]:
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
