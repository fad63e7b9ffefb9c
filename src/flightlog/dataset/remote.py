"""Rows on a remote before they are committed: one ref per writer, pushed and fetched.

A push does not touch the user's index, work tree or branches. A pull writes the rows of others that
this work tree lacks as one new shard of this clone, so that no merge can bring a file of that name.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from flightlog.dataset import reader
from flightlog.dataset.layout import PENDING, TRACKED, DatasetDirs, write_bodies
from flightlog.dataset.rows import rev_of
from flightlog.dataset.state import recall_clone, remember_clone, writer_name
from flightlog.privacy.json_redactor import JsonRedactor
from flightlog.store import files
from flightlog.store.git import refs
from flightlog.store.git.command import GitError
from flightlog.store.git.refs import fetch_refs
from flightlog.store.git.repository import (
    Repository,
    current_branch,
    git_output,
    read_blob_contents,
    tree_files,
)

REFS = "refs/flightlog/dataset"
GATHERED = "refs/flightlog/gathered"


class PushResult(Struct, frozen=True):
    """Result of a push."""

    ref: str
    remote: str
    commit: str
    shards: int


class PullResult(Struct, frozen=True):
    """Result of a pull."""

    writers: int
    rows: int
    shard: str


class RemoteSafety(Struct, frozen=True):
    """What of this work tree is on a remote; times in milliseconds since 1970, 0 for never."""

    last_row_ms: int
    last_pushed_ms: int
    shards: int
    unpushed_shards: int


def push_shards(dirs: DatasetDirs, remote: str, now_ms: int) -> PushResult:
    """Add every shard of this work tree to this writer's ref and push it."""
    ref = f"{REFS}/{writer_name(dirs.state_dir)}"
    stored = _shard_names(dirs.repository, ref)
    new = [path for path in reader.shard_files(dirs.tracked_dir) if path.name not in stored]
    _store_shards(dirs, ref, {f"{PENDING}/{path.name}": path.read_bytes() for path in new})
    with _explain_git_error(remote):
        commit = refs.push_ref(dirs.repository, remote, ref)
    clone = recall_clone(dirs.state_dir)
    # Shards added to the ref while the remote was unreachable count as pushed only now.
    tips = (commit, clone.pushed_commit)
    pushed, before = (tree_files(dirs.repository, tip, PENDING) if tip else {} for tip in tips)
    sent = {path: blob for path, blob in pushed.items() if path not in before}
    last = max(_last_ms(reader.read_blobs(_read_bodies(dirs.repository, sent))), clone.pushed_rev)
    remember_clone(
        dirs.state_dir, replace(clone, pushed_ms=now_ms, pushed_rev=last, pushed_commit=commit)
    )
    return PushResult(ref, remote, commit, len(pushed))


@contextmanager
def _explain_git_error(remote: str) -> Iterator[None]:
    try:
        yield
    except GitError as error:
        hint = f"git remote -v; git remote add {remote} URL; or set `remote` under [dataset] in flightlog.toml"
        raise GitError(error.message, hint=hint, stderr=error.stderr) from error


def _store_shards(dirs: DatasetDirs, ref: str, new: dict[str, bytes]) -> None:
    index = dirs.state_dir / f"index-{files.process_tag()}"
    files.ensure_dir(dirs.state_dir)
    try:
        refs.commit_to_ref(dirs.repository, ref, new, index)
    finally:
        files.remove_files([index])


def pull_rows(dirs: DatasetDirs, remote: str, redactor: JsonRedactor) -> PullResult:
    """Fetch every writer's rows, and write those this work tree lacks."""
    with _explain_git_error(remote):
        refs = fetch_refs(dirs.repository, remote, REFS, GATHERED)
    fetched: dict[str, str] = {}
    for ref in refs:
        fetched |= tree_files(dirs.repository, ref, TRACKED)
    ours = reader.read_dataset(dirs.tracked_dir)
    theirs = reader.read_blobs(_read_bodies(dirs.repository, fetched))
    for row in ours.rows.values():
        if row.get("kind") == "tombstone":
            theirs.forgotten.add_tombstone(row)
    live = theirs.live_lines().values()
    lines = sorted(line for line in live if not ours.contains_row(msgspec.json.decode(line)))
    if not lines:
        return PullResult(len(refs), 0, "")
    number = reader.free_number(
        path.read_bytes()[:100] for path in reader.shard_files(dirs.tracked_dir)
    )
    day = max(
        str(row.get("timestamp") or row.get("ended_at") or "")[:10] for row in theirs.rows.values()
    )
    # An extraction reads tombstones only from shards with this prefix.
    has_tombstones = any(row.get("kind") == "tombstone" for row in theirs.rows.values())
    prefix = f"{reader.GONE}-" if has_tombstones else ""
    session = f"{prefix}pulled-{writer_name(dirs.state_dir)}"
    shard = reader.name_shard(session, reader.indent_lines(lines, number), day)
    write_bodies(dirs, [shard], redactor)
    return PullResult(len(refs), len(lines), shard.name)


def measure_safety(dirs: DatasetDirs) -> RemoteSafety:
    """Return what would be lost with this machine: rows on no remote branch and no pushed ref."""
    clone = recall_clone(dirs.state_dir)
    upstream = git_output(
        dirs.repository, "rev-parse", "--abbrev-ref", "--symbolic-full-name", "@{upstream}"
    )
    # A branch may be pushed without being set as upstream.
    branch = upstream or f"refs/remotes/origin/{current_branch(dirs.repository)}"
    tracked = tree_files(dirs.repository, branch, TRACKED)
    pushed = _shard_names(dirs.repository, clone.pushed_commit) if clone.pushed_commit else set()
    safe = {path.rpartition("/")[2] for path in tracked} | pushed
    shards = [path.name for path in reader.shard_files(dirs.tracked_dir)]
    last_safe = max(
        _last_ms(reader.read_blobs(_read_bodies(dirs.repository, tracked))), clone.pushed_rev
    )
    last = _last_ms(reader.read_dataset(dirs.tracked_dir))
    return RemoteSafety(last, last_safe, len(shards), sum(name not in safe for name in shards))


def _shard_names(repository: Repository, ref: str) -> set[str]:
    return {path.rpartition("/")[2] for path in tree_files(repository, ref, PENDING)}


def _read_bodies(repository: Repository, files: dict[str, str]) -> dict[str, bytes]:
    bodies = read_blob_contents(repository, files.values())
    return {path: bodies[blob] for path, blob in files.items() if blob in bodies}


def _last_ms(dataset: reader.DatasetReader) -> int:
    return max(
        (rev_of(row) for row in dataset.rows.values() if row.get("kind") == "session"), default=0
    )
