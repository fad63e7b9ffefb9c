"""Reading the older layouts: one JSON file for each chat, session or action, below `.git-ml/`.

Knows both the source document's names and those of the tool it describes. A file that is no such record
is left alone; one that flightlog wrote itself is not read back.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from flightlog.dataset.rows import Row
from flightlog.model.damage import UNREADABLE

FOLDERS = {"chats": "chat", "sessions": "session", "actions": "action"}
_BYTES_MAX = 16 << 20


def iter_legacy_files(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield each file of the older layouts and the kind of row it is."""
    for folder, kind in FOLDERS.items():
        for path in sorted((root / folder).rglob("*.json")):
            if path.is_file() and not path.is_symlink() and path.stat().st_size <= _BYTES_MAX:
                yield kind, path


def read_legacy_row(kind: str, path: Path) -> Row | None:
    """Read one file as a row; None when it is not one."""
    try:
        said = msgspec.json.decode(path.read_bytes())
    except (OSError, *UNREADABLE):
        return None
    if not isinstance(said, dict) or said.get("made_by") == "flightlog":
        return None
    return convert_legacy_row(kind, said)


def is_ours(path: Path) -> bool:
    """Whether flightlog may write a file of the older layouts: there is none, or it wrote that itself."""
    try:
        said = msgspec.json.decode(path.read_bytes())
    except FileNotFoundError:
        return True
    except (OSError, *UNREADABLE):
        return False
    return isinstance(said, dict) and said.get("made_by") == "flightlog"


def convert_legacy_row(kind: str, said: dict[str, Any]) -> Row | None:
    """Return an older record under today's names; None when it has no id."""
    made = {"chat": _legacy_chat, "session": _legacy_session, "action": _legacy_action}.get(kind, dict)(said)
    return {"kind": kind, **made} if made.get("id") or made.get("hash") or made.get("session") else None


def _legacy_chat(said: dict[str, Any]) -> Row:
    asked, answered = said.get("input", said.get("query")), said.get("output", said.get("response"))
    referenced, modified = _name_list(said, "files_referenced"), _name_list(said, "files_modified")
    made: Row = {
        "id": said.get("id", ""),
        "timestamp": _normalize_time(said.get("timestamp")),
        "session_id": str(said.get("session_id") or ""),
        "input": asked,
        "output": answered,
        "tools": _name_list(said, "tools") or _name_list(said, "tools_used"),
        "files": _name_list(said, "files") or list(dict.fromkeys([*referenced, *modified])),
        "input_chars": len(asked or ""),
        "output_chars": len(answered or ""),
        "uuid": str(said.get("uuid") or ""),
        "rev": 0,
    }
    return made | _present_fields(said, ("files_modified", "duration_seconds", "resulted_in_commit", "related_commit"))


def _legacy_session(said: dict[str, Any]) -> Row:
    name = said.get("session") or said.get("session_id") or said.get("id") or ""
    chats = said.get("chat_ids") or said.get("chats") or []
    summary = said.get("summary")
    made: Row = {
        "id": said.get("id") or name,
        "started_at": _normalize_time(said.get("started_at") or said.get("timestamp")),
        "ended_at": _normalize_time(said.get("ended_at") or said.get("timestamp")),
        "summary": summary,
        "chat_count": said.get("chat_count", said.get("exchanges", len(chats) if isinstance(chats, list) else 0)),
        "commits": _name_list(said, "commits"),
        "session": name,
        "agent": str(said.get("agent") or "claude-code"),
        "rev": 0,
        "summary_chars": len(summary or ""),
    }
    return made | _present_fields(said, ("duration_seconds", "files_modified"))


def _legacy_action(said: dict[str, Any]) -> Row:
    target = str(said.get("target") or "")
    made: Row = {
        "id": said.get("id", ""),
        "timestamp": _normalize_time(said.get("timestamp")),
        "session_id": str(said.get("session_id") or ""),
        "action_type": str(said.get("action_type") or "other"),
        "target": target,
        "target_chars": 0 if said.get("action_type") in ("read", "edit") else len(target),
    }
    return made | _present_fields(said, ("success", "result_summary"))


def _name_list(said: dict[str, Any], field: str) -> list[str]:
    value = said.get(field)
    if isinstance(value, dict):
        return [str(name) for name in value]
    return [str(name) for name in value] if isinstance(value, list) else []


def _present_fields(said: dict[str, Any], names: tuple[str, ...]) -> Row:
    return {name: said[name] for name in names if said.get(name) is not None}


def _normalize_time(said: Any) -> str:
    """Write a time as the document does where that is only a matter of form."""
    text = str(said or "")
    return f"{text[:19]}Z" if len(text) >= 19 and text[10] == "T" and text[19:20] in ("", ".", "Z") else text
