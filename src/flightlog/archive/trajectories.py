"""Write recorded sessions as ATIF bundles, and lint ATIF documents on disk.

The documents and the rules themselves are in `views.atif`.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from flightlog.agents import source_of
from flightlog.archive.archive import Archive, open_archive
from flightlog.archive.session_reader import list_session_folder, read_session_folder
from flightlog.model.errors import NotFound, Unreadable
from flightlog.model.output_files import Redacted
from flightlog.model.runtime import Runtime
from flightlog.model.session import DEFAULT_AGENT, Session, ThreadContext
from flightlog.store.files import replace_file
from flightlog.views.atif.fidelity import FidelityCount, measure_fidelity
from flightlog.views.atif.findings import LintFinding, iter_dicts, iter_results
from flightlog.views.atif.lint import is_trajectory, lint_trajectory, parse_json
from flightlog.views.atif.writer import AtifOptions, TrajectoryBundle, build_trajectory

if TYPE_CHECKING:
    from flightlog.archive.sharing import SessionDocument


DOCUMENT_BYTES_MAX = 128 << 20  # a session of 5,000 steps makes about 20 MB


class LintReport(Struct, frozen=True):
    """The findings on one document; `fidelity` is None if its recording is not known."""

    path: str
    findings: list[LintFinding]
    fidelity: list[FidelityCount] | None = None


def build_session_bundle(
    runtime: Runtime, archive: Archive, session: Session, version: str, *, redact: bool
) -> tuple[TrajectoryBundle, "Redacted[SessionDocument] | None"]:
    """Return a session's trajectories, and with `redact` the redacted document they are made of."""
    redacted, contexts = None, archive.thread_contexts(session.id)
    if redact:
        from flightlog.archive.sharing import redact_session  # noqa: PLC0415 - compiling its rules is slow

        redacted, _ = redact_session(runtime, archive, session)
        session, contexts = redacted.value.session, redacted.value.contexts
    options = AtifOptions("1.7" if version == "1.7" else "1.6")
    return build_trajectory(session, options, contexts), redacted


def write_bundle(folder: Path, bundle: TrajectoryBundle) -> list[Path]:
    """Write the files of a bundle below `folder` and return their paths.

    The main document is written last, so that the files it names exist.
    """
    written = []
    for path, body in reversed(list(bundle.iter_files())):
        replace_file(folder / path, body, durable=False)
        written.append(folder / path)
    return written[::-1]


def lint_path(runtime: Runtime, path: Path, source: str = "") -> list[LintReport]:
    """Lint a document, or every one below a directory, and compare each with its recording.

    The recording is the session that `source` names, else the transcript beside the document, as
    runs have it, else the session of the document's own id, if it is on this machine.
    """
    documents = _read_documents(path)
    subagents = {target for pair in documents.items() for target in _subagent_documents(*pair)}
    reports = []
    for file, document in documents.items():
        findings = lint_trajectory(file.read_bytes(), _has_file(file.parent))
        is_subagent = file.resolve() in subagents  # its recording is that of the main document
        fidelity = None if is_subagent else _measure_fidelity(runtime, file, document, source)
        reports.append(LintReport(str(file), findings, fidelity))
    return reports


def read_main_trajectories(path: Path) -> Iterator[tuple[Path, list[Any]]]:
    """Yield each trajectory at or below `path` with those of its subagents, embedded or beside it."""
    documents = _read_documents(path)
    linked = {target for item in documents.items() for target in _subagent_documents(*item)}
    for file, document in documents.items():
        if file.resolve() not in linked or len(documents) == 1:
            whole = _with_subagents(file, document) if isinstance(document, dict) else [document]
            embedded = [inner for outer in whole for inner in _embedded_documents(outer)]
            yield file, [*whole, *embedded]


def _embedded_documents(document: Any) -> Iterator[Any]:
    whole = document if isinstance(document, dict) else {}
    for _, inner in iter_dicts(whole, "subagent_trajectories"):
        yield inner
        yield from _embedded_documents(inner)


def _has_file(folder: Path) -> Callable[[str], bool]:
    return lambda name: (folder / name).is_file()


def _read_documents(path: Path) -> dict[Path, Any]:
    """Return the trajectories below a directory, or the named file whatever its content.

    A file called `trajectory…` is one even if it is cut or is not JSON.
    """
    if path.is_file():
        return {path: _parse_document(path)}
    if not path.exists():
        hint = "name a trajectory.json, or a directory that contains one"
        raise NotFound(f"no such file or directory: {path}", hint=hint)
    values = ((file, _parse_document(file)) for file in sorted(path.rglob("*.json")))
    documents = {
        file: value
        for file, value in values
        if is_trajectory(value) or (value is None and file.name.startswith("trajectory"))
    }
    if not documents:
        hint = "flightlog session export SESSION --atif --output DIR"
        raise NotFound(f"no trajectory below {path}", hint=hint)
    return documents


def _parse_document(path: Path) -> Any:
    try:
        if path.stat().st_size > DOCUMENT_BYTES_MAX:
            raise Unreadable(f"too large to lint: {path}", hint="split it, and lint its parts")
        return parse_json(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None


def _subagent_documents(path: Path, document: Any) -> Iterator[Path]:
    """Yield the subagents' documents that a document refers to."""
    for _, step in iter_dicts(document if isinstance(document, dict) else {}, "steps"):
        for _, result in iter_results(step):
            for _, ref in iter_dicts(result, "subagent_trajectory_ref"):
                if isinstance(ref.get("trajectory_path"), str):
                    yield (path.parent / ref["trajectory_path"]).resolve()


def _measure_fidelity(
    runtime: Runtime, path: Path, document: Any, source: str
) -> list[FidelityCount] | None:
    if not isinstance(document, dict):
        return None
    recorded = _find_recording(runtime, path.parent, str(document.get("session_id") or ""), source)
    if recorded is None:
        return None
    session, contexts = recorded
    return measure_fidelity(session, _with_subagents(path, document), contexts)


def _find_recording(
    runtime: Runtime, folder: Path, session_id: str, source: str
) -> tuple[Session, Mapping[str, ThreadContext]] | None:
    files = list_session_folder(folder, session_id) if session_id and not source else []
    if files:
        # Runs drive Claude Code alone, so the transcript beside a document is its.
        session = read_session_folder(folder, session_id, DEFAULT_AGENT)
        assert session is not None
        return session, source_of(DEFAULT_AGENT).thread_contexts(files)
    archive = open_archive(runtime)
    if not source and session_id not in archive.recordings:
        return None
    session = archive.read_session(source or session_id)
    return session, archive.thread_contexts(session.id)


def _with_subagents(path: Path, document: dict[str, Any]) -> list[Any]:
    """Return a document and those of its subagents; files outside its directory are not read."""
    root = path.parent.resolve()
    documents = {path.resolve(): document}
    waiting = [(path, document)]
    while waiting:
        for target in _subagent_documents(*waiting.pop()):
            if target not in documents and target.is_relative_to(root):
                inner = _parse_document(target)
                if isinstance(inner, dict):
                    documents[target] = inner
                    waiting.append((target, inner))
    return list(documents.values())
