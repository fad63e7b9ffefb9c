"""Make runs from recorded sessions.

Such a run has no captured requests, and snapshots only if the directory was tracked; otherwise its
changes are rebuilt from tool calls and labeled as such. Its journal says that it was collected, and
every command that reads runs can read it.
"""

import hashlib
import json
import re
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from flightlog.agents.capture.dumps import build_rebuilt_files
from flightlog.agents.claude_code.driver import EVERY_TOOL, INTERACTIVE
from flightlog.agents.claude_code.files import AGENT_NAME, config_dir_of
from flightlog.agents.claude_code.resume import render_transcript
from flightlog.agents.recordings import index_path, recording_name
from flightlog.archive.archive import Archive, SessionFiles, open_archive
from flightlog.archive.session_reader import read_session_folder
from flightlog.archive.tracked_dirs import iter_snapshots, shadow_git_dir
from flightlog.archive.trajectories import read_main_trajectories
from flightlog.lab import events, file_changes
from flightlog.lab.changelog import StepJoin
from flightlog.lab.config import RunConfig, SessionConfig, dump_run_config
from flightlog.lab.layout import as_json, meta_page
from flightlog.lab.run_session import rebuilt_of, steps_by_thread
from flightlog.lab.service import remember_run
from flightlog.lab.store import RunStore, create_run, session_dir_name
from flightlog.model.addresses import parse_address
from flightlog.model.errors import Invalid
from flightlog.model.output_files import OutputFile, Tier
from flightlog.model.runtime import Runtime
from flightlog.model.session import Note, NoteKind, Session, ThreadContext
from flightlog.model.text import one_line
from flightlog.store.directories import copy_tree
from flightlog.store.files import replace_file, resolve_inside
from flightlog.store.output_files import write_output_files
from flightlog.store.recordings.adoption import TRANSCRIPT
from flightlog.store.recordings.reader import content_size, open_reader
from flightlog.views.atif.document import read_trajectory
from flightlog.views.atif.lint import parse_json
from flightlog.views.atif.writer import TrajectoryBundle, build_trajectory

TAG = "collected"
# Tools that need permission. A newer client has no Grep and Glob unless they are named here, and its
# subagents would have tools that the recorded ones had not.
_ASKED_TOOLS = ("Bash", "Write", "Edit")
SAVED = "collected from a transcript, with the trees that were saved after its tool calls"
NOTE = "collected from a transcript: changes are rebuilt from tool calls, what shell commands changed is not known"


class CollectedSession(Struct, frozen=True):
    """A recorded session: its transcripts by name in a run, and the snapshots saved along it."""

    session: Session
    files: Mapping[str, bytes]
    contexts: Mapping[str, ThreadContext]
    snapshots: tuple[events.SnapshotSaved, ...] = ()
    shadow: Path | None = None
    cost_usd: float | None = None
    verifications: tuple[events.SessionVerified, ...] = ()


def collect_run(
    path: Path, recorded: CollectedSession, write: Callable[[Path, str], RunStore]
) -> RunStore:
    """Create the run at `path` from one recorded session."""
    session = recorded.session
    run = write(path, dump_run_config(_build_config(path.name, recorded)))
    if recorded.shadow is not None:
        copy_tree(recorded.shadow, run.shadow_dir)
    folder = run.path / session_dir_name(1)
    bundle = build_trajectory(session, contexts=recorded.contexts)
    for name, data in (*recorded.files.items(), *bundle.iter_files()):
        replace_file(resolve_inside(folder, name), data, durable=False)
    lineage = StepJoin(session, bundle.documents, [], [])
    body = as_json(lineage.build_uuid_map(frozenset()))
    uuid_map = OutputFile("uuid_map.json", Tier.PRIVATE, body)
    write_output_files(
        folder, [uuid_map, *build_rebuilt_files(rebuilt_of(folder, session.id))], durable=False
    )
    entries = list_tool_changes(session, lineage)
    lines = b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)
    replace_file(run.path / "state_changelog.jsonl", lines, durable=False)
    _write_journal(run, recorded, bundle, len(entries))
    write_output_files(run.path, [meta_page(run.name, run.config, run.state)])
    return run


def list_tool_changes(session: Session, lineage: StepJoin) -> list[dict[str, Any]]:
    steps = [(subagent, step) for subagent, own in steps_by_thread(session).items() for step in own]
    steps.sort(key=lambda item: item[1].at_ms or 0)
    changes = (
        file_changes.iter_reported_changes(name, step, lineage.step_id(name, step), session.cwd)
        for name, step in steps
    )
    return [entry for own in changes for entry in own]


def _build_config(name: str, recorded: CollectedSession) -> RunConfig:
    session = recorded.session
    prompts = (turn.text for turn in session.turns if turn.text.strip())
    prompt = next(prompts, "(no prompt on record)")
    models = [step.model for step in session.steps if step.model]
    threads = steps_by_thread(session).values()
    used = [call.name for steps in threads for step in steps for call in step.tool_calls]
    return RunConfig(
        model=models[0] if models else "unknown",
        work_dir=session.cwd or "unknown",
        sessions=(SessionConfig(1, prompt),),
        run_name=name,
        tags=(TAG,),
        memory_file=None,
        capture_api_requests=False,
        track_changes=bool(recorded.snapshots),
        allowed_tools=tuple(dict.fromkeys((EVERY_TOOL, *_ASKED_TOOLS, *used))),
        args=() if session.entrypoint in {"", "sdk-cli"} else INTERACTIVE,
    )


def _write_journal(
    run: RunStore, recorded: CollectedSession, bundle: TrajectoryBundle, writes: int
) -> None:
    session, saved = recorded.session, recorded.snapshots
    steps = [step for own in steps_by_thread(session).values() for step in own]
    costs = [step.cost_usd for step in steps if step.cost_usd is not None]
    notes = [item for turn in session.turns for item in turn.items if isinstance(item, Note)]
    name = session_dir_name(1)
    permission_note = SAVED if saved else NOTE
    run.append(events.RunStarted(run.name, "", session.agent, session.version, "", permission_note))
    run.append(events.RunSessionStarted(name, 1, session.id, saved[0].tree if saved else ""))
    for snapshot in saved:
        run.append(snapshot)
    for verification in recorded.verifications:
        run.append(verification)
    run.append(events.RunSessionEnded(name, 1, "completed", saved[-1].tree if saved else ""))
    cost, source = (sum(costs), "transcript, price table") if costs else (None, "unknown")
    if recorded.cost_usd is not None:
        cost, source = recorded.cost_usd, "trajectory"
    summary = events.RunSessionSummarized(
        session=name,
        attempt=1,
        step_count=len(bundle.main.steps),
        turn_count=len(session.steps),
        tool_call_count=sum(len(step.tool_calls) for step in steps),
        compaction_count=sum(note.kind is NoteKind.COMPACTION for note in notes),
        subagent_count=len(session.subagents),
        file_writes=writes,
        cost_usd=cost,
        cost_source=source,
    )
    run.append(summary)
    run.append(events.RunEnded(TAG, ""), durable=True)


class CollectOptions(Struct, frozen=True):
    """Which sessions to collect, and from where."""

    write: bool
    projects_dir: Path | None = None
    exclude_current: bool = False
    limit: int | None = None


class CollectResult(Struct, frozen=True):
    """What became of a session or trajectory; one that cannot be read has no run."""

    session: str
    run_name: str
    status: str


def collect_sessions(
    runtime: Runtime, address: str, runs_dir: Path, options: CollectOptions
) -> list[CollectResult]:
    """Make runs from Claude Code's sessions, newest first; existing runs stay unchanged."""
    archive = _choose_archive(runtime, options.projects_dir)
    cwd = str(Path(runtime.cwd))
    own = (files for files in archive.recordings.values() if files.agent == AGENT_NAME)
    newest = sorted(own, key=lambda files: -files.changed_ms)
    chosen = [_find_own_recording(archive, address)] if address else newest
    rows: list[CollectResult] = []
    for recording in chosen:
        if options.limit is not None and len(rows) >= options.limit:
            break
        if options.exclude_current and archive.read_session(recording.session).cwd == cwd:
            continue
        rows.append(_collect_session(runtime, archive, recording, runs_dir, write=options.write))
    return rows


def _find_own_recording(archive: Archive, address: str) -> SessionFiles:
    recording = archive.find_recording(parse_address(address).session)
    if recording.agent != AGENT_NAME:
        raise Invalid(
            f"runs are made of Claude Code's sessions; {recording.session} is of {recording.agent}",
            hint=f"flightlog session export {recording.session} --atif --output DIR",
        )
    return recording


def _collect_session(
    runtime: Runtime, archive: Archive, recording: SessionFiles, runs_dir: Path, *, write: bool
) -> CollectResult:
    path = (runs_dir / f"collected_{recording.session}").absolute()
    if (path / "run_meta.json").exists() or not write:
        state = "there already" if (path / "run_meta.json").exists() else "not collected"
        return CollectResult(recording.session, path.name, state)
    session = archive.read_session(recording.session)
    threads = archive.thread_contexts(recording.session)
    recorded = CollectedSession(session, dict(_iter_session_files(recording)), threads)
    collect_run(path, recorded, _creator(runtime))
    return CollectResult(recording.session, path.name, "collected")


def collect_trajectories(
    runtime: Runtime, path: Path, runs_dir: Path, *, write: bool
) -> list[CollectResult]:
    """Make runs from the ATIF trajectories at or below `path`; existing runs stay unchanged.

    A document that no reader accepts is listed with the reason, and the others are imported.
    """
    rows = []
    for file, documents in read_main_trajectories(path):
        data = file.read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        session = str(uuid.UUID(digest[:32]))
        # Harbor keeps `agent/trajectory.json` below the directory of a trial.
        trial = file.parent.parent if file.parent.name == "agent" else file.parent
        slug = re.sub(r"[^A-Za-z0-9_-]+", "-", trial.resolve().name)[:60]
        target = (runs_dir / f"imported_{slug}_{digest[:8]}").absolute()
        result = CollectResult(f"{trial.name}/{file.name}", target.name, "there already")
        if not (target / "run_meta.json").exists():
            result = replace(result, status="imported" if write else "not collected")
        try:
            read_trajectory(data)
        except Invalid as error:
            if path.is_file():
                raise
            result = replace(
                result, run_name="", status=f"not imported: {one_line(str(error), 200)}"
            )
        rows.append(result)
        if result.status != "imported":
            continue
        files = {TRANSCRIPT: render_transcript(documents[0], session)}
        for number, document in enumerate(documents[1:], 1):
            name = f"subagent{number}"
            files[f"subagents/agent-{name}.jsonl"] = render_transcript(document, session, name)
        recorded = _read_imported(files, session, documents[0]["agent"]["name"])
        total = (documents[0].get("final_metrics") or {}).get("total_cost_usd")
        recorded = replace(recorded, cost_usd=total, verifications=tuple(_harbor_rewards(file)))
        collect_run(target, recorded, _creator(runtime))
    return rows


def _read_imported(files: Mapping[str, bytes], session: str, agent: str) -> CollectedSession:
    with tempfile.TemporaryDirectory(prefix="flightlog-") as folder:
        for name, data in files.items():
            replace_file(resolve_inside(Path(folder), name), data, durable=False)
        read = read_session_folder(Path(folder), session, agent)
    assert read is not None, "a transcript was written"
    return CollectedSession(read, files, {})


def _harbor_rewards(file: Path) -> Iterator[events.SessionVerified]:
    """Yield the rewards of a Harbor trial, whose result is beside or above its trajectory."""
    for folder in (file.parent, file.parent.parent):
        try:
            result = parse_json((folder / "result.json").read_bytes())
            rewards = dict(result["verifier_result"]["rewards"])
        except (OSError, ValueError, RecursionError, KeyError, TypeError):
            continue
        known = ((name, value) for name, value in rewards.items() if isinstance(value, int | float))
        for name, reward in known:
            output, passed = json.dumps({"score": reward}), reward >= 1
            yield events.SessionVerified(
                "session_01", 1, str(name)[:80], passed, int(not passed), 0.0, output
            )
        return


def make_run_from_session(runtime: Runtime, address: str, runs_dir: Path) -> RunStore:
    """Return a run made from a recorded session with saved files; reuse an existing one."""
    archive = open_archive(runtime)
    recording = _find_own_recording(archive, address)
    session = archive.read_session(recording.session)
    saved = list(iter_snapshots(runtime, recording.session))
    hint = f"save its directory from the next session on: flightlog lab track {session.cwd}"
    if not saved:
        raise Invalid(f"no files were saved during session {recording.session}", hint=hint)
    if saved[0].root != str(Path(session.cwd).resolve()):
        what = f"the session started in {session.cwd}, but the saved directory is {saved[0].root}"
        raise Invalid(what, hint=hint)
    files = dict(_iter_session_files(recording))
    digest = hashlib.sha256(b"".join(files.values())).hexdigest()[:8]
    path = (runs_dir / f"recorded_{recording.session}_{digest}").absolute()
    if (path / "run_meta.json").exists():
        return RunStore(path, now=runtime.clock.timestamp, new_id=runtime.new_id)
    trees = []
    for number, snapshot in enumerate(saved, 1):
        origin = (snapshot.subagent, snapshot.at_ms, snapshot.tool_call_id)
        trees.append(events.SnapshotSaved("session_01", 1, snapshot.tree, number, *origin))
    threads = archive.thread_contexts(recording.session)
    shadow = shadow_git_dir(runtime, recording.session)
    recorded = CollectedSession(session, files, threads, tuple(trees), shadow)
    return collect_run(path, recorded, _creator(runtime))


def _creator(runtime: Runtime) -> Callable[[Path, str], RunStore]:
    remember = partial(remember_run, runtime)
    return partial(
        create_run, now=runtime.clock.timestamp, new_id=runtime.new_id, remember=remember
    )


def _choose_archive(runtime: Runtime, projects_dir: Path | None) -> Archive:
    if projects_dir is None:
        return open_archive(runtime)
    dirs = {AGENT_NAME: (config_dir_of(str(projects_dir.absolute())),)}
    return Archive(dirs, runtime.data_dir, index_path(runtime, dirs))


def _iter_session_files(recording: SessionFiles) -> Iterator[tuple[str, bytes]]:
    for file in recording.files:
        with closing(open_reader(file.path)) as reader:
            data = reader.read(0, content_size(file.path, file.size))
        yield recording_name(file), data
        meta = Path(file.path).with_suffix(".meta.json")
        if file.subagent and meta.is_file():
            yield recording_name(file).removesuffix(".jsonl") + ".meta.json", meta.read_bytes()
