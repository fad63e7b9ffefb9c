"""Settling: update our copies and the index after an agent stopped.

Idempotent, and safe to kill: what was copied stays, the rest follows next time. Started by the hook
for one session, or by a person for all of them.
"""

from collections.abc import Callable
from enum import Enum
from pathlib import Path

from msgspec import Struct

from flightlog.agents import agent_names, source_of
from flightlog.agents.adoption import adopt_session_files
from flightlog.agents.claude_code.hooks import find_transcript_paths
from flightlog.agents.recordings import find_agent_dirs
from flightlog.archive.archive import Archive, SessionFiles, open_archive
from flightlog.dataset.state import find_collecting_root
from flightlog.live.layout import read_marker
from flightlog.live.service import collect_after_settle
from flightlog.model.addresses import check_id
from flightlog.model.errors import Conflict, FlightlogError, NotFound
from flightlog.model.runtime import Runtime
from flightlog.model.session import SessionFile
from flightlog.model.usage import DAY_MS
from flightlog.sources.hook_log import read_hook_records
from flightlog.store.directories import ensure_writable
from flightlog.store.recordings.adoption import session_dir
from flightlog.store.recordings.sessions import (
    RecordingFault,
    SessionAdoption,
    seal_session,
    verify_sample,
)


class SettleReport(Struct, frozen=True):
    """Counts and problems of a settle."""

    sessions: int
    adopted_bytes: int
    sealed_files: int
    failures: tuple[str, ...]
    locked: tuple[str, ...]
    notes: tuple[str, ...] = ()
    dataset_rows: int = 0
    faults: tuple[RecordingFault, ...] = ()


class SettleExtent(Enum):
    """What is settled: a running session, one that has ended, or all sessions."""

    RUNNING = "running"
    ENDED = "ended"
    ALL = "all"


def settle_one(runtime: Runtime, prefix: str, *, is_ended: bool = False) -> SettleReport:
    """Settle one session: also one that the hook knows and our configuration does not."""
    archive = open_archive(runtime)
    try:
        recording = archive.find_recording(prefix)
    except NotFound:
        session = check_id(prefix)
        try:
            recording = _find_by_hook_log(runtime, session)
        except NotFound:
            if not read_marker(Path(runtime.data_dir) / "live" / session):
                raise
            # The session has a status line, and no transcript before its first prompt.
            return SettleReport(0, 0, 0, (), (), _update_index(runtime, archive, session))
    extent = SettleExtent.ENDED if is_ended else SettleExtent.RUNNING
    return _settle_recordings(runtime, archive, [recording], extent)


def settle_all(
    runtime: Runtime, progress: Callable[[int, int], None] | None = None
) -> SettleReport:
    """Settle every session, and seal those that have not changed for long."""
    archive = open_archive(runtime)
    recordings = list(archive.recordings.values())
    return _settle_recordings(runtime, archive, recordings, SettleExtent.ALL, progress)


def _settle_recordings(
    runtime: Runtime,
    archive: Archive,
    recordings: list[SessionFiles],
    extent: SettleExtent,
    progress: Callable[[int, int], None] | None = None,
) -> SettleReport:
    ensure_writable(Path(runtime.data_dir))
    seal, is_ended = extent is SettleExtent.ALL, extent is not SettleExtent.RUNNING
    days = runtime.config["archive.seal_after_days"].value
    quiet_ms = runtime.clock.now_ms() - int(days) * DAY_MS if seal and days else 0
    adopted = sealed = rows = 0
    failed: list[str] = []
    busy: list[str] = []
    damage: list[RecordingFault] = []
    for done, recording in enumerate(recordings):
        if progress is not None:
            progress(done, len(recordings))
        is_live = any(not file.path.startswith(f"{runtime.data_dir}/") for file in recording.files)
        try:
            result = SessionAdoption(())
            if is_live:
                result = adopt_session_files(runtime.data_dir, recording.session, recording.files)
            adopted += sum(span.end - span.start for span in result.adopted)
            failed += [
                f"{recording.session}/{name}: {error.message}" for name, error in result.failed
            ]
            damage += result.faults
            if recording.changed_ms < quiet_ms:
                home = Path(runtime.data_dir)
                sealed += len(seal_session(home, recording.agent, recording.session))
            if not seal or any(span.end > span.start for span in result.adopted):
                rows += _extract_rows(runtime, archive, recording, is_ended=is_ended)
        except Conflict as error:
            busy.append(f"{recording.session}: {error.message}")
        except FlightlogError as error:
            if is_live:  # else nothing was to be copied; `verify_sample` reports archive faults
                failed.append(f"{recording.session}: {error.message}")
    agents = sorted({recording.agent for recording in recordings})
    damage += [fault for agent in agents for fault in verify_sample(Path(runtime.data_dir), agent)]
    notes = _update_index(runtime, archive, "" if seal else recordings[0].session)
    if seal:
        # Not after each turn: the hook's settle has a time budget, and `up` searches the rest.
        archive.count_secrets()
    return SettleReport(
        len(recordings), adopted, sealed, tuple(failed), tuple(busy), notes, rows, tuple(damage)
    )


def _extract_rows(
    runtime: Runtime, archive: Archive, recording: SessionFiles, *, is_ended: bool
) -> int:
    """Write training rows of a session if its repository collects them; return how many."""
    cwd = archive.first_cwd(recording)
    if not cwd or find_collecting_root(Path(cwd)) is None:
        return 0
    from flightlog.dataset.service import extract_session_rows  # noqa: PLC0415 - its redactor is slow to import

    return extract_session_rows(runtime, archive, recording, cwd, is_ended=is_ended)


def _update_index(runtime: Runtime, archive: Archive, only: str) -> tuple[str, ...]:
    """Update the index, and then the state of running sessions from it."""
    archive.usage_pipeline.refresh()
    archive.search_index.refresh()
    notes = collect_after_settle(runtime, archive, only)
    archive.usage_pipeline.save()
    archive.search_index.close()
    return notes


def _find_by_hook_log(runtime: Runtime, session: str) -> SessionFiles:
    """Find a session's files by the paths in its hook log, which is below its agent's name."""
    for agent in agent_names():
        folder = session_dir(Path(runtime.data_dir), agent, session)
        paths = find_transcript_paths(read_hook_records(folder))
        named = (SessionFile(path, session, 0, 0, agent=agent) for path in sorted(paths))
        files = tuple(file for one in named for file in source_of(agent).session_files(one))
        if files:
            return SessionFiles(session, agent, files)
    dirs = ", ".join(path for paths in find_agent_dirs(runtime).values() for path in paths)
    raise NotFound(f"no session {session!r} below {dirs}", hint="flightlog session list")
