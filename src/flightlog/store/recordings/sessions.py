"""Sessions: every file of one session adopted, sealed and verified together, under one lock.

The manifest (`store.manifest`) is written after the data is durable. If it is lost, files are compared with their
sources again. Knows names and bytes, not what an agent writes in them.
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
from msgspec.structs import replace as replaced

from flightlog.model.errors import UNREADABLE, Conflict, FlightlogError, NotFound, Unavailable, Unreadable
from flightlog.store.directories import ensure_writable
from flightlog.store.files import ensure_dir, quarantine_file, remove_files, replace_file, resolve_inside
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
_LOCK_S = 1.0  # a sample of another settle holds it for 20 ms; who waits longer waits for a whole verification
_SEAL_BYTES_MIN = 16 << 10
_CURSOR = ".verified"
# What each settle may spend on reading old copies back: unnoticed in the 250 ms a settle has.
SAMPLE_BYTES = 4 << 20
SAMPLE_S = 0.02


Cursor = tuple[str, str, int]  # session, file and block at which the next sample begins


class RecordingFault(Struct, frozen=True):
    """One difference between a manifest and the files; `repaired` says what was done about it."""

    session: str
    file: str
    what: str
    text: str
    repaired: str = ""


class SessionAdoption(Struct, frozen=True):
    """What the adoption of a session did, and which of its files could not be adopted now."""

    adopted: tuple[AdoptionResult, ...]
    failed: tuple[tuple[str, FlightlogError], ...] = ()
    bytes_hashed: int = 0
    faults: tuple[RecordingFault, ...] = ()


def adopt_session(home: Path, agent: str, session: str, sources: Mapping[str, Path]) -> SessionAdoption:
    """Adopt every file of a session; `sources` maps names like `subagents/agent-1.jsonl` to the agent's files.

    A source that is gone leaves our copy as it is.
    """
    with _lock_session(home, agent, session, "adopting") as (root, meta):
        # A mark beside the sessions: without it, a directory that is lost as a whole would not be missed.
        ensure_dir(root.parent / ADOPTED / root.name)
        missing = [] if (root / META).exists() else _list_unrecorded(root, meta)
        settled = _adopt_sources(root, meta, sources)
        faults = _record_missing_faults(root, meta, missing)
    if faults:
        note_faults(home, agent, session, faults)
    return replaced(settled, faults=tuple(faults))


def seal_session(home: Path, agent: str, session: str, *, at_least: int = _SEAL_BYTES_MIN) -> list[Path]:
    """Seal the adopted files of a session that have `at_least` so many bytes live."""
    if not session_dir(home, agent, session).is_dir():
        raise NotFound(f"no such session: {session}", hint="flightlog session list")
    made: list[Path] = []
    with _lock_session(home, agent, session, "sealing") as (root, meta):
        for name in sorted(meta.files):
            path = resolve_inside(root, name)
            for number in list_generations(path):
                each = generation_path(path, number)
                live = sum(part.path.stat().st_size for part in list_segments(each) if not part.is_sealed)
                made += seal_recording(each) if live >= at_least else []
        for segment in made:
            manifest.record_file(root, meta, str(segment.relative_to(root)), 0)
    return made


def verify_session(
    home: Path, agent: str, session: str, sources: Mapping[str, Path], *, accept: bool = False
) -> list[RecordingFault]:
    """Read a session back and compare it with its manifest; restore what the agent's own `sources` still have.

    With `accept`, files that no manifest covers are recorded as they are. Faults stay on record until they are gone.
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
    except Conflict:
        raise
    except FlightlogError as error:
        faults.append(RecordingFault(session, "", "unreadable", error.message))
    note_faults(home, agent, session, faults)
    return faults


def restore_session(
    home: Path, agent: str, session: str, sources: Mapping[str, Path], *, accept: bool
) -> RecordingFault:
    """Copy a session again whose directory is lost, if the agent still has it; with `accept`, let it go otherwise."""
    fault = RecordingFault(session, "", "lost", "its directory is gone")
    if sources and adopt_session(home, agent, session, sources).adopted:
        return replaced(fault, repaired="copied again from the agent's own files")
    if accept:
        (home / "sessions" / agent / ADOPTED / session).rmdir()
    return fault


def verify_sample(
    home: Path, agent: str, bytes_max: int = SAMPLE_BYTES, seconds_max: float = SAMPLE_S
) -> list[RecordingFault]:
    """Check a part of the archive, from where the last sample ended; return what is wrong and note it."""
    end = time.monotonic() + seconds_max
    left = bytes_max

    def more(count: int) -> bool:
        nonlocal left
        left -= count
        return left > 0 and time.monotonic() < end

    path = home / "sessions" / agent / _CURSOR
    cursor: Cursor = "", "", 0
    with suppress(OSError, *UNREADABLE):
        cursor = json.decode(path.read_bytes(), type=Cursor)
    names = sorted(list_recorded_sessions(home, agent)[0])
    first = bisect_left(names, cursor[0])
    found: list[RecordingFault] = []
    for session in names[first:] + names[:first]:
        if not more(0):
            cursor = session, "", 0
            break
        faults, cursor = _sample_session(home, agent, session, cursor, more)
        if faults:
            note_faults(home, agent, session, faults)
            found += faults
        if cursor[0]:
            break
    if names:
        replace_file(path, json.encode(cursor), durable=False)
    return found


def note_faults(home: Path, agent: str, session: str, faults: list[RecordingFault]) -> None:
    """Keep what is wrong with a session where reports find it by name; remove the note when all is repaired."""
    path = home / "sessions" / agent / DAMAGED / session
    left = [fault for fault in faults if not fault.repaired]
    if left:
        replace_file(path, json.encode(left))
    elif path.exists():
        remove_files([path])


def read_faults(home: Path, agent: str) -> list[RecordingFault]:
    """Return every fault on record, by session."""
    found: list[RecordingFault] = []
    for session in sorted(list_damaged_sessions(home, agent)):
        try:
            found += json.decode(
                (home / "sessions" / agent / DAMAGED / session).read_bytes(), type=list[RecordingFault]
            )
        except (OSError, *UNREADABLE):
            found.append(RecordingFault(session, "", "damaged", "the note about it is not readable any more"))
    return found


@contextmanager
def _lock_session(home: Path, agent: str, session: str, doing: str) -> Iterator[tuple[Path, SessionMeta]]:
    """Hold a session with its manifest; write the manifest at the end if it changed."""
    ensure_writable(home)
    root = session_dir(home, agent, session)
    was_cut = was_interrupted(root / _LOCK)
    with exclusive_lock(root / _LOCK, who=f"process {os.getpid()}, {doing}", limit_s=_LOCK_S):
        try:
            meta = read_meta(root) or SessionMeta(agent, session)
        except Unreadable:
            quarantine_file(root / META)
            meta = SessionMeta(agent, session)
        before = dict(meta.files), dict(meta.hashes)
        if was_cut:
            # A settle that died has copied bytes it did not record. They came from the agent's own files.
            manifest.record_all(root, meta)
        yield root.resolve(), meta
        if (meta.files, meta.hashes) != before:
            write_meta(root, meta)


def _adopt_sources(root: Path, meta: SessionMeta, sources: Mapping[str, Path]) -> SessionAdoption:
    adopted, failed, hashed = [], [], 0
    for name, source in sources.items():
        assert name not in {META, _LOCK}, "these names are ours"
        try:
            done = adopt_file(
                source, resolve_inside(root, name), meta.files.get(name), partial(_is_end_recorded, root, meta)
            )
        except FileNotFoundError:
            continue
        except FlightlogError as error:
            failed.append((name, error))
            if isinstance(error, Unavailable):
                manifest.record_all(root, meta)  # A full disk may have taken a part of the new bytes.
            continue
        adopted.append(done)
        meta.files[name] = done.seen
        hashed += manifest.record_file(root, meta, str(done.path.relative_to(root)), done.start, done.end)
    if any(done.seen.generation > 1 for done in adopted):
        # A mark beside the sessions, so that a report need not look into each of them for old generations.
        ensure_dir(root.parent / REWRITTEN / root.name)
    hashed += manifest.record_hooks(root, meta)
    return SessionAdoption(tuple(adopted), tuple(failed), hashed)


def _is_end_recorded(root: Path, meta: SessionMeta, copy: Recording) -> bool | None:
    """Return whether the end of a copy is as recorded, None if it is not recorded; a short copy will be extended."""
    recorded = meta.hashes.get(str(copy.path.relative_to(root)))
    return None if recorded is None else copy.size < recorded.size or recorded.is_sound(-1, copy.read)


def _list_unrecorded(root: Path, meta: SessionMeta) -> list[str]:
    return [name for name in manifest.list_adopted_files(root) if name not in meta.hashes]


def _record_missing_faults(root: Path, meta: SessionMeta, missing: list[str]) -> list[RecordingFault]:
    left = _list_unrecorded(root, meta) if missing else []
    text = "not in the manifest, which was lost or damaged"
    return [
        RecordingFault(meta.session, name, "unrecorded", text, "" if name in left else "recorded again")
        for name in missing
    ]


def _verify_file(root: Path, meta: SessionMeta, name: str, sources: Mapping[str, Path]) -> list[RecordingFault]:
    """Check one file and its sealed segments, put them right if that can be done, and return what was wrong."""
    keys = sorted(key for key in meta.hashes if key == name or key.startswith(f"{name}.from-"))
    found = [RecordingFault(meta.session, key, *manifest.check_file(root, meta, key)[:2]) for key in keys]
    faults = [fault for fault in found if fault.what][:1]
    if faults:
        plain = name if name in meta.files else re.sub(r"\.g\d+(?=\.[^./]*$)", "", name)
        source = sources.get(plain) or (Path(meta.files[plain].source) if plain in meta.files else None)
        return [replaced(faults[0], repaired=manifest.repair_file(root, meta, name, source))]
    return []


def _sample_session(
    home: Path, agent: str, session: str, start: Cursor, more: Callable[[int], bool]
) -> tuple[list[RecordingFault], Cursor]:
    """Check a session until `more` says stop; return what is wrong, and where it stopped unless it is done."""
    _, file, first = start if start[0] == session else ("", "", 0)
    faults: list[RecordingFault] = []
    try:
        with _lock_session(home, agent, session, "verifying") as (root, meta):
            faults += _record_missing_faults(root, meta, _list_unrecorded(root, meta))
            for name in sorted(name for name in meta.hashes if name >= file):
                problem, text, block = manifest.check_file(root, meta, name, first if name == file else 0, more)
                if problem:
                    faults.append(RecordingFault(session, name, problem, text))
                if block:
                    return faults, (session, name, block)
    except Conflict:
        pass  # It is being settled: the next round will come by again.
    except FlightlogError as error:
        faults.append(RecordingFault(session, "", "unreadable", error.message))
    return faults, ("", "", 0)
