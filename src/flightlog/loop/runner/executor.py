"""The real environment of a loop: processes on this machine, the clock, and people's requests.

One task runs at a time. Meanwhile its reports and model calls are appended as they come, budgets
are checked after every call, and a stop takes effect at once.
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

TICK_S = 0.05  # between two looks at a running command
_WAIT_TICK_S = 0.2  # between two looks at requests while waiting
_MISSING = 127  # the shell's exit code for a missing command
_CONTEXT_CHARS = 60_000  # the kernel allows 128 KB for one environment variable
_TAIL_CHARS = 2000  # what a person or the next attempt needs of an error
_SAID_CHARS = 400


class LoopOptions(Struct, frozen=True):
    """The runtime, the agent's directory, and functions that a runner calls."""

    runtime: Runtime
    config_dir: Path
    keep: Callable[[str], None]
    redact: Callable[[str], Redacted[str]]
    interrupted: Callable[[], str] = lambda: ""
    ask: Callable[[QuestionAsked, float], str | None] | None = None
    tell: Callable[[Event], None] = lambda _: None


class TaskExecutor:
    """Runs the tasks of the session in `directory`, which work in `project`."""

    def __init__(self, directory: Path, project: Path, plan: Plan, options: LoopOptions) -> None:
        """Start with an empty inbox; `plan` is not redacted, for commands and prompts."""
        self._directory = directory
        self._project = project
        self._plan = plan
        self._options = options
        self._clock = options.runtime.clock
        self._inbox = ControlInbox(directory)
        self._waiting: list[ControlRequest] = []
        self._guardian: subprocess.Popen[bytes] | None = None

    def now(self) -> float:
        """Return the time in seconds since 1970."""
        return self._clock.now_s()

    def sleep_until(self, until: float, state: LoopState) -> None:
        """Wait for a time or a request; ask the open question at the terminal, if there is one."""
        ask, question = self._options.ask, state.question.event if state.question else None
        while (left := until - self.now()) > 0 and not self._poll_requests(state):
            pause = min(left, _WAIT_TICK_S)
            if ask is None or question is None:
                self._clock.sleep(pause)
            elif (answer := ask(question, pause)) is not None:
                name = question.question_id
                self._waiting.append(ControlRequest("answer", name, answer, "at the terminal"))

    def read_requests(self, state: LoopState) -> Sequence[ControlRequest]:
        """Return the requests since the last call."""
        self._poll_requests(state)
        requests, self._waiting = self._waiting, []
        return requests

    def run_attempt(
        self, effect: RunTask, state: LoopState, emit: Callable[[Event], None]
    ) -> TaskResult:
        """Run an attempt to its end."""
        task = self._plan.find_task(effect.task.task_id)
        run = _select_run(task, effect.mode)
        path = self._report_path(task, effect.attempt)
        ensure_dir(path.parent)
        attempt = (task.task_id, effect.attempt)
        report = TaskReportFile(path, self._project, attempt, self._options.redact)
        limit_s = task.timeout_seconds or state.config.timeout_seconds

        def watch() -> str:
            for event in report.new_events():
                emit(event)
            return "interrupted" if self._must_stop(state) else ""

        began = self._clock.monotonic()
        env = self._task_environment(task, effect.attempt, state)
        if run.agent is not None:
            agent = agent_task.AgentTask(self._project, self._directory, self._options, env)
            job = agent_task.TaskJob(task, run, effect, limit_s)
            with self._guard_processes(state.marker) as guard:
                result = agent.run_agent(job, state, emit, watch, guard)
            if result.result not in {"success", "failure"}:
                self._end_all(state.marker)
        else:
            result = self._run_command(run, env, limit_s, watch, state)
        for event in report.new_events(whole=True):
            emit(event)
        return result._replace(duration_s=self._clock.monotonic() - began)

    def verify_task(self, effect: VerifyTask, state: LoopState) -> VerifyResult:
        """Run the verify commands; a missing tool or artifact is a failure."""
        task = self._plan.find_task(effect.task.task_id)
        began = self._clock.monotonic()
        codes: list[tuple[str, int | None]] = []
        missing = [name for name in task.output_artifacts if not (self._project / name).exists()]
        message = f"missing: {', '.join(missing)}" if missing else ""
        limit_s = state.config.verify_timeout_seconds
        env = self._task_environment(task, effect.attempt, state)

        def watch() -> str:
            return "interrupted" if self._must_stop(state) else ""

        for command in task.verify if not missing else ():
            ran = self._run_command(TaskRun(command=command), env, limit_s, watch, state)
            if ran.result == "interrupted":
                return VerifyResult(False, (), (), "", 0.0, interrupted=True)
            absent = ran.exit_code == _MISSING
            codes.append((command, None if absent else ran.exit_code))
            if ran.exit_code != 0:
                message = f"verify: {command}\n{ran.message}"
                missing += [command] if absent else []
                break
        duration_s = self._clock.monotonic() - began
        return VerifyResult(not message, tuple(codes), tuple(missing), message, duration_s)

    def close(self, mark: str) -> None:
        """Kill the processes that tasks left behind, and end the guardian."""
        self._end_all(mark)
        if self._guardian is not None:
            assert self._guardian.stdin is not None
            with suppress(OSError):
                self._guardian.stdin.close()
            self._guardian.wait(10)

    def _end_all(self, mark: str) -> None:
        """Kill every process with the session's marker, also those that left their group."""
        guardian.kill_groups(set(), f"{guardian.MARK}={mark}".encode())

    def _poll_requests(self, state: LoopState) -> bool:
        if name := self._options.interrupted():
            self._waiting.append(ControlRequest("stop", reason=f"stopped by {name}", signal=name))
        self._waiting += self._inbox.drain(
            state.question.event.question_id if state.question else ""
        )
        return bool(self._waiting)

    def _must_stop(self, state: LoopState) -> bool:
        self._poll_requests(state)
        return any(request.action == "stop" for request in self._waiting)

    def _run_command(
        self,
        run: TaskRun,
        env: Mapping[str, str],
        limit_s: float,
        watch: Callable[[], str],
        state: LoopState,
    ) -> TaskResult:
        module = "flightlog.loop.runner.python_task"
        python = [sys.executable, "-m", module, str(run.python), *run.arguments]
        began = self._clock.monotonic()
        try:
            words = python if run.command is None else run.command
            command = ShellCommand(words, cwd=self._project, environment=env)
        except OSError as error:
            return TaskResult("failure", 0.0, _MISSING, f"cannot be started: {error.strerror}")
        result = ""
        with self._guard_processes(state.marker) as guard:
            guard(command.pid)
            while (code := command.wait(TICK_S)) is None:
                wall = state.budgets.wall_time_seconds
                worked = self.now() - (state.started_at or self.now()) - state.rested_s
                late = self._clock.monotonic() - began > limit_s
                over = "timeout" if late else "budget" if wall and worked >= wall else ""
                if result := watch() or over:
                    code = command.stop()
                    self._end_all(state.marker)
                    break
        tail = self._options.redact(command.output_tail())
        limits = (_TAIL_CHARS, _SAID_CHARS)
        message, said = (shorten_text(tail, limit, "end").value for limit in limits)
        result = result or ("failure" if code else "success")
        return TaskResult(result, 0.0, code, message, last_message=said)

    def _report_path(self, task: Task, attempt: int) -> Path:
        return self._directory / "reports" / f"{task.task_id}-{attempt}.jsonl"

    def _task_environment(self, task: Task, attempt: int, state: LoopState) -> dict[str, str]:
        at = state.task_state(task.task_id)
        context = json.dumps(state.context)
        return {
            **self._options.runtime.environ,
            guardian.MARK: state.marker,
            "FLIGHTLOG_REPORT": str(self._report_path(task, attempt)),
            "FLIGHTLOG_SESSION": state.session_id,
            "FLIGHTLOG_TASK": task.task_id,
            "FLIGHTLOG_ATTEMPT": str(attempt),
            "FLIGHTLOG_KEY": at.effect_id,
            "FLIGHTLOG_EFFECTS": ",".join(at.effects),
            "FLIGHTLOG_CONTEXT": context if len(context) < _CONTEXT_CHARS else "{}",
        }

    @contextmanager
    def _guard_processes(self, mark: str) -> Iterator[Callable[[int], None]]:
        """Yield a function that registers a process with the guardian until the end of the block."""
        if self._guardian is None or self._guardian.poll() is not None:
            script = [sys.executable, "-I", "-S", str(Path(guardian.__file__)), mark]
            environ = self._options.runtime.environ
            env = {"PATH": environ["PATH"]} if "PATH" in environ else {}
            self._guardian = subprocess.Popen(
                script,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                env=env,
                start_new_session=True,
            )
        pipe = self._guardian.stdin
        assert pipe is not None
        pids: list[int] = []

        def guard(pid: int) -> None:
            pids.append(pid)
            pipe.write(f"+{pid}\n".encode())
            pipe.flush()

        try:
            yield guard
        finally:
            with suppress(OSError):
                pipe.write("".join(f"-{pid}\n" for pid in pids).encode())
                pipe.flush()


def _select_run(task: Task, mode: str) -> TaskRun:
    if mode == "delegate" and task.delegate is not None:
        return task.delegate
    if mode == "diagnose" and task.diagnose:
        return TaskRun(command=task.diagnose)
    return task.run
