"""Files as a snapshot's state sees them: times and modes, and a git directory as plain files.

A table of times is stored whole once, then as what changed since.
"""

import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, field

from flightlog.model.errors import Unreadable
from flightlog.store.directories import remove_tree
from flightlog.store.files import ensure_dir, replace_file
from flightlog.store.git.objects import blob_id

GONE = (0, 0)
OBJECTS = "objects/"
SYMLINK = "-> "  # the text of a `.git` file begins with `gitdir: `
RACY_NS = 50_000_000  # a directory changed so recently may change again with the same time
_PACK_BYTES_MAX = 1 << 30  # a larger pack is left out; a restore uses the one that is there
_TRANSIENT = ("tmp_obj_", "tmp_pack_", "tmp_idx_")
Stamp = tuple[int, int]  # mtime in nanoseconds, permission bits
Signature = tuple[int, int, int, int]  # mtime in nanoseconds, size, inode, mode


class StampTable(Struct):
    """The times of one directory: the object with all of them, and what changed since."""

    base: str = ""
    changed: dict[str, Stamp] = field(default_factory=dict)


def stamp_of(status: os.stat_result) -> Stamp:
    return status.st_mtime_ns, stat.S_IMODE(status.st_mode)


def dump_stamps(stamps: Mapping[str, Stamp]) -> bytes:
    """Return stamps as the content of an object; a directory's path ends with a slash."""
    rows = (f"{mtime} {mode:o} {path}" for path, (mtime, mode) in sorted(stamps.items()))
    return b"".join(os.fsencode(row) + b"\0" for row in rows)


def parse_stamps(content: bytes) -> dict[str, Stamp]:
    """Return the stamps that `dump_stamps` wrote."""
    stamps: dict[str, Stamp] = {}
    for row in content.split(b"\0")[:-1]:
        mtime, mode, path = os.fsdecode(row).split(" ", 2)
        stamps[path] = (int(mtime), int(mode, 8))
    return stamps


def stat_folder(top: str, folder: str, folders: Collection[str]) -> os.stat_result | None:
    """Return the status of a directory; None if it, or one above it, is a file or a link now."""
    try:
        status = os.lstat(top + folder)
    except OSError:
        return None
    is_below = not folder or folder.rpartition("/")[0] in folders
    return status if is_below and stat.S_ISDIR(status.st_mode) else None


def check_inside(root: Path, names: Iterable[str]) -> None:
    """Raise `Unreadable` if a name leads out of `root`: a snapshot may come from another person."""
    top, hint = root.resolve(), "restore the run from a backup"
    for folder in {name.rpartition("/")[0] for name in names if "/" in name and name != "/"}:
        is_plain = not {"", ".."} & set(folder.split("/"))
        if not is_plain or not (top / folder).resolve().is_relative_to(top):
            raise Unreadable(f"a snapshot leads out of its directory: {folder!r}", hint=hint)


def clear_conflicts(git_dir: Path, files: Collection[str], folders: Collection[str]) -> None:
    """Remove what is where a file or a directory of another kind belongs."""
    for path in scan_git_dir(git_dir):
        if path.endswith("/") and path[:-1] in files:
            remove_tree(git_dir / path)
        elif f"{path}/" in folders:
            (git_dir / path).unlink(missing_ok=True)


def apply_stamps(
    root: Path, stamps: Mapping[str, Stamp], files: set[str], present: set[str]
) -> None:
    """Set times and modes; make directories that are missing and remove empty ones that are new."""
    folders = sorted(path for path in stamps if path.endswith("/"))
    for path in sorted((path for path in present if path not in stamps), reverse=True):
        with suppress(OSError):
            (root / path.strip("/")).rmdir()
    check_inside(root, folders)
    for path in folders:
        (root / path.strip("/")).mkdir(exist_ok=True, parents=True)
    for path in (*files, *reversed(folders)):
        if path in stamps:
            set_stamp(root / path.strip("/"), stamps[path])


def set_stamp(path: Path, stamp: Stamp) -> None:
    mtime_ns, mode = stamp
    try:
        status = path.lstat()
    except OSError:
        return
    if not stat.S_ISLNK(status.st_mode) and stat.S_IMODE(status.st_mode) != mode:
        path.chmod(mode)
    if status.st_mtime_ns != mtime_ns:
        os.utime(path, ns=(status.st_atime_ns, mtime_ns), follow_symlinks=False)


def scan_git_dir(
    git_dir: Path, seen: Mapping[str, Signature] | None = None, scanned_ns: int = 0
) -> dict[str, Signature]:
    """Return the signature of every file and directory; `seen` is the last scan, at `scanned_ns`.

    Objects never change, so an object directory with the time of the last scan has its old files.
    """
    known: dict[str, list[str]] = {}
    for path in seen or ():
        if path.startswith(OBJECTS) and not path.endswith("/"):
            known.setdefault(path[: path.rindex("/") + 1], []).append(path)
    top = git_dir.stat()
    present: dict[str, Signature] = {"/": (top.st_mtime_ns, 0, top.st_ino, top.st_mode)}
    pending = [""]
    while pending:
        folder = pending.pop()
        with suppress(FileNotFoundError):
            for path, signature in _list_folder(git_dir, folder):
                present[path] = signature
                if not path.endswith("/"):
                    continue
                is_racy = signature[0] > scanned_ns - RACY_NS
                if seen and path in known and seen.get(path) == signature and not is_racy:
                    present |= {old: seen[old] for old in known[path]}
                else:
                    pending.append(path)
    return present


def _list_folder(git_dir: Path, folder: str) -> Iterator[tuple[str, Signature]]:
    with os.scandir(git_dir / folder) as entries:
        for entry in entries:
            path = f"{folder}{entry.name}"
            if entry.name == "fsmonitor--daemon":
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            mtime, size, mode = status.st_mtime_ns, status.st_size, status.st_mode
            if stat.S_ISDIR(mode):
                yield f"{path}/", (mtime, 0, status.st_ino, mode)
            elif (stat.S_ISREG(mode) or stat.S_ISLNK(mode)) and size <= _PACK_BYTES_MAX:
                yield path, (mtime, size, status.st_ino, mode)


def is_transient(path: str) -> bool:
    """Return whether git removes a file itself: its name is noted, so that a new one is removed."""
    name = path.rpartition("/")[2]
    return name.startswith(_TRANSIENT) or (  # a restored lock would block git
        name.endswith(".lock") and not path.startswith(OBJECTS)
    )


def git_mode(mode: int) -> str:
    if stat.S_ISLNK(mode):
        return "120000"
    return "100755" if mode & stat.S_IXUSR else "100644"


def has_content(full: Path, path: str, mode: str, object_id: str) -> bool:
    """Return whether a file has the wanted content; an object is what its name says."""
    if path.startswith(OBJECTS) and not path.startswith(OBJECTS + "info/"):
        return True
    if (mode == "120000") != full.is_symlink():
        return False
    data = os.fsencode(full.readlink()) if full.is_symlink() else full.read_bytes()
    return blob_id(data) == object_id


def write_plain(path: Path, data: bytes, *, is_link: bool) -> None:
    ensure_dir(path.parent, durable=False)
    if is_link:
        path.unlink(missing_ok=True)
        path.symlink_to(os.fsdecode(data))
    else:
        replace_file(path, data, durable=False, mode=0o644)


def group_names(inodes: Mapping[str, int]) -> tuple[tuple[str, ...], ...]:
    """Return the names of each file that has several."""
    groups: dict[int, list[str]] = {}
    for path, inode in sorted(inodes.items()):
        groups.setdefault(inode, []).append(path)
    return tuple(tuple(names) for names in groups.values() if len(names) > 1)


def link_files(top: Path, files: Iterable[str], wanted: Collection[tuple[str, ...]]) -> None:
    """Make the names in each group one file, and all others files of their own."""
    inodes = {}
    for path in files:
        with suppress(OSError):
            status = (top / path).lstat()
            if status.st_nlink > 1 and stat.S_ISREG(status.st_mode):
                inodes[path] = status.st_ino
    for path in (path for group in {*group_names(inodes)} - {*wanted} for path in group[1:]):
        replace_file(top / path, (top / path).read_bytes(), durable=False)
    for first, *others in wanted:
        for path in others:
            with suppress(FileNotFoundError, NotADirectoryError):
                if not os.path.samestat((top / first).lstat(), (top / path).lstat()):
                    (top / path).unlink()
                    (top / path).hardlink_to(top / first)


def restore_pipes(top: Path, present: Mapping[str, Stamp], wanted: Mapping[str, Stamp]) -> None:
    """Remove new pipes and sockets, make missing pipes, set times; a socket needs its server."""
    for path in present.keys() - wanted.keys():
        (top / path).unlink()
    for path, (mtime_ns, mode) in wanted.items():
        if path not in present and stat.S_ISFIFO(mode):
            ensure_dir((top / path).parent, durable=False)
            os.mkfifo(top / path)
        set_stamp(top / path, (mtime_ns, stat.S_IMODE(mode)))


def restore_link(link: Path, text: str) -> None:
    """Restore a `.git` that names a repository elsewhere: a file, or a symbolic link."""
    target = text.removeprefix(SYMLINK)
    if target != text:
        if not link.is_symlink() or str(link.readlink()) != target:
            remove_new_repository(link)
            link.symlink_to(target)
    elif link.is_symlink() or not link.is_file() or link.read_bytes() != os.fsencode(text):
        remove_tree(link)
        replace_file(link, os.fsencode(text), durable=False, mode=0o644)


def remove_new_repository(path: Path) -> None:
    """Remove the `.git` of a repository that a snapshot does not have."""
    remove_tree(path)
    path.unlink(missing_ok=True)
