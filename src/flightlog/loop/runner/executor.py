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

import msgspec
from msgspec import Struct

from flightlog.agents.process import ShellCommand
from flightlog.loop.decide.decide import CloseAttempt, CommitTask, RunTask, VerifyTask
from flightlog.loop.decide.recovery import VERIFY
from flightlog.loop.directories import ACTIVITY, LoopActivity
from flightlog.loop.events import AttemptRunStarted, Event, QuestionAsked, TaskCommitted
from flightlog.loop.plan.schema import Plan, Task, TaskRun
from flightlog.loop.runner import agent_task, guardian
from flightlog.loop.runner.control import ControlInbox, TaskReportFile
from flightlog.loop.runner.driver import ControlRequest, TaskResult, VerifyResult
from flightlog.loop.runner.work_tree import WorkTreeWatch, commit_task_files
from flightlog.loop.state import LoopState
from flightlog.model.errors import FlightlogError
from flightlog.model.output_files import OutputFile, Redacted, Tier
from flightlog.model.runtime import Runtime
from flightlog.model.text import shorten_text
from flightlog.store.files import ensure_dir, remove_files
from flightlog.store.output_files import write_output_files

TICK_S = 0.05  # between two looks at a running command
_WAIT_TICK_S = 0.2  # between two looks at requests while waiting
_MISSING = 127  # the shell's exit code for a missing command
_CONTEXT_CHARS = 60_000  # the kernel allows 128 KB for one environment variable
_TAIL_CHARS = 2000  # what a person or the next attempt needs of an error
_SAID_CHARS = 400
_ACTIVITY_EVERY_S = 1.0  # so exact is the time of a kill, and what `monitor` shows
_ACTIVITY_WAITING_S = 5.0  # while the loop only waits


class LoopOptions(Struct, frozen=True):
    """The runtime, the agent's directory, and functions that a runner calls."""

    runtime: Runtime
    config_dir: Path
    keep: Callable[[str], None]
    redact: Callable[[str], Redacted[str]]
    interrupted: Callable[[], str] = lambda: ""
    ask: Callable[[QuestionAsked, float], str | None] | None = None
    tell: Callable[[Event], None] = lambda _: None
    live: Callable[[str], None] | None = None


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
        self._seen_at = 0.0  # when the activity file was written

    def now(self) -> float:
        """Return the time in seconds since 1970."""
        return self._clock.now_s()

    def sleep_until(self, until: float, state: LoopState) -> None:
        """Wait for a time or a request; ask the open question at the terminal, if there is one."""
        ask, question = self._options.ask, state.question.event if state.question else None
        while (left := until - self.now()) > 0 and not self._poll_requests(state):
            pause = min(left, _WAIT_TICK_S)
            self._show_activity(LoopActivity(state.epoch), _ACTIVITY_WAITING_S)
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
        env = self._task_environment(task, effect.attempt, state)
        agent = agent_task.AgentTask(self._project, self._directory, self._options, env)
        began_at, began = self.now(), self._clock.monotonic()
        tree, name = self._open_tree(), f"{task.task_id}-{effect.attempt}"
        before = tree.save_snapshot(f"{name}-before-{self._options.runtime.new_id()}")

        def watch() -> str:
            for event in report.new_events():
                emit(event)
            seen = LoopActivity(state.epoch, *attempt, began_at, self.now(), agent.tool)
            self._show_activity(seen, _ACTIVITY_EVERY_S)
            return "interrupted" if self._must_stop(state) else ""

        if run.agent is not None:
            chosen = agent.choose_session(run, state.task_state(task.task_id))
            answer = self._inbox.answers.get(state.task_state(task.task_id).answer_id, "")
            job = agent_task.TaskJob(task, run, effect, limit_s, before, *chosen, answer)
            with self._guard_processes(state.marker) as guard:
                result = agent.run_agent(job, state, emit, watch, guard)
            if result.result not in {"success", "failure"}:
                self._end_all(state.marker)
        else:
            emit(AttemptRunStarted(*attempt, before))
            result = self._run_command(run, env, limit_s, watch, state)
        for event in report.new_events(whole=True):
            emit(event)
        result = self._with_changes(result, tree, name, before)
        return result._replace(duration_s=self._clock.monotonic() - began)

    def close_attempt(self, effect: CloseAttempt, state: LoopState) -> TaskResult:
        """Return the session and the changes of an attempt whose runner was killed."""
        at = state.task_state(effect.task.task_id)
        if at.agent_session:
            with suppress(FlightlogError, OSError):
                self._options.keep(at.agent_session)
        cut = TaskResult("cut", at.cut_s, agent_session=at.agent_session)
        name = f"{effect.task.task_id}-{effect.attempt}"
        return self._with_changes(cut, self._open_tree(), name, at.run_snapshot)

    def commit_task(self, effect: CommitTask, state: LoopState) -> TaskCommitted:
        """Commit the files that a task changed."""
        task, index = effect.task.task_id, self._directory / ".commit-index"
        changed = state.task_state(task).changes
        runtime, name = self._options.runtime, effect.task.name
        try:
            commit = commit_task_files(runtime, self._project, changed, name, index)
        except FlightlogError as error:
            return TaskCommitted(task, error_message=error.message)
        finally:
            remove_files([index])
        return TaskCommitted(task, commit)

    def _open_tree(self) -> WorkTreeWatch:
        environ = self._options.runtime.environ
        return WorkTreeWatch(self._directory, self._project, environ, self.now)

    def _with_changes(
        self, result: TaskResult, tree: WorkTreeWatch, name: str, before: str
    ) -> TaskResult:
        after = tree.save_snapshot(f"{name}-after-{self._options.runtime.new_id()}")
        diff, changes = tree.write_changes(name, before, after, self._options.redact)
        return result._replace(diff=diff, changes=changes)

    def _show_activity(self, activity: LoopActivity, every_s: float) -> None:
        """Write what goes on now, at most once in `every_s`, for `monitor` and the next runner."""
        if self.now() - self._seen_at < every_s:
            return
        self._seen_at = self.now()
        file = OutputFile(ACTIVITY, Tier.PRIVATE, msgspec.json.encode(activity).decode())
        with suppress(FlightlogError, OSError):
            write_output_files(self._directory, [file], durable=False)

    def verify_task(self, effect: VerifyTask, state: LoopState) -> VerifyResult:
        """Run the verify commands; a missing tool or artifact is a failure."""
        task = self._plan.find_task(effect.task.task_id)
        began = self._clock.monotonic()
        codes: list[tuple[str, int | None]] = []
        found = tuple(name for name in task.output_artifacts if (self._project / name).exists())
        missing = [name for name in task.output_artifacts if name not in found]
        message = f"missing: {', '.join(missing)}" if missing else ""
        if unreported := [name for name in task.success_metrics if name not in state.metrics]:
            message = message or f"success metrics were not reported: {', '.join(unreported)}"
        limit_s = state.config.verify_timeout_seconds
        env = self._task_environment(task, effect.attempt, state)

        def watch() -> str:
            return "interrupted" if self._must_stop(state) else ""

        for command in task.verify if not message else ():
            ran = self._run_command(TaskRun(command=command), env, limit_s, watch, state)
            if ran.result == "interrupted":
                return VerifyResult(False, (), (), "", 0.0, interrupted=True)
            absent = ran.exit_code == _MISSING
            codes.append((command, None if absent else ran.exit_code))
            if ran.exit_code != 0:
                message = f"{VERIFY}{command}\n{ran.message}"
                missing += [command] if absent else []
                break
        duration_s = self._clock.monotonic() - began
        return VerifyResult(not message, tuple(codes), tuple(missing), message, duration_s, found)

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
                self._show_output(command)
                wall = state.budgets.wall_time_seconds
                worked = self.now() - (state.started_at or self.now()) - state.rested_s
                late = self._clock.monotonic() - began > limit_s
                over = "timeout" if late else "budget" if wall and worked >= wall else ""
                if result := watch() or over:
                    code = command.stop()
                    self._end_all(state.marker)
                    break
        self._show_output(command)
        tail = self._options.redact(command.output_tail())
        limits = (_TAIL_CHARS, _SAID_CHARS)
        message, last_message = (shorten_text(tail, limit, "end").value for limit in limits)
        result = result or ("failure" if code else "success")
        if result == "failure" and not message.strip():
            message = f"exit code {code}"  # a command may fail without a word
        return TaskResult(result, 0.0, code, message, last_message=last_message)

    def _show_output(self, command: ShellCommand) -> None:
        if self._options.live is not None and (text := command.new_output()):
            self._options.live(self._options.redact(text).value)

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
            self._guardian = subprocess.Popen(
                script,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                env={"PATH": environ["PATH"]} if "PATH" in environ else {},
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
