"""Putting a run's pages on disk: each session's when it ended, the run's after each wave.

Everything written here can be written again from the journal, the transcripts, the exchanges and
the shadow repository; what is missing after a crash is made when the run is taken up.
"""

import json

from flightlog.agents.capture import dumps
from flightlog.lab.events import RunSessionSummarized
from flightlog.lab.layout import as_json, meta_page
from flightlog.lab.replay.certificate import replay_page
from flightlog.lab.run_reader import RunSession
from flightlog.lab.run_session import rebuilt_of
from flightlog.lab.runner.context import RunContext
from flightlog.lab.store import final_session
from flightlog.model.output_files import OutputFile, Tier
from flightlog.store.files import replace_file, resolve_inside
from flightlog.store.git.snapshots import WorkTreeSnapshots
from flightlog.store.output_files import write_output_files
from flightlog.views.atif.writer import MAIN

CHANGES = ".changes.jsonl"


def publish_session(context: RunContext, name: str) -> None:
    """Write the pages of one ended session and put on record what it amounts to."""
    run = context.run
    last = run.state.last_attempt(name)
    if last is None or last.ended is None:
        return
    planned = next(each for each in run.planned_sessions() if each.name == name)
    read = RunSession(run, planned, context.work_tree.main)
    if read.calls:
        write_output_files(read.folder, dumps.build_dump_files(read.exchanges), durable=False)
    else:
        write_output_files(
            read.folder, dumps.build_rebuilt_files(rebuilt_of(read.folder, last.session_id)), durable=False
        )
    for path, data in read.bundle.iter_files() if read.bundle else ():
        if path == MAIN or run.config.capture_subagent_trajectories:
            replace_file(resolve_inside(read.folder, path), data, durable=False)
    if read.lineage is not None:
        page = OutputFile(
            "uuid_map.json", Tier.PRIVATE, as_json(read.lineage.build_uuid_map(read.inherited_message_ids))
        )
        write_output_files(read.folder, [page], durable=False)
    writes = _write_changes(context.work_tree.main, read)
    if last.counted is None:
        run.append(_count_session(read, writes), durable=True)


def publish_run(context: RunContext) -> None:
    """Write the pages of the run as it stands."""
    run = context.run
    for planned in run.planned_sessions():
        last = run.state.last_attempt(planned.name)
        if last is not None and last.ended is not None and last.counted is None:
            publish_session(context, planned.name)
    write_output_files(run.path, [meta_page(run.name, run.config, run.state)])
    if run.state.branch is not None:
        write_output_files(run.path, [replay_page(run.state)])
    trees, baseline = context.work_tree.main, run.state.baseline
    if trees is None or baseline is None or not baseline.tree:
        return
    ended = [each for each in run.planned_sessions() if (last := run.state.last_attempt(each.name)) and last.ended]
    parts = [run.path / each.name / CHANGES for each in ended]
    lines = b"".join(path.read_bytes() for path in parts if path.is_file())
    replace_file(run.path / "state_changelog.jsonl", lines, durable=False)
    last = run.state.last_attempt(final_session(ended).name) if ended else None
    final = last.ended.tree if last and last.ended else baseline.tree
    replace_file(run.path / "full_diff.patch", trees.patch_between(baseline.tree, final), durable=False)


def _write_changes(trees: WorkTreeSnapshots | None, read: RunSession) -> int:
    """Write the session's part of the changelog and its patch; return how many files were written."""
    ended = read.attempt.ended
    if trees is None or ended is None:
        return 0
    lines = [json.dumps(entry).encode() + b"\n" for entry in read.iter_changes()]
    replace_file(read.folder / CHANGES, b"".join(lines), durable=False)
    replace_file(
        read.folder / "session_diff.patch", trees.patch_between(read.attempt.tree or None, ended.tree), durable=False
    )
    return len(lines)


def _count_session(read: RunSession, writes: int) -> RunSessionSummarized:
    attempt, session = read.attempt, read.session
    own = [step for lane in read.list_threads() for step in read.own_steps(lane)]
    costs = [step.cost.usd for step in own if step.cost.usd is not None]
    spent = attempt.spent_usd
    cost = spent or (sum(costs) if costs else None)
    source = "captured responses, price table" if spent else "transcript, price table"
    return RunSessionSummarized(
        session=attempt.session,
        attempt=attempt.number,
        step_count=len(read.bundle.main.steps) if read.bundle else 0,
        turn_count=len(read.own_steps()),
        tool_call_count=sum(len(step.calls) for step in own),
        compaction_count=read.compaction_count,
        subagent_count=len(session.lanes) if session else 0,
        file_writes=writes,
        cost_usd=cost,
        cost_source=source if cost is not None else "unknown",
        has_transcript=session is not None,
        captured_requests=len(read.calls),
    )
