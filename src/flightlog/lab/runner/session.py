"""Run one session, and collect what its agent wrote.

The order of records makes a crash visible: session started -> the agent works, each request saves
the tree -> its files are collected -> the last tree is saved -> session ended. A session without an
end on record was in flight when its process died.

The run's copy of a transcript is the agent's own bytes without the credentials the agent was given.
A session that continues another finds that session's transcript through this copy, so a run that
was moved can be continued on another machine.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from flightlog.agents import source_of
from flightlog.agents.capture.proxy import Rewrite
from flightlog.agents.capture.sanitize import Scrubber
from flightlog.agents.claude_code.driver import is_too_long
from flightlog.agents.claude_code.files import AGENT_NAME
from flightlog.agents.claude_code.resume import (
    find_config_dir,
    list_output,
    project_dir,
    restore_edits,
    transcript_file,
)
from flightlog.agents.claude_code.stream import AgentResult, read_outcome
from flightlog.agents.process import end_process_tree
from flightlog.agents.protocol import AgentOutcome, AgentPrompt
from flightlog.agents.scripted.server import serve_scenario
from flightlog.archive.session_reader import list_session_folder
from flightlog.lab.config import RunConfig, SessionConfig
from flightlog.lab.events import AgentStarted, RunSessionEnded, RunSessionStarted, SnapshotSaved
from flightlog.lab.runner import agent_setup
from flightlog.lab.runner.capture import CaptureTarget, capture_session, snapshot_hook
from flightlog.lab.runner.commands import run_verifiers
from flightlog.lab.runner.context import RunContext
from flightlog.lab.state import SessionAttempt
from flightlog.lab.store import SOURCE, PlannedSession
from flightlog.model.errors import Conflict
from flightlog.model.text import pluralize
from flightlog.store.exchanges import EXCHANGES
from flightlog.store.files import ensure_dir, is_running, process_name, replace_file, resolve_inside
from flightlog.store.git.snapshots import WorkTreeSnapshots
from flightlog.store.recordings.adoption import TRANSCRIPT

_NO_TIMEOUT_S = 7 * 24 * 3600.0  # a week: waiting needs some number, and no session takes that long


def collect_output(context: RunContext, session: str, session_id: str) -> bool:
    """Copy the agent's output into the session's directory; return whether it has a transcript."""
    scrub = _make_scrubber(context)
    folder = context.run.path / session
    has_transcript = False
    for name, path in list_output(transcript_dir(context), session_id):
        data = path.read_bytes()
        source = context.run.path / SOURCE / TRANSCRIPT
        if name == TRANSCRIPT and source.exists():  # a replay placed it with other calls
            lines = source.read_bytes().splitlines(keepends=True)
            data = b"".join(restore_edits(data.splitlines(keepends=True), lines))
        replace_file(resolve_inside(folder, name), scrub.clean_bytes(data), durable=True)
        has_transcript = has_transcript or name == TRANSCRIPT
    return has_transcript


def _make_scrubber(context: RunContext) -> Scrubber:
    return Scrubber(agent_setup.known_secrets(context.run.config, context.environment.environ))


def place_transcript(context: RunContext, parent: SessionAttempt) -> None:
    """Put the transcript that a session continues where its agent looks for it."""
    target = transcript_file(transcript_dir(context), parent.session_id)
    copy = context.run.path / parent.session / TRANSCRIPT
    is_edited = (context.run.path / SOURCE / TRANSCRIPT).exists()  # by `write_edits_whole`
    if (is_edited or not target.exists()) and copy.exists():
        ensure_dir(target.parent)
        replace_file(target, copy.read_bytes(), durable=False)


def client_cost(folder: Path) -> float:
    """Return the client's own total at the end of a session; a fork of it starts with that."""
    main = [file for file in list_session_folder(folder, "") if not file.subagent]
    totals = [total for file in main for total in source_of(AGENT_NAME).scan_usage(file).totals]
    return (totals[-1].cost_usd or 0.0) if totals else 0.0


def transcript_dir(context: RunContext) -> Path:
    """Return the directory of the agent's transcripts of the work directory."""
    config, environment = context.run.config, context.environment
    own = agent_setup.has_own_config_dir(config, environment.environ)
    root = find_config_dir(environment.environ, environment.home)
    if own:
        root = agent_setup.config_dir(context.run.scratch_dir)
    return project_dir(root, context.work_tree.work_dir)


class SessionStart(Struct, frozen=True):
    """Where one attempt at a session starts.

    `tree` is the snapshot its files begin with, `trees` its snapshots, `parent` the attempt whose
    conversation it continues. In a replay `prompt` replaces the configured prompt, `resume` is the
    transcript to resume, `arguments` go to the agent, and `rewrite` edits each request; `certify`
    runs before the agent starts, and raises Conflict to refuse it.
    """

    planned: PlannedSession
    attempt: int
    tree: str
    trees: WorkTreeSnapshots | None
    private: bool
    parent: SessionAttempt | None = None
    prompt: str = ""
    resume: str = ""
    arguments: tuple[str, ...] = ()
    rewrite: Rewrite | None = None
    certify: Callable[[], None] | None = None

    @property
    def work_tree(self) -> Path | None:
        """Where its files are; None if changes are not tracked."""
        return self.trees.work_tree if self.trees is not None else None


@contextmanager
def scripted_model(config: RunConfig) -> Iterator[str]:
    """Serve the scripted model of a configuration and yield its address; without one, yield ""."""
    if config.scenario is None:
        yield ""
        return
    with serve_scenario(config.scenario, keep=False) as server:
        yield server.url


def run_session(context: RunContext, start: SessionStart, upstream: str) -> str:
    """Run one session to its end and return why it stopped."""
    run, planned, budget = context.run, start.planned, context.budget
    session_id = context.environment.runtime.new_id()
    parent_id = start.parent.session_id if start.parent else ""
    origin = (planned.parent_session, parent_id, start.private)
    attempt = (planned.session_dir, start.attempt, session_id, start.tree)
    run.append(RunSessionStarted(*attempt, *origin), durable=True)
    context.environment.tell(planned.session_dir, "started", budget.spent_usd)
    try:
        if start.certify is not None:
            start.certify()
    except Conflict as refusal:
        ended = (planned.session_dir, start.attempt, "error", start.tree)
        run.append(RunSessionEnded(*ended, error=str(refusal)), durable=True)
        return "error"
    folder = run.path / planned.session_dir
    ensure_dir(folder)
    target = CaptureTarget(planned.session_dir, start.attempt, start.trees, folder / EXCHANGES)
    with (
        capture_session(context, target, upstream, start.rewrite) as (base_url, losses),
        snapshot_hook(context, target) as hook_arguments,
    ):
        outcome = _run_agent(context, start, session_id, base_url, hook_arguments)
    result = read_outcome(outcome)
    reason = _stop_reason(context, result)
    collect_output(context, planned.session_dir, session_id)
    tree = last_tree(context, planned.session_dir, start.attempt, start.trees) or start.tree
    run_verifiers(context, planned.session_dir, start.attempt, start.trees)
    notes = [result.error, *(f"not kept: {loss}" for loss in losses)]
    if budget.unpriced and budget.remaining_usd is not None:
        answers = pluralize(budget.unpriced, "answer")
        notes.append(f"{answers} of unknown price: the budget could not be enforced")
    error = "; ".join(note for note in notes if note)
    error = _make_scrubber(context).clean_text(error)
    outcome_fields = (outcome.exit_code, error, result.num_turns, result.cost_usd, session_id)
    run.append(
        RunSessionEnded(planned.session_dir, start.attempt, reason, tree, *outcome_fields),
        durable=True,
    )
    context.environment.tell(planned.session_dir, f"ended: {reason}", budget.spent_usd)
    return reason


def kill_agent(attempt: SessionAttempt) -> None:
    """Kill the agent of an attempt whose own process died, if it still runs."""
    if attempt.process and is_running(attempt.process):
        end_process_tree(int(attempt.process.partition("-")[0]))


def last_tree(
    context: RunContext,
    session: str,
    attempt: int,
    trees: WorkTreeSnapshots | None,
    suffix: str = "",
) -> str:
    """Save the tree that a session left and return its name ("" if untracked).

    `suffix` keeps the name apart from one that a dead process may have used.
    """
    again = f"_a{attempt}" if attempt > 1 else ""
    saved = context.work_tree.save_tree(trees, session + again + suffix)
    if saved is None:
        return ""
    at_ms = int(context.environment.runtime.clock.now_s() * 1000)
    context.run.append(SnapshotSaved(session, attempt, saved.name, 0, at_ms=at_ms))
    return saved.name


def _run_agent(
    context: RunContext,
    start: SessionStart,
    session_id: str,
    base_url: str,
    hook_arguments: tuple[str, ...],
) -> AgentOutcome:
    run, environment = context.run, context.environment
    config, work_dir = run.config, context.work_tree.work_dir
    session = config.sessions[start.planned.session_index - 1]
    for folder in (run.scratch_dir / "tmp", run.scratch_dir / "config"):
        ensure_dir(folder)
    environ = agent_setup.agent_environment(config, environment, run.scratch_dir, base_url)
    if config.engine == "command":
        environ |= {"HARNESS_RUN_DIR": str(run.path), "HARNESS_WORK_DIR": str(work_dir)}
        environ |= {"HARNESS_SESSION_ID": session_id}
    if start.parent is not None:
        place_transcript(context, start.parent)
    resume = start.resume or (start.parent.session_id if start.parent else "")
    budget_usd = _session_budget(context, session, start.parent)
    arguments = agent_setup.agent_arguments(
        config, session, context.mode, budget_usd=budget_usd, resumes=bool(resume)
    )
    own_arguments = agent_setup.own_arguments(config, environment.environ)
    arguments = _put_long_prompt_aside(arguments, run.scratch_dir / "tmp" / f"{session_id}.txt")
    prompt = AgentPrompt(
        start.prompt or session.prompt,
        work_dir,
        environ,
        session_id,
        resume,
        bool(resume),
        (*arguments, *own_arguments, *start.arguments, *hook_arguments),
        context.command_prefix(start.work_tree or context.work_tree.tree),
    )
    agent = context.driver.start(prompt)
    run.append(AgentStarted(start.planned.session_dir, start.attempt, process_name(agent.pid)))
    with context.track_agent(start.planned.session_dir, agent):
        return agent.wait(config.session_timeout_seconds or _NO_TIMEOUT_S)


def _put_long_prompt_aside(arguments: list[str], path: Path) -> list[str]:
    """Write a system prompt that is too long for a command into the file `path`."""
    option = "--system-prompt"
    if option not in arguments or not is_too_long(arguments[arguments.index(option) + 1]):
        return arguments
    at = arguments.index(option)
    replace_file(path, arguments[at + 1].encode(), durable=False)
    return [*arguments[:at], f"{option}-file", str(path), *arguments[at + 2 :]]


def _session_budget(
    context: RunContext, session: SessionConfig, parent: SessionAttempt | None
) -> float | None:
    """Return the limit for the agent's own counter, which in a fork starts at its parent's cost."""
    limits = [
        usd for usd in (context.budget.remaining_usd, session.max_budget_usd) if usd is not None
    ]
    if not limits:
        return None
    return min(limits) + (client_cost(context.run.path / parent.session) if parent else 0.0)


def _stop_reason(context: RunContext, result: AgentResult) -> str:
    """Return why a session stopped; the run's own reason overrides what a stopped agent reports."""
    if result.stop_reason == "completed":
        return "completed"
    if context.budget.is_empty:
        return "budget_exhausted"
    return context.stop_reason or result.stop_reason
