"""Adopt, seal and verify all files of a session together, under one lock.

The manifest is written after the data is durable. If it is lost, files are compared with their
sources again.
"""

import os
import re
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from msgspec import Struct, json
from msgspec.structs import replace

from flightlog.model import errors
from flightlog.store import files
from flightlog.store.directories import ensure_writable
from flightlog.store.locks import exclusive_lock, was_interrupted
from flightlog.store.recordings import manifest
from flightlog.store.recordings.adoption import (
    ADOPTED,
    DAMAGED,
    REWRITTEN,
    AdoptionResult,
    adopt_file,
    list_damaged_sessions,
    list_recorded_sessions,
    session_dir,
)
from flightlog.store.recordings.manifest import META, SessionMeta, read_meta, write_meta
from flightlog.store.recordings.recording import (
    Recording,
    generation_path,
    list_generations,
    list_segments,
    seal_recording,
)

_LOCK = ".lock"
_LOCK_S = 1.0  # a sample holds it for 20 ms; a whole verification may take minutes
_SEAL_BYTES_MIN = 16 << 10  # a smaller file gains little
_CURSOR = ".verified"
# What each settle may spend on reading old copies back: unnoticed in the 250 ms a settle has.
SAMPLE_BYTES = 4 << 20
SAMPLE_S = 0.02  # as above, on a slow disk

Cursor = tuple[str, str, int]  # session, file and block at which the next sample begins


class RecordingFault(Struct, frozen=True):
    """One difference between a manifest and the files; `repair` says what was done about it."""

    session: str
    file: str
    kind: str
    message: str
    repair: str = ""


class SessionAdoption(Struct, frozen=True):
    """What the adoption of a session did, and which of its files could not be adopted."""

    adopted: tuple[AdoptionResult, ...]
    failed: tuple[tuple[str, errors.FlightlogError], ...] = ()
    bytes_hashed: int = 0
    faults: tuple[RecordingFault, ...] = ()


def adopt_session(
    home: Path, agent: str, session: str, sources: Mapping[str, Path]
) -> SessionAdoption:
    """Adopt all files of a session; `sources` maps names to the agent's files.

    If a source was deleted, our copy stays as it is.
    """
    with _lock_session(home, agent, session, "adopting") as (root, meta):
        # A marker beside the sessions, so that a session directory that is lost will be missed.
        files.ensure_dir(root.parent / ADOPTED / root.name)
        missing = [] if (root / META).exists() else _list_unrecorded(root, meta)
        adoption = _adopt_sources(root, meta, sources)
        faults = _record_missing_faults(root, meta, missing)
    if faults:
        note_faults(home, agent, session, faults)
    return replace(adoption, faults=tuple(faults))


def seal_session(
    home: Path, agent: str, session: str, *, at_least: int = _SEAL_BYTES_MIN
) -> list[Path]:
    """Seal the adopted files of a session that have `at_least` so many live bytes."""
    if not session_dir(home, agent, session).is_dir():
        raise errors.NotFound(f"no such session: {session}", hint="flightlog session list")
    sealed: list[Path] = []
    with _lock_session(home, agent, session, "sealing") as (root, meta):
        for name in sorted(meta.files):
            path = files.resolve_inside(root, name)
            for number in list_generations(path):
                recording = generation_path(path, number)
                segments = list_segments(recording)
                live = sum(part.path.stat().st_size for part in segments if not part.is_sealed)
                sealed += seal_recording(recording) if live >= at_least else []
        for segment in sealed:
            manifest.record_file(root, meta, str(segment.relative_to(root)), 0)
    return sealed


def verify_session(
    home: Path, agent: str, session: str, sources: Mapping[str, Path], *, accept: bool = False
) -> list[RecordingFault]:
    """Compare a session with its manifest; restore what the agent's own `sources` still have.

    With `accept`, files that are not in the manifest are recorded as they are. Faults stay on
    record until they are repaired.
    """
    faults: list[RecordingFault] = []
    try:
        with _lock_session(home, agent, session, "verifying") as (root, meta):
            missing = _list_unrecorded(root, meta)
            if missing:
                _adopt_sources(root, meta, sources)
                if accept:
                    manifest.record_all(root, meta)
            faults += _record_missing_faults(root, meta, missing)
            for name in sorted({manifest.SEGMENT.sub("", key) for key in meta.hashes}):
                faults += _verify_file(root, meta, name, sources)
    except errors.Conflict:
        raise
    except errors.FlightlogError as error:
        faults.append(RecordingFault(session, "", "unreadable", error.message))
    note_faults(home, agent, session, faults)
    return faults


def restore_session(
    home: Path, agent: str, session: str, sources: Mapping[str, Path], *, accept: bool
) -> RecordingFault:
    """Copy a lost session again if the agent still has it; otherwise, with `accept`, forget it."""
    fault = RecordingFault(session, "", "lost", "its directory is missing")
    if sources and adopt_session(home, agent, session, sources).adopted:
        return replace(fault, repair="copied again from the agent's own files")
    if accept:
        (home / "sessions" / agent / ADOPTED / session).rmdir()
    return fault


def verify_sample(
    home: Path, agent: str, bytes_max: int = SAMPLE_BYTES, seconds_max: float = SAMPLE_S
) -> list[RecordingFault]:
    """Check a part of the archive, after the last sample; record and return the faults."""
    end = time.monotonic() + seconds_max
    left = bytes_max

    def more(count: int) -> bool:
        nonlocal left
        left -= count
        return left > 0 and time.monotonic() < end

    path = home / "sessions" / agent / _CURSOR
    cursor: Cursor = "", "", 0
    with suppress(OSError, *errors.UNREADABLE):
        cursor = json.decode(path.read_bytes(), type=Cursor)
    names = sorted(list_recorded_sessions(home, agent)[0])
    first = bisect_left(names, cursor[0])
    all_faults: list[RecordingFault] = []
    for session in names[first:] + names[:first]:
        if not more(0):
            cursor = session, "", 0
            break
        faults, cursor = _sample_session(home, agent, session, cursor, more)
        if faults:
            note_faults(home, agent, session, faults)
            all_faults += faults
        if cursor[0]:
            break
    if names:
        files.replace_file(path, json.encode(cursor), durable=False)
    return all_faults


def note_faults(home: Path, agent: str, session: str, faults: list[RecordingFault]) -> None:
    """Write the faults of a session to its fault file, or remove that if all are repaired."""
    path = home / "sessions" / agent / DAMAGED / session
    unrepaired = [fault for fault in faults if not fault.repair]
    if unrepaired:
        files.replace_file(path, json.encode(unrepaired))
    elif path.exists():
        files.remove_files([path])


def read_faults(home: Path, agent: str) -> list[RecordingFault]:
    """Return every fault on record, by session."""
    faults: list[RecordingFault] = []
    for session in sorted(list_damaged_sessions(home, agent)):
        path = home / "sessions" / agent / DAMAGED / session
        try:
            faults += json.decode(path.read_bytes(), type=list[RecordingFault])
        except (OSError, *errors.UNREADABLE):
            faults.append(RecordingFault(session, "", "damaged", "its fault file cannot be read"))
    return faults


@contextmanager
def _lock_session(
    home: Path, agent: str, session: str, doing: str
) -> Iterator[tuple[Path, SessionMeta]]:
    """Lock a session, yield its directory and manifest, write the manifest if it changed."""
    ensure_writable(home)
    root = session_dir(home, agent, session)
    is_interrupted = was_interrupted(root / _LOCK)
    with exclusive_lock(root / _LOCK, who=f"process {os.getpid()}, {doing}", limit_s=_LOCK_S):
        try:
            meta = read_meta(root) or SessionMeta(agent, session)
        except errors.Unreadable:
            files.quarantine_file(root / META)
            meta = SessionMeta(agent, session)
        before = dict(meta.files), dict(meta.hashes)
        if is_interrupted:
            # A settle that died copied bytes of the agent's files without recording them.
            manifest.record_all(root, meta)
        yield root.resolve(), meta
        if (meta.files, meta.hashes) != before:
            write_meta(root, meta)


def _adopt_sources(root: Path, meta: SessionMeta, sources: Mapping[str, Path]) -> SessionAdoption:
    adopted, failed, hashed = [], [], 0
    for name, source in sources.items():
        assert name not in {META, _LOCK}, "these names are ours"
        is_recorded = partial(_is_end_recorded, root, meta)
        try:
            path = files.resolve_inside(root, name)
            result = adopt_file(source, path, meta.files.get(name), is_recorded)
        except FileNotFoundError:
            continue
        except errors.FlightlogError as error:
            failed.append((name, error))
            if isinstance(error, errors.Unavailable):
                # A full disk may have taken a part of the new bytes.
                manifest.record_all(root, meta)
            continue
        adopted.append(result)
        meta.files[name] = result.source_state
        copy = str(result.path.relative_to(root))
        hashed += manifest.record_file(root, meta, copy, result.start, result.end)
    if any(result.source_state.generation > 1 for result in adopted):
        # A marker beside the sessions, so that reports need not search each for old generations.
        files.ensure_dir(root.parent / REWRITTEN / root.name)
    hashed += manifest.record_hooks(root, meta)
    return SessionAdoption(tuple(adopted), tuple(failed), hashed)


def _is_end_recorded(root: Path, meta: SessionMeta, copy: Recording) -> bool | None:
    """Return whether the end of a copy is as recorded; None if the copy is not in the manifest."""
    recorded = meta.hashes.get(str(copy.path.relative_to(root)))
    if recorded is None:
        return None
    # A short copy is extended.
    return copy.size < recorded.size_bytes or recorded.is_sound(-1, copy.read)


def _list_unrecorded(root: Path, meta: SessionMeta) -> list[str]:
    return [name for name in manifest.list_adopted_files(root) if name not in meta.hashes]


def _record_missing_faults(
    root: Path, meta: SessionMeta, missing: list[str]
) -> list[RecordingFault]:
    unrecorded = _list_unrecorded(root, meta) if missing else []
    text = "not in the manifest, which was lost or damaged"
    fault = RecordingFault(meta.session, "", "unrecorded", text)
    repairs = {name: "" if name in unrecorded else "recorded again" for name in missing}
    return [replace(fault, file=name, repair=repair) for name, repair in repairs.items()]


def _verify_file(
    root: Path, meta: SessionMeta, name: str, sources: Mapping[str, Path]
) -> list[RecordingFault]:
    """Check one file and its sealed segments, repair it if possible, return the first fault."""
    keys = sorted(key for key in meta.hashes if key == name or key.startswith(f"{name}.from-"))
    for key in keys:
        problem, text, _ = manifest.check_file(root, meta, key)
        if problem:
            plain = name if name in meta.files else re.sub(r"\.g\d+(?=\.[^./]*$)", "", name)
            source = sources.get(plain)
            if source is None and plain in meta.files:
                source = Path(meta.files[plain].source)
            repaired = manifest.repair_file(root, meta, name, source)
            return [RecordingFault(meta.session, key, problem, text, repaired)]
    return []


def _sample_session(
    home: Path, agent: str, session: str, start: Cursor, more: Callable[[int], bool]
) -> tuple[list[RecordingFault], Cursor]:
    """Check a session while `more(bytes)`; return its faults, and the cursor if it stopped."""
    _, file, first = start if start[0] == session else ("", "", 0)
    faults: list[RecordingFault] = []
    try:
        with _lock_session(home, agent, session, "verifying") as (root, meta):
            faults += _record_missing_faults(root, meta, _list_unrecorded(root, meta))
            for name in sorted(name for name in meta.hashes if name >= file):
                begin = first if name == file else 0
                problem, text, block = manifest.check_file(root, meta, name, begin, more)
                if problem:
                    faults.append(RecordingFault(session, name, problem, text))
                if block:
                    return faults, (session, name, block)
    except errors.Conflict:
        pass  # it is being settled; a later sample checks it
    except errors.FlightlogError as error:
        faults.append(RecordingFault(session, "", "unreadable", error.message))
    return faults, ("", "", 0)
