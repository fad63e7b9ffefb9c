"""Run an agent for one attempt, and record its model calls and its changes of the work tree.

Progress is detected by a fingerprint of names, sizes and times; our own sessions, git's files and
build output do not count. The diff comes from snapshots beside the session; where these are not
possible (no git, a home directory), the task has no diff. Each model call is recorded as soon as
it appears in the stream; at the end the client's total corrects the sum.
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from flightlog.agents.claude_code.driver import ClaudeCode, find
from flightlog.agents.claude_code.files import AGENT_NAME
from flightlog.agents.claude_code.stream import StreamResult, read_model_call, read_stream
from flightlog.agents.process import AgentProcess, scripted_driver
from flightlog.agents.protocol import AgentOutcome, AgentPrompt, Driver
from flightlog.agents.scripted.agent import MODEL, VERSION
from flightlog.agents.scripted.scenario import load_scenario
from flightlog.agents.scripted.server import serve_scenario
from flightlog.loop.decide import breaker
from flightlog.loop.decide.decide import RunTask
from flightlog.loop.events import Event, UsageRecorded
from flightlog.loop.plan.schema import Task, TaskRun
from flightlog.loop.runner.driver import TaskResult
from flightlog.loop.state import LoopState
from flightlog.model.errors import FlightlogError, Invalid
from flightlog.model.output_files import OutputFile, Redacted, Tier
from flightlog.model.text import shorten_text
from flightlog.store.git.command import GitError, PersonGit
from flightlog.store.git.snapshots import (
    SnapshotDirs,
    WorkTreeSnapshot,
    WorkTreeSnapshots,
    open_trees,
)
from flightlog.store.git.worktree import SnapshotPolicy
from flightlog.store.output_files import write_output_files
from flightlog.usage.prices import price

if TYPE_CHECKING:
    from flightlog.loop.runner.executor import LoopOptions


_FAILURE_CHARS = 3000  # of an error message or diagnosis in the next prompt
_LEFT_OUT = frozenset(
    {".git", "ralph-loop-sessions", "node_modules", ".venv", "__pycache__", ".pytest_cache"}
)
_FILES_MAX = 200_000  # bounds the time of a fingerprint
_PATCH_BYTES_MAX = 4 << 20  # bounds the time of redaction
SCRIPTED = "scripted"
_TICK_S = 0.01  # a budget must stop the agent before its next call
_REPORTS_EVERY = 5  # ticks; reports and requests are less urgent than model calls
_TEXT_CHARS = 4000  # what a person or the next attempt needs of an error
_SAID_CHARS = 2000
Emit = Callable[[Event], None]


def build_prompt(task: Task, words: str, state: LoopState, mode: str) -> str:
    """Return the prompt of an attempt: the plan's `words`, criteria, and the last failure."""
    at = state.task_state(task.task_id)
    parts = [words]
    lists = {
        "It is done when:": task.acceptance_criteria,
        "These commands must succeed afterwards:": task.verify,
    }
    for title, items in lists.items():
        if items:
            parts.append("\n".join([title, *(f"- {item}" for item in items)]))
    if at.failures:
        kind = "verification" if at.verify_failed else "the attempt"
        parts.append(
            f"Attempt {at.attempt - 1}: {kind} failed:\n{at.error_message[-_FAILURE_CHARS:]}"
        )
    if at.diagnosis:
        parts.append(f"A diagnosis was made:\n{at.diagnosis[-_FAILURE_CHARS:]}")
    if mode == "diagnose":
        parts.append(
            f"This failed {at.same_error_count} times in the same way. Change nothing now: find the cause, and "
            "say in a few sentences what it is and what would remove it."
        )
    elif task.run.repeat:
        parts.append(
            "Do one part of this, then stop. End your answer with these lines:\n"
            "STATUS: IN_PROGRESS, COMPLETE or BLOCKED\nTESTS_STATUS: PASSING, FAILING or NOT_RUN\n"
            "EXIT_SIGNAL: true only if nothing is left to do, otherwise false"
        )
    return "\n\n".join(parts)


class WorkTreeWatch:
    """Snapshots of a work tree, and their difference as a file of the session."""

    def __init__(self, directory: Path, dirs: SnapshotDirs, now: Callable[[], float]) -> None:
        """Open the snapshots; if that fails, there will be no diff."""
        self._directory = directory
        self._trees: WorkTreeSnapshots | None = None
        policy = SnapshotPolicy(leave_out=("ralph-loop-sessions/",))
        with suppress(FlightlogError, OSError):
            self._trees = open_trees(dirs, policy, now=now)

    def save_snapshot(self, name: str) -> WorkTreeSnapshot | None:
        """Save a snapshot of the current tree; None if that fails."""
        with suppress(FlightlogError, OSError):
            return self._trees.save_snapshot(name) if self._trees else None
        return None

    def write_changes(
        self,
        name: str,
        snapshots: tuple[WorkTreeSnapshot | None, WorkTreeSnapshot | None],
        redact: Callable[[str], Redacted[str]],
    ) -> str:
        """Write the diff between two snapshots; return the file's name, or "" if nothing changed."""
        before, after = snapshots
        if self._trees is None or before is None or after is None or before.tree == after.tree:
            return ""
        with suppress(FlightlogError, OSError):
            patch = self._trees.patch_between(before, after)
            if len(patch) > _PATCH_BYTES_MAX:  # cut at a line end, so that no secret is cut
                patch = patch[: patch.rfind(b"\n", 0, _PATCH_BYTES_MAX) + 1]
            text = redact(patch.decode("utf-8", "replace")).value
            file = OutputFile(f"diffs/{name}.patch", Tier.PRIVATE, text)
            write_output_files(self._directory, [file], durable=False)
            return file.path
        return ""


def fingerprint_tree(project: Path) -> str:
    """Return a hash that changes with the files or the commit of a work tree."""
    digest = hashlib.sha256()
    with suppress(GitError):
        digest.update(PersonGit(project).run_git("rev-parse", "HEAD").stdout)
    count = 0
    for folder, folders, files in os.walk(project):
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT)
        for name in sorted(files):
            count += 1
            if count > _FILES_MAX:
                return digest.hexdigest()
            path = os.path.join(folder, name)  # noqa: PTH118 - called for each file of a project
            try:
                status = os.lstat(path)
            except OSError:
                continue
            entry = f"{path}\0{status.st_size}\0{status.st_mtime_ns}\0"
            digest.update(entry.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


class TaskJob(NamedTuple):
    """An attempt to run, and its time limit."""

    task: Task
    run: TaskRun
    effect: RunTask
    limit_s: float


class AgentTask:
    """One attempt of an agent."""

    def __init__(
        self,
        project: Path,
        directory: Path,
        options: "LoopOptions",
        environment: Mapping[str, str],
    ) -> None:
        """Work in `project` with exactly this environment."""
        self._project = project
        self._directory = directory
        self._options = options
        self._runtime = options.runtime
        self._environment = environment
        self._seen: set[str] = set()
        self._tokens = 0
        self._usd = 0.0

    def run_agent(
        self,
        job: TaskJob,
        state: LoopState,
        emit: Emit,
        watch: Callable[[], str],
        guard: Callable[[int], None],
    ) -> TaskResult:
        """Run the agent to its end, or until a budget is used up."""
        before = fingerprint_tree(self._project)
        tree, name = self._open_watch(), f"{job.task.task_id}-{job.effect.attempt}"
        first = tree.save_snapshot(f"{name}-before-{self._runtime.new_id()}")
        session = self._runtime.new_id()
        words = build_prompt(job.task, job.run.prompt, state, job.effect.mode)
        arguments = (*(("--model", job.run.model) if job.run.model else ()), *job.run.arguments)
        try:
            with self._open_driver(job.run) as (driver, more):
                env = {**self._environment, **more}
                prompt = AgentPrompt(
                    words, self._project, env, session=session, arguments=arguments
                )
                running = driver.start(prompt)
                guard(running.pid)
                why, outcome = self._watch_agent(running, job, state, emit, watch)
        except (FlightlogError, OSError) as error:
            text = error.message if isinstance(error, FlightlogError) else str(error.strerror)
            return TaskResult("failure", 0.0, None, f"the agent cannot be started: {text}")
        stream = read_stream(outcome.records)
        self._record_missing_usage(job, stream, emit)
        with suppress(FlightlogError, OSError):
            self._options.keep(session)
        progress = fingerprint_tree(self._project) != before
        second = tree.save_snapshot(f"{name}-after-{self._runtime.new_id()}")
        diff = tree.write_changes(name, (first, second), self._options.redact)
        result = self._judge_outcome(why, outcome, stream, state)
        indicators = (*stream.indicators, *self._stop_signals(job.run, progress=progress))
        return result._replace(
            made_progress=progress, indicators=indicators, agent_session=session, diff=diff
        )

    def _open_watch(self) -> WorkTreeWatch:
        home = Path(self._environment.get("HOME", "/"))
        path = self._environment.get("PATH", os.defpath)
        dirs = SnapshotDirs(self._directory / "tree.git", self._project, home, path)
        return WorkTreeWatch(self._directory, dirs, self._runtime.clock.now_s)

    def _watch_agent(
        self,
        running: AgentProcess,
        job: TaskJob,
        state: LoopState,
        emit: Emit,
        watch: Callable[[], str],
    ) -> tuple[str, AgentOutcome]:
        end = self._runtime.clock.monotonic() + job.limit_s
        ticks = 0
        while (outcome := running.look(_TICK_S)) is None:
            if why := self._record_calls(running, job, state, emit):
                return why, running.kill()
            ticks += 1
            why = watch() if ticks % _REPORTS_EVERY == 0 else ""
            if why:
                return why, running.stop()
            if self._runtime.clock.monotonic() > end:
                return "timeout", running.stop()
        self._record_calls(running, job, state, emit)
        return "", outcome

    def _record_calls(
        self, running: AgentProcess, job: TaskJob, state: LoopState, emit: Emit
    ) -> str:
        """Record new model calls; return which limit they reached, or ""."""
        for record in running.news():
            call = read_model_call(record)
            if call is None or call.message_id in self._seen:
                continue
            tokens, usd = call.usage.total_tokens, price(call.model, call.usage).usd
            self._seen.add(call.message_id)
            self._tokens += tokens
            self._usd += usd or 0.0
            attempt = (job.task.task_id, job.effect.attempt)
            emit(UsageRecorded(*attempt, call.message_id, call.model, tokens, usd))
        now = self._runtime.clock.now_s()
        if breaker.exhausted_budget(state, now, begun=True):
            return "budget"
        return "limited" if breaker.hour_full_until(state, now) > now else ""

    def _record_missing_usage(self, job: TaskJob, stream: StreamResult, emit: Emit) -> None:
        """Record what the client's total has more than the calls in the stream, as no call."""
        tokens = max(stream.total_tokens - self._tokens, 0)
        usd = max((stream.cost_usd or 0.0) - self._usd, 0.0)
        if self._seen and (tokens or usd > 1e-9):  # less is a rounding error
            attempt = (job.task.task_id, job.effect.attempt)
            emit(UsageRecorded(*attempt, "", "client", tokens, usd, calls=0))

    def _judge_outcome(
        self, why: str, outcome: AgentOutcome, stream: StreamResult, state: LoopState
    ) -> TaskResult:
        now = self._runtime.clock.now_s()
        words = self._options.redact(stream.text or outcome.stderr)
        text, end = (
            shorten_text(words, limit, "end").value for limit in (_TEXT_CHARS, _SAID_CHARS)
        )
        result = TaskResult(
            "success",
            0.0,
            outcome.exit_code,
            permission_denials=stream.denials,
            asked_question=stream.asked_question,
            exit_signal=stream.exit_signal,
            last_message=end,
        )
        if why == "limited":
            wait_s = breaker.hour_full_until(state, now) - now
            return result._replace(result=why, exit_code=None, message=text, limit_s=wait_s)
        if why:
            return result._replace(result=why, message=text or why)
        if stream.is_rate_limited:
            resets_at = stream.resets_at
            wait_s = state.config.limit_wait_seconds if resets_at is None else resets_at - now
            return result._replace(result="limited", message=text, limit_s=max(wait_s, 1.0))
        if stream.is_error or outcome.exit_code != 0:
            return result._replace(result="failure", message=text)
        return result

    def _stop_signals(self, run: TaskRun, *, progress: bool) -> list[str]:
        signals = [] if progress else ["nothing changed"]
        with suppress(OSError):
            if run.checklist:
                text = (self._project / run.checklist).read_text("utf-8", "replace")
                signals += ["checklist done"] if "- [ ]" not in text else []
        return signals

    @contextmanager
    def _open_driver(self, run: TaskRun) -> Iterator[tuple[Driver, dict[str, str]]]:
        """Yield the driver of an agent, and additional environment variables."""
        if run.agent == AGENT_NAME:
            named = self._runtime.environ.get("FLIGHTLOG_CLAUDE", "")
            yield ClaudeCode(find(named, self._runtime.program_path)), {}
            return
        if run.agent == SCRIPTED:
            with serve_scenario(load_scenario(self._project / run.scenario), keep=False) as model:
                here = {
                    "ANTHROPIC_BASE_URL": model.url,
                    "CLAUDE_CONFIG_DIR": str(self._options.config_dir),
                }
                yield scripted_driver(run.model or MODEL, VERSION), here
            return
        raise Invalid(
            f"no driver for the agent {run.agent!r}", hint=f"one of: {AGENT_NAME}, {SCRIPTED}"
        )
