"""Rows kept elsewhere before anybody commits: a ref of each writer's own, pushed and gathered.

The user's index, work tree and branches are not touched by a push. A pull writes what others have and this
work tree lacks as one new shard of this clone, so that no file of that name can come by a merge.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from flightlog.dataset.layout import PENDING, TRACKED, DatasetDirs, write_bodies
from flightlog.dataset.reader import (
    GONE,
    DatasetReader,
    free_number,
    indent_lines,
    name_shard,
    read_blobs,
    read_dataset,
    shard_files,
)
from flightlog.dataset.rows import rev_of
from flightlog.dataset.state import recall_clone, remember_clone, writer_name
from flightlog.privacy.json_redactor import JsonRedactor
from flightlog.store import files
from flightlog.store.git import refs
from flightlog.store.git.command import GitError
from flightlog.store.git.refs import fetch_refs
from flightlog.store.git.repository import Repository, current_branch, git_output, read_blob_contents, tree_files

REFS = "refs/flightlog/dataset"
GATHERED = "refs/flightlog/gathered"


class PushResult(Struct, frozen=True):
    """What a push did."""

    ref: str
    remote: str
    commit: str
    shards: int


class PullResult(Struct, frozen=True):
    """What a pull brought."""

    writers: int
    rows: int
    shard: str


class RemoteSafety(Struct, frozen=True):
    """What of this work tree is safe elsewhere; times in milliseconds since 1970, 0 for never."""

    last_record_ms: int
    last_safe_ms: int
    shards: int
    shards_unsafe: int


def push_shards(place: DatasetDirs, remote: str, now_ms: int) -> PushResult:
    """Put every shard of this work tree on this writer's ref and push it."""
    ref = f"{REFS}/{writer_name(place.state_dir)}"
    held = _shard_names(place.repository, ref)
    new = {path.name: path.read_bytes() for path in shard_files(place.tracked_dir) if path.name not in held}
    _store_shards(place, ref, {f"{PENDING}/{name}": body for name, body in new.items()})
    with _explain_git_error(remote):
        commit = refs.push_ref(place.repository, remote, ref)
    clone = recall_clone(place.state_dir)
    # What was put on the ref while the remote was away counts only now.
    there, before = (tree_files(place.repository, each, PENDING) if each else {} for each in (commit, clone.pushed))
    sent = {path: blob for path, blob in there.items() if path not in before}
    last = max(_last_ms(read_blobs(_read_bodies(place.repository, sent))), clone.pushed_rev)
    remember_clone(place.state_dir, replace(clone, pushed_ms=now_ms, pushed_rev=last, pushed=commit))
    return PushResult(ref, remote, commit, len(there))


@contextmanager
def _explain_git_error(remote: str) -> Iterator[None]:
    try:
        yield
    except GitError as error:
        hint = (
            f"see `git remote -v`; `git remote add {remote} URL`, or another `remote` under [dataset] in flightlog.toml"
        )
        raise GitError(error.message, hint=hint, stderr=error.stderr) from error


def _store_shards(place: DatasetDirs, ref: str, new: dict[str, bytes]) -> None:
    index = place.state_dir / f"index-{files.process_tag()}"
    files.ensure_dir(place.state_dir)
    try:
        refs.commit_to_ref(place.repository, ref, new, index)
    finally:
        files.remove_files([index])


def pull_rows(place: DatasetDirs, remote: str, records: JsonRedactor) -> PullResult:
    """Gather every writer's rows, and write those this work tree lacks."""
    with _explain_git_error(remote):
        refs = fetch_refs(place.repository, remote, REFS, GATHERED)
    found: dict[str, str] = {}
    for ref in refs:
        found |= tree_files(place.repository, ref, TRACKED)
    here = read_dataset(place.tracked_dir)
    theirs = read_blobs(_read_bodies(place.repository, found))
    for row in here.rows.values():
        if row.get("kind") == "tombstone":
            theirs.forgotten.add_tombstone(row)
    lines = sorted(line for line in theirs.live_lines().values() if not here.contains_row(msgspec.json.decode(line)))
    if not lines:
        return PullResult(len(refs), 0, "")
    number = free_number(path.read_bytes()[:100] for path in shard_files(place.tracked_dir))
    day = max(str(row.get("timestamp") or row.get("ended_at") or "")[:10] for row in theirs.rows.values())
    # A capture reads tombstones from shards of that name alone.
    marks = f"{GONE}-" if any(row.get("kind") == "tombstone" for row in theirs.rows.values()) else ""
    made = name_shard(f"{marks}pulled-{writer_name(place.state_dir)}", indent_lines(lines, number), day)
    write_bodies(place, [made], records)
    return PullResult(len(refs), len(lines), made.name)


def measure_safety(place: DatasetDirs) -> RemoteSafety:
    """Say what would be lost if this machine went now: what is on no remote branch and on no pushed ref."""
    here = read_dataset(place.tracked_dir)
    clone = recall_clone(place.state_dir)
    upstream = git_output(place.repository, "rev-parse", "--abbrev-ref", "--symbolic-full-name", "@{upstream}")
    # A branch that was pushed without naming it upstream is there as well.
    theirs = upstream or f"refs/remotes/origin/{current_branch(place.repository)}"
    tracked = tree_files(place.repository, theirs, TRACKED)
    pushed = _shard_names(place.repository, clone.pushed) if clone.pushed else set()
    safe = {path.rpartition("/")[2] for path in tracked} | pushed
    shards = [path.name for path in shard_files(place.tracked_dir)]
    known = read_blobs(_read_bodies(place.repository, tracked)) if tracked else DatasetReader()
    last_safe = max(_last_ms(known), clone.pushed_rev)
    return RemoteSafety(_last_ms(here), last_safe, len(shards), sum(name not in safe for name in shards))


def _shard_names(repository: Repository, ref: str) -> set[str]:
    return {path.rpartition("/")[2] for path in tree_files(repository, ref, PENDING)}


def _read_bodies(repository: Repository, files: dict[str, str]) -> dict[str, bytes]:
    bodies = read_blob_contents(repository, files.values())
    return {path: bodies[blob] for path, blob in files.items() if blob in bodies}


def _last_ms(book: DatasetReader) -> int:
    return max((rev_of(row) for row in book.rows.values() if row.get("kind") == "session"), default=0)
