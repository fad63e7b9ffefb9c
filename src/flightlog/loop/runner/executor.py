"""The real world of a loop: processes on this machine, a clock, and the people who look in.

One task runs at a time. While it runs, its reports and model calls are written down as they
come, budgets are kept to the call, and a stop takes effect at once.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from flightlog.agents.process import ShellCommand
from flightlog.loop.decide.decide import RunTask, VerifyTask
from flightlog.loop.events import Event, QuestionAsked
from flightlog.loop.plan.schema import Plan, Task, TaskRun
from flightlog.loop.runner import agent_task, guardian
from flightlog.loop.runner.control import ControlInbox, TaskReportFile
from flightlog.loop.runner.driver import ControlRequest, TaskResult, VerifyResult
from flightlog.loop.state import LoopState
from flightlog.model.output_files import Redacted
from flightlog.model.runtime import Runtime
from flightlog.model.text import shorten_text
from flightlog.store.files import ensure_dir

TICK_S = 0.05
_LOOK_S = 0.2
_MISSING = 127
_CONTEXT_CHARS = 60_000
_TAIL_CHARS = 2000
_SAID_CHARS = 400


class LoopOptions(Struct, frozen=True):
    """What the machine works with: the runtime, the agent's directory, and the person who watches."""

    runtime: Runtime
    config_dir: Path
    keep: Callable[[str], None]
    redact: Callable[[str], Redacted[str]]
    interrupted: Callable[[], str] = lambda: ""
    ask: Callable[[QuestionAsked, float], str | None] | None = None
    tell: Callable[[Event], None] = lambda _: None


class TaskExecutor:
    """The world of the session in `directory`, whose tasks work in `project`."""

    def __init__(self, directory: Path, project: Path, plan: Plan, options: LoopOptions) -> None:
        """Begin with an empty inbox; `plan` is as it was written, for commands and prompts."""
        self._directory = directory
        self._project = project
        self._plan = plan
        self._options = options
        self._clock = options.runtime.clock
        self._inbox = ControlInbox(directory)
        self._waiting: list[ControlRequest] = []
        self._guardian: subprocess.Popen[bytes] | None = None

    def now(self) -> float:
        """The time."""
        return self._clock.now_s()

    def sleep_until(self, until: float, state: LoopState) -> None:
        """Wait, looking in now and then; a person at the terminal may answer meanwhile."""
        while (left := until - self.now()) > 0 and not self._poll_requests(state):
            pause = min(left, _LOOK_S)
            ask = self._options.ask
            answer = ask(state.question.asked, pause) if ask and state.question else None
            if answer is not None and state.question:
                self._waiting.append(ControlRequest("answer", state.question.asked.question, answer, "at the terminal"))
            elif ask is None or not state.question:
                self._clock.sleep(pause)

    def read_requests(self, state: LoopState) -> Sequence[ControlRequest]:
        """What was asked since the last call."""
        self._poll_requests(state)
        taken, self._waiting = self._waiting, []
        return taken

    def run_attempt(self, effect: RunTask, state: LoopState, emit: Callable[[Event], None]) -> TaskResult:
        """Carry out an attempt."""
        task = self._plan.find_task(effect.task.task_id)
        run = _select_run(task, effect.mode)
        report = self._directory / "reports" / f"{task.task_id}-{effect.attempt}.jsonl"
        ensure_dir(report.parent)
        told = TaskReportFile(report, self._project, (task.task_id, effect.attempt), self._options.redact)
        limit_s = task.timeout_seconds or state.config.timeout_seconds

        def watch() -> str:
            for event in told.new_events():
                emit(event)
            return "interrupted" if self._must_stop(state) else ""

        began = self._clock.monotonic()
        if run.agent is not None:
            at_work = agent_task.AgentTask(
                self._project, self._directory, self._options, self._task_environment(task, effect, state)
            )
            with self._guard_processes(state.mark) as guard:
                ran = at_work.run_agent(agent_task.TaskJob(task, run, effect, limit_s), state, emit, watch, guard)
            if ran.result not in {"success", "failure"}:
                self._end_all(state.mark)
        else:
            ran = self._run_command(run, self._task_environment(task, effect, state), limit_s, watch, state)
        for event in told.new_events(whole=True):
            emit(event)
        return ran._replace(duration_s=self._clock.monotonic() - began)

    def verify_task(self, effect: VerifyTask, state: LoopState) -> VerifyResult:
        """Run the verify commands; a tool that is not there is no pass."""
        task = self._plan.find_task(effect.task.task_id)
        began = self._clock.monotonic()
        attempt = RunTask(task, effect.attempt, "work")
        codes: list[tuple[str, int | None]] = []
        missing = [name for name in task.output_artifacts if not (self._project / name).exists()]
        message = f"not there: {', '.join(missing)}" if missing else ""
        for words in task.verify if not missing else ():
            limit_s = state.config.verify_timeout_seconds
            env = self._task_environment(task, attempt, state)
            ran = self._run_command(
                TaskRun(command=words), env, limit_s, lambda: "x" if self._must_stop(state) else "", state
            )
            if ran.result == "x":
                return VerifyResult(passed=False, commands=(), missing=(), message="", duration_s=0.0, interrupted=True)
            absent = ran.exit_code == _MISSING
            codes.append((words, None if absent else ran.exit_code))
            if ran.exit_code != 0:
                message = f"verify: {words}\n{ran.message}"
                missing += [words] if absent else []
                break
        passed = not message
        return VerifyResult(passed, tuple(codes), tuple(missing), message, self._clock.monotonic() - began)

    def close(self, mark: str) -> None:
        """End what tasks left behind, and let the guardian go."""
        self._end_all(mark)
        if self._guardian is not None:
            assert self._guardian.stdin is not None
            with suppress(OSError):
                self._guardian.stdin.close()
            self._guardian.wait(10)

    def _end_all(self, mark: str) -> None:
        """End whatever carries the session's mark, also what left its parents and its group."""
        guardian.kill_groups(set(), f"{guardian.MARK}={mark}".encode())

    def _poll_requests(self, state: LoopState) -> bool:
        if why := self._options.interrupted():
            self._waiting.append(ControlRequest("stop", why=f"stopped by {why}"))
        self._waiting += self._inbox.drain(state.question.asked.question if state.question else "")
        return bool(self._waiting)

    def _must_stop(self, state: LoopState) -> bool:
        self._poll_requests(state)
        return any(request.what == "stop" for request in self._waiting)

    def _run_command(
        self, run: TaskRun, env: Mapping[str, str], limit_s: float, watch: Callable[[], str], state: LoopState
    ) -> TaskResult:
        python = [sys.executable, "-m", "flightlog.loop.runner.python_task", str(run.python), *run.arguments]
        words: str | Sequence[str] = python if run.command is None else run.command
        began = self._clock.monotonic()
        try:
            command = ShellCommand(words, cwd=self._project, environment=env)
        except OSError as error:
            return TaskResult("failure", 0.0, _MISSING, f"cannot be started: {error.strerror}")
        result = ""
        with self._guard_processes(state.mark) as guard:
            guard(command.pid)
            while (code := command.wait(TICK_S)) is None:
                wall = state.budgets.wall_time_seconds
                worked = self.now() - (state.started_at or self.now()) - state.rested_s
                late = self._clock.monotonic() - began > limit_s
                result = watch() or ("timeout" if late else "budget" if wall and worked >= wall else "")
                if result:
                    code = command.stop()
                    self._end_all(state.mark)
                    break
        tail = self._options.redact(command.output_tail())
        message, said = (shorten_text(tail, limit, "end").value for limit in (_TAIL_CHARS, _SAID_CHARS))
        return TaskResult(result or ("failure" if code else "success"), 0.0, code, message, said=said)

    def _task_environment(self, task: Task, effect: RunTask, state: LoopState) -> dict[str, str]:
        at = state.task_state(task.task_id)
        context = json.dumps(state.context)
        return {
            **self._options.runtime.environ,
            guardian.MARK: state.mark,
            "FLIGHTLOG_REPORT": str(self._directory / "reports" / f"{task.task_id}-{effect.attempt}.jsonl"),
            "FLIGHTLOG_SESSION": state.session_id,
            "FLIGHTLOG_TASK": task.task_id,
            "FLIGHTLOG_ATTEMPT": str(effect.attempt),
            "FLIGHTLOG_KEY": at.key,
            "FLIGHTLOG_EFFECTS": ",".join(at.effects),
            "FLIGHTLOG_CONTEXT": context if len(context) < _CONTEXT_CHARS else "{}",
        }

    @contextmanager
    def _guard_processes(self, mark: str) -> Iterator[Callable[[int], None]]:
        """Tell the guardian of processes for as long as they are ours to end."""
        if self._guardian is None or self._guardian.poll() is not None:
            script = [sys.executable, "-I", "-S", str(Path(guardian.__file__)), mark]
            env = {name: value for name, value in self._options.runtime.environ.items() if name == "PATH"}
            self._guardian = subprocess.Popen(
                script, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=env, start_new_session=True
            )
        pipe = self._guardian.stdin
        assert pipe is not None
        told: list[int] = []

        def guard(pid: int) -> None:
            told.append(pid)
            pipe.write(f"+{pid}\n".encode())
            pipe.flush()

        try:
            yield guard
        finally:
            with suppress(OSError):
                pipe.write("".join(f"-{pid}\n" for pid in told).encode())
                pipe.flush()


def _select_run(task: Task, mode: str) -> TaskRun:
    if mode == "delegate" and task.delegate is not None:
        return task.delegate
    if mode == "diagnose" and task.diagnose:
        return TaskRun(command=task.diagnose)
    return task.run
