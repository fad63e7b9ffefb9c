"""Run an agent for one attempt, and record its model calls.

Each model call is recorded as soon as it appears in the stream; at the end the client's total
corrects the sum. An attempt that was interrupted, or whose question was answered, continues the
agent's session where the client still has it.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from flightlog.agents.claude_code import CONFIG_DIR, allow_tools
from flightlog.agents.claude_code.driver import ClaudeCode, find
from flightlog.agents.claude_code.files import AGENT_NAME
from flightlog.agents.claude_code.stream import (
    StreamResult,
    read_activity,
    read_model_call,
    read_stream,
)
from flightlog.agents.process import AgentProcess, scripted_driver
from flightlog.agents.protocol import AgentOutcome, AgentPrompt, Driver
from flightlog.agents.scripted.agent import MODEL, VERSION
from flightlog.agents.scripted.scenario import load_scenario
from flightlog.agents.scripted.server import serve_scenario
from flightlog.loop.decide import breaker
from flightlog.loop.decide.decide import RunTask
from flightlog.loop.events import AttemptRunStarted, Event, UsageRecorded
from flightlog.loop.plan.schema import Plan, Task, TaskRun
from flightlog.loop.runner.driver import TaskResult
from flightlog.loop.runner.work_tree import fingerprint_tree
from flightlog.loop.state import LoopState, TaskState
from flightlog.model.errors import FlightlogError, Invalid
from flightlog.model.runtime import Runtime
from flightlog.model.text import shorten_text
from flightlog.usage.prices import price

if TYPE_CHECKING:
    from flightlog.loop.runner.executor import LoopOptions


_FAILURE_CHARS = 3000  # of an error message or diagnosis in the next prompt
_FILES_NAMED = 30  # changed files in the next prompt
SCRIPTED = "scripted"
_TICK_S = 0.01  # a budget must stop the agent before its next call
_REPORTS_EVERY = 5  # ticks; reports and requests are less urgent than model calls
_TEXT_CHARS = 4000  # what a person or the next attempt needs of an error
_SAID_CHARS = 2000
_QUESTION_CHARS = 1500
_TOOL_CHARS = 100  # of a tool's argument, for one line of a terminal
# A tool, or a rule such as `Bash(git log *)`. Names of denied tools come from the agent, and become
# arguments of the next run and of a command that a person copies.
TOOL_RULE = re.compile(r"[A-Za-z][\w-]{0,80}(\([^(),]{1,200}\))?", re.ASCII)
_CONTINUE = "You were interrupted while you worked on this. Look at what is there, then continue."
_CUT = "An earlier attempt was cut short. Look at what it left before you start."
Emit = Callable[[Event], None]


def build_prompt(
    task: Task, words: str, state: LoopState, mode: str, person_answer: str = ""
) -> str:
    """Return the prompt of an attempt: the plan's `words`, criteria, answer, and the last failure."""
    at = state.task_state(task.task_id)
    parts = [*_unfinished_parts(at), words]
    lists = {
        "It is done when:": task.acceptance_criteria,
        "These commands must succeed afterwards:": task.verify,
    }
    for title, items in lists.items():
        if items:
            parts.append("\n".join([title, *(f"- {item}" for item in items)]))
    if at.question:
        own_words = person_answer if at.answer else ""
        answer = own_words or at.answer or "No person can answer. Decide yourself."
        parts.append(f"You asked:\n{at.question}\n\nThe answer:\n{answer}")
    if at.failures:
        kind = "verification" if at.verify_failed else "the attempt"
        parts.append(
            f"Attempt {at.attempt - 1}: {kind} failed:\n{at.error_message[-_FAILURE_CHARS:]}"
        )
        if task.error_handling.fallback_strategy:
            parts.append(f"Try this instead:\n{task.error_handling.fallback_strategy}")
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


def _unfinished_parts(at: TaskState) -> list[str]:
    """Return what the agent must know about the run before, if that was interrupted."""
    if not at.is_unfinished:
        return []
    names = [f"- {name}" for name in list(at.changes)[:_FILES_NAMED]]
    return ["\n".join([_CUT, *(["It changed these files:", *names] if names else [])])]


def check_agents(plan: Plan, runtime: Runtime) -> None:
    """Raise unless every agent of the plan is known and installed."""
    for task in plan.tasks:
        for run in (task.run, task.delegate):
            if run is None or run.agent in {None, SCRIPTED}:
                continue
            if run.agent != AGENT_NAME:
                known = f"one of: {AGENT_NAME}, {SCRIPTED}"
                raise Invalid(f"task {task.task_id}: no driver for {run.agent!r}", hint=known)
            find(runtime.environ.get("FLIGHTLOG_CLAUDE", ""), runtime.program_path)


class TaskJob(NamedTuple):
    """An attempt to run: its time limit, the snapshot before it, the agent's session."""

    task: Task
    run: TaskRun
    effect: RunTask
    limit_s: float
    snapshot: str
    session: str
    is_resumed: bool
    answer: str  # to the agent's question, as the person wrote it


class AgentTask:
    """One attempt of an agent."""

    def __init__(
        self, project: Path, directory: Path, options: "LoopOptions", environment: Mapping[str, str]
    ) -> None:
        """Work in `project` with exactly this environment."""
        self._project = project
        self._directory = directory
        self._options = options
        self._runtime = options.runtime
        self._environment = environment
        self._seen: set[str] = set()
        self.tool = ""  # the current tool call, for people who look

    def choose_session(self, run: TaskRun, at: TaskState) -> tuple[str, bool]:
        """Return the session for the next run, and whether the agent continues it."""
        continues = at.agent_session and (at.is_unfinished or at.answer)
        if run.agent == AGENT_NAME and continues and self._has_reply(at.agent_session):
            return at.agent_session, True
        return self._runtime.new_id(), False

    def _has_reply(self, session: str) -> bool:
        """Return whether the client has a reply on record, without which it resumes nothing."""
        with suppress(OSError):
            paths = self._options.config_dir.glob(f"projects/*/{session}.jsonl")
            return any(b'"type":"assistant"' in path.read_bytes() for path in paths)
        return False

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
        words = build_prompt(job.task, job.run.prompt, state, job.effect.mode, job.answer)
        words = words.replace(_CUT, _CONTINUE, 1) if job.is_resumed else words
        allowed = allow_tools(state.allowed_tools) if job.run.agent != SCRIPTED else ()
        model = ("--model", job.run.model) if job.run.model else ()
        run = (job.task.task_id, job.effect.attempt, job.snapshot, job.session)
        emit(AttemptRunStarted(*run, is_resumed=job.is_resumed))
        try:
            with self._open_driver(job.run) as (driver, more):
                prompt = AgentPrompt(
                    words,
                    self._project,
                    {**self._environment, **more},
                    session="" if job.is_resumed else job.session,
                    resume=job.session if job.is_resumed else "",
                    arguments=(*model, *job.run.arguments, *allowed),
                )
                running = driver.start(prompt)
                guard(running.pid)
                why, outcome = self._watch_agent(running, job, state, emit, watch)
        except (FlightlogError, OSError) as error:
            text = error.message if isinstance(error, FlightlogError) else str(error.strerror)
            return TaskResult("failure", 0.0, None, f"the agent cannot be started: {text}")
        stream = read_stream(outcome.records)
        self._record_missing_usage(job, stream, state, emit)
        with suppress(FlightlogError, OSError):
            self._options.keep(job.session)
        progress = fingerprint_tree(self._project) != before
        result = self._judge_outcome(why, outcome, stream, state)
        indicators = (*stream.indicators, *self._stop_signals(job.run, progress=progress))
        return result._replace(
            made_progress=progress, indicators=indicators, agent_session=job.session
        )

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
            self._show_record(record)
            call = read_model_call(record)
            if call is None or call.message_id in self._seen:
                continue
            tokens, usd = call.usage.total_tokens, price(call.model, call.usage).usd
            self._seen.add(call.message_id)
            attempt = (job.task.task_id, job.effect.attempt)
            emit(UsageRecorded(*attempt, call.message_id, call.model, tokens, usd))
        now = self._runtime.clock.now_s()
        if breaker.find_used_budget(state, now, begun=True):
            return "budget"
        return "limited" if breaker.hour_full_until(state, now) > now else ""

    def _show_record(self, record: dict[str, Any]) -> None:
        """Keep the current tool for people who look, and pass the work on to a live terminal."""
        if record.get("type") == "user":
            self.tool = ""
        for tool, text in read_activity(record):
            clean = self._options.redact(text)
            if tool:
                self.tool = f"{tool}: {shorten_text(clean, _TOOL_CHARS).value}".rstrip(": ")
            if self._options.live is not None:
                self._options.live(self.tool if tool else clean.value)

    def _record_missing_usage(
        self, job: TaskJob, stream: StreamResult, state: LoopState, emit: Emit
    ) -> None:
        """Record what the client's total has more than the calls in the stream, as no call.

        The total is that of the agent's session, of which earlier runs may be on record.
        """
        at = state.task_state(job.task.task_id)
        tokens = max(stream.total_tokens - at.session_tokens, 0)
        usd = max((stream.cost_usd or 0.0) - at.session_usd, 0.0)
        if self._seen and (tokens or usd > 1e-9):  # less is a rounding error
            attempt = (job.task.task_id, job.effect.attempt)
            emit(UsageRecorded(*attempt, "", "client", tokens, usd, calls=0))

    def _judge_outcome(
        self, why: str, outcome: AgentOutcome, stream: StreamResult, state: LoopState
    ) -> TaskResult:
        now = self._runtime.clock.now_s()
        question = self._options.redact(stream.question)
        words = self._options.redact(stream.text or outcome.stderr)
        limits = (_TEXT_CHARS, _SAID_CHARS)
        text, end = (shorten_text(words, limit, "end").value for limit in limits)
        result = TaskResult(
            "success",
            0.0,
            outcome.exit_code,
            permission_denials=len(stream.denied_tools),
            question=shorten_text(question, _QUESTION_CHARS, "end").value,
            denied_tools=tuple(filter(TOOL_RULE.fullmatch, stream.denied_tools)),
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
        if run.agent == SCRIPTED:
            with serve_scenario(load_scenario(self._project / run.scenario), keep=False) as model:
                here = {"ANTHROPIC_BASE_URL": model.url, CONFIG_DIR: str(self._options.config_dir)}
                yield scripted_driver(run.model or MODEL, VERSION), here
        else:  # `check_agents` refused any other
            named = self._runtime.environ.get("FLIGHTLOG_CLAUDE", "")
            yield ClaudeCode(find(named, self._runtime.program_path)), {}
