"""Putting a run's pages on disk: each session's when it ended, the run's after each wave.

Everything written here can be written again from the journal, the transcripts, the exchanges and
the shadow repository; what is missing after a crash is made when the run is taken up.
"""

import json

from flightlog.lab.events import SessionCounted
from flightlog.lab.layout import as_json, meta_page
from flightlog.lab.plan import trunk
from flightlog.lab.reading import Reading
from flightlog.lab.replaying.meta import replay_page
from flightlog.lab.running.stage import Stage
from flightlog.lab.told import rebuilt_of
from flightlog.model.pages import Page, Tier
from flightlog.sources.api import dumps
from flightlog.store.files import inside, replace
from flightlog.store.pages import publish
from flightlog.store.trees import Trees
from flightlog.views.atif.emit import MAIN

CHANGES = ".changes.jsonl"


def publish_session(stage: Stage, name: str) -> None:
    """Write the pages of one ended session and put on record what it amounts to."""
    book = stage.book
    last = book.state.last(name)
    if last is None or last.ended is None:
        return
    planned = next(each for each in book.planned() if each.name == name)
    read = Reading(book, planned, stage.ground.main)
    if read.calls:
        publish(read.folder, dumps.pages(read.exchanges), durable=False)
    else:
        publish(read.folder, dumps.rebuilt_pages(rebuilt_of(read.folder, last.session_id)), durable=False)
    for path, data in read.bundle.files() if read.bundle else ():
        if path == MAIN or book.config.capture_subagent_trajectories:
            replace(inside(read.folder, path), data, durable=False)
    if read.lineage is not None:
        page = Page("uuid_map.json", Tier.PRIVATE, as_json(read.lineage.map(read.copied)))
        publish(read.folder, [page], durable=False)
    writes = _changes(stage.ground.main, read)
    if last.counted is None:
        book.note(_counted(read, writes), durable=True)


def publish_run(stage: Stage) -> None:
    """Write the pages of the run as it stands."""
    book = stage.book
    for planned in book.planned():
        last = book.state.last(planned.name)
        if last is not None and last.ended is not None and last.counted is None:
            publish_session(stage, planned.name)
    publish(book.path, [meta_page(book.name, book.config, book.state)])
    if book.state.branch is not None:
        publish(book.path, [replay_page(book.state)])
    trees, baseline = stage.ground.main, book.state.baseline
    if trees is None or baseline is None or not baseline.tree:
        return
    ended = [each for each in book.planned() if (last := book.state.last(each.name)) and last.ended]
    parts = [book.path / each.name / CHANGES for each in ended]
    lines = b"".join(path.read_bytes() for path in parts if path.is_file())
    replace(book.path / "state_changelog.jsonl", lines, durable=False)
    last = book.state.last(trunk(ended).name) if ended else None
    final = last.ended.tree if last and last.ended else baseline.tree
    replace(book.path / "full_diff.patch", trees.patch(baseline.tree, final), durable=False)


def _changes(trees: Trees | None, read: Reading) -> int:
    """Write the session's part of the changelog and its patch; return how many files were written."""
    ended = read.attempt.ended
    if trees is None or ended is None:
        return 0
    lines = [json.dumps(entry).encode() + b"\n" for entry in read.changes()]
    replace(read.folder / CHANGES, b"".join(lines), durable=False)
    replace(read.folder / "session_diff.patch", trees.patch(read.attempt.tree or None, ended.tree), durable=False)
    return len(lines)


def _counted(read: Reading, writes: int) -> SessionCounted:
    attempt, session = read.attempt, read.session
    own = [step for lane in read.lanes() for step in read.steps(lane)]
    costs = [step.cost.usd for step in own if step.cost.usd is not None]
    spent = attempt.spent_usd
    cost = spent or (sum(costs) if costs else None)
    source = "captured responses, price table" if spent else "transcript, price table"
    return SessionCounted(
        session=attempt.session,
        attempt=attempt.number,
        step_count=len(read.bundle.main.steps) if read.bundle else 0,
        turn_count=len(read.steps()),
        tool_call_count=sum(len(step.calls) for step in own),
        compaction_count=read.compactions,
        subagent_count=len(session.lanes) if session else 0,
        file_writes=writes,
        cost_usd=cost,
        cost_source=source if cost is not None else "unknown",
        has_transcript=session is not None,
        captured_requests=len(read.calls),
    )
