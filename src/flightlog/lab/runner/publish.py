"""Write the output files of a run: a session's when it ended, the run's after each wave.

Everything here can be written again from the journal, the transcripts, the exchanges and the shadow
repository; files missing after a crash are written when the run is continued.
"""

import json
import math

from flightlog.agents.capture import dumps
from flightlog.lab.events import RunSessionSummarized
from flightlog.lab.layout import as_json, meta_page
from flightlog.lab.replay.certificate import replay_page
from flightlog.lab.run_reader import RunSession
from flightlog.lab.run_session import rebuilt_of
from flightlog.lab.runner.context import RunContext
from flightlog.model.output_files import OutputFile, Tier
from flightlog.store.files import replace_file, resolve_inside
from flightlog.store.git.snapshots import WorkTreeSnapshots
from flightlog.store.output_files import write_output_files
from flightlog.views.atif.writer import MAIN

CHANGES = ".changes.jsonl"


def publish_session(context: RunContext, name: str) -> None:
    """Write the output files of one ended session and record its summary."""
    run = context.run
    last = run.state.last_attempt(name)
    if last is None or last.end is None:
        return
    planned = next(session for session in run.planned_sessions() if session.session_dir == name)
    session = RunSession(run, planned, context.work_tree.main)
    limit = run.config.raw_dumps_max_mb
    limit_bytes = math.inf if limit is None else limit << 20
    captured = (
        dumps.build_dump_files(session.exchanges, full_bytes=limit_bytes) if session.calls else None
    )
    requests = () if captured else rebuilt_of(session.folder, last.session_id)
    rebuilt = dumps.build_rebuilt_files(requests, full_bytes=limit_bytes)
    write_output_files(session.folder, captured or rebuilt, durable=False)
    for path, data in session.bundle.iter_files() if session.bundle else ():
        if path == MAIN or run.config.capture_subagent_trajectories:
            replace_file(resolve_inside(session.folder, path), data, durable=False)
    if session.lineage is not None:
        body = as_json(session.lineage.build_uuid_map(session.inherited_message_ids))
        page = OutputFile("uuid_map.json", Tier.PRIVATE, body)
        write_output_files(session.folder, [page], durable=False)
    writes = _write_changes(context.work_tree.main, session)
    if last.counts is None:
        run.append(_count_session(session, writes), durable=True)


def publish_run(context: RunContext) -> None:
    """Write the output files of the run in its present state."""
    run = context.run
    for planned in run.planned_sessions():
        last = run.state.last_attempt(planned.session_dir)
        if last is not None and last.end is not None and last.counts is None:
            publish_session(context, planned.session_dir)
    write_output_files(run.path, [meta_page(run.name, run.config, run.state)])
    if run.state.branch is not None:
        write_output_files(run.path, [replay_page(run.state)])
    trees, baseline = context.work_tree.main, run.state.baseline
    if trees is None or baseline is None or not baseline.tree:
        return
    parts = [run.path / planned.session_dir / CHANGES for planned in run.ended_sessions()]
    lines = b"".join(path.read_bytes() for path in parts if path.is_file())
    replace_file(run.path / "state_changelog.jsonl", lines, durable=False)
    data = trees.patch_between(baseline.tree, run.final_tree)
    replace_file(run.path / "full_diff.patch", data, durable=False)


def _write_changes(trees: WorkTreeSnapshots | None, session: RunSession) -> int:
    """Write the session's changelog and patch; return the number of changed files."""
    ended = session.attempt.end
    if trees is None or ended is None:
        return 0
    lines = [json.dumps(entry).encode() + b"\n" for entry in session.iter_changes()]
    replace_file(session.folder / CHANGES, b"".join(lines), durable=False)
    path = session.folder / "session_diff.patch"
    replace_file(path, trees.patch_between(session.attempt.tree or None, ended.tree), durable=False)
    return len(lines)


def _count_session(run_session: RunSession, writes: int) -> RunSessionSummarized:
    attempt, session = run_session.attempt, run_session.session
    steps = [
        step for subagent in run_session.list_threads() for step in run_session.own_steps(subagent)
    ]
    costs = [step.cost_usd for step in steps if step.cost_usd is not None]
    spent = attempt.spent_usd
    cost = spent or (sum(costs) if costs else None)
    source = "captured responses, price table" if spent else "transcript, price table"
    return RunSessionSummarized(
        session=attempt.session,
        attempt=attempt.number,
        step_count=len(run_session.bundle.main.steps) if run_session.bundle else 0,
        turn_count=len(run_session.own_steps()),
        tool_call_count=sum(len(step.tool_calls) for step in steps),
        compaction_count=run_session.compaction_count,
        subagent_count=len(session.subagents) if session else 0,
        file_writes=writes,
        cost_usd=cost,
        cost_source=source if cost is not None else "unknown",
        has_transcript=session is not None,
        captured_requests=len(run_session.calls),
    )
