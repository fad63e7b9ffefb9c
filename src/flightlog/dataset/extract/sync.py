"""All sessions, commits and legacy layouts.

Knows both the source document's names and those of the tool it describes. A file that is no such record
is left alone; one that flightlog wrote itself is not read back.

Idempotent: what is there is not written again. Unlike a capture it looks at what the work tree really holds,
so that rows lost with a `git clean` come back.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from flightlog.agents.claude_code.files import AGENT_NAME
from flightlog.archive.archive import Archive, SessionFiles
from flightlog.dataset.extract import commits
from flightlog.dataset.extract.consent import permitted_rows, values_of
from flightlog.dataset.extract.extract import ExtractContext, ExtractResult, capture_whole_session, search_values
from flightlog.dataset.layout import CACHED, ROOT, DatasetDirs, cache_pages, prepare_dataset, write_shard
from flightlog.dataset.reader import DatasetReader, read_dataset
from flightlog.dataset.rows import AnyRow, Row
from flightlog.dataset.state import recall_clone, recall_session, remember_clone, remember_session, writer_name
from flightlog.model.errors import UNREADABLE
from flightlog.model.output_files import Redacted
from flightlog.store.git.history import commit_times, head_commit, iter_commits
from flightlog.store.git.repository import current_branch, default_branch, tree_files
from flightlog.store.output_files import write_output_files

FOLDERS = {"chats": "chat", "sessions": "session", "actions": "action"}
_BYTES_MAX = 16 << 20
_NEW_COMMITS_MAX = 500


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
        "agent": str(said.get("agent") or AGENT_NAME),
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


class SyncReport(Struct, frozen=True):
    """What a sync did."""

    sessions: int
    rows: int
    shards: tuple[str, ...]
    imported: int
    words: bool
    prepared: int = 0
    secrets: int = 0
    personal: int = 0


def sync_dataset(kit: ExtractContext, recordings: Iterable[SessionFiles], default: str = "") -> SyncReport:
    """Write every row of the repository that its files lack."""
    prepared = prepare_dataset(kit.place, kit.records) if may_prepare(kit.place, default) else []
    book = read_dataset(kit.place.tracked_dir)
    sessions = list(recordings)
    # All sessions before the first row: what one of them says is a secret is none in any other row.
    for recording in sessions:
        _search_session(kit, recording)
    done: list[ExtractResult] = [capture_whole_session(kit, recording, book) for recording in sessions]
    shards = [work.shard for work in done if work.shard]
    old = _import_legacy_rows(kit, book)
    told = _all_commits(kit, book)
    rows = sum(work.rows for work in done) + len(old) + len(told)
    shards += [
        name for name in (_write_unowned_rows(kit, "older", old), _write_unowned_rows(kit, "commits", told)) if name
    ]
    if kit.options.local_cache:
        _write_cache(kit.place)
    counted: list[ExtractResult | Redacted[Row]] = [*done, *old, *told]
    secrets, personal = sum(each.secrets for each in counted), sum(each.personal for each in counted)
    return SyncReport(len(sessions), rows, tuple(shards), len(old), kit.options.words, len(prepared), secrets, personal)


def _search_session(kit: ExtractContext, recording: SessionFiles) -> None:
    """Learn the private values of a session, and remember how far it was searched."""
    known = recall_session(kit.place.state_dir, recording.session)
    found = search_values(recording, known.searched, kit.records)
    if found != known.searched:
        remember_session(kit.place.state_dir, recording.session, replace(known, searched=found))


def _write_cache(place: DatasetDirs) -> None:
    """Write the document's one file a row for every row there is, as it stands; what others wrote there stays."""
    book = read_dataset(place.tracked_dir)
    pages = cache_pages(row for kind in CACHED for row in book.rows_of_kind(kind))
    write_output_files(place.root, (page for page in pages if is_ours(place.root / page.path)), durable=False)


def sync_commits(kit: ExtractContext, sessions: Iterable[SessionFiles] = ()) -> int:
    """Write the commits that are new since the last time, without what is private in `sessions`; return how many."""
    clone = recall_clone(kit.place.state_dir)
    tip = head_commit(kit.place.repository)
    if not tip or tip == clone.head:
        return 0
    for recording in sessions:
        _search_session(kit, recording)
    known = [clone.head] if clone.head else []
    rows = permitted_rows(_commit_rows(kit, [tip], known, _NEW_COMMITS_MAX), kit.records, words=kit.options.words)
    _write_unowned_rows(kit, "commits", rows)
    remember_clone(kit.place.state_dir, replace(recall_clone(kit.place.state_dir), head=tip))
    return len(rows)


def iter_own_sessions(archive: Archive, place: DatasetDirs) -> Iterator[SessionFiles]:
    """Yield the sessions of this work tree: those that began inside it.

    All transcripts in one of the agent's folders began in one directory, or in two whose names the agent
    writes alike; so one look at each folder rules most of them out.
    """
    looked: dict[str, bool] = {}
    top = place.repository.top
    for recording in archive.recordings.values():
        folder = str(Path(recording.files[0].path).parent)
        if folder not in looked:
            looked[folder] = _may_be_inside(archive.first_cwd(recording), top)
        if looked[folder] and is_inside(archive.first_cwd(recording), top):
            yield recording


def is_inside(cwd: str, top: Path) -> bool:
    """Whether a session that began in `cwd` belongs to the work tree at `top`, and to none inside it."""
    folder = Path(cwd) if cwd else None
    if folder is None or not (folder == top or top in folder.parents):
        return False
    between = [folder, *folder.parents][: len(folder.parts) - len(top.parts)]
    return not any((each / ".git").exists() for each in between)


def may_prepare(place: DatasetDirs, default: str = "") -> bool:
    """Whether files with fixed names may be made here without standing in the way of a checkout elsewhere."""
    main = default or default_branch(place.repository)
    if current_branch(place.repository) in (main, ""):
        return True
    refs = (f"refs/heads/{main}", f"refs/remotes/origin/{main}")
    return not any(tree_files(place.repository, ref, ROOT) for ref in refs)


def _may_be_inside(cwd: str, top: Path) -> bool:
    """Whether the agent could have named its folder after a directory inside `top`."""
    named, ours = ("".join(char if char.isalnum() else "-" for char in text) for text in (cwd, str(top)))
    return named.startswith(ours)


def _import_legacy_rows(kit: ExtractContext, book: DatasetReader) -> list[Redacted[Row]]:
    found = (read_legacy_row(kind, path) for kind, path in iter_legacy_files(kit.place.root))
    rows = permitted_rows(filter(None, found), kit.records, words=kit.options.words)
    return [row for row in rows if not book.contains_row(row.value)]


def _all_commits(kit: ExtractContext, book: DatasetReader) -> list[Redacted[Row]]:
    tip = head_commit(kit.place.repository)
    if not tip:
        return []
    rows = permitted_rows(_commit_rows(kit, [tip], [], 0), kit.records, words=kit.options.words)
    remember_clone(kit.place.state_dir, replace(recall_clone(kit.place.state_dir), head=tip))
    return [row for row in rows if not book.contains_row(row.value)]


def _commit_rows(kit: ExtractContext, tips: list[str], known: list[str], limit: int) -> list[AnyRow]:
    found = list(iter_commits(kit.place.repository, tips, known, limit))
    there = {commit.hash: commit.at_ms for commit in found}
    parents = {commit.parents[0] for commit in found if commit.parents}
    others = commit_times(kit.place.repository, sorted(parents - there.keys()))
    return commits.build_rows(found, {}, there | others)


def _write_unowned_rows(kit: ExtractContext, what: str, rows: list[Redacted[Row]]) -> str:
    """Write rows that belong to no session of this machine, under a name no other clone will use."""
    if not rows:
        return ""
    clone = recall_clone(kit.place.state_dir)
    path = write_shard(
        kit.place, f"{what}-{writer_name(kit.place.state_dir)}", values_of(rows), clone.shards, kit.records
    )
    remember_clone(kit.place.state_dir, replace(clone, shards=clone.shards + 1))
    return path.name if path else ""
