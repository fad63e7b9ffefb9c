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
from flightlog.lab.book import RunStore
from flightlog.lab.config import EVERY_TOOL, TOOLS, RunConfig, SessionConfig
from flightlog.lab.events import (
    RunEnded,
    RunSessionEnded,
    RunSessionStarted,
    RunSessionSummarized,
    RunStarted,
    SnapshotSaved,
)
from flightlog.lab.layout import as_json, meta_page
from flightlog.lab.lineage import StepJoin
from flightlog.lab.plan import session_dir_name
from flightlog.lab.told import rebuilt_of, steps_by_thread
from flightlog.model.known import ThreadContext
from flightlog.model.pages import OutputFile, Tier
from flightlog.model.session import Note, NoteKind, Session
from flightlog.sources.api.dumps import build_rebuilt_files
from flightlog.store.copies import copy_tree
from flightlog.store.files import replace_file, resolve_inside
from flightlog.store.pages import write_output_files
from flightlog.views.atif.emit import TrajectoryBundle, build_trajectory

TAG = "collected"
SAVED = "collected from a transcript, with the trees that were saved after its tool calls"
NOTE = "collected from a transcript: changes are rebuilt from tool calls, what shell commands changed is not known"


class CollectedSession(Struct, frozen=True):
    """A recorded session: `files` are its transcripts by their names in a run, `saved` the trees that were saved."""

    session: Session
    files: Mapping[str, bytes]
    known: Mapping[str, ThreadContext]
    saved: tuple[SnapshotSaved, ...] = ()
    shadow: Path | None = None


def collect_run(path: Path, recorded: CollectedSession, write: Callable[[Path, RunConfig], RunStore]) -> RunStore:
    """Make the run at `path` of one recorded session."""
    session, files, known = recorded.session, recorded.files, recorded.known
    book = write(path, _build_config(path.name, recorded))
    if recorded.shadow is not None:
        copy_tree(recorded.shadow, book.shadow_dir)
    folder = book.path / session_dir_name(1)
    for name, data in files.items():
        replace_file(resolve_inside(folder, name), data, durable=False)
    bundle = build_trajectory(session, known=known)
    for name, data in bundle.iter_files():
        replace_file(resolve_inside(folder, name), data, durable=False)
    lineage = StepJoin(session, bundle.documents, [], [])
    write_output_files(
        folder, [OutputFile("uuid_map.json", Tier.PRIVATE, as_json(lineage.build_uuid_map(frozenset())))], durable=False
    )
    write_output_files(folder, build_rebuilt_files(rebuilt_of(folder, session.id)), durable=False)
    entries = list(list_tool_changes(session, lineage))
    lines = b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)
    replace_file(book.path / "state_changelog.jsonl", lines, durable=False)
    _write_journal(book, recorded, bundle, len(entries))
    write_output_files(book.path, [meta_page(book.name, book.config, book.state)])
    return book


def list_tool_changes(session: Session, lineage: StepJoin) -> list[dict[str, Any]]:
    """What the tool calls of a session say they changed, in order."""
    placed = [
        (step.at_ms or 0, lane, step, lineage.step_id(lane, step))
        for lane, steps in steps_by_thread(session).items()
        for step in steps
    ]
    placed.sort(key=lambda one: one[0])
    return [
        entry
        for _, lane, step, number in placed
        for entry in rebuilt.iter_reported_changes(lane, step, number, session.cwd)
    ]


def _build_config(name: str, recorded: CollectedSession) -> RunConfig:
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


def _write_journal(book: RunStore, recorded: CollectedSession, bundle: TrajectoryBundle, writes: int) -> None:
    session, saved = recorded.session, recorded.saved
    steps = [step for own in steps_by_thread(session).values() for step in own]
    costs = [step.cost.usd for step in steps if step.cost.usd is not None]
    notes = [item for turn in session.turns for item in turn.items if isinstance(item, Note)]
    name = session_dir_name(1)
    book.append(RunStarted(book.name, "", session.agent, session.version, "", SAVED if saved else NOTE))
    book.append(RunSessionStarted(name, 1, session.id, saved[0].tree if saved else ""))
    for each in saved:
        book.append(each)
    book.append(RunSessionEnded(name, 1, "completed", saved[-1].tree if saved else ""))
    counted = RunSessionSummarized(
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
    book.append(counted)
    book.append(RunEnded(TAG, ""), durable=True)
