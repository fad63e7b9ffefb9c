"""The parts of a snapshot that a git tree does not hold: times, modes, directories, the repository.

They are a note in the snapshot's commit: times as a table (`plain_files`), the text of `.git` files,
and each git directory as a tree of its files, byte for byte: HEAD, refs, index, stash, objects.

The person's repository is read as files: git is never run in it. A git directory is read again only
where a stat changed; what did not change keeps its object, so it is stored once. The objects that
notes name are kept by `refs/state/<id>`.
"""

import json
import os
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct, field

from flightlog.model.errors import UNREADABLE
from flightlog.store.files import ensure_dir, os_errors_as_unavailable, replace_file
from flightlog.store.git.objects import ObjectStore, TreeEntry
from flightlog.store.git.plain_files import (
    GONE,
    OBJECTS,
    RACY_NS,
    SYMLINK,
    Signature,
    Stamp,
    StampTable,
    apply_stamps,
    check_inside,
    clear_conflicts,
    dump_stamps,
    git_mode,
    group_names,
    has_content,
    is_transient,
    link_files,
    parse_stamps,
    remove_new_repository,
    restore_link,
    restore_pipes,
    scan_git_dir,
    stamp_of,
    stat_folder,
    write_plain,
)

OUTER = ""
_OBJECT_BYTES_MAX = 1 << 20  # larger files, and many, are hashed by git: it streams, into one pack
_PACK_FROM = 64  # files; fewer are faster as single objects
_GIT_TIME_NS = 1_000_000_000  # git compares times of files by the second
_CHANGES_MAX = 500  # then a new full table is written: each snapshot repeats the changes
IndexIdentity = tuple[int, int, int] | None


class GitDirNote(Struct):
    """A git directory in a snapshot: its place in the work tree ("" for an outer one), its files."""

    where: str
    tree: str
    stamps: StampTable


class StateNote(Struct):
    """What a snapshot holds beside its tree, as its commit names it."""

    stamps: StampTable
    links: dict[str, str] = {}
    hard_links: tuple[tuple[str, ...], ...] = ()
    specials: dict[str, Stamp] = {}
    git_dirs: tuple[GitDirNote, ...] = ()

    def dump(self) -> str:
        """Return the note as one line; file names that are not UTF-8 need this encoder."""
        return json.dumps(msgspec.to_builtins(self), sort_keys=True)


def load_note(line: bytes) -> StateNote | None:
    """Return the note that `dump` made; None if there is none, or it cannot be read."""
    try:
        return msgspec.convert(json.loads(line), StateNote)
    except (*UNREADABLE, ValueError):
        return None


class SnapshotState(NamedTuple):
    """What a snapshot holds beside its tree: stamps by path; files of git directories by path."""

    times: dict[str, Stamp]
    repository: dict[str, str]


class GitDirTable(Struct):
    """What is known of one git directory: signatures and object ids by path."""

    seen: dict[str, Signature] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    stamps: StampTable = field(default_factory=StampTable)
    tree: str = ""
    scanned_ns: int = 0


class _StateTables(Struct):
    """What the last snapshot of a line saw; a cache, valid for one index file."""

    index: IndexIdentity = None
    stamps: StampTable = field(default_factory=StampTable)
    recent: dict[str, Stamp] = field(default_factory=dict)  # of files changed just before
    folders: dict[str, Stamp] = field(default_factory=dict)  # parents before their children
    # Directories with a `.git`; git does not list a copy's linked work tree, which names the original.
    nested: dict[str, None] = field(default_factory=dict)
    inodes: dict[str, int] = field(default_factory=dict)  # of files with several names
    specials: dict[str, Stamp] = field(default_factory=dict)  # pipes and sockets, with their kind
    git_dirs: dict[str, GitDirTable] = field(default_factory=dict)
    scanned_ns: int = 0


class StateRecorder:
    """Saves and restores the state beside the trees of one line of a shadow repository."""

    def __init__(
        self,
        objects: ObjectStore,
        work_tree: Path,
        own: Path,
        outer: Path | None,
        heavy: Collection[str],
    ) -> None:
        """Record `work_tree`; `own` is the line's directory, `outer` a git directory elsewhere."""
        self._objects, self._work_tree, self._own = objects, work_tree, own
        self._outer = outer
        self._heavy = frozenset((*heavy, ".git"))
        self._tables: _StateTables | None = None

    def save_state(
        self, changed: Iterable[str], index: tuple[Callable[[], Iterable[str]], IndexIdentity]
    ) -> StateNote:
        """Store the present state and return its note; the store's `sync_written` must follow.

        `changed` are the files that differ from the last snapshot; `index` lists all files, and
        identifies the index that the last snapshot left.
        """
        list_files, left = index
        tables = self._tables if self._tables is not None else self._load_tables()
        if left is None or tables.index != left or len(tables.stamps.changed) > _CHANGES_MAX:
            tables.stamps, tables.folders, tables.nested = StampTable(), {}, {}
            changed = list_files()
            tables.inodes, tables.specials, tables.recent = {}, {}, {}
        folders = self._folder_stamps(tables)
        tops = (".", *tables.nested)
        links = dict(self._read_links(tops))
        stamps = self._file_stamps([*changed, *map(_link_path, links)], tables)
        self._add_stamps(tables.stamps, stamps | folders)
        git_dirs = dict(self._find_git_dirs(tops))
        tables.git_dirs = {name: tables.git_dirs.get(name, GitDirTable()) for name in git_dirs}
        notes = [
            self._save_git_dir(name, path, tables.git_dirs[name]) for name, path in git_dirs.items()
        ]
        self._tables = tables
        # A copy: the next snapshot changes the table.
        own = StampTable(tables.stamps.base, dict(tables.stamps.changed))
        return StateNote(
            own, links, group_names(tables.inodes), dict(tables.specials), tuple(notes)
        )

    def remember_index(self, index: IndexIdentity) -> None:
        """Note the index that belongs to what was saved."""
        if self._tables is not None:
            self._tables.index = index

    def store_tables(self) -> None:
        """Store what is known of the files for another process."""
        if self._tables is not None:
            plain = json.dumps(msgspec.to_builtins(self._tables)).encode()
            replace_file(self._own / "state", plain, durable=False)

    def read_state(self, note: StateNote) -> SnapshotState:
        """Return a state; the git index of each repository by its entries."""
        repository, scratch = {}, self._own / "compared-index"
        for git_dir in note.git_dirs:
            for path, (_, object_id) in self._objects.list_tree(git_dir.tree).items():
                is_index = path.rpartition("/")[2] == "index"
                key = f"{git_dir.where}/.git/{path}".removeprefix("./").removeprefix("/")
                repository[key] = (
                    self._objects.digest_index(object_id, scratch) if is_index else object_id
                )
        return SnapshotState(self._read_stamps(note.stamps), repository)

    def restore_state(self, note: StateNote | None, files: Collection[str]) -> None:
        """Restore times, modes, directories and git directories; `files` are those of the tree."""
        self._tables = None
        self._own.joinpath("state").unlink(missing_ok=True)
        if note is None:
            return
        names = {git_dir.where for git_dir in note.git_dirs} | set(note.links)
        inside = [f"{name}/" for name in names - {".", OUTER}]
        inside += [name for group in note.hard_links for name in group]
        with os_errors_as_unavailable(self._work_tree):
            check_inside(self._work_tree, [*inside, *note.specials])
            for folder in self._folder_stamps(_StateTables()):
                if (folder.rstrip("/") or ".") not in names:
                    remove_new_repository(self._work_tree / folder.strip("/") / ".git")
            for name, text in note.links.items():
                restore_link(self._work_tree / name / ".git", text)
            for git_dir in note.git_dirs:
                is_outer = git_dir.where == OUTER
                path = self._outer if is_outer else self._work_tree / git_dir.where / ".git"
                if path is not None:
                    self._restore_git_dir(path, git_dir)
            link_files(self._work_tree, files, note.hard_links)
            tables = _StateTables()
            self._folder_stamps(tables)
            restore_pipes(self._work_tree, tables.specials, note.specials)
            present = set(self._folder_stamps(_StateTables()))
            stamped = {*files, *map(_link_path, note.links)}
            apply_stamps(self._work_tree, self._read_stamps(note.stamps), stamped, present)

    def _find_git_dirs(self, tops: Iterable[str]) -> Iterator[tuple[str, Path]]:
        if self._outer is not None:
            yield OUTER, self._outer
        for name in tops:
            path = self._work_tree / name / ".git"
            if path.is_dir() and not path.is_symlink() and (path / "HEAD").is_file():
                yield name, path

    def _read_links(self, tops: Iterable[str]) -> Iterator[TreeEntry]:
        for name in tops:
            path = self._work_tree / name / ".git"
            if path.is_symlink():
                yield name, f"{SYMLINK}{path.readlink()}"
            elif path.is_file():
                yield name, os.fsdecode(path.read_bytes())

    def _file_stamps(self, changed: Iterable[str], tables: _StateTables) -> dict[str, Stamp]:
        """Return the stamps of the files that changed.

        A file that changes twice in a second and keeps its size is unchanged to git, which
        compares whole seconds: the stamps of the last second are read again, as are those of `.git`
        files, which git does not list.
        """
        recent_ns = time.time_ns() - _GIT_TIME_NS
        known, tables.recent = tables.recent, {}
        stamps = {}
        for path in {*changed, *known}:
            tables.inodes.pop(path, None)
            try:
                status = (self._work_tree / path).lstat()
            except OSError:
                continue
            if status.st_nlink > 1:
                tables.inodes[path] = status.st_ino
            stamp = stamp_of(status)
            if stamp != known.get(path):
                stamps[path] = stamp
            if status.st_ctime_ns >= recent_ns or path.rpartition("/")[2] == ".git":
                tables.recent[path] = stamp
        return stamps

    def _folder_stamps(self, tables: _StateTables) -> dict[str, Stamp]:
        """Return the directories that changed; a new one is found by the time of its parent."""
        stamps: dict[str, Stamp] = {}
        now = time.time_ns()
        pending = [*reversed(tables.folders)] or [""]
        top = os.path.join(self._work_tree, "")  # noqa: PTH118 - a `Path` costs more than the stat
        while pending:
            folder = pending.pop()
            known = tables.folders.pop(folder, GONE)
            status = stat_folder(top, folder, tables.folders)
            if status is None:
                stamps[f"{folder}/"] = GONE
                tables.nested.pop(folder, None)
                continue
            tables.folders[folder] = stamp = stamp_of(status)
            if stamp != known:
                stamps[f"{folder}/"] = stamp
            elif stamp[0] < tables.scanned_ns - RACY_NS:
                continue
            pending += self._new_folders(folder, tables)
        tables.scanned_ns = now
        return stamps

    def _new_folders(self, folder: str, tables: _StateTables) -> list[str]:
        """Return directories in `folder` that are not known; note its pipes, sockets and `.git`."""
        prefix, shadow, names = f"{folder}/".lstrip("/"), str(self._objects.git_dir), []
        for known in [path for path in tables.specials if path.rpartition("/")[0] == folder]:
            del tables.specials[known]
        tables.nested.pop(folder, None)
        with suppress(OSError), os.scandir(self._work_tree / folder) as entries:
            for entry in entries:
                path = prefix + entry.name
                if folder and entry.name == ".git":
                    tables.nested[folder] = None
                if entry.is_dir(follow_symlinks=False):
                    is_watched = entry.name not in self._heavy and entry.path != shadow
                    names += [path] if is_watched and path not in tables.folders else []
                elif not entry.is_file(follow_symlinks=False) and not entry.is_symlink():
                    status = entry.stat(follow_symlinks=False)
                    tables.specials[path] = (status.st_mtime_ns, status.st_mode)
        return names

    def _save_git_dir(self, name: str, git_dir: Path, table: GitDirTable) -> GitDirNote:
        now = time.time_ns()
        present = scan_git_dir(git_dir, table.seen, table.scanned_ns)
        table.scanned_ns = now
        stamps = {path: (seen[0], stat.S_IMODE(seen[3])) for path, seen in present.items()}
        new = {path: seen for path, seen in present.items() if table.seen.get(path) != seen}
        if len(table.stamps.changed) > _CHANGES_MAX:
            table.stamps = StampTable()
        else:
            gone = dict.fromkeys(table.seen.keys() - present.keys(), GONE)
            stamps = gone | {path: stamps[path] for path in new}
        self._add_stamps(table.stamps, stamps)
        if stamps or not table.tree:
            ids = {path: object_id for path, object_id in table.ids.items() if path in present}
            table.ids = ids | self._hash_files(git_dir, new)
            table.seen = present
            table.tree = self._objects.write_tree(
                {path: (git_mode(present[path][3]), blob) for path, blob in table.ids.items()}
            )
            self._objects.keep_object(table.tree)
        own = StampTable(table.stamps.base, dict(table.stamps.changed))
        return GitDirNote(name, table.tree, own)

    def _hash_files(self, git_dir: Path, files: Mapping[str, Signature]) -> dict[str, str]:
        """Store files and return their object ids; files that vanish meanwhile are left out."""
        paths = [path for path in files if path[-1] != "/" and not is_transient(path)]
        small = {path for path in paths if files[path][1] <= _OBJECT_BYTES_MAX}
        if len(small) > _PACK_FROM:
            small = set()
        ids = {}
        for path in small:
            with suppress(OSError):
                full = git_dir / path
                is_link = stat.S_ISLNK(files[path][3])
                data = os.fsencode(full.readlink()) if is_link else full.read_bytes()
                ids[path] = self._objects.write_object("blob", data)
        large = [path for path in paths if path not in small]
        return ids | (
            self._objects.hash_files(git_dir, large, self._own / "git-index") if large else {}
        )

    def _restore_git_dir(self, git_dir: Path, note: GitDirNote) -> None:
        wanted = self._objects.list_tree(note.tree)
        stamps = self._read_stamps(note.stamps)
        if git_dir.is_symlink() or git_dir.is_file():
            git_dir.unlink()
        ensure_dir(git_dir, durable=False)
        clear_conflicts(git_dir, wanted, stamps)
        present = scan_git_dir(git_dir)
        differing = [
            path
            for path, (mode, object_id) in wanted.items()
            if path not in present or not has_content(git_dir / path, path, mode, object_id)
        ]
        # A repository is usable at every moment: objects first, then what names them.
        differing.sort(key=lambda path: (not path.startswith(OBJECTS), path == "HEAD", path))
        check_inside(git_dir, differing)
        blobs = self._objects.read_blobs({wanted[path][1] for path in differing})
        for path in differing:
            mode, object_id = wanted[path]
            write_plain(git_dir / path, blobs[object_id], is_link=mode == "120000")
        for path in present:
            if path not in wanted and path not in stamps and not path.endswith("/"):
                (git_dir / path).unlink(missing_ok=True)
        folders = {path for path in present if path.endswith("/")}
        apply_stamps(git_dir, stamps, set(wanted), folders)

    def _add_stamps(self, table: StampTable, stamps: Mapping[str, Stamp]) -> None:
        if table.base:
            table.changed |= stamps
        else:
            table.base = self._objects.write_object("blob", dump_stamps(stamps))
            self._objects.keep_object(table.base)

    def _read_stamps(self, table: StampTable) -> dict[str, Stamp]:
        stamps = parse_stamps(self._objects.read_blobs([table.base])[table.base]) | table.changed
        return {path: stamp for path, stamp in stamps.items() if stamp != GONE}

    def _load_tables(self) -> _StateTables:
        try:
            return msgspec.convert(json.loads((self._own / "state").read_bytes()), _StateTables)
        except (*UNREADABLE, ValueError, OSError):
            return _StateTables()


def _link_path(name: str) -> str:
    return f"{name}/.git".removeprefix("./")
