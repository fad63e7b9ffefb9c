"""Wiring of `harness collect`: which recorded sessions there are, and their bytes."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

from msgspec import Struct

from flightlog.app.lab import remember_run
from flightlog.app.tracking import iter_snapshots, shadow_git_dir
from flightlog.archive.door import Archive, SessionFiles, open_archive
from flightlog.lab.book import RunStore, create_run
from flightlog.lab.collect import CollectedSession, collect_run
from flightlog.lab.config import RunConfig
from flightlog.lab.events import SnapshotSaved
from flightlog.model.address import parse_address
from flightlog.model.errors import Invalid
from flightlog.model.runtime import Runtime
from flightlog.sources.claude_code.kept import recording_name
from flightlog.store.reading import open_reader


class CollectOptions(Struct, frozen=True):
    """What to collect, and from where."""

    write: bool
    projects_dir: Path | None = None
    exclude_current: bool = False
    limit: int | None = None


class CollectResult(Struct, frozen=True):
    """What became of one session."""

    session: str
    run: str
    state: str


def collect_sessions(runtime: Runtime, written: str, runs_dir: Path, choice: CollectOptions) -> list[CollectResult]:
    """Make runs of recorded sessions, newest first; one that has become a run already is left alone."""
    archive = _choose_archive(runtime, choice.projects_dir)
    here = str(Path(runtime.cwd))
    newest = sorted(archive.recordings.values(), key=lambda each: -each.changed_ms)
    chosen = [archive.find_recording(parse_address(written).session)] if written else newest
    rows: list[CollectResult] = []
    for recording in chosen:
        if choice.limit is not None and len(rows) >= choice.limit:
            break
        if choice.exclude_current and archive.read_session(recording.session).cwd == here:
            continue
        rows.append(_collect_session(runtime, archive, recording, runs_dir, write=choice.write))
    return rows


def _collect_session(
    runtime: Runtime, archive: Archive, recording: SessionFiles, runs_dir: Path, *, write: bool
) -> CollectResult:
    path = (runs_dir / f"collected_{recording.session}").absolute()
    if (path / "run_meta.json").exists():
        return CollectResult(recording.session, path.name, "there already")
    if not write:
        return CollectResult(recording.session, path.name, "not collected")
    session = archive.read_session(recording.session)
    found = CollectedSession(session, dict(_iter_session_files(recording)), archive.thread_contexts(recording.session))
    collect_run(path, found, _creator(runtime))
    return CollectResult(recording.session, path.name, "collected")


def make_run_from_session(runtime: Runtime, written: str, runs_dir: Path) -> RunStore:
    """Make a run of a recorded session whose files were saved, to go back into; one that is there is used again."""
    archive = open_archive(runtime)
    recording = archive.find_recording(parse_address(written).session)
    found = archive.read_session(recording.session)
    saved = list(iter_snapshots(runtime, recording.session))
    if not saved:
        raise Invalid(
            f"no files were saved along session {recording.session}",
            hint=f"save them from the next session on: flightlog lab track {found.cwd}",
        )
    if saved[0].root != str(Path(found.cwd).resolve()):
        raise Invalid(
            f"the session began in {found.cwd}, and what was saved is {saved[0].root}",
            hint=f"save that directory from the next session on: flightlog lab track {found.cwd}",
        )
    files = dict(_iter_session_files(recording))
    digest = hashlib.sha256(b"".join(files.values())).hexdigest()[:8]
    path = (runs_dir / f"recorded_{recording.session}_{digest}").absolute()
    if (path / "run_meta.json").exists():
        return RunStore(path, now=runtime.clock.timestamp, new_id=runtime.new_id)
    trees = tuple(
        SnapshotSaved("session_01", 1, each.tree, number, each.lane, each.at_ms, each.call_id)
        for number, each in enumerate(saved, 1)
    )
    whole = CollectedSession(
        found, files, archive.thread_contexts(recording.session), trees, shadow_git_dir(runtime, recording.session)
    )
    return collect_run(path, whole, _creator(runtime))


def _creator(runtime: Runtime) -> Callable[[Path, RunConfig], RunStore]:
    return partial(
        create_run, now=runtime.clock.timestamp, new_id=runtime.new_id, remember=partial(remember_run, runtime)
    )


def _choose_archive(runtime: Runtime, projects_dir: Path | None) -> Archive:
    if projects_dir is None:
        return open_archive(runtime)
    root = projects_dir.absolute()
    return Archive([str(root.parent if root.name == "projects" else root)], runtime.data_dir)


def _iter_session_files(recording: SessionFiles) -> Iterator[tuple[str, bytes]]:
    for file in recording.files:
        with closing(open_reader(file.path)) as reader:
            data = reader.read(0, file.size)
        yield recording_name(file), data
        meta = Path(file.path).with_suffix(".meta.json")
        if file.lane and meta.is_file():
            yield f"subagents/agent-{file.lane}.meta.json", meta.read_bytes()
