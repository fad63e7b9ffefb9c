"""Settling: bring our copies and the index up to date after an agent rested.

Idempotent, and safe to be killed: what was copied stays, the rest is done next time. Started
by the hook for one session, or by a person for all of them.
"""

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from flightlog.agents.claude_code.hooks import find_transcript_paths
from flightlog.app.collecting import collecting
from flightlog.app.live import gather_after
from flightlog.archive.door import Archive, Recording, open_archive
from flightlog.model.errors import Conflict, FlightlogError, NotFound
from flightlog.model.ids import checked
from flightlog.model.runtime import Runtime
from flightlog.model.usage import DAY_MS
from flightlog.sources.claude_code.discover import AGENT, find_config_dirs, session_files
from flightlog.sources.claude_code.kept import keep
from flightlog.sources.hook_log import read_hook_records
from flightlog.store.kept import session_dir
from flightlog.store.migration import ensure_writable
from flightlog.store.sessions import Fault, Settled, seal_session, verify_sample


class SettleReport(Struct, frozen=True):
    """What a settle did."""

    sessions: int
    bytes_adopted: int
    sealed: int
    failed: tuple[str, ...]
    busy: tuple[str, ...]
    notes: tuple[str, ...] = ()
    dataset_rows: int = 0
    damage: tuple[Fault, ...] = ()


def settle_one(runtime: Runtime, written: str) -> SettleReport:
    """Settle one session: the hook's own, even where our configuration would not find it."""
    archive = open_archive(runtime)
    try:
        recording = archive.find(written)
    except NotFound:
        recording = _from_hook(runtime, checked(written))
    return _settled(runtime, archive, [recording], seal=False)


def settle_all(runtime: Runtime, progress: Callable[[int, int], None] | None = None) -> SettleReport:
    """Settle everything that can be found, and seal what has long been quiet."""
    archive = open_archive(runtime)
    return _settled(runtime, archive, list(archive.recordings.values()), seal=True, progress=progress)


def _settled(
    runtime: Runtime,
    archive: Archive,
    recordings: list[Recording],
    *,
    seal: bool,
    progress: Callable[[int, int], None] | None = None,
) -> SettleReport:
    ensure_writable(Path(runtime.data_dir))
    days = runtime.config["archive.seal_after_days"].value
    quiet_ms = runtime.clock.now_ms() - int(days) * DAY_MS if seal and days else 0
    adopted = sealed = rows = 0
    failed: list[str] = []
    busy: list[str] = []
    damage: list[Fault] = []
    for done, recording in enumerate(recordings):
        if progress is not None:
            progress(done, len(recordings))
        is_live = any(not file.path.startswith(f"{runtime.data_dir}/") for file in recording.files)
        try:
            result = keep(runtime.data_dir, recording.session, recording.files) if is_live else Settled(())
            adopted += sum(each.end - each.start for each in result.adopted)
            failed += [f"{recording.session}/{name}: {error.message}" for name, error in result.failed]
            damage += result.faults
            if recording.changed_ms < quiet_ms:
                sealed += len(seal_session(Path(runtime.data_dir), AGENT, recording.session))
            if not seal or any(each.end > each.start for each in result.adopted):
                rows += _captured(runtime, archive, recording)
        except Conflict as error:
            busy.append(f"{recording.session}: {error.message}")
        except FlightlogError as error:
            if is_live:  # Otherwise there was nothing to copy, and the sample tells what is wrong with the archive.
                failed.append(f"{recording.session}: {error.message}")
    damage += verify_sample(Path(runtime.data_dir), AGENT)
    notes = _index(runtime, archive, "" if seal else recordings[0].session)
    if seal:
        # Not after each turn: the hook's settle has a budget, and `up` counts what is missing.
        archive.secrets()
    return SettleReport(len(recordings), adopted, sealed, tuple(failed), tuple(busy), notes, rows, tuple(damage))


def _captured(runtime: Runtime, archive: Archive, recording: Recording) -> int:
    """Write training rows of a session whose repository collects them; return how many."""
    cwd = archive.cwd(recording)
    if not cwd or collecting(Path(cwd)) is None:
        return 0
    from flightlog.app.capturing import capture_settled  # noqa: PLC0415 - its redactor takes a while to load

    return capture_settled(runtime, archive, recording, cwd)


def _index(runtime: Runtime, archive: Archive, only: str) -> tuple[str, ...]:
    """Bring the index up to date, and with its figures what is known of running sessions."""
    archive.usage_pipeline.refresh()
    archive.finder.refresh()
    notes = gather_after(runtime, archive, only)
    archive.usage_pipeline.save()
    archive.finder.close()
    return notes


def _from_hook(runtime: Runtime, session: str) -> Recording:
    """Find a session's files by what its hook was told."""
    paths = find_transcript_paths(read_hook_records(session_dir(Path(runtime.data_dir), AGENT, session)))
    known = find_config_dirs(runtime)
    files = [file for path in sorted(paths) for file in session_files(str(Path(path).parent), session)]
    if not files:
        raise NotFound(f"no session {session!r} below {', '.join(known)}", hint="flightlog session list")
    return Recording(session, AGENT, tuple(files))
