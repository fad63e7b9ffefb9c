"""Cut, rename and place transcripts, so that the client resumes before one model response.

If a tool result precedes the response, the client resumes at that record; otherwise at the last
message before the prompt; if there is none, a new session starts. The lab sends the recorded
history to the model, so the client's own history does not reach it; the client needs its history
to know which files it has read.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from flightlog.agents.claude_code.driver import project_folder
from flightlog.agents.claude_code.files import projects_dir
from flightlog.model.errors import NotFound
from flightlog.sources.foreign_json import list_field, object_field, parse_object
from flightlog.store.recordings.adoption import TRANSCRIPT


class TranscriptCut(Struct, frozen=True):
    """The number of lines to keep, the record to resume at, and whether a new session starts."""

    lines: int
    resume_at: str = ""
    is_fresh: bool = False


def resume_arguments(resume_at: str) -> tuple[str, ...]:
    """Return the client's options to resume at a record; without one it resumes at the end."""
    return ("--resume-session-at", resume_at) if resume_at else ()


def cut_transcript_before(lines: Sequence[bytes], uuids: Collection[str]) -> TranscriptCut:
    """Return the cut before the response whose records are `uuids`."""
    records = [parse_object(line) or {} for line in lines]
    first = next((at for at, record in enumerate(records) if record.get("uuid") in uuids), None)
    if first is None:
        raise NotFound(
            "the response is not in the transcript", hint="flightlog lab replay RUN --list-turns"
        )
    for at in range(first - 1, -1, -1):
        record = records[at]
        if record.get("isSidechain") or record.get("type") not in {"user", "assistant"}:
            continue
        if record.get("type") == "assistant" or _is_result(record):
            return TranscriptCut(at + 1, str(record.get("uuid", "")))
        if record.get("isCompactSummary"):
            return TranscriptCut(at + 1)
    return TranscriptCut(0, is_fresh=True)


def rename_session(lines: Sequence[bytes], old: str, new: str) -> bytes:
    """Return the lines as those of another session."""
    return b"".join(
        line.replace(old.encode(), new.encode()).rstrip(b"\n") + b"\n" for line in lines
    )


def find_config_dir(environ: Mapping[str, str], home: Path) -> Path:
    """Return the configuration directory that the client itself chooses."""
    return Path(environ.get("CLAUDE_CONFIG_DIR") or home / ".claude")


def project_dir(config_dir: Path, work_dir: Path) -> Path:
    """Return the directory of the transcripts of sessions in `work_dir`."""
    return Path(projects_dir(config_dir), project_folder(str(work_dir)))


def transcript_file(project: Path, session_id: str) -> Path:
    """Return the path of a session's transcript."""
    return project / f"{session_id}.jsonl"


def list_output(project: Path, session_id: str) -> Iterator[tuple[str, Path]]:
    """Yield the files that the client wrote for a session, each with its name in our copy."""
    main = transcript_file(project, session_id)
    if main.is_file():
        yield TRANSCRIPT, main
    for folder in ("subagents", "tool-results"):
        beside = project / session_id / folder
        for path in sorted(beside.rglob("*")) if beside.is_dir() else ():
            if path.is_file() and not path.is_symlink():
                yield f"{folder}/{path.relative_to(beside)}", path
    # Clients before 2.1 write the subagents of all sessions beside the transcripts.
    for path in sorted(project.glob("agent-*.jsonl")):
        if not path.is_symlink() and session_id.encode() in path.read_bytes():
            yield f"subagents/{path.name}", path


def _is_result(record: dict[str, Any]) -> bool:
    blocks = list_field(object_field(record, "message"), "content")
    return any(isinstance(block, dict) and block.get("type") == "tool_result" for block in blocks)
