"""Loose objects of a shadow repository, written without starting git.

A snapshot writes a handful of small objects; a git process for each would take longer than all else.
"""

import hashlib
import os
import zlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from flightlog.model.errors import Unreadable
from flightlog.store.files import replace_file, sync_files
from flightlog.store.git.command import GitError
from flightlog.store.git.repository import ShadowRepository, parse_batch

TreeEntry = tuple[str, str]  # git's mode, object id


def blob_id(data: bytes) -> str:
    """Return the id that git gives a file with this content."""
    return _hash_object(b"blob %d\0" % len(data) + data)


class ObjectStore:
    """Writes objects, and reads trees and blobs."""

    def __init__(self, repository: ShadowRepository) -> None:
        self._repository = repository
        self.git_dir = repository.git_dir
        self._written: list[Path] = []

    def write_tree(self, entries: Mapping[str, TreeEntry]) -> str:
        """Write nested trees and return the id of the top."""
        top: dict[str, Any] = {}
        for path, entry in entries.items():
            *folders, name = path.split("/")
            node = top
            for folder in folders:
                node = node.setdefault(folder, {})
            node[name] = entry
        return self._write_node(top)

    def keep_object(self, object_id: str) -> None:
        """Keep an object with a ref; it is written whole, so that several lines can do it at once."""
        path = self.git_dir / "refs" / "state" / object_id
        if not path.exists():
            replace_file(path, f"{object_id}\n".encode(), durable=False)
            self._written.append(path)

    def sync_written(self) -> None:
        """Make what was written survive a power cut."""
        sync_files(self._written)
        self._written = []

    def list_tree(self, tree: str) -> dict[str, TreeEntry]:
        """Return every file of a tree by its path."""
        try:
            rows = self._repository.run_git(["ls-tree", "-r", "-z", tree]).split(b"\0")[:-1]
        except GitError as error:
            hint = "restore the run from a backup"
            raise Unreadable(f"a tree of a snapshot is missing: {tree}", hint=hint) from error
        parts = (os.fsdecode(row).partition("\t") for row in rows)
        return {path: (head.split(" ")[0], head.split(" ")[2]) for head, _, path in parts}

    def read_blobs(self, ids: Collection[str]) -> dict[str, bytes]:
        """Return the contents of blobs by id; raise `Unreadable` if one is missing."""
        unique = list(dict.fromkeys(ids))
        given = "".join(f"{name}\n" for name in unique).encode()
        blobs = parse_batch(self._repository.run_git(["cat-file", "--batch"], stdin=given), unique)
        if missing := [name for name in unique if name not in blobs]:
            hint = "restore the run from a backup"
            raise Unreadable(f"an object of a snapshot is missing: {missing[0]}", hint=hint)
        return blobs

    def hash_files(self, folder: Path, paths: Collection[str], index: Path) -> dict[str, str]:
        """Store large or many files with git, which streams them into one pack; return their ids."""
        index.unlink(missing_ok=True)
        more = {"GIT_WORK_TREE": str(folder), "GIT_INDEX_FILE": str(index)}
        settings = ["-c", "core.bigFileThreshold=1", "-c", "core.compression=0"]
        names = b"".join(os.fsencode(path) + b"\0" for path in paths)
        add = [*settings, "update-index", "-z", "--add", "--remove", "--stdin"]
        self._repository.run_git(add, stdin=names, more=more)
        listed = self._repository.run_git(["ls-files", "--stage", "-z"], more=more)
        index.unlink(missing_ok=True)
        rows = (os.fsdecode(row).partition("\t") for row in listed.split(b"\0")[:-1])
        return {path: head.split(" ")[1] for head, _, path in rows}

    def digest_index(self, object_id: str, scratch: Path) -> str:
        """Return a digest of a git index without its stat data, which each copy has its own."""
        replace_file(scratch, self.read_blobs([object_id])[object_id], durable=False)
        list_entries, index = ["ls-files", "--stage", "-v", "-z"], {"GIT_INDEX_FILE": str(scratch)}
        try:
            entries = self._repository.run_git(list_entries, more=index)
        except GitError:
            return object_id
        finally:
            scratch.unlink(missing_ok=True)
        return hashlib.sha256(entries).hexdigest()

    def _write_node(self, node: Mapping[str, Any]) -> str:
        rows = []
        for name, entry in node.items():
            is_folder = isinstance(entry, dict)
            mode, object_id = ("40000", self._write_node(entry)) if is_folder else entry
            encoded = os.fsencode(name)
            data = mode.encode() + b" " + encoded + b"\0" + bytes.fromhex(object_id)
            # Git sorts a directory as if its name ended with a slash.
            rows.append((encoded + (b"/" if is_folder else b""), data))
        return self.write_object("tree", b"".join(data for _, data in sorted(rows)))

    def write_object(self, kind: str, data: bytes) -> str:
        """Write a blob, tree or commit and return its id; `sync_written` must follow."""
        raw = b"%s %d\0" % (kind.encode(), len(data)) + data
        name = _hash_object(raw)
        path = self.git_dir / "objects" / name[:2] / name[2:]
        if not path.exists():
            replace_file(path, zlib.compress(raw, 1), durable=False, mode=0o444)
            self._written.append(path)
        return name


def _hash_object(raw: bytes) -> str:
    return hashlib.sha1(raw, usedforsecurity=False).hexdigest()
