"""Bringing a repository's rows up to date: every session of it, its commits, and the older layouts.

Idempotent: what is there is not written again. Unlike a capture it looks at what the work tree really holds,
so that rows lost with a `git clean` come back.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from flightlog.archive import Archive, Recording
from flightlog.dataset import commits as commit_rows
from flightlog.dataset import older
from flightlog.dataset.book import Book, read_book
from flightlog.dataset.capture import Kit, Work, capture_whole
from flightlog.dataset.consent import permitted, values_of
from flightlog.dataset.layout import CACHED, ROOT, Place, cache_pages, prepare, write_shard
from flightlog.dataset.memory import recall, recall_clone, remember, remember_clone, writer
from flightlog.dataset.rows import AnyRow, Row
from flightlog.dataset.window import search_values
from flightlog.model.pages import Redacted
from flightlog.sources.git.history import commits, head, times
from flightlog.sources.git.repository import current_branch, default_branch, tree_files
from flightlog.store.pages import publish

_NEW_COMMITS_MAX = 500


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


def sync(kit: Kit, recordings: Iterable[Recording], default: str = "") -> SyncReport:
    """Write every row of the repository that its files lack."""
    prepared = prepare(kit.place, kit.records) if may_prepare(kit.place, default) else []
    book = read_book(kit.place.tracked)
    sessions = list(recordings)
    # All sessions before the first row: what one of them says is a secret is none in any other row.
    for recording in sessions:
        _searched(kit, recording)
    done: list[Work] = [capture_whole(kit, recording, book) for recording in sessions]
    shards = [work.shard for work in done if work.shard]
    old = _imported(kit, book)
    told = _all_commits(kit, book)
    rows = sum(work.rows for work in done) + len(old) + len(told)
    shards += [name for name in (_written(kit, "older", old), _written(kit, "commits", told)) if name]
    if kit.options.local_cache:
        _cached(kit.place)
    counted: list[Work | Redacted[Row]] = [*done, *old, *told]
    secrets, personal = sum(each.secrets for each in counted), sum(each.personal for each in counted)
    return SyncReport(len(sessions), rows, tuple(shards), len(old), kit.options.words, len(prepared), secrets, personal)


def _searched(kit: Kit, recording: Recording) -> None:
    """Learn the private values of a session, and remember how far it was searched."""
    known = recall(kit.place.state, recording.session)
    found = search_values(recording, known.searched, kit.records)
    if found != known.searched:
        remember(kit.place.state, recording.session, replace(known, searched=found))


def _cached(place: Place) -> None:
    """Write the document's one file a row for every row there is, as it stands; what others wrote there stays."""
    book = read_book(place.tracked)
    pages = cache_pages(row for kind in CACHED for row in book.of(kind))
    publish(place.root, (page for page in pages if older.is_ours(place.root / page.path)), durable=False)


def sync_commits(kit: Kit, sessions: Iterable[Recording] = ()) -> int:
    """Write the commits that are new since the last time, without what is private in `sessions`; return how many."""
    clone = recall_clone(kit.place.state)
    tip = head(kit.place.repository)
    if not tip or tip == clone.head:
        return 0
    for recording in sessions:
        _searched(kit, recording)
    known = [clone.head] if clone.head else []
    rows = permitted(_commit_rows(kit, [tip], known, _NEW_COMMITS_MAX), kit.records, words=kit.options.words)
    _written(kit, "commits", rows)
    remember_clone(kit.place.state, replace(recall_clone(kit.place.state), head=tip))
    return len(rows)


def belonging(archive: Archive, place: Place) -> Iterator[Recording]:
    """Yield the sessions of this work tree: those that began inside it.

    All transcripts in one of the agent's folders began in one directory, or in two whose names the agent
    writes alike; so one look at each folder rules most of them out.
    """
    looked: dict[str, bool] = {}
    top = place.repository.top
    for recording in archive.recordings.values():
        folder = str(Path(recording.files[0].path).parent)
        if folder not in looked:
            looked[folder] = _alike(archive.cwd(recording), top)
        if looked[folder] and is_inside(archive.cwd(recording), top):
            yield recording


def is_inside(cwd: str, top: Path) -> bool:
    """Whether a session that began in `cwd` belongs to the work tree at `top`, and to none inside it."""
    folder = Path(cwd) if cwd else None
    if folder is None or not (folder == top or top in folder.parents):
        return False
    between = [folder, *folder.parents][: len(folder.parts) - len(top.parts)]
    return not any((each / ".git").exists() for each in between)


def may_prepare(place: Place, default: str = "") -> bool:
    """Whether files with fixed names may be made here without standing in the way of a checkout elsewhere."""
    main = default or default_branch(place.repository)
    if current_branch(place.repository) in (main, ""):
        return True
    refs = (f"refs/heads/{main}", f"refs/remotes/origin/{main}")
    return not any(tree_files(place.repository, ref, ROOT) for ref in refs)


def _alike(cwd: str, top: Path) -> bool:
    """Whether the agent could have named its folder after a directory inside `top`."""
    named, ours = ("".join(char if char.isalnum() else "-" for char in text) for text in (cwd, str(top)))
    return named.startswith(ours)


def _imported(kit: Kit, book: Book) -> list[Redacted[Row]]:
    found = (older.row(kind, path) for kind, path in older.files(kit.place.root))
    rows = permitted(filter(None, found), kit.records, words=kit.options.words)
    return [row for row in rows if not book.has(row.value)]


def _all_commits(kit: Kit, book: Book) -> list[Redacted[Row]]:
    tip = head(kit.place.repository)
    if not tip:
        return []
    rows = permitted(_commit_rows(kit, [tip], [], 0), kit.records, words=kit.options.words)
    remember_clone(kit.place.state, replace(recall_clone(kit.place.state), head=tip))
    return [row for row in rows if not book.has(row.value)]


def _commit_rows(kit: Kit, tips: list[str], known: list[str], limit: int) -> list[AnyRow]:
    found = list(commits(kit.place.repository, tips, known, limit))
    there = {commit.hash: commit.at_ms for commit in found}
    parents = {commit.parents[0] for commit in found if commit.parents}
    others = times(kit.place.repository, sorted(parents - there.keys()))
    return commit_rows.rows(found, {}, there | others)


def _written(kit: Kit, what: str, rows: list[Redacted[Row]]) -> str:
    """Write rows that belong to no session of this machine, under a name no other clone will use."""
    if not rows:
        return ""
    clone = recall_clone(kit.place.state)
    path = write_shard(kit.place, f"{what}-{writer(kit.place.state)}", values_of(rows), clone.shards, kit.records)
    remember_clone(kit.place.state, replace(clone, shards=clone.shards + 1))
    return path.name if path else ""
