"""Whole-archive jobs: trajectories, Parquet, secret scan.

sessions     one row for each session            key: session
    steps        one row for each model response     key: session, lane, message_id
    tool_calls   one row for each tool call          key: session, lane, call_id

Times are milliseconds since 1970, `day` is the UTC day a session began. Pure.

A job is a few sessions, by name; its result is bytes, which are written here. The machines that carry
jobs out see the recordings at the same paths. A session that cannot be told costs itself alone.
"""

import hashlib
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from flightlog.agents.claude_code.files import find_config_dirs
from flightlog.archive.archive import Archive, open_archive
from flightlog.archive.trajectories import build_session_bundle
from flightlog.model.entries import Text, Thinking
from flightlog.model.errors import Conflict, FlightlogError, optional_import
from flightlog.model.output_files import Redacted
from flightlog.model.runtime import Job, Runtime
from flightlog.model.session import Session, Step, ToolCall, Turn
from flightlog.model.usage import Usage
from flightlog.privacy.service import find_private_in_files, make_redactor
from flightlog.store.files import ensure_dir, replace_file, resolve_inside

TEXT, NUMBER, REAL, FLAG, NAMES = "text", "number", "real", "flag", "names"
_COUNTS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_5m_tokens", "cache_write_1h_tokens")
_TOKENS = dict.fromkeys(_COUNTS, NUMBER)
_PLACE = {"session": TEXT, "lane": TEXT, "turn": NUMBER, "step": NUMBER, "message_id": TEXT}
COLUMNS: dict[str, dict[str, str]] = {
    "sessions": {
        "session": TEXT,
        "title": TEXT,
        "cwd": TEXT,
        "branch": TEXT,
        "version": TEXT,
        "entrypoint": TEXT,
        "started_ms": NUMBER,
        "ended_ms": NUMBER,
        "turns": NUMBER,
        "steps": NUMBER,
        "tool_calls": NUMBER,
        "subagents": NUMBER,
        "models": NAMES,
        **_TOKENS,
        "cost_usd": REAL,
        "damaged": NUMBER,
    },
    "steps": {
        **_PLACE,
        "at_ms": NUMBER,
        "model": TEXT,
        "stop_reason": TEXT,
        "text": TEXT,
        "thinking": TEXT,
        "tools": NAMES,
        **_TOKENS,
        "cost_usd": REAL,
        "aborted": FLAG,
    },
    "tool_calls": {
        **_PLACE,
        "call_id": TEXT,
        "name": TEXT,
        "input": TEXT,
        "output": TEXT,
        "is_error": FLAG,
        "denied": TEXT,
        "started_ms": NUMBER,
        "ended_ms": NUMBER,
    },
}
Row = dict[str, Any]
WORK = "archive"
ATIF, PARQUET, SECRETS = "atif", "parquet", "secrets"
_SESSIONS_MAX = 64
_BYTES_MAX = 32 << 20
_AT_ONCE_ELSEWHERE = 64
Progress = Callable[[int, int], None]


def session_day(session: Session) -> str:
    """The day a session began."""
    if session.started_ms is None:
        return "unknown"
    return datetime.fromtimestamp(session.started_ms / 1000, tz=UTC).date().isoformat()


def build_rows(session: Session) -> dict[str, list[Row]]:
    """The rows of a session, by table."""
    steps = list(_iter_steps(session))
    return {
        "sessions": [_session_row(session, [step for _, _, step in steps])],
        "steps": [_step_row(session, *each) for each in steps],
        "tool_calls": [_tool_call_row(session, *each, call) for each in steps for call in each[2].calls],
    }


def _iter_steps(session: Session) -> Iterator[tuple[str, Turn, Step]]:
    threads = [("", session.turns), *((lane.id, lane.turns) for lane in session.lanes)]
    for lane, turns in threads:
        for turn in turns:
            yield from ((lane, turn, step) for step in turn.steps)


def _session_row(session: Session, steps: list[Step]) -> Row:
    costs = [step.cost.usd for step in steps]
    return {
        "session": session.id,
        "title": session.heading,
        "cwd": session.cwd,
        "branch": session.branch,
        "version": session.version,
        "entrypoint": session.entrypoint,
        "started_ms": session.started_ms,
        "ended_ms": session.ended_ms,
        "turns": len(session.turns),
        "steps": len(steps),
        "tool_calls": sum(len(step.calls) for step in steps),
        "subagents": len(session.lanes),
        "models": list(dict.fromkeys(step.model for step in steps if step.model)),
        **_token_counts(sum((step.usage for step in steps), Usage())),
        "cost_usd": None if None in costs else sum(usd or 0.0 for usd in costs),
        "damaged": len(session.damage),
    }


def _step_row(session: Session, lane: str, turn: Turn, step: Step) -> Row:
    return {
        **_address_columns(session, lane, turn, step),
        "at_ms": step.at_ms,
        "model": step.model,
        "stop_reason": step.stop_reason,
        "text": "\n".join(block.text for block in step.content if isinstance(block, Text)),
        "thinking": "\n".join(block.text for block in step.content if isinstance(block, Thinking)),
        "tools": [call.name for call in step.calls],
        **_token_counts(step.usage),
        "cost_usd": step.cost.usd,
        "aborted": step.aborted,
    }


def _tool_call_row(session: Session, lane: str, turn: Turn, step: Step, call: ToolCall) -> Row:
    return {
        **_address_columns(session, lane, turn, step),
        "call_id": call.id,
        "name": call.name,
        "input": msgspec.json.encode(call.input).decode(),
        "output": None if call.result is None else call.output,
        "is_error": call.is_error,
        "denied": call.denied,
        "started_ms": call.started_ms,
        "ended_ms": call.ended_ms,
    }


def _address_columns(session: Session, lane: str, turn: Turn, step: Step) -> Row:
    numbers = {"turn": turn.number, "step": step.number, "message_id": step.message_id}
    return {"session": session.id, "lane": lane, **numbers}


def _token_counts(usage: Usage) -> Row:
    counts = (usage.input, usage.output, usage.cache_read, usage.cache_write_5m, usage.cache_write_1h)
    return dict(zip(_TOKENS, counts, strict=True))


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
        from flightlog.archive.sharing import redact_session  # noqa: PLC0415 - its rules take a while

        document, _ = redact_session(runtime, archive, told)
        told = document.value.session
        _add_counts(made, document)
    for table, each in build_rows(told).items():
        if each:
            rows.setdefault(f"{table}/agent={told.agent}/day={session_day(told)}", []).extend(each)


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
        NUMBER: arrow.int64(),
        REAL: arrow.float64(),
        FLAG: arrow.bool_(),
        NAMES: arrow.list_(arrow.string()),
        TEXT: arrow.string(),
    }
    columns = COLUMNS[place.partition("/")[0]]
    schema = arrow.schema([(column, kinds[kind]) for column, kind in columns.items()])
    sink = io.BytesIO()
    parquet.write_table(arrow.Table.from_pylist(list(rows), schema=schema), sink, compression="zstd")
    return sink.getvalue()


def _import_arrow() -> tuple[Any, Any]:
    with optional_import():
        return import_module("pyarrow"), import_module("pyarrow.parquet")
