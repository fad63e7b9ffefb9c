"""Putting a run's pages on disk: each session's when it ended, the run's after each wave.

Everything written here can be written again from the journal, the transcripts, the exchanges and
the shadow repository; what is missing after a crash is made when the run is taken up.
"""

import json
from pathlib import Path
from typing import Any

from msgspec import Struct

from flightlog.lab import changelog
from flightlog.lab.book import Book
from flightlog.lab.changes import intervals
from flightlog.lab.events import SessionCounted
from flightlog.lab.layout import as_json, meta_page
from flightlog.lab.lineage import Lineage
from flightlog.lab.plan import Planned, trunk
from flightlog.lab.running.stage import Stage
from flightlog.lab.state import Attempt
from flightlog.lab.told import Call, calls_of, exchanges_of, lanes_of, message_ids, session_of
from flightlog.model.pages import Page, Tier
from flightlog.model.session import Note, NoteKind, Session
from flightlog.sources.api import dumps
from flightlog.store.files import inside, replace
from flightlog.store.pages import publish
from flightlog.store.trees import Trees
from flightlog.views.atif.emit import MAIN, Bundle, Known, trajectory

CHANGES = ".changes.jsonl"


class Made(Struct):
    """What is worked out of one session on the way to its pages."""

    folder: Path
    attempt: Attempt
    session: Session | None
    calls: list[Call]
    copied: frozenset[str]


def publish_session(stage: Stage, name: str) -> None:
    """Write the pages of one ended session and put on record what it amounts to."""
    book = stage.book
    attempt = book.state.last(name)
    planned = next(each for each in book.planned() if each.name == name)
    if attempt is None or attempt.ended is None:
        return
    folder = book.path / name
    agent = book.state.started.agent if book.state.started else ""
    session = session_of(folder, attempt.session_id, agent)
    captured = exchanges_of(folder)
    calls = calls_of(captured)
    publish(folder, dumps.pages(captured), durable=False) if calls else None
    made = Made(folder, attempt, session, calls, _copied(book, planned, agent))
    lineage = None
    steps = 0
    if session is not None:
        bundle = _trajectories(book, made, [] if not calls else json_rows(folder))
        steps = len(bundle.main.steps)
        lineage = Lineage(session, bundle.documents, calls, attempt.saved)
        publish(folder, [Page("uuid_map.json", Tier.PRIVATE, as_json(lineage.map(made.copied)))], durable=False)
    writes = _changes(stage.ground.main, planned, made, lineage)
    if attempt.counted is None:
        book.note(_counted(made, steps, writes), durable=True)


def publish_run(stage: Stage) -> None:
    """Write the pages of the run as it stands."""
    book = stage.book
    for planned in book.planned():
        last = book.state.last(planned.name)
        if last is not None and last.ended is not None and last.counted is None:
            publish_session(stage, planned.name)
    publish(book.path, [meta_page(book.name, book.config, book.state)])
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


def json_rows(folder: Path) -> list[dict[str, Any]]:
    """Read the page of captured requests back: the first line of each thread has its prompt and tools."""
    return [json.loads(line) for line in (folder / "api_captures.jsonl").read_bytes().splitlines()]


def _copied(book: Book, planned: Planned, agent: str) -> frozenset[str]:
    """The responses a session holds only because the one it goes on from gave them."""
    parent = book.state.last(planned.parent) if planned.parent else None
    if parent is None:
        return frozenset()
    return message_ids(session_of(book.path / parent.session, parent.session_id, agent))


def _trajectories(book: Book, made: Made, rows: list[dict[str, Any]]) -> Bundle:
    assert made.session is not None
    bundle = trajectory(made.session, known=_known(made, rows))
    wanted = bundle.files() if book.config.capture_subagent_trajectories else [(MAIN, dict(bundle.files())[MAIN])]
    for name, data in wanted:
        replace(inside(made.folder, name), data, durable=False)
    return bundle


def _known(made: Made, rows: list[dict[str, Any]]) -> dict[str, Known]:
    """What the requests say that the transcript does not: the tools and the system prompt."""
    said: dict[str, Any] = {}
    known: dict[str, Known] = {"": Known(copied=made.copied)}
    for row in rows:
        said |= {row[hashed]: row[name] for name, hashed in (("tools", "tools_hash"),) if name in row}
        lane = row["agent_id"] or ""
        if (
            row["agent_context"] in {"main", "subagent"}
            and row.get("tools_hash")
            and not known.get(lane, Known()).tools
        ):
            tools = tuple(tool for tool in said[row["tools_hash"]] if isinstance(tool, dict) and "name" in tool)
            known[lane] = Known(tools=tools, copied=made.copied)
    return known


def _changes(trees: Trees | None, planned: Planned, made: Made, lineage: Lineage | None) -> int:
    """Write the session's part of the changelog and its patch; return how many files were written."""
    attempt = made.attempt
    if trees is None or attempt.ended is None:
        return 0
    head: dict[str, Any] = {"session_index": planned.index}
    head |= {"replicate": planned.replicate} if planned.replicate else {}
    lines = []
    for interval in intervals(attempt.tree, attempt.saved, made.calls, made.session):
        owner = interval.owner
        step = lineage.step_id(owner.lane, owner.step) if lineage and owner else None
        stamped = head | {"timestamp": interval.at_ms}
        lines += [_line(entry) for entry in changelog.entries(trees, interval, stamped, step)]
    replace(made.folder / CHANGES, b"".join(lines), durable=False)
    patch = trees.patch(attempt.tree, attempt.ended.tree)
    replace(made.folder / "session_diff.patch", patch, durable=False)
    return len(lines)


def _line(entry: dict[str, Any]) -> bytes:
    return json.dumps(entry, ensure_ascii=True).encode() + b"\n"


def _counted(made: Made, steps: int, writes: int) -> SessionCounted:
    attempt, session = made.attempt, made.session
    own = [
        step
        for each in (lanes_of(session) if session else {}).values()
        for step in each
        if step.message_id not in made.copied
    ]
    main = [step for step in (session.steps if session else ()) if step.message_id not in made.copied]
    costs = [step.cost.usd for step in own]
    usd = sum(each for each in costs if each is not None) if any(each is not None for each in costs) else None
    spent = attempt.spent_usd
    cost, source = (spent, "captured responses, price table") if spent else (usd, "transcript, price table")
    notes = [item for turn in (session.turns if session else ()) for item in turn.items if isinstance(item, Note)]
    return SessionCounted(
        attempt.session,
        attempt.number,
        steps,
        len(main),
        sum(len(step.calls) for step in own),
        sum(note.kind is NoteKind.COMPACTION for note in notes),
        len(session.lanes) if session else 0,
        writes,
        cost,
        source if cost is not None else "unknown",
        session is not None,
        len(made.calls),
    )
