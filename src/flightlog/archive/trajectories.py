"""Trajectories of this machine: recorded sessions written as ATIF, and documents on disk looked at.

Reads files and writes bundles; what they say and what is wrong with them is `views.atif`.
"""

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from flightlog.agents import source_of
from flightlog.agents.claude_code.files import AGENT_NAME
from flightlog.archive.archive import Archive, open_archive
from flightlog.archive.session_reader import list_session_folder, read_session_folder
from flightlog.model.errors import NotFound, Unreadable
from flightlog.model.output_files import Redacted
from flightlog.model.runtime import Runtime
from flightlog.model.session import Session, ThreadContext
from flightlog.store.files import replace_file
from flightlog.views.atif.fidelity import FidelityCount, measure_fidelity
from flightlog.views.atif.findings import LintFinding, iter_dicts, iter_results
from flightlog.views.atif.lint import is_trajectory, lint_trajectory, parse_json
from flightlog.views.atif.writer import AtifOptions, TrajectoryBundle, build_trajectory

if TYPE_CHECKING:
    from flightlog.archive.sharing import SessionDocument


DOCUMENT_BYTES_MAX = 128 << 20  # a session of 5,000 steps makes about 20 MB


class LintReport(Struct, frozen=True):
    """What was found out about one document; nothing is said of fidelity when no recording is known."""

    path: str
    findings: list[LintFinding]
    fidelity: list[FidelityCount] | None = None


def build_session_bundle(
    runtime: Runtime, archive: Archive, session: Session, version: str, *, redact: bool
) -> tuple[TrajectoryBundle, "Redacted[SessionDocument] | None"]:
    """Return a session's trajectories, and the redacted document they were made of if they are to be passed on."""
    redacted, contexts = None, archive.thread_contexts(session.id)
    if redact:
        from flightlog.archive.sharing import redact_session  # noqa: PLC0415 - the rules take a while to load

        redacted, _ = redact_session(runtime, archive, session)
        session, contexts = redacted.value.session, redacted.value.contexts
    return build_trajectory(session, AtifOptions("1.7" if version == "1.7" else "1.6"), contexts), redacted


def write_bundle(folder: Path, bundle: TrajectoryBundle) -> list[Path]:
    """Write every file of a bundle below `folder`, the main document last, so that what it names is there."""
    written = []
    for path, body in reversed(list(bundle.iter_files())):
        replace_file(folder / path, body, durable=False)
        written.append(folder / path)
    return written[::-1]


def lint_path(runtime: Runtime, path: Path, source: str = "") -> list[LintReport]:
    """Look at a document, or at every one below a directory, and at what each lost of its recording.

    The recording is the session that `source` names, else the transcript beside the document, as
    runs have it, else the session of the document's own id, if it is on this machine.
    """
    documents = dict(_iter_documents(path))
    named = {target for place, document in documents.items() for target in _subagent_documents(place, document)}
    linted = []
    for place, document in documents.items():
        found = lint_trajectory(place.read_bytes(), functools.partial(_is_file, place.parent))
        kept = None if place.resolve() in named else _measure_fidelity(runtime, place, document, source)
        linted.append(LintReport(str(place), found, kept))
    return linted


def _is_file(folder: Path, name: str) -> bool:
    return (folder / name).is_file()


def _iter_documents(path: Path) -> Iterator[tuple[Path, Any]]:
    """Find trajectories; one that is asked for by name counts whatever it holds."""
    if not path.exists():
        raise NotFound(
            f"no such file or directory: {path}", hint="name a trajectory.json, or a directory that holds one"
        )
    found = False
    for place in [path] if path.is_file() else sorted(path.rglob("*.json")):
        document = _parse_document(place)
        if place == path or is_trajectory(document):
            found = True
            yield place, document
    if not found:
        raise NotFound(f"no trajectory below {path}", hint="flightlog session export SESSION --atif --output DIR")


def _parse_document(place: Path) -> Any:
    try:
        if place.stat().st_size > DOCUMENT_BYTES_MAX:
            raise Unreadable(f"too large to be looked at: {place}", hint="split it, or look at its parts")
        return parse_json(place.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None


def _subagent_documents(place: Path, document: Any) -> Iterator[Path]:
    """Name the subagents' documents that a document refers to."""
    for _, step in iter_dicts(document if isinstance(document, dict) else {}, "steps"):
        for _, result in iter_results(step):
            for _, ref in iter_dicts(result, "subagent_trajectory_ref"):
                if isinstance(ref.get("trajectory_path"), str):
                    yield (place.parent / ref["trajectory_path"]).resolve()


def _measure_fidelity(runtime: Runtime, place: Path, document: Any, source: str) -> list[FidelityCount] | None:
    if not isinstance(document, dict):
        return None
    found = _find_recorded_session(runtime, place.parent, str(document.get("session_id") or ""), source)
    return None if found is None else measure_fidelity(found[0], _document_family(place, document), found[1])


def _find_recorded_session(
    runtime: Runtime, folder: Path, session: str, source: str
) -> tuple[Session, Mapping[str, ThreadContext]] | None:
    """Find what a trajectory was made of: the session that is named, the transcript beside it, or one of its id."""
    beside = list_session_folder(folder, session) if session and not source else []
    if beside:
        told = read_session_folder(folder, session, AGENT_NAME)
        assert told is not None
        return told, source_of(AGENT_NAME).thread_contexts(beside)
    archive = open_archive(runtime)
    if not source and session not in archive.recordings:
        return None
    told = archive.read_session(source or session)
    return told, archive.thread_contexts(told.id)


def _document_family(place: Path, document: dict[str, Any]) -> list[Any]:
    """A document with those of its subagents, and theirs."""
    found = {place.resolve(): document}
    waiting = [(place, document)]
    while waiting:
        for target in _subagent_documents(*waiting.pop()):
            inside = (
                _parse_document(target)
                if target not in found and target.is_relative_to(place.parent.resolve())
                else None
            )
            if isinstance(inside, dict):
                found[target] = inside
                waiting.append((target, inside))
    return list(found.values())
