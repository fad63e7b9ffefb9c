"""Run one session, here or as a job.

The run's copy is the agent's own bytes but for the credentials it was given, which never stand in
a run. A session that goes on from another finds its transcript again by the copy in the run, so
a run that was moved can be taken up on another machine.

started (on record) → the agent works, each request saving the tree → its files are taken in →
    the last tree is saved → ended (on record)

What was not recorded as ended did not end: whoever takes the run up again finds it in flight.
"""

from pathlib import Path

from msgspec import Struct

from flightlog.agents import source_of
from flightlog.agents.capture.proxy import Rewrite
from flightlog.agents.capture.sanitize import Scrubber
from flightlog.agents.claude_code.files import AGENT_NAME
from flightlog.agents.claude_code.resume import find_config_dir, list_output, project_dir, transcript_file
from flightlog.agents.claude_code.stream import AgentResult, read_outcome
from flightlog.agents.protocol import AgentOutcome, AgentPrompt
from flightlog.agents.sandbox import BindMount, IsolationMode, isolation_prefix
from flightlog.archive.session_reader import list_session_folder
from flightlog.lab.config import SessionConfig
from flightlog.lab.events import AgentStarted, RunSessionEnded, RunSessionStarted, SnapshotSaved
from flightlog.lab.run_session import EXCHANGES
from flightlog.lab.runner import agent_setup
from flightlog.lab.runner.agent_setup import agent_credentials, config_dir, has_own_config_dir
from flightlog.lab.runner.capture import CaptureTarget, capture_session, snapshot_hook
from flightlog.lab.runner.commands import run_verifiers
from flightlog.lab.runner.context import RunContext
from flightlog.lab.state import SessionAttempt
from flightlog.lab.store import PlannedSession, RunStore
from flightlog.model.text import pluralize
from flightlog.store.files import ensure_dir, process_name, replace_file, resolve_inside
from flightlog.store.git.snapshots import WorkTreeSnapshots
from flightlog.store.recordings.adoption import TRANSCRIPT

_FOR_EVER_S = 7 * 24 * 3600.0


def collect_output(stage: RunContext, session: str, session_id: str) -> bool:
    """Copy what the agent wrote into the session's directory; say whether there was a transcript."""
    scrub = Scrubber(agent_credentials(stage.book.config, stage.setting.environ).values())
    folder = stage.book.path / session
    found = False
    for name, path in list_output(transcript_dir(stage), session_id):
        data = path.read_bytes()
        replace_file(resolve_inside(folder, name), scrub.clean_bytes(data), durable=True)
        found = found or name == TRANSCRIPT
    return found


def place_transcript(stage: RunContext, parent: SessionAttempt) -> None:
    """Put the transcript a session goes on from where its agent looks for it."""
    there = transcript_file(transcript_dir(stage), parent.session_id)
    kept = stage.book.path / parent.session / TRANSCRIPT
    if not there.exists() and kept.exists():
        ensure_dir(there.parent)
        replace_file(there, kept.read_bytes(), durable=False)


def client_cost(folder: Path) -> float:
    """Return what the client says a session had cost at its end, which a fork of it begins with."""
    main = [file for file in list_session_folder(folder, "") if not file.lane]
    totals = [total for file in main for total in source_of(AGENT_NAME).scan_usage(file).totals]
    return totals[-1].total_usd if totals else 0.0


def transcript_dir(stage: RunContext) -> Path:
    """Return where the agent keeps the transcripts of the work directory."""
    config, setting = stage.book.config, stage.setting
    own = has_own_config_dir(config, setting.environ)
    root = config_dir(stage.book.scratch_dir) if own else find_config_dir(setting.environ, setting.home)
    return project_dir(root, stage.ground.work_dir)


class ResumePoint(Struct, frozen=True):
    """Another way into a session than its configuration's: what is said first, and what is made of its requests."""

    prompt: str
    resume: str
    words: tuple[str, ...]
    rewrite: Rewrite


class SessionStart(Struct, frozen=True):
    """Where a session begins: its tree, its own trees if it has some, and whose words it goes on from."""

    planned: PlannedSession
    attempt: int
    tree: str
    trees: WorkTreeSnapshots | None
    private: bool
    parent: SessionAttempt | None = None
    way: ResumePoint | None = None
    rewrite: Rewrite | None = None


def run_session(stage: RunContext, start: SessionStart, upstream: str) -> str:
    """Run one session to its end and return why it stopped."""
    book, planned = stage.book, start.planned
    session_id = stage.setting.runtime.new_id()
    parent_id = start.parent.session_id if start.parent else ""
    began = RunSessionStarted(
        planned.name, start.attempt, session_id, start.tree, planned.parent, parent_id, start.private
    )
    book.append(began, durable=True)
    stage.setting.tell(planned.name, "started", stage.purse.spent_usd)
    folder = book.path / planned.name
    ensure_dir(folder)
    line = CaptureTarget(planned.name, start.attempt, start.trees, folder / EXCHANGES)
    rewrite = start.way.rewrite if start.way else start.rewrite
    with capture_session(stage, line, upstream, rewrite) as (base_url, losses), snapshot_hook(stage, line) as words:
        outcome = _run_agent(stage, start, session_id, base_url, words)
    said = read_outcome(outcome)
    reason, error = _stop_reason(stage, said), said.error
    collect_output(stage, planned.name, session_id)
    tree = last_tree(stage, start.planned.name, start.attempt, start.trees) or start.tree
    run_verifiers(stage, planned.name, start.attempt, start.trees)
    notes = [error, *(f"not kept: {loss}" for loss in losses)]
    if stage.purse.unpriced and stage.purse.remaining_usd is not None:
        notes.append(
            f"{pluralize(stage.purse.unpriced, 'answer')} without a known price: the budget could not be watched"
        )
    secrets = tuple(agent_setup.agent_credentials(book.config, stage.setting.environ).values())
    ended = RunSessionEnded(
        planned.name,
        start.attempt,
        reason,
        tree,
        outcome.exit_code,
        _scrub_secrets("; ".join(note for note in notes if note), secrets),
        said.num_turns,
        said.cost_usd,
        session_id,
    )
    book.append(ended, durable=True)
    stage.setting.tell(planned.name, f"ended: {reason}", stage.purse.spent_usd)
    return reason


def last_tree(stage: RunContext, session: str, attempt: int, trees: WorkTreeSnapshots | None, late: str = "") -> str:
    """Save the tree a session left and return its name; `late` makes it another than the one a dead process gave."""
    again = f"_a{attempt}" if attempt > 1 else ""
    saved = stage.ground.save_tree(trees, session + again + late)
    if saved is None:
        return ""
    stage.book.append(
        SnapshotSaved(session, attempt, saved.name, 0, at_ms=int(stage.setting.runtime.clock.now_s() * 1000))
    )
    return saved.name


def _run_agent(
    stage: RunContext, start: SessionStart, session_id: str, base_url: str, more: tuple[str, ...]
) -> AgentOutcome:
    book, setting = stage.book, stage.setting
    given = book.config.sessions[start.planned.index - 1]
    scratch = book.scratch_dir
    for folder in (scratch / "tmp", scratch / "config"):
        ensure_dir(folder)
    environ = agent_setup.agent_environment(book.config, setting, scratch, base_url)
    if start.parent is not None:
        place_transcript(stage, start.parent)
    budget = _session_budget(stage, given, start.parent)
    resumes = start.parent or (start.way and start.way.resume)
    words = agent_setup.agent_arguments(book.config, given, stage.mode, budget_usd=budget, resumes=bool(resumes))
    parent, prompt = start.parent.session_id if start.parent else "", given.prompt
    if start.way is not None:
        parent, prompt, more = start.way.resume, start.way.prompt, (*start.way.words, *more)
    ask = AgentPrompt(
        prompt,
        stage.ground.work_dir,
        environ | _harness_environment(book, stage.ground.work_dir, session_id),
        session_id,
        parent,
        bool(parent),
        (*words, *more),
        _command_prefix(stage, start),
    )
    running = stage.driver.start(ask)
    book.append(AgentStarted(start.planned.name, start.attempt, process_name(running.pid)))
    with stage.track_agent(start.planned.name, running):
        return running.wait(book.config.session_timeout_seconds or _FOR_EVER_S)


def _command_prefix(stage: RunContext, start: SessionStart) -> tuple[str, ...]:
    """The agent's room: a private tree at the shared path, or at least an end that comes with ours."""
    setting, work_dir = stage.setting, stage.ground.work_dir
    if start.trees is not None and start.trees.work_tree != work_dir:
        return isolation_prefix(setting.means, [BindMount(start.trees.work_tree, work_dir)], work_dir)
    return isolation_prefix(setting.means, (), work_dir) if setting.means is IsolationMode.ROOT else setting.leash


def _session_budget(stage: RunContext, given: SessionConfig, parent: SessionAttempt | None) -> float | None:
    """What the agent itself may count up to: a fork begins with what its parent had spent."""
    limits = [each for each in (stage.purse.remaining_usd, given.max_budget_usd) if each is not None]
    if not limits:
        return None
    return min(limits) + (client_cost(stage.book.path / parent.session) if parent else 0.0)


def _stop_reason(stage: RunContext, said: AgentResult) -> str:
    """The run's own reason to stop has the last word over what a stopped agent says."""
    if said.stop_reason == "completed":
        return "completed"
    if stage.purse.is_empty:
        return "budget_exhausted"
    return stage.stop_reason or said.stop_reason


def _harness_environment(book: RunStore, work_dir: Path, session_id: str) -> dict[str, str]:
    names = {"HARNESS_RUN_DIR": book.path, "HARNESS_WORK_DIR": work_dir, "HARNESS_SESSION_ID": session_id}
    return {name: str(value) for name, value in names.items()} if book.config.engine == "command" else {}


def _scrub_secrets(text: str, secrets: tuple[str, ...]) -> str:
    for secret in secrets:
        text = text.replace(secret, "[scrubbed]") if secret else text
    return text
