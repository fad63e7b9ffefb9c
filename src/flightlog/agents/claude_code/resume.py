"""Cut, rename and place transcripts, so that the client resumes before one model response.

If a tool result precedes the response, the client resumes at that record; otherwise at the last
message before the prompt; if there is none, a new session starts. The lab sends the recorded
history to the model, so the client's own history does not reach it; the client needs its history
to know which files it has read.

Trajectories of other producers are written as transcripts too, so that a trial of any tool that
writes ATIF is a session like every other. Steps that were copied from an earlier trajectory are left
out: they were counted there.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from flightlog.agents.claude_code.driver import project_folder
from flightlog.agents.claude_code.files import projects_dir
from flightlog.model.errors import NotFound
from flightlog.sources.foreign_json import list_field, object_field, parse_object
from flightlog.store.recordings.adoption import TRANSCRIPT

_EDIT = "Edit"
Document = Mapping[str, Any]


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
        hint = "flightlog lab replay RUN --list-turns"
        raise NotFound("the response is not in the transcript", hint=hint)
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


def write_edits_whole(lines: Sequence[bytes]) -> list[bytes]:
    """Return a transcript for the client to resume, with each Edit as a Write of its result.

    A client that resumes takes the file of an Edit for one that the model has not seen, and says so
    at the next Edit; with a Write it knows the content, as the client that made the Edit did.
    """
    records = [parse_object(line) or {} for line in lines]
    contents = dict(_iter_edited_contents(records))
    return [
        _replace_calls(record, line, lambda block: _as_write(block, contents))
        for record, line in zip(records, lines, strict=True)
    ]


def restore_edits(lines: Sequence[bytes], source: Sequence[bytes]) -> list[bytes]:
    """Return a transcript with the calls of `source` in place of those of `write_edits_whole`."""
    original = {
        block.get("id"): block
        for line in source
        for block in list_field(object_field(parse_object(line) or {}, "message"), "content")
        if isinstance(block, dict) and block.get("name") == _EDIT
    }
    restored = [
        _replace_calls(parse_object(line) or {}, line, lambda block: original.get(block.get("id")))
        for line in lines
    ]
    # Not any mention of Write: the client also logs the requests that it sent, with its calls.
    is_used = any(
        block.get("name") == "Write"
        for record in map(parse_object, restored)
        if record and record.get("type") == "assistant"
        for block in list_field(object_field(record, "message"), "content")
        if isinstance(block, dict)
    )
    return restored if is_used else [_forget_write(line) for line in restored]


def _forget_write(line: bytes) -> bytes:
    """Return a record of the tools used so far without Write, which only `write_edits_whole` used."""
    is_used = b'"tools-used"' in line
    if not is_used or (record := parse_object(line) or {}).get("type") != "tools-used":
        return line
    tools = [tool for tool in list_field(record, "tools") if tool != "Write"]
    return json.dumps({**record, "tools": tools}).encode() + b"\n"


def _iter_edited_contents(records: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield the id of each Edit of a file that the model knew, with the file's content after it."""
    for record in records:
        result = record.get("toolUseResult")
        blocks = list_field(object_field(record, "message"), "content")
        if not isinstance(result, dict) or len(blocks) != 1 or not isinstance(blocks[0], dict):
            continue
        words = [result.get(name) for name in ("originalFile", "oldString", "newString")]
        unknown = ("contentNotInModelContext", "staleRecovered", "userModified")
        if all(isinstance(word, str) for word in words) and not any(map(result.get, unknown)):
            before, old, new = map(str, words)
            count = -1 if result.get("replaceAll") else 1
            yield str(blocks[0].get("tool_use_id")), before.replace(old, new, count)


def _as_write(block: dict[str, Any], contents: Mapping[str, str]) -> dict[str, Any] | None:
    if block.get("name") != _EDIT or block.get("id") not in contents:
        return None
    path = object_field(block, "input").get("file_path")
    written = {"file_path": path, "content": contents[str(block["id"])]}
    return {**block, "name": "Write", "input": written}


def _replace_calls(
    record: dict[str, Any], line: bytes, change: Callable[[dict[str, Any]], dict[str, Any] | None]
) -> bytes:
    """Return a line with changed tool calls; the same bytes if there is none."""
    if record.get("type") != "assistant":
        return line
    blocks = list_field(object_field(record, "message"), "content")
    changed = [(isinstance(block, dict) and change(block)) or block for block in blocks]
    if changed == blocks:
        return line
    message = {**record["message"], "content": changed}
    return json.dumps({**record, "message": message}, ensure_ascii=False).encode() + b"\n"


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


def render_transcript(document: Document, session: str, subagent: str = "") -> bytes:
    """Return the steps of a valid document as lines of a transcript."""
    agent = document["agent"]
    head = {"sessionId": session, "version": agent["version"], "isSidechain": bool(subagent)}
    head |= {"agentId": subagent} if subagent else {}
    parent, lines = None, []
    for step in document["steps"]:
        if step.get("is_copied_context"):
            continue
        # Producers count calls and steps from one in each document, or even in each step.
        prefix = f"{session}.{subagent or 'main'}.{step['step_id']}"
        for number, record in enumerate(_step_records(step, agent, prefix)):
            uuid = f"{prefix}.{number}"
            stamp = {"timestamp": step["timestamp"]} if step.get("timestamp") else {}
            lines.append(json.dumps(head | {"uuid": uuid, "parentUuid": parent} | stamp | record))
            parent = uuid
    return "".join(f"{line}\n" for line in lines).encode()


def _step_records(step: Document, agent: Document, prefix: str) -> Iterator[dict[str, Any]]:
    text = _content_text(step["message"])
    observed = (step.get("observation") or {}).get("results") or []
    match step["source"]:
        case "user":
            yield {"type": "user", "message": {"role": "user", "content": text}}
        case "system":
            yield {"type": "system", "subtype": "informational", "content": text}
        case _:
            yield {"type": "assistant", "message": _agent_message(step, agent, prefix, text)}
    calls = [call["tool_call_id"] for call in step.get("tool_calls") or ()]
    for result in observed:
        call = result.get("source_call_id") or (calls[0] if len(calls) == 1 else "")
        content = _content_text(result.get("content") or "")
        if call in calls:
            block = {"type": "tool_result", "tool_use_id": f"{prefix}.{call}", "content": content}
            yield {"type": "user", "message": {"role": "user", "content": [block]}}
        elif content:
            yield {"type": "system", "subtype": "informational", "content": content}


def _agent_message(step: Document, agent: Document, prefix: str, text: str) -> dict[str, Any]:
    blocks: list[dict[str, Any]] = []
    if step.get("reasoning_content"):
        blocks.append({"type": "thinking", "thinking": step["reasoning_content"]})
    blocks += [{"type": "text", "text": text}] if text else []
    for call in step.get("tool_calls") or ():
        name, identifier = call["function_name"], f"{prefix}.{call['tool_call_id']}"
        given = call["arguments"]
        blocks.append({"type": "tool_use", "id": identifier, "name": name, "input": given})
    model = step.get("model_name") or agent.get("model_name") or "unknown"
    message: dict[str, Any] = {"id": prefix, "role": "assistant", "model": model}
    message["content"] = blocks
    if metrics := step.get("metrics"):
        cached = metrics.get("cached_tokens") or 0
        message["usage"] = {
            "input_tokens": max((metrics.get("prompt_tokens") or 0) - cached, 0),
            "cache_read_input_tokens": cached,
            "output_tokens": metrics.get("completion_tokens") or 0,
        }
    return message


def _content_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = (part.get("text") or f"[{part['type']}: {part['source']['path']}]" for part in content)
    return "\n".join(parts)
