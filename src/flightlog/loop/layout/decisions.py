"""`decision-history.json`: each decision with what it was made of, and its outcome once that is known."""

from typing import Any

from flightlog.loop import events as e
from flightlog.loop.core.times import stamp


class Decisions:
    """Folds events into decisions: `settled` will not change any more, `pending` may."""

    def __init__(self, names: dict[str, str]) -> None:
        """Begin without any."""
        self._names = names
        self.settled: list[dict[str, Any]] = []
        self.pending: list[dict[str, Any]] = []

    def take(self, seq: int, at: float, event: e.Event) -> None:
        """Take one event into account."""
        match event:
            case e.DecisionMade():
                self.pending.append(self._entry(seq, at, event))
            case e.AttemptEnded() if event.result in {"failure", "timeout", "limited"}:
                self._settle(event.task, event.result)
            case e.Recovering() if event.action == "repeat" or event.why.startswith("the diagnosis"):
                self._settle(event.task, "success")
            case e.Verified():
                self._settle(event.task, "success" if event.passed else "failure")
            case e.TaskEnded():
                self._settle(event.task, event.result)
            case e.QuestionAnswered() if self.pending and self.pending[-1]["decision"]["action"] == "escalate":
                self._settle(self.pending[-1]["task_id"], event.answer)
            case _:
                pass

    def fresh(self) -> list[dict[str, Any]]:
        """Hand over what was settled since the last call."""
        fresh, self.settled = self.settled, []
        return fresh

    def _settle(self, task: str, outcome: str) -> None:
        for each in self.pending:
            if each["task_id"] == task:
                each["outcome"] = outcome
        while self.pending and self.pending[0]["outcome"] is not None:
            self.settled.append(self.pending.pop(0))

    def _entry(self, seq: int, at: float, event: e.DecisionMade) -> dict[str, Any]:
        offered = [event.action, *(name for name, _ in event.alternatives)]
        return {
            "timestamp": stamp(at),
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
