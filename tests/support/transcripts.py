"""Transcripts made for one test: records with sound defaults, in a configuration directory of their own."""

import json
from pathlib import Path

from flightlog.archive.archive import Archive

MODEL = "claude-opus-5-5"
SESSION = "11111111-1111-4111-8111-111111111111"


def stamp(second: int = 0) -> str:
    """A time stamp so many seconds after noon."""
    return f"2026-11-02T{12 + second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}.000Z"


def user(content: object, number: int = 1, **fields: object) -> dict:
    """A user record; `number` gives its uuid, its time and its parent, the record before."""
    record = {
        "type": "user",
        "uuid": f"u{number}",
        "parentUuid": f"u{number - 1}" if number > 1 else None,
        "timestamp": stamp(number),
        "sessionId": SESSION,
        "cwd": "/home/ada/shop",
        "version": "2.1.325",
        "isSidechain": False,
        "message": {"role": "user", "content": content},
    }
    return {**record, **fields}


def assistant(
    message: str, number: int = 2, *content: dict, tokens: dict | None = None, **fields: object
) -> dict:
    """An assistant record of the response `message`."""
    usage = {"input_tokens": 10, "output_tokens": 5, **(tokens or {})}
    body = {
        "id": message,
        "model": MODEL,
        "role": "assistant",
        "content": list(content),
        "usage": usage,
    }
    return {
        **user("", number),
        "type": "assistant",
        "requestId": f"req_{message}",
        "message": body,
        **fields,
    }


def write(config_dir: Path, name: str, *records: dict | bytes | str, project: str = "shop") -> Path:
    """Write records (or raw lines) as the file `name` of a project."""
    path = config_dir / "projects" / project / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(_line(record) + b"\n" for record in records))
    return path


def archive(config_dir: Path, *records: dict | bytes | str) -> Archive:
    """An archive of one session that holds these records."""
    write(config_dir, SESSION, *records)
    return Archive({"claude-code": (str(config_dir),)})


def _line(record: dict | bytes | str) -> bytes:
    if isinstance(record, bytes):
        return record
    return (
        record.encode()
        if isinstance(record, str)
        else json.dumps(record, separators=(",", ":")).encode()
    )
