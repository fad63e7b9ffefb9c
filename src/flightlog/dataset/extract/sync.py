"""Sync all sessions, commits and older layouts into shards.

The older layouts are read under the source document's names and under those of the tool it
describes. A file that is no such record is ignored, and so is one that flightlog wrote itself.

Idempotent: existing rows are not written again. Unlike an extraction after a session, a sync
compares with the work tree, so that rows lost by `git clean` are restored.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from flightlog.archive.archive import Archive, SessionFiles
from flightlog.dataset import layout
from flightlog.dataset.extract import commits
from flightlog.dataset.extract.consent import permitted_rows, search_values, values_of
from flightlog.dataset.extract.extract import ExtractContext, ExtractResult, capture_whole_session
from flightlog.dataset.reader import RATINGS, DatasetReader, read_dataset
from flightlog.dataset.rows import Row
from flightlog.dataset.state import (
    recall_clone,
    recall_session,
    remember_clone,
    remember_session,
    writer_name,
)
from flightlog.model.errors import UNREADABLE
from flightlog.model.output_files import Redacted
from flightlog.model.session import DEFAULT_AGENT
from flightlog.store.git.history import commit_times, head_commit, iter_commits
from flightlog.store.git.repository import current_branch, default_branch, is_ignored, tree_files
from flightlog.store.output_files import write_output_files

FOLDERS = {"chats": "chat", "sessions": "session", "actions": "action"}
_BYTES_MAX = 16 << 20  # of a legacy file; a larger one is no record
_NEW_COMMITS_MAX = 500  # after a commit: bounds the work of the hook


def iter_legacy_files(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the kind and path of each file of the older layouts."""
    for folder, kind in FOLDERS.items():
        for path in sorted((root / folder).rglob("*.json")):
            if path.is_file() and not path.is_symlink() and path.stat().st_size <= _BYTES_MAX:
                yield kind, path


def read_legacy_row(kind: str, path: Path) -> Row | None:
    """Return the row in a file, or None if it holds none."""
    try:
        record = msgspec.json.decode(path.read_bytes())
    except (OSError, *UNREADABLE):
        return None
    if not isinstance(record, dict) or record.get("made_by") == "flightlog":
        return None
    return convert_legacy_row(kind, record)


def is_ours(path: Path) -> bool:
    """Return whether flightlog may write this file: it is missing, or flightlog wrote it."""
    try:
        record = msgspec.json.decode(path.read_bytes())
    except FileNotFoundError:
        return True
    except (OSError, *UNREADABLE):
        return False
    return isinstance(record, dict) and record.get("made_by") == "flightlog"


def convert_legacy_row(kind: str, record: dict[str, Any]) -> Row | None:
    """Return an older record under the current names, or None if it has no id."""
    row = {"chat": _legacy_chat, "session": _legacy_session, "action": _legacy_action}.get(
        kind, dict
    )(record)
    return {"kind": kind, **row} if row.get("id") or row.get("hash") or row.get("session") else None


def _legacy_chat(record: dict[str, Any]) -> Row:
    prompt = record.get("input", record.get("query"))
    answer = record.get("output", record.get("response"))
    files = [*_name_list(record, "files_referenced"), *_name_list(record, "files_modified")]
    names = ("files_modified", "duration_seconds", "resulted_in_commit", "related_commit")
    return {
        "id": record.get("id", ""),
        "timestamp": _normalize_time(record.get("timestamp")),
        "session_id": str(record.get("session_id") or ""),
        "input": prompt,
        "output": answer,
        "tools": _name_list(record, "tools") or _name_list(record, "tools_used"),
        "files": _name_list(record, "files") or list(dict.fromkeys(files)),
        "input_chars": len(prompt or ""),
        "output_chars": len(answer or ""),
        "uuid": str(record.get("uuid") or ""),
        "rev": 0,
        **_legacy_feedback(record.get("user_feedback", record.get("feedback"))),
    } | _present_fields(record, names)


def _legacy_feedback(value: object) -> Row:
    """Return a rating and a comment; older files have a text, or an object with both."""
    known = value if isinstance(value, dict) else {"rating": value, "comment": value}
    rating, comment = known.get("rating"), known.get("comment")
    feedback: Row = {"feedback": rating} if rating in RATINGS else {}
    if isinstance(comment, str) and comment and comment != feedback.get("feedback"):
        feedback |= {"feedback_comment": comment, "feedback_comment_chars": len(comment)}
    return feedback


def _legacy_session(record: dict[str, Any]) -> Row:
    name = record.get("session") or record.get("session_id") or record.get("id") or ""
    chats = record.get("chat_ids") or record.get("chats") or []
    summary = record.get("summary")
    return {
        "id": record.get("id") or name,
        "started_at": _normalize_time(record.get("started_at") or record.get("timestamp")),
        "ended_at": _normalize_time(record.get("ended_at") or record.get("timestamp")),
        "summary": summary,
        "chat_count": record.get(
            "chat_count", record.get("exchanges", len(chats) if isinstance(chats, list) else 0)
        ),
        "commits": _name_list(record, "commits"),
        "session": name,
        "agent": str(record.get("agent") or DEFAULT_AGENT),
        "rev": 0,
        "summary_chars": len(summary or ""),
    } | _present_fields(record, ("duration_seconds", "files_modified"))


def _legacy_action(record: dict[str, Any]) -> Row:
    target = str(record.get("target") or "")
    return {
        "id": record.get("id", ""),
        "timestamp": _normalize_time(record.get("timestamp")),
        "session_id": str(record.get("session_id") or ""),
        "action_type": str(record.get("action_type") or "other"),
        "target": target,
        "target_chars": 0 if record.get("action_type") in ("read", "edit") else len(target),
    } | _present_fields(record, ("success", "result_summary"))


def _name_list(record: dict[str, Any], field: str) -> list[str]:
    value = record.get(field)
    return [str(name) for name in value] if isinstance(value, dict | list) else []


def _present_fields(record: dict[str, Any], names: tuple[str, ...]) -> Row:
    return {name: record[name] for name in names if record.get(name) is not None}


def _normalize_time(value: Any) -> str:
    """Return a time in the source document's form if only its form differs."""
    text = str(value or "")
    has_time = len(text) >= 19 and text[10] == "T" and text[19:20] in ("", ".", "Z")
    return f"{text[:19]}Z" if has_time else text


class SyncReport(Struct, frozen=True):
    """Counts of a sync."""

    sessions: int
    rows: int
    shards: tuple[str, ...]
    imported_rows: int
    has_words: bool
    prepared_files: int = 0
    secrets: int = 0
    personal: int = 0
    is_ignored: bool = False
    chats_with_words: int = 0  # of a project that no longer tracks words


def sync_dataset(
    context: ExtractContext, recordings: Iterable[SessionFiles], default: str = ""
) -> SyncReport:
    """Write every row of the repository that its files lack."""
    prepared = prepare_if_possible(context, default)
    dataset = read_dataset(context.dirs.tracked_dir)
    sessions = list(recordings)
    # Search all sessions first: a secret recognized in one is then removed from the rows of all.
    for recording in sessions:
        _search_session(context, recording)
    results = [capture_whole_session(context, recording, dataset) for recording in sessions]
    legacy, commits = _import_legacy_rows(context, dataset), _all_commits(context, dataset)
    rows = sum(result.rows for result in results) + len(legacy) + len(commits)
    shards = [result.shard for result in results]
    for name, unowned in (("older", legacy), ("commits", commits)):
        shards.append(_write_unowned_rows(context, name, unowned))
    if context.options.local_cache:
        _write_cache(context.dirs)
    counted: list[ExtractResult | Redacted[Row]] = [*results, *legacy, *commits]
    return SyncReport(
        len(sessions), rows, tuple(filter(None, shards)), len(legacy), context.options.words, len(prepared),
        sum(item.secrets for item in counted), sum(item.personal for item in counted),
        is_ignored(context.dirs.repository, context.dirs.pending_dir / "x.jsonl"),
        0 if context.options.words else sum(bool(row.get("input") or row.get("output"))
                                            for row in dataset.rows_of_kind("chat")),
    )  # fmt: skip


def _search_session(context: ExtractContext, recording: SessionFiles) -> None:
    """Learn the private values of a session, and save the progress of the search."""
    known = recall_session(context.dirs.state_dir, recording.session)
    searched = search_values(recording.files, known.searches, context.redactor)
    if searched != known.searches:
        progress = replace(known, searches=searched)
        remember_session(context.dirs.state_dir, recording.session, progress)


def _write_cache(dirs: layout.DatasetDirs) -> None:
    """Write the source document's file per row for every row, except over other tools' files."""
    dataset = read_dataset(dirs.tracked_dir)
    pages = layout.cache_pages(row for kind in layout.CACHED for row in dataset.rows_of_kind(kind))
    write_output_files(
        dirs.root, (page for page in pages if is_ours(dirs.root / page.path)), durable=False
    )


def sync_commits(context: ExtractContext, sessions: Iterable[SessionFiles] = ()) -> int:
    """Write the commits since the last sync and return how many.

    Private values in `sessions` are removed from their messages.
    """
    clone = recall_clone(context.dirs.state_dir)
    tip = head_commit(context.dirs.repository)
    if not tip or tip == clone.head:
        return 0
    for recording in sessions:
        _search_session(context, recording)
    rows = _commit_rows(context, [tip], [clone.head] if clone.head else [], _NEW_COMMITS_MAX)
    _write_unowned_rows(context, "commits", rows)
    remember_clone(context.dirs.state_dir, replace(recall_clone(context.dirs.state_dir), head=tip))
    return len(rows)


def iter_own_sessions(archive: Archive, dirs: layout.DatasetDirs) -> Iterator[SessionFiles]:
    """Yield the sessions that started inside this work tree.

    All transcripts in one agent folder started in one directory, or in two that the agent names
    alike; so one check per folder excludes most of them.
    """
    candidates: dict[str, bool] = {}
    top = dirs.repository.top
    for recording in archive.recordings.values():
        folder = str(Path(recording.files[0].path).parent)
        if folder not in candidates:
            candidates[folder] = _may_be_inside(archive.first_cwd(recording), top)
        if candidates[folder] and is_inside(archive.first_cwd(recording), top):
            yield recording


def is_inside(cwd: str, top: Path) -> bool:
    """Return whether `cwd` belongs to the work tree at `top`, and to none nested in it."""
    folder = Path(cwd) if cwd else None
    if folder is None or not (folder == top or top in folder.parents):
        return False
    between = [folder, *folder.parents][: len(folder.parts) - len(top.parts)]
    return not any((directory / ".git").exists() for directory in between)


def prepare_if_possible(context: ExtractContext, default: str) -> list[Path]:
    """Create the missing files with fixed names, if this branch may have them; return them."""
    is_wanted = may_prepare(context.dirs, default)
    return layout.prepare_dataset(context.dirs, context.redactor) if is_wanted else []


def may_prepare(dirs: layout.DatasetDirs, default: str = "") -> bool:
    """Return whether files with fixed names may be created on this branch.

    If the default branch has a dataset, they would block its checkout.
    """
    main = default or default_branch(dirs.repository)
    if current_branch(dirs.repository) in (main, ""):
        return True
    refs = (f"refs/heads/{main}", f"refs/remotes/origin/{main}")
    return not any(tree_files(dirs.repository, ref, layout.ROOT) for ref in refs)


def _may_be_inside(cwd: str, top: Path) -> bool:
    """Return whether the agent could have named its folder after a directory inside `top`."""
    named, ours = (
        "".join(char if char.isalnum() else "-" for char in text) for text in (cwd, str(top))
    )
    return named.startswith(ours)


def _import_legacy_rows(context: ExtractContext, dataset: DatasetReader) -> list[Redacted[Row]]:
    legacy = (read_legacy_row(kind, path) for kind, path in iter_legacy_files(context.dirs.root))
    rows = permitted_rows(filter(None, legacy), context.redactor, words=context.options.words)
    return [row for row in rows if not dataset.contains_row(row.value)]


def _all_commits(context: ExtractContext, dataset: DatasetReader) -> list[Redacted[Row]]:
    tip = head_commit(context.dirs.repository)
    if not tip:
        return []
    rows = _commit_rows(context, [tip], [], 0)
    remember_clone(context.dirs.state_dir, replace(recall_clone(context.dirs.state_dir), head=tip))
    return [row for row in rows if not dataset.contains_row(row.value)]


def _commit_rows(
    context: ExtractContext, tips: list[str], known: list[str], limit: int
) -> list[Redacted[Row]]:
    history = list(iter_commits(context.dirs.repository, tips, known, limit))
    times = {commit.hash: commit.at_ms for commit in history}
    parents = {commit.parents[0] for commit in history if commit.parents}
    times |= commit_times(context.dirs.repository, sorted(parents - times.keys()))
    rows = commits.build_rows(history, {}, times)
    return permitted_rows(rows, context.redactor, words=context.options.words)


def _write_unowned_rows(context: ExtractContext, what: str, rows: list[Redacted[Row]]) -> str:
    """Write rows of no session under a name that no other clone uses; return the name."""
    if not rows:
        return ""
    clone = recall_clone(context.dirs.state_dir)
    owner = f"{what}-{writer_name(context.dirs.state_dir)}"
    path = layout.write_shard(context.dirs, owner, values_of(rows), clone.shards, context.redactor)
    remember_clone(context.dirs.state_dir, replace(clone, shards=clone.shards + 1))
    return path.name if path else ""
