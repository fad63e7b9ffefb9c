"""One session from its first word to the last file it left.

    started (on record) → the agent works, each request saving the tree → its files are taken in →
    the last tree is saved → ended (on record)

What was not recorded as ended did not end: whoever takes the run up again finds it in flight.
"""

from pathlib import Path

from msgspec import Struct

from flightlog.agents.claude_code.stream import AgentResult, read_outcome
from flightlog.agents.driver import Ask, Outcome
from flightlog.agents.namespace import Means, Mount, room
from flightlog.lab.book import Book
from flightlog.lab.config import SessionConfig
from flightlog.lab.events import AgentStarted, Saved, SessionEnded, SessionStarted
from flightlog.lab.plan import Planned
from flightlog.lab.running import asking
from flightlog.lab.running.hooked import hooked
from flightlog.lab.running.stage import Stage
from flightlog.lab.running.taking import client_cost, place_parent, take_in
from flightlog.lab.running.verifying import verify
from flightlog.lab.running.wire import Line, connected
from flightlog.lab.state import Attempt
from flightlog.lab.told import EXCHANGES
from flightlog.model.text import counted
from flightlog.sources.api.proxy import Rewrite
from flightlog.store.files import ensure_dir, process_name
from flightlog.store.trees import Trees

_FOR_EVER_S = 7 * 24 * 3600.0


class Way(Struct, frozen=True):
    """Another way into a session than its configuration's: what is said first, and what is made of its requests."""

    prompt: str
    resume: str
    words: tuple[str, ...]
    rewrite: Rewrite


class Start(Struct, frozen=True):
    """Where a session begins: its tree, its own trees if it has some, and whose words it goes on from."""

    planned: Planned
    attempt: int
    tree: str
    trees: Trees | None
    private: bool
    parent: Attempt | None = None
    way: Way | None = None
    rewrite: Rewrite | None = None


def play(stage: Stage, start: Start, upstream: str) -> str:
    """Run one session to its end and return why it stopped."""
    book, planned = stage.book, start.planned
    session_id = stage.setting.runtime.new_id()
    parent_id = start.parent.session_id if start.parent else ""
    began = SessionStarted(
        planned.name, start.attempt, session_id, start.tree, planned.parent, parent_id, start.private
    )
    book.note(began, durable=True)
    stage.setting.tell(planned.name, "started", stage.purse.spent_usd)
    folder = book.path / planned.name
    ensure_dir(folder)
    line = Line(planned.name, start.attempt, start.trees, folder / EXCHANGES)
    rewrite = start.way.rewrite if start.way else start.rewrite
    with connected(stage, line, upstream, rewrite) as (base_url, losses), hooked(stage, line) as words:
        outcome = _worked(stage, start, session_id, base_url, words)
    said = read_outcome(outcome)
    reason, error = _reason(stage, said), said.error
    take_in(stage, planned.name, session_id)
    tree = last_tree(stage, start.planned.name, start.attempt, start.trees) or start.tree
    verify(stage, planned.name, start.attempt, start.trees)
    notes = [error, *(f"not kept: {loss}" for loss in losses)]
    if stage.purse.unpriced and stage.purse.left_usd is not None:
        notes.append(
            f"{counted(stage.purse.unpriced, 'answer')} without a known price: the budget could not be watched"
        )
    secrets = tuple(asking.keys(book.config, stage.setting.environ).values())
    ended = SessionEnded(
        planned.name,
        start.attempt,
        reason,
        tree,
        outcome.exit_code,
        _without("; ".join(note for note in notes if note), secrets),
        said.num_turns,
        said.cost_usd,
        session_id,
    )
    book.note(ended, durable=True)
    stage.setting.tell(planned.name, f"ended: {reason}", stage.purse.spent_usd)
    return reason


def last_tree(stage: Stage, session: str, attempt: int, trees: Trees | None, late: str = "") -> str:
    """Save the tree a session left and return its name; `late` makes it another than the one a dead process gave."""
    again = f"_a{attempt}" if attempt > 1 else ""
    saved = stage.ground.save(trees, session + again + late)
    if saved is None:
        return ""
    stage.book.note(Saved(session, attempt, saved.name, 0, at_ms=int(stage.setting.runtime.clock.now_s() * 1000)))
    return saved.name


def _worked(stage: Stage, start: Start, session_id: str, base_url: str, more: tuple[str, ...]) -> Outcome:
    book, setting = stage.book, stage.setting
    given = book.config.sessions[start.planned.index - 1]
    scratch = book.scratch
    for folder in (scratch / "tmp", scratch / "config"):
        ensure_dir(folder)
    environ = asking.environment(book.config, setting, scratch, base_url)
    if start.parent is not None:
        place_parent(stage, start.parent)
    budget = _budget(stage, given, start.parent)
    resumes = start.parent or (start.way and start.way.resume)
    words = asking.arguments(book.config, given, stage.mode, budget_usd=budget, resumes=bool(resumes))
    parent, prompt = start.parent.session_id if start.parent else "", given.prompt
    if start.way is not None:
        parent, prompt, more = start.way.resume, start.way.prompt, (*start.way.words, *more)
    ask = Ask(
        prompt,
        stage.ground.work_dir,
        environ | _told(book, stage.ground.work_dir, session_id),
        session_id,
        parent,
        bool(parent),
        (*words, *more),
        _before(stage, start),
    )
    running = stage.driver.start(ask)
    book.note(AgentStarted(start.planned.name, start.attempt, process_name(running.pid)))
    with stage.at_work(start.planned.name, running):
        return running.wait(book.config.session_timeout_seconds or _FOR_EVER_S)


def _before(stage: Stage, start: Start) -> tuple[str, ...]:
    """The agent's room: a private tree at the shared path, or at least an end that comes with ours."""
    setting, work_dir = stage.setting, stage.ground.work_dir
    if start.trees is not None and start.trees.work_tree != work_dir:
        return room(setting.means, [Mount(start.trees.work_tree, work_dir)], work_dir)
    return room(setting.means, (), work_dir) if setting.means is Means.ROOT else setting.leash


def _budget(stage: Stage, given: SessionConfig, parent: Attempt | None) -> float | None:
    """What the agent itself may count up to: a fork begins with what its parent had spent."""
    limits = [each for each in (stage.purse.left_usd, given.max_budget_usd) if each is not None]
    if not limits:
        return None
    return min(limits) + (client_cost(stage.book.path / parent.session) if parent else 0.0)


def _reason(stage: Stage, said: AgentResult) -> str:
    """The run's own reason to stop has the last word over what a stopped agent says."""
    if said.stop_reason == "completed":
        return "completed"
    if stage.purse.is_empty:
        return "budget_exhausted"
    return stage.stop_reason or said.stop_reason


def _told(book: Book, work_dir: Path, session_id: str) -> dict[str, str]:
    names = {"HARNESS_RUN_DIR": book.path, "HARNESS_WORK_DIR": work_dir, "HARNESS_SESSION_ID": session_id}
    return {name: str(value) for name, value in names.items()} if book.config.engine == "command" else {}


def _without(text: str, secrets: tuple[str, ...]) -> str:
    for secret in secrets:
        text = text.replace(secret, "[scrubbed]") if secret else text
    return text
