"""The referee: watches a loop's events and says which promise was broken.

It reads the events alone and keeps its own count, apart from the core's state, so that an
error there cannot hide itself here.
"""

from collections import Counter

from flightlog.loop import events as e
from flightlog.loop.plan.schema import Plan

HOUR_S = 3600.0
_GIVEN_BY_PERSON = 1_000


class InvariantChecker:
    """Keeps count of one session and notes every broken promise."""

    def __init__(self, plan: Plan) -> None:
        """Watch a session of `plan`."""
        self._plan = plan
        self.violations: list[str] = []
        self._status: dict[str, str] = {}
        self._verified: set[str] = set()
        self._failures: Counter[str] = Counter()
        self._allowed: Counter[str] = Counter()
        self._keys: dict[str, str] = {}
        self._wait: dict[str, float] = {}
        self._gates: dict[str, bool] = {}
        self._accepted: set[str] = set()
        self._breaker, self._probes = "closed", 0
        self._starts = self._calls = self._tokens = 0
        self._usd = 0.0
        self._hour: list[float] = []
        self._over = ""
        self._questions: dict[str, e.QuestionAsked] = {}

    def check_event(self, at: float, event: e.Event) -> None:
        """Look at one event."""
        if self._over and not isinstance(event, e.RunnerAcquired | e.LoopResumed):
            self._add_violation(f"{event.__struct_config__.tag} after the session was {self._over}")
        match event:
            case (
                e.TaskStarted()
                | e.UsageRecorded()
                | e.AttemptEnded()
                | e.TaskVerified()
                | e.TaskEnded()
                | e.RecoveryStarted()
            ):
                self._check_task_event(at, event)
            case e.GateChecked():
                self._gates[event.name] = bool(event.passed) or event.name in self._accepted
            case e.BreakerChanged():
                self._breaker, self._probes = event.after, 0
            case e.QuestionAsked():
                self._questions[event.question] = event
            case e.QuestionAnswered():
                self._check_answer(event)
            case e.LoopPaused() | e.LoopStopped():
                self._over = "paused"
            case e.LoopResumed():
                self._reset_after_resume()
            case e.LoopEnded():
                self._check_session_end(event)
            case _:
                pass

    def _check_task_event(self, at: float, event: e.Event) -> None:
        match event:
            case e.TaskStarted():
                self._check_start(at, event)
            case e.UsageRecorded():
                self._check_budgets(at, event)
            case e.AttemptEnded() if event.result in {"failure", "timeout"}:
                self._failures[event.task] += 1
            case e.TaskVerified():
                self._record_verification(event)
            case e.TaskEnded():
                self._check_task_end(event)
            case e.RecoveryStarted():
                self._wait[event.task] = at + event.wait_s
            case _:
                pass

    def _add_violation(self, what: str) -> None:
        self.violations.append(what)

    def _check_start(self, at: float, event: e.TaskStarted) -> None:
        task = self._plan.find_task(event.task)
        self._starts += 1
        if self._status.get(event.task) in {"completed", "skipped", "failed", "deferred"}:
            self._add_violation(f"{event.task} was {self._status[event.task]} and began again")
        if any(self._status.get(name) != "completed" for name in task.dependencies):
            self._add_violation(f"{event.task} began before what it depends on")
        if self._breaker == "open":
            self._add_violation(f"{event.task} began while the breaker was open")
        self._probes += self._breaker == "half_open"
        if self._probes > self._plan.circuit_breaker.half_open_max_calls:
            self._add_violation("more probes than half-open allows")
        if self._starts > self._plan.config.max_iterations:
            self._add_violation("more iterations than allowed")
        if at < self._wait.get(event.task, 0.0) - 0.001:
            self._add_violation(f"{event.task} did not wait before it was tried again")
        if self._keys.setdefault(event.task, event.key) != event.key:
            self._add_violation(f"the key of {event.task} changed")
        gates = [gate for gate in self._plan.quality_gates if gate.phase is not None and gate.phase < task.phase]
        if any(not self._gates.get(gate.name) for gate in gates):
            self._add_violation(f"{event.task} began though a gate was not passed")
        retries = self._plan.config.max_retries if task.max_retries is None else task.max_retries
        more = 1 + (task.delegate is not None) + self._allowed[event.task]  # a delegate may try once more
        if self._failures[event.task] > retries + more and event.mode == "work":
            self._add_violation(f"{event.task} was tried more often than allowed")

    def _check_budgets(self, at: float, event: e.UsageRecorded) -> None:
        limits = self._plan.budgets
        spent = (
            (limits.calls, self._calls), (limits.tokens, self._tokens), (limits.usd, self._usd),
        )  # fmt: skip
        if any(limit is not None and used >= limit for limit, used in spent):
            self._add_violation("a model was called after a budget was used up")
        self._hour = [each for each in self._hour if each > at - HOUR_S]
        if limits.calls_per_hour and len(self._hour) >= limits.calls_per_hour:
            self._add_violation("more calls an hour than allowed")
        self._hour.append(at)
        self._calls += 1
        self._tokens += event.tokens
        self._usd += event.usd or 0.0

    def _record_verification(self, event: e.TaskVerified) -> None:
        if event.passed:
            self._verified.add(event.task)
        else:
            self._verified.discard(event.task)
            self._failures[event.task] += 1

    def _check_task_end(self, event: e.TaskEnded) -> None:
        if event.result == "success" and event.task not in self._verified:
            self._add_violation(f"{event.task} was completed without verification")
        if self._status.get(event.task) == "completed":
            self._add_violation(f"{event.task} ended twice")
        self._status[event.task] = {"success": "completed", "failure": "failed"}.get(event.result, event.result)

    def _check_answer(self, event: e.QuestionAnswered) -> None:
        asked = self._questions[event.question]
        if event.by == "timeout" and event.answer != asked.safe:
            self._add_violation("without an answer something else than the safe choice was taken")
        if event.answer == "retry":
            self._allowed[asked.task] += _GIVEN_BY_PERSON
        if asked.about == "gate" and event.answer == "accept":
            self._gates[asked.task] = True
            self._accepted.add(asked.task)

    def _reset_after_resume(self) -> None:
        self._over = ""
        self._breaker = "half_open" if self._breaker == "open" else self._breaker
        self._probes = 0
        for task, status in list(self._status.items()):
            if status in {"deferred", "failed"}:
                self._status[task] = "pending"
                self._allowed[task] += _GIVEN_BY_PERSON

    def _check_session_end(self, event: e.LoopEnded) -> None:
        self._over = event.status
        whole = all(self._status.get(task.task_id) == "completed" for task in self._plan.tasks)
        passed = all(self._gates.get(gate.name) for gate in self._plan.quality_gates)
        if (event.status == "completed") is not (whole and passed):
            self._add_violation(f"the session says {event.status}: tasks whole {whole}, gates passed {passed}")
