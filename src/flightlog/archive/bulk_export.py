"""Jobs over the whole archive: trajectories, Parquet tables, secret scan.

    sessions     one row per session           key: session
    steps        one row per model response    key: session, subagent, message_id
    tool_calls   one row per tool call         key: session, subagent, tool_call_id

Times are milliseconds since 1970, `day` is the UTC day a session began.

A job names a few sessions; its result is the files' bytes, which this process writes. Machines
that run jobs see the recordings at the same paths. A session that fails is reported and skipped.
"""

import hashlib
import io
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import as_completed
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from flightlog.agents.recordings import find_agent_dirs
from flightlog.archive.archive import Archive, open_archive
from flightlog.archive.sharing import redact_session
from flightlog.archive.trajectories import build_session_bundle
from flightlog.model.addresses import Address
from flightlog.model.entries import Text, Thinking
from flightlog.model.errors import Conflict, FlightlogError, optional_import
from flightlog.model.output_files import Redacted
from flightlog.model.runtime import Job, Runtime
from flightlog.model.session import Session, Step, ToolCall
from flightlog.model.usage import Cost, Usage, sum_costs, usage_fields
from flightlog.privacy.service import find_private_in_files, make_redactor
from flightlog.store.files import ensure_dir, replace_file, resolve_inside
from flightlog.views.session.timeline import iter_steps

_TOKENS = " ".join(Usage.__struct_fields__)
_ADDRESS = "session subagent turn step message_id"
# Columns of each table, in order. A column has the same type in every table; the others are text.
COLUMNS = {
    "sessions": "session title cwd branch version entrypoint started_ms ended_ms turns steps tool_calls subagents"
    f" models {_TOKENS} cost_usd cost_source is_lower_bound lacks_tokens damage_count".split(),
    "steps": f"{_ADDRESS} at_ms model stop_reason text thinking tools"
    f" {_TOKENS} cost_usd cost_source is_lower_bound lacks_tokens is_aborted".split(),
    "tool_calls": f"{_ADDRESS} tool_call_id name input output is_error denial_reason started_ms ended_ms".split(),
}
_INTEGERS = frozenset(
    f"started_ms ended_ms at_ms turns turn steps step tool_calls subagents damage_count {_TOKENS}".split()
)
_FLOATS, _LISTS = frozenset({"cost_usd"}), frozenset({"models", "tools"})
_BOOLEANS = frozenset({"is_aborted", "is_error", "is_lower_bound", "lacks_tokens"})
Row = dict[str, Any]
WORK = "archive"
ATIF, PARQUET, SECRETS = "atif", "parquet", "secrets"
_SESSIONS_MAX = 64  # of one job: a process starts seldom, and progress is still shown
_BYTES_MAX = 32 << 20  # of one job's sessions: its result is sent back whole
_REMOTE_JOBS = 64  # submitted at once to an executor on other machines
Progress = Callable[[int, int], None]


def session_day(session: Session) -> str:
    """Return the UTC day a session began, or `unknown`."""
    if session.started_ms is None:
        return "unknown"
    return datetime.fromtimestamp(session.started_ms / 1000, tz=UTC).date().isoformat()


def build_rows(session: Session) -> dict[str, list[Row]]:
    """Return the rows of a session, by table."""
    steps = list(iter_steps(session))
    calls = [(address, step, call) for address, step in steps for call in step.tool_calls]
    return {
        "sessions": [_session_row(session, [step for _, step in steps])],
        "steps": [_step_row(address, step) for address, step in steps],
        "tool_calls": [_tool_call_row(*call) for call in calls],
    }


def _session_row(session: Session, steps: list[Step]) -> Row:
    cost = sum_costs(step.cost for step in steps)
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
        "tool_calls": sum(len(step.tool_calls) for step in steps),
        "subagents": len(session.subagents),
        "models": list(dict.fromkeys(step.model for step in steps if step.model)),
        **_usage_columns(sum((step.usage for step in steps), Usage()), cost),
        "damage_count": len(session.damage),
    }


def _step_row(address: Address, step: Step) -> Row:
    return {
        **_address_columns(address, step),
        "at_ms": step.at_ms,
        "model": step.model,
        "stop_reason": step.stop_reason,
        "text": "\n".join(block.text for block in step.content if isinstance(block, Text)),
        "thinking": "\n".join(block.text for block in step.content if isinstance(block, Thinking)),
        "tools": [call.name for call in step.tool_calls],
        **_usage_columns(step.usage, step.cost),
        "is_aborted": step.is_aborted,
    }


def _tool_call_row(address: Address, step: Step, call: ToolCall) -> Row:
    return {
        **_address_columns(address, step),
        "tool_call_id": call.id,
        "name": call.name,
        "input": msgspec.json.encode(call.input).decode(),
        "output": None if call.result is None else call.output,
        "is_error": call.is_error,
        "denial_reason": call.denial_reason,
        "started_ms": call.started_ms,
        "ended_ms": call.ended_ms,
    }


def _address_columns(address: Address, step: Step) -> Row:
    values = (address.session, address.subagent, address.turn, address.step, step.message_id)
    return dict(zip(_ADDRESS.split(), values, strict=True))


def _usage_columns(usage: Usage, cost: Cost) -> Row:
    return usage_fields(usage, cost) | {"cost_source": cost.source.value}


class BulkExportOptions(Struct, frozen=True):
    """What to make of every session, or of those of one agent."""

    kind: str
    version: str = "1.6"
    redact: bool = False
    agent: str = ""


class BulkExportJob(Struct, frozen=True):
    """Some sessions and what to make of them."""

    options: BulkExportOptions
    agent_dirs: dict[str, tuple[str, ...]]
    home: str
    sessions: tuple[str, ...]


class BulkExportResult(Struct):
    """Files by name, findings, and the sessions that failed, each with the reason."""

    files: list[tuple[str, bytes]] = []
    findings: list[dict[str, Any]] = []
    failed: list[tuple[str, str]] = []
    sessions: int = 0
    secrets: int = 0
    personal: int = 0


def export_archive(
    runtime: Runtime, options: BulkExportOptions, output: Path, progress: Progress
) -> dict[str, Any]:
    """Write every session below `output`; return counts and the sessions that failed."""
    if output.exists() and not output.is_dir():
        raise Conflict(f"not a directory: {output}", hint="name a new directory")
    if options.kind == PARQUET and output.is_dir() and any(output.iterdir()):
        hint = "name a new directory, or rows would be there twice"
        raise Conflict(f"not empty: {output}", hint=hint)
    ensure_dir(output)
    total = BulkExportResult()
    written = 0
    for result in _run_jobs(runtime, options, progress):
        for name, data in result.files:
            replace_file(resolve_inside(output, name), data, durable=False)
        written += len(result.files)
        for field in ("sessions", "failed", "secrets", "personal"):
            setattr(total, field, getattr(total, field) + getattr(result, field))
    counts = {"output": str(output), "sessions": total.sessions, "files": written}
    counts["failed"] = dict(total.failed)
    removed = {"secrets": total.secrets, "personal": total.personal} if options.redact else {}
    return counts | {"redacted": options.redact} | removed


def scan_archive(
    runtime: Runtime, options: BulkExportOptions, progress: Progress
) -> Iterator[dict[str, Any]]:
    """Yield the private values of every session, masked."""
    for result in _run_jobs(runtime, options, progress):
        yield from result.findings
        yield from ({"session": session, "error": why} for session, why in result.failed)


def run_archive_chunk(runtime: Runtime, payload: bytes) -> bytes:
    """Run one job: take an encoded `BulkExportJob`, return an encoded `BulkExportResult`."""
    job = msgspec.msgpack.decode(payload, type=BulkExportJob)
    worker = _JobWorker(runtime, job)
    for session in job.sessions:
        try:
            worker.add_session(session)
            worker.result.sessions += 1
        except FlightlogError as error:
            worker.result.failed.append((session, str(error)))
    worker.result.files += worker.encode_tables()
    return msgspec.msgpack.encode(worker.result)


class _JobWorker:
    """Collects the result of one job, and the Parquet rows by partition."""

    def __init__(self, runtime: Runtime, job: BulkExportJob) -> None:
        self._runtime, self._job = runtime, job
        self._archive = Archive(job.agent_dirs, job.home)
        self._rows: dict[str, list[Row]] = {}
        self.result = BulkExportResult()

    def add_session(self, name: str) -> None:
        options = self._job.options
        if options.kind == SECRETS:
            files = (file.path for file in self._archive.find_recording(name).files)
            findings = find_private_in_files(files, make_redactor(self._runtime).known)
            self.result.findings += ({"session": name, **finding} for finding in findings)
            return
        session = self._archive.read_session(name)
        redacted: Redacted[Any] | None = None
        if options.kind == ATIF:
            bundle, redacted = build_session_bundle(
                self._runtime, self._archive, session, options.version, redact=options.redact
            )
            contents = bundle.iter_files()
            self.result.files += [(f"{session.id}/{path}", data) for path, data in contents]
        else:
            if options.redact:
                redacted, _ = redact_session(self._runtime, self._archive, session)
                session = redacted.value.session
            for table, rows in build_rows(session).items():
                if rows:
                    partition = f"{table}/agent={session.agent}/day={session_day(session)}"
                    self._rows.setdefault(partition, []).extend(rows)
        if redacted is not None:
            self.result.secrets += redacted.secrets
            self.result.personal += redacted.personal

    def encode_tables(self) -> list[tuple[str, bytes]]:
        name = hashlib.sha256("\n".join(self._job.sessions).encode()).hexdigest()[:16]
        return [
            (f"{partition}/part-{name}.parquet", _encode_parquet(partition.partition("/")[0], rows))
            for partition, rows in self._rows.items()
        ]


def _run_jobs(
    runtime: Runtime, options: BulkExportOptions, progress: Progress
) -> Iterator[BulkExportResult]:
    jobs = list(_iter_jobs(runtime, options))
    assert runtime.jobs is not None, "whole-archive jobs need an executor"
    parallel = os.cpu_count() or 1 if runtime.jobs.is_local else _REMOTE_JOBS
    with runtime.jobs.open_in_thread(parallel) as submit:
        futures = [submit(job) for job in jobs]
        for done, future in enumerate(as_completed(futures), 1):
            result = msgspec.msgpack.decode(future.result(), type=BulkExportResult)
            futures.remove(future)  # frees its result
            progress(done, len(jobs))
            yield result


def _iter_jobs(runtime: Runtime, options: BulkExportOptions) -> Iterator[Job]:
    found = find_agent_dirs(runtime).items()
    dirs = {name: paths for name, paths in found if options.agent in {"", name}}
    recordings = open_archive(runtime).recordings.values()
    chosen = (item for item in recordings if options.agent in {"", item.agent})
    for sessions in _iter_chunks({recording.session: recording.size for recording in chosen}):
        payload = msgspec.msgpack.encode(BulkExportJob(options, dirs, runtime.data_dir, sessions))
        yield Job(f"flightlog-{WORK}-{hashlib.sha256(payload).hexdigest()[:32]}", WORK, payload)


def _iter_chunks(sizes: Mapping[str, int]) -> Iterator[tuple[str, ...]]:
    chunk: list[str] = []
    chunk_bytes = 0
    for session, size in sizes.items():
        if chunk and (len(chunk) >= _SESSIONS_MAX or chunk_bytes + size > _BYTES_MAX):
            yield tuple(chunk)
            chunk, chunk_bytes = [], 0
        chunk.append(session)
        chunk_bytes += size
    if chunk:
        yield tuple(chunk)


def _encode_parquet(table: str, rows: list[Row]) -> bytes:
    with optional_import():
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    special = {
        **dict.fromkeys(_INTEGERS, arrow.int64()),
        **dict.fromkeys(_FLOATS, arrow.float64()),
        **dict.fromkeys(_BOOLEANS, arrow.bool_()),
        **dict.fromkeys(_LISTS, arrow.list_(arrow.string())),
    }
    columns = [(column, special.get(column, arrow.string())) for column in COLUMNS[table]]
    schema = arrow.schema(columns)
    sink = io.BytesIO()
    parquet.write_table(arrow.Table.from_pylist(rows, schema=schema), sink, compression="zstd")
    return sink.getvalue()
