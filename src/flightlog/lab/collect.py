"""Sessions that are already recorded, made into runs: the same directory, as far as a transcript goes.

Nothing was captured and no tree saved, so there are no requests, no snapshots and no exact
attribution; changes are rebuilt from tool calls and say so. The run's journal tells that it was
collected, and every command that reads runs reads it.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from flightlog.lab import rebuilt
from flightlog.lab.book import Book
from flightlog.lab.config import EVERY_TOOL, TOOLS, RunConfig, SessionConfig
from flightlog.lab.events import RunEnded, RunStarted, Saved, SessionCounted, SessionEnded, SessionStarted
from flightlog.lab.layout import as_json, meta_page
from flightlog.lab.lineage import Lineage
from flightlog.lab.plan import directory
from flightlog.lab.told import lanes_of, rebuilt_of
from flightlog.model.known import Known
from flightlog.model.pages import Page, Tier
from flightlog.model.session import Note, NoteKind, Session
from flightlog.sources.api.dumps import rebuilt_pages
from flightlog.store.copies import copy_tree
from flightlog.store.files import inside, replace
from flightlog.store.pages import publish
from flightlog.views.atif.emit import Bundle, trajectory

TAG = "collected"
SAVED = "collected from a transcript, with the trees that were saved after its tool calls"
NOTE = "collected from a transcript: changes are rebuilt from tool calls, what shell commands changed is not known"


class Recorded(Struct, frozen=True):
    """A recorded session: `files` are its transcripts by their names in a run, `saved` the trees that were saved."""

    session: Session
    files: Mapping[str, bytes]
    known: Mapping[str, Known]
    saved: tuple[Saved, ...] = ()
    shadow: Path | None = None


def collect(path: Path, recorded: Recorded, write: Callable[[Path, RunConfig], Book]) -> Book:
    """Make the run at `path` of one recorded session."""
    session, files, known = recorded.session, recorded.files, recorded.known
    book = write(path, _config(path.name, recorded))
    if recorded.shadow is not None:
        copy_tree(recorded.shadow, book.shadow)
    folder = book.path / directory(1)
    for name, data in files.items():
        replace(inside(folder, name), data, durable=False)
    bundle = trajectory(session, known=known)
    for name, data in bundle.files():
        replace(inside(folder, name), data, durable=False)
    lineage = Lineage(session, bundle.documents, [], [])
    publish(folder, [Page("uuid_map.json", Tier.PRIVATE, as_json(lineage.map(frozenset())))], durable=False)
    publish(folder, rebuilt_pages(rebuilt_of(folder, session.id)), durable=False)
    entries = list(changes(session, lineage))
    lines = b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)
    replace(book.path / "state_changelog.jsonl", lines, durable=False)
    _journalled(book, recorded, bundle, len(entries))
    publish(book.path, [meta_page(book.name, book.config, book.state)])
    return book


def changes(session: Session, lineage: Lineage) -> list[dict[str, Any]]:
    """What the tool calls of a session say they changed, in order."""
    placed = [
        (step.at_ms or 0, lane, step, lineage.step_id(lane, step))
        for lane, steps in lanes_of(session).items()
        for step in steps
    ]
    placed.sort(key=lambda one: one[0])
    return [entry for _, lane, step, number in placed for entry in rebuilt.entries(lane, step, number, session.cwd)]


def _config(name: str, recorded: Recorded) -> RunConfig:
    session = recorded.session
    prompt = next((turn.text for turn in session.turns if turn.text.strip()), "") or "(no prompt on record)"
    models = [step.model for step in session.steps if step.model]
    used = [call.name for step in session.steps for call in step.calls]
    return RunConfig(
        model=models[0] if models else "unknown",
        work_dir=session.cwd or "unknown",
        sessions=(SessionConfig(1, prompt),),
        run_name=name,
        tags=(TAG,),
        memory_file=None,
        capture_api_requests=False,
        track_changes=bool(recorded.saved),
        allowed_tools=tuple(dict.fromkeys((EVERY_TOOL, *TOOLS, *used))),
    )


def _journalled(book: Book, recorded: Recorded, bundle: Bundle, writes: int) -> None:
    session, saved = recorded.session, recorded.saved
    steps = [step for own in lanes_of(session).values() for step in own]
    costs = [step.cost.usd for step in steps if step.cost.usd is not None]
    notes = [item for turn in session.turns for item in turn.items if isinstance(item, Note)]
    name = directory(1)
    book.note(RunStarted(book.name, "", session.agent, session.version, "", SAVED if saved else NOTE))
    book.note(SessionStarted(name, 1, session.id, saved[0].tree if saved else ""))
    for each in saved:
        book.note(each)
    book.note(SessionEnded(name, 1, "completed", saved[-1].tree if saved else ""))
    counted = SessionCounted(
        session=name,
        attempt=1,
        step_count=len(bundle.main.steps),
        turn_count=len(session.steps),
        tool_call_count=sum(len(step.calls) for step in steps),
        compaction_count=sum(note.kind is NoteKind.COMPACTION for note in notes),
        subagent_count=len(session.lanes),
        file_writes=writes,
        cost_usd=sum(costs) if costs else None,
        cost_source="transcript, price table" if costs else "unknown",
    )
    book.note(counted)
    book.note(RunEnded(TAG, ""), durable=True)
