"""Jobs over the whole archive: every session as a trajectory, as rows of Parquet, or looked through for secrets.

A job is a few sessions, by name; its result is bytes, which are written here. The machines that carry
jobs out see the recordings at the same paths. A session that cannot be told costs itself alone.
"""

import hashlib
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from flightlog.app.privacy import find_private_in_files, make_redactor
from flightlog.app.trajectories import build_session_bundle
from flightlog.archive.door import Archive, open_archive
from flightlog.model.errors import Conflict, FlightlogError
from flightlog.model.extras import optional_import
from flightlog.model.jobs import Job
from flightlog.model.pages import Redacted
from flightlog.model.runtime import Runtime
from flightlog.sources.claude_code.discover import find_config_dirs
from flightlog.store.files import ensure_dir, replace_file, resolve_inside
from flightlog.views import tables

WORK = "archive"
ATIF, PARQUET, SECRETS = "atif", "parquet", "secrets"
_SESSIONS_MAX = 64
_BYTES_MAX = 32 << 20
_AT_ONCE_ELSEWHERE = 64
Progress = Callable[[int, int], None]


class BulkExportJob(Struct, frozen=True):
    """Some sessions, and what is to be made of them."""

    kind: str
    config_dirs: tuple[str, ...]
    home: str
    sessions: tuple[str, ...]
    version: str = "1.6"
    redact: bool = False


class BulkExportResult(Struct):
    """What was made: files by name, findings, and the sessions that could not be told with the reason."""

    files: list[tuple[str, bytes]] = []
    findings: list[dict[str, Any]] = []
    failed: list[tuple[str, str]] = []
    sessions: int = 0
    secrets: int = 0
    personal: int = 0


class BulkExportOptions(Struct, frozen=True):
    """What a person wants made of every session, and where."""

    kind: str
    version: str = "1.6"
    redact: bool = False


def export_archive(runtime: Runtime, how: BulkExportOptions, output: Path, progress: Progress) -> dict[str, Any]:
    """Write every session below `output`; say what was written and what could not be."""
    if output.exists() and not output.is_dir():
        raise Conflict(f"not a directory: {output}", hint="name a new directory")
    if how.kind == PARQUET and output.is_dir() and any(output.iterdir()):
        raise Conflict(
            f"there is something already: {output}", hint="name a new directory: rows would stand there twice"
        )
    ensure_dir(output)
    total = BulkExportResult()
    written = 0
    for made in _run_jobs(runtime, how, progress):
        for name, data in made.files:
            replace_file(resolve_inside(output, name), data, durable=False)
        written += len(made.files)
        for field in ("sessions", "failed", "secrets", "personal"):
            setattr(total, field, getattr(total, field) + getattr(made, field))
    done = {"output": str(output), "sessions": total.sessions, "files": written, "failed": dict(total.failed)}
    removed = {"secrets": total.secrets, "personal": total.personal} if how.redact else {}
    return done | {"redacted": how.redact} | removed


def scan_archive(runtime: Runtime, how: BulkExportOptions, progress: Progress) -> Iterator[dict[str, Any]]:
    """Yield what is private in every session, values masked."""
    for made in _run_jobs(runtime, how, progress):
        yield from made.findings
        yield from ({"session": session, "error": why} for session, why in made.failed)


def run_archive_chunk(runtime: Runtime, payload: bytes) -> bytes:
    """Carry one job out."""
    asked = msgspec.msgpack.decode(payload, type=BulkExportJob)
    archive = Archive(asked.config_dirs, asked.home)
    made = BulkExportResult()
    rows: dict[str, list[Any]] = {}
    for session in asked.sessions:
        try:
            _export_session(runtime, archive, session, asked, made=made, rows=rows)
            made.sessions += 1
        except FlightlogError as error:
            made.failed.append((session, str(error)))
    if asked.kind == PARQUET:
        name = hashlib.sha256("\n".join(asked.sessions).encode()).hexdigest()[:16]
        made.files += [(f"{place}/part-{name}.parquet", _encode_parquet(place, each)) for place, each in rows.items()]
    return msgspec.msgpack.encode(made)


def _export_session(  # noqa: PLR0913 - what is made of one session goes into `made` and `rows`
    runtime: Runtime,
    archive: Archive,
    session: str,
    asked: BulkExportJob,
    *,
    made: BulkExportResult,
    rows: dict[str, list[Any]],
) -> None:
    if asked.kind == SECRETS:
        files = (file.path for file in archive.find_recording(session).files)
        made.findings += (
            {"session": session, **each} for each in find_private_in_files(files, make_redactor(runtime).known)
        )
        return
    told = archive.read_session(session)
    if asked.kind == ATIF:
        bundle, redacted = build_session_bundle(runtime, archive, told, asked.version, redact=asked.redact)
        made.files += [(f"{told.id}/{name}", data) for name, data in bundle.iter_files()]
        _add_counts(made, redacted)
        return
    if asked.redact:
        from flightlog.app.sharing import redact_session  # noqa: PLC0415 - its rules take a while

        document, _ = redact_session(runtime, archive, told)
        told = document.value.session
        _add_counts(made, document)
    for table, each in tables.build_rows(told).items():
        if each:
            rows.setdefault(f"{table}/agent={told.agent}/day={tables.session_day(told)}", []).extend(each)


def _add_counts(made: BulkExportResult, redacted: Redacted[Any] | None) -> None:
    made.secrets += redacted.secrets if redacted else 0
    made.personal += redacted.personal if redacted else 0


def _run_jobs(runtime: Runtime, how: BulkExportOptions, progress: Progress) -> Iterator[BulkExportResult]:
    jobs = list(_iter_jobs(runtime, how))
    assert runtime.jobs is not None, "whole-archive jobs need an executor"
    parallel = os.cpu_count() or 1 if runtime.jobs.is_local else _AT_ONCE_ELSEWHERE
    with runtime.jobs.open_in_thread(parallel) as submit:
        futures = [submit(job) for job in jobs]
        for done, future in enumerate(as_completed(futures), 1):
            made = msgspec.msgpack.decode(future.result(), type=BulkExportResult)
            futures.remove(future)  # what is written need not be kept
            progress(done, len(jobs))
            yield made


def _iter_jobs(runtime: Runtime, how: BulkExportOptions) -> Iterator[Job]:
    archive = open_archive(runtime)
    dirs = tuple(find_config_dirs(runtime))
    sizes = {name: recording.size for name, recording in archive.recordings.items()}
    for sessions in _iter_chunks(sizes):
        asked = BulkExportJob(how.kind, dirs, runtime.data_dir, sessions, how.version, how.redact)
        payload = msgspec.msgpack.encode(asked)
        yield Job(f"flightlog-{WORK}-{hashlib.sha256(payload).hexdigest()[:32]}", WORK, payload)


def _iter_chunks(sizes: Mapping[str, int]) -> Iterator[tuple[str, ...]]:
    """Sessions in handfuls, so that the beginning of a job costs little and its result is not large."""
    some: list[str] = []
    size = 0
    for session, more in sizes.items():
        if some and (len(some) >= _SESSIONS_MAX or size + more > _BYTES_MAX):
            yield tuple(some)
            some, size = [], 0
        some.append(session)
        size += more
    if some:
        yield tuple(some)


def _encode_parquet(place: str, rows: Sequence[Mapping[str, Any]]) -> bytes:
    arrow, parquet = _import_arrow()
    kinds = {
        tables.NUMBER: arrow.int64(),
        tables.REAL: arrow.float64(),
        tables.FLAG: arrow.bool_(),
        tables.NAMES: arrow.list_(arrow.string()),
        tables.TEXT: arrow.string(),
    }
    columns = tables.COLUMNS[place.partition("/")[0]]
    schema = arrow.schema([(column, kinds[kind]) for column, kind in columns.items()])
    sink = io.BytesIO()
    parquet.write_table(arrow.Table.from_pylist(list(rows), schema=schema), sink, compression="zstd")
    return sink.getvalue()


def _import_arrow() -> tuple[Any, Any]:
    with optional_import():
        return import_module("pyarrow"), import_module("pyarrow.parquet")
