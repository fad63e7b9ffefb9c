"""Prompt and watch an agent; work-tree changes.

The first is a look at names, sizes and times. The second is a shadow of the tree beside the
session; where there can be none (no git, a home directory), the task goes on without a diff.
Sessions of ours, git's own files and what tools build are no progress.

Each model call is written down when it is seen, before the next can be paid for; at the end
the client's own total corrects what the stream told.
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

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
from flightlog.store.git.snapshots import SnapshotDirs, WorkTreeSnapshot, WorkTreeSnapshots, open_trees
from flightlog.store.git.worktree import SnapshotPolicy
from flightlog.store.output_files import write_output_files
from flightlog.usage.prices import price

if TYPE_CHECKING:
    from flightlog.loop.runner.executor import LoopOptions

_FAILURE_CHARS = 3000
_LEFT_OUT = frozenset({".git", "ralph-loop-sessions", "node_modules", ".venv", "__pycache__", ".pytest_cache"})
_FILES_MAX = 200_000
_PATCH_BYTES_MAX = 4 << 20
SCRIPTED = "scripted"
_TICK_S = 0.01
_REPORTS_EVERY = 5
_TEXT_CHARS = 4000  # what a person or the next attempt needs of an error
_SAID_CHARS = 2000
Emit = Callable[[Event], None]


def build_prompt(task: Task, words: str, state: LoopState, mode: str) -> str:
    """The whole prompt of an attempt."""
    at = state.task_state(task.task_id)
    parts = [words]
    if task.acceptance_criteria:
        parts.append("It is done when:\n" + "\n".join(f"- {each}" for each in task.acceptance_criteria))
    if task.verify:
        parts.append("These commands must succeed afterwards:\n" + "\n".join(f"- {each}" for each in task.verify))
    if at.failures:
        kind = "verification" if at.verify_failed else "the attempt"
        parts.append(f"Attempt {at.attempt - 1}: {kind} failed:\n{at.error_message[-_FAILURE_CHARS:]}")
    if at.diagnosis:
        parts.append(f"A diagnosis was made:\n{at.diagnosis[-_FAILURE_CHARS:]}")
    if mode == "diagnose":
        parts.append(
            f"This failed {at.same} times in the same way. Change nothing now: find the cause, and say in a few "
            "sentences what it is and what would remove it."
        )
    elif task.run.repeat:
        parts.append(
            "Do one part of this, then stop. End your answer with these lines:\n"
            "STATUS: IN_PROGRESS, COMPLETE or BLOCKED\nTESTS_STATUS: PASSING, FAILING or NOT_RUN\n"
            "EXIT_SIGNAL: true only if nothing is left to do, otherwise false"
        )
    return "\n\n".join(parts)


class WorkTreeWatch:
    """Two looks at a work tree, and the difference as a page of the session."""

    def __init__(self, directory: Path, place: SnapshotDirs, now: Callable[[], float]) -> None:
        """Open the shadow; without one there is nothing to be shown."""
        self._directory = directory
        self._trees: WorkTreeSnapshots | None = None
        with suppress(FlightlogError, OSError):
            self._trees = open_trees(place, SnapshotPolicy(leave_out=("ralph-loop-sessions/",)), now=now)

    def save_snapshot(self, name: str) -> WorkTreeSnapshot | None:
        """Keep the tree as it is now."""
        with suppress(FlightlogError, OSError):
            return self._trees.save_snapshot(name) if self._trees else None
        return None

    def write_changes(
        self,
        name: str,
        looks: tuple[WorkTreeSnapshot | None, WorkTreeSnapshot | None],
        redact: Callable[[str], Redacted[str]],
    ) -> str:
        """Write what changed between two looks and return the page's name; nothing when nothing did."""
        before, after = looks
        if self._trees is None or before is None or after is None or before.tree == after.tree:
            return ""
        with suppress(FlightlogError, OSError):
            patch = self._trees.patch_between(before, after)
            if len(patch) > _PATCH_BYTES_MAX:  # whole lines, so that no value is cut before it is redacted
                patch = patch[: patch.rfind(b"\n", 0, _PATCH_BYTES_MAX) + 1]
            text = redact(patch.decode("utf-8", "replace")).value
            write_output_files(self._directory, [OutputFile(f"diffs/{name}.patch", Tier.PRIVATE, text)], durable=False)
            return f"diffs/{name}.patch"
        return ""


def fingerprint_tree(project: Path) -> str:
    """A name for the state of the tree; the same name, nothing changed."""
    seen = hashlib.sha256(_head_commit(project))
    count = 0
    for folder, folders, files in os.walk(project):
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT)
        for name in sorted(files):
            count += 1
            if count > _FILES_MAX:
                return seen.hexdigest()
            path = os.path.join(folder, name)  # noqa: PTH118 - called for each file of a project
            try:
                status = os.lstat(path)
            except OSError:
                continue
            seen.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\0".encode("utf-8", "surrogateescape"))
    return seen.hexdigest()


def _head_commit(project: Path) -> bytes:
    """What git has checked out, so that work which was committed counts."""
    try:
        return PersonGit(project).run_git("rev-parse", "HEAD").out
    except GitError:
        return b""


class TaskJob(NamedTuple):
    """What is to be done."""

    task: Task
    run: TaskRun
    effect: RunTask
    limit_s: float


class AgentTask:
    """One attempt of an agent."""

    def __init__(self, project: Path, directory: Path, options: "LoopOptions", environment: Mapping[str, str]) -> None:
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
        self, job: TaskJob, state: LoopState, emit: Emit, watch: Callable[[], str], guard: Callable[[int], None]
    ) -> TaskResult:
        """Run the agent to its end, or to the end of a budget."""
        before = fingerprint_tree(self._project)
        shadow, name = self._open_watch(), f"{job.task.task_id}-{job.effect.attempt}"
        first = shadow.save_snapshot(f"{name}-before-{self._runtime.new_id()}")
        session = self._runtime.new_id()
        words = build_prompt(job.task, job.run.prompt, state, job.effect.mode)
        arguments = (*(("--model", job.run.model) if job.run.model else ()), *job.run.arguments)
        ask = AgentPrompt(words, self._project, self._environment, session=session, arguments=arguments)
        try:
            with self._open_driver(job.run) as (driver, more):
                running = driver.start(msgspec.structs.replace(ask, environment={**self._environment, **more}))
                guard(running.pid)
                why, outcome = self._watch_agent(running, job, state, emit, watch)
        except (FlightlogError, OSError) as error:
            text = error.message if isinstance(error, FlightlogError) else str(error.strerror)
            return TaskResult("failure", 0.0, None, f"the agent cannot be started: {text}")
        told = read_stream(outcome.records)
        self._record_missing_usage(job, told, emit)
        with suppress(FlightlogError, OSError):
            self._options.keep(session)
        progress = fingerprint_tree(self._project) != before
        second = shadow.save_snapshot(f"{name}-after-{self._runtime.new_id()}")
        diff = shadow.write_changes(name, (first, second), self._options.redact)
        ran = self._judge_outcome(why, outcome, told, state)
        signs = [*told.indicators, *self._stop_signals(job.run, progress=progress)]
        return ran._replace(progress=progress, indicators=tuple(signs), agent_session=session, diff=diff)

    def _open_watch(self) -> WorkTreeWatch:
        home = Path(self._environment.get("HOME", "/"))
        place = SnapshotDirs(
            self._directory / "tree.git", self._project, home, self._environment.get("PATH", os.defpath)
        )
        return WorkTreeWatch(self._directory, place, self._runtime.clock.now_s)

    def _watch_agent(
        self, running: AgentProcess, job: TaskJob, state: LoopState, emit: Emit, watch: Callable[[], str]
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

    def _record_calls(self, running: AgentProcess, job: TaskJob, state: LoopState, emit: Emit) -> str:
        """Write new model calls down; say which limit they reached."""
        for record in running.news():
            call = read_model_call(record)
            if call is None or call.message_id in self._seen:
                continue
            tokens, usd = call.usage.total, price(call.model, call.usage).usd
            self._seen.add(call.message_id)
            self._tokens += tokens
            self._usd += usd or 0.0
            emit(UsageRecorded(job.task.task_id, job.effect.attempt, call.message_id, call.model, tokens, usd))
        now = self._runtime.clock.now_s()
        if breaker.exhausted_budget(state, now, begun=True):
            return "budget"
        return "limited" if breaker.hour_full_until(state, now) > now else ""

    def _record_missing_usage(self, job: TaskJob, told: StreamResult, emit: Emit) -> None:
        """The stream's figures are not final; what the client counted more is added, as no call of its own."""
        tokens = max(told.tokens - self._tokens, 0)
        usd = max((told.usd or 0.0) - self._usd, 0.0)
        if self._seen and (tokens or usd > 1e-9):
            emit(UsageRecorded(job.task.task_id, job.effect.attempt, "", "client", tokens, usd, calls=0))

    def _judge_outcome(self, why: str, outcome: AgentOutcome, told: StreamResult, state: LoopState) -> TaskResult:
        now = self._runtime.clock.now_s()
        words = self._options.redact(told.text or outcome.stderr)
        text, end = (shorten_text(words, limit, "end").value for limit in (_TEXT_CHARS, _SAID_CHARS))
        common = {"denials": told.denials, "asked": told.asked, "exit_signal": told.exit_signal, "said": end}
        if why == "limited":
            return TaskResult("limited", 0.0, message=text, limit_s=breaker.hour_full_until(state, now) - now, **common)  # type: ignore[arg-type]
        if why:
            return TaskResult(why, 0.0, outcome.exit_code, text or why, **common)  # type: ignore[arg-type]
        if told.limited:
            wait = told.resets_at - now if told.resets_at is not None else state.config.limit_wait_seconds
            return TaskResult("limited", 0.0, outcome.exit_code, text, limit_s=max(wait, 1.0), **common)  # type: ignore[arg-type]
        failed = told.failed or outcome.exit_code != 0
        message = text if failed else ""
        return TaskResult("failure" if failed else "success", 0.0, outcome.exit_code, message, **common)  # type: ignore[arg-type]

    def _stop_signals(self, run: TaskRun, *, progress: bool) -> list[str]:
        signs = [] if progress else ["nothing changed"]
        with suppress(OSError):
            if run.checklist and "- [ ]" not in (self._project / run.checklist).read_text("utf-8", "replace"):
                signs.append("checklist done")
        return signs

    @contextmanager
    def _open_driver(self, run: TaskRun) -> Iterator[tuple[Driver, dict[str, str]]]:
        """The driver of an agent, and what its environment needs besides."""
        if run.agent == AGENT_NAME:
            named = self._runtime.environ.get("FLIGHTLOG_CLAUDE", "")
            yield ClaudeCode(find(named, self._runtime.program_path)), {}
            return
        if run.agent == SCRIPTED:
            with serve_scenario(load_scenario(self._project / run.scenario), keep=False) as model:
                here = {"ANTHROPIC_BASE_URL": model.url, "CLAUDE_CONFIG_DIR": str(self._options.config_dir)}
                yield scripted_driver(run.model or MODEL, VERSION), here
            return
        raise Invalid(f"no driver for the agent {run.agent!r}", hint=f"one of: {AGENT_NAME}, {SCRIPTED}")
