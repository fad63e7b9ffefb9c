"""Compacting: shards folded into base files, each row once, sorted, the gone ones left out.

On the default branch shards go into the base files. On any other branch they go into one new shard,
because two branches that change one file are a conflict. The result depends on the rows alone: not on
their order, nor on how often it is done. A killed compaction leaves rows twice, which readers do not see.
"""

import hashlib
import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from flightlog.dataset.layout import (
    KEPT_OPEN,
    PENDING,
    SETTINGS,
    TRACKED,
    DatasetDirs,
    prepare_dataset,
    total_bytes,
    write_bodies,
)
from flightlog.dataset.reader import (
    COLUMNS,
    FOLDED,
    GENERATION,
    GONE,
    DatasetReader,
    base_files,
    choose_foldable,
    free_number,
    indent_lines,
    name_shard,
    read_blobs,
    read_dataset,
    read_files,
    shard_files,
    shard_session,
)
from flightlog.dataset.rows import BASES, OTHER, Row, base_line, encode_row
from flightlog.model.output_files import Clean, OutputFile, Tier
from flightlog.privacy.json_redactor import JsonRedactor
from flightlog.store import files
from flightlog.store.git import refs
from flightlog.store.git.history import head_commit
from flightlog.store.git.repository import current_branch, default_branch, git_output, read_blob_contents, tree_files
from flightlog.store.output_files import write_output_files


class Compaction(Struct, frozen=True):
    """What a compaction did, or would do."""

    branch: str
    into: str
    shards: int
    rows: dict[str, int]
    repeats: int
    older: int
    gone: int
    restored: int
    bytes_before: int
    bytes_after: int
    set_aside: tuple[str, ...] = ()
    dry_run: bool = False
    commit: str | None = None  # None where none was asked for, empty where none was due


def compact_dataset(
    place: DatasetDirs, records: JsonRedactor, *, default: str = "", dry_run: bool = False
) -> Compaction:
    """Fold shards: into the base files on the default branch, into one shard elsewhere."""
    branch = current_branch(place.repository)
    if branch == (default or default_branch(place.repository)):
        return _compact_into_base(place, records, branch, dry_run=dry_run)
    return _compact_into_shard(place, records, branch, default, dry_run=dry_run)


def compact_and_commit(place: DatasetDirs, records: JsonRedactor, *, default: str = "") -> Compaction:
    """Fold shards, and on the default branch commit the base files, as a merge: git does it nowhere else again."""
    branch = current_branch(place.repository)
    if branch != (default or default_branch(place.repository)):
        return replace(compact_dataset(place, records, default=default), commit="")
    held = tree_files(place.repository, "HEAD", TRACKED)
    new = [path for path in _repository_paths(place, shard_files(place.tracked_dir)) if path not in held]
    files.ensure_dir(place.state_dir)
    index = place.state_dir / f"index-{files.process_tag()}"
    try:
        line = refs.commit_side_branch(place.repository, new, "Training rows", index)
        done = _compact_into_base(place, records, branch, dry_run=False)
        there = [path for path in place.root.glob("*") if path.name in SETTINGS]
        there += [*place.tracked_dir.glob("*.jsonl"), *place.pending_dir.glob("*.jsonl"), place.pending_dir / KEPT_OPEN]
        commit = refs.merge_side_branch(
            place.repository, line, {*held, *_repository_paths(place, there)}, "Compact rows", index
        )
    finally:
        files.remove_files([index])
    _remember_head(place)
    return replace(done, commit=commit)


def _repository_paths(place: DatasetDirs, paths: Iterable[Path]) -> list[str]:
    return [str(path.relative_to(place.repository.top)) for path in paths]


def base_texts(book: DatasetReader) -> dict[str, list[bytes]]:
    """Return the lines of every base file, sorted by time and content."""
    lines: dict[str, list[tuple[str, bytes]]] = defaultdict(list)
    for key, line in book.live_lines().items():
        row = book.rows[key]
        kind = str(row.get("kind", ""))
        lines[BASES.get(kind, OTHER)].append((_row_time(row), base_line(line, kind) if kind in BASES else line))
    names = [*BASES.values(), *([OTHER] if OTHER in lines else [])]
    return {name: [line for _, line in sorted(lines[name])] for name in names}


def merge_base_files(name: str, versions: Iterable[bytes]) -> bytes:
    """Merge versions of the base file `name`: every row of each once, sorted."""
    book = read_blobs({f"{number}/{name}": body for number, body in enumerate(versions)})
    return b"".join(line + b"\n" for line in base_texts(book).get(name, []))


def _compact_into_base(place: DatasetDirs, records: JsonRedactor, branch: str, *, dry_run: bool) -> Compaction:
    shards = shard_files(place.tracked_dir)
    before = total_bytes(place)
    book = read_files([*base_files(place.tracked_dir), *shards])
    restored = _restore_lost_rows(place, book)
    texts = base_texts(book)
    for lines in texts.values():
        records.collect_values(lines)
    clean = {name: records.redact_to_clean(lines) for name, lines in texts.items()}
    after = sum(len(each.text.encode()) for each in clean.values())
    aside: list[Path] = []
    if not dry_run:
        prepare_dataset(place, records)
        aside = fold_shards(place, book, clean, records, shards)
        _remember_head(place)
    done = _compaction_report(book, branch, "base", shards=len(shards), sizes=(before, after))
    return replace(done, restored=restored, set_aside=tuple(map(str, aside)), dry_run=dry_run)


def fold_shards(
    place: DatasetDirs, book: DatasetReader, clean: Mapping[str, Clean], records: JsonRedactor, shards: Iterable[Path]
) -> list[Path]:
    """Write the base files, and only then remove the shards whose rows are in them.

    Return copies of base files that could not be read whole before; a shard that could not be stays.
    """
    damaged = sorted({Path(one.path) for one in book.damage})
    aside = [files.set_aside(path, place.root / "damaged") for path in damaged if path.parent == place.tracked_dir]
    pages = [OutputFile(name, Tier.TRACKED, each) for name, each in clean.items()]
    mark = records.redact_to_clean([_generation_row({name: each.text.encode() for name, each in clean.items()})])
    write_output_files(place.tracked_dir, [*pages, OutputFile(GENERATION, Tier.TRACKED, mark)])
    files.remove_files(path for path in shards if path not in damaged)
    return aside


def _compact_into_shard(
    place: DatasetDirs, records: JsonRedactor, branch: str, default: str, *, dry_run: bool
) -> Compaction:
    before = total_bytes(place)
    if not dry_run:
        purge_shards(place, records)
    base = default or default_branch(place.repository)
    theirs = {
        path.rpartition("/")[2]
        for ref in (f"refs/heads/{base}", f"refs/remotes/origin/{base}")
        for path in tree_files(place.repository, ref, PENDING)
    }
    # Shards with tombstones keep their name: a capture looks for it.
    own = [
        path for path in shard_files(place.tracked_dir) if path.name not in theirs and shard_session(path.name) != GONE
    ]
    chosen = {path.name: path for path in own if not read_files([path]).damage}
    names = choose_foldable((name, path.stat().st_size) for name, path in chosen.items())
    book = read_files([chosen[name] for name in names])
    lines = sorted((_row_time(book.rows[key]), version.line) for key, version in book.lines.items())
    number = free_number(chosen[name].read_bytes()[:100] for name in names)
    body = indent_lines((line for _, line in lines), number)
    removed = sum(chosen[name].stat().st_size for name in names)
    if names and not dry_run:
        write_bodies(place, [name_shard(FOLDED, body, max(names)[:10])], records)
        files.remove_files(chosen[name] for name in names)
    after = before - removed + len(body)
    return replace(_compaction_report(book, branch, "shard", shards=len(names), sizes=(before, after)), dry_run=dry_run)


def purge_shards(place: DatasetDirs, records: JsonRedactor) -> None:
    """Write shards again that hold forgotten rows or words, without them.

    A new shard begins at a column that no other has: git must not take it for the old one under a new name.
    """
    rules = read_dataset(place.tracked_dir).forgotten
    for path in shard_files(place.tracked_dir):
        book = read_files([path])
        rows = [rules.strip_row(row) for row in book.rows.values() if not rules.covers_row(row)]
        if book.damage or rows == list(book.rows.values()):
            continue
        others = shard_files(place.tracked_dir)
        number = free_number(each.read_bytes()[:100] for each in (others if len(others) < COLUMNS else [path]))
        body = indent_lines(sorted(map(encode_row, rows)), number)
        write_bodies(place, [name_shard(shard_session(path.name), body, path.name[:10])] if rows else [], records)
        files.remove_files([path])


def _compaction_report(
    book: DatasetReader, branch: str, into: str, *, shards: int, sizes: tuple[int, int]
) -> Compaction:
    return Compaction(
        branch=branch,
        into=into,
        shards=shards,
        rows=dict(sorted(book.count_rows().items())),
        repeats=sum(book.repeats.values()),
        older=book.older,
        gone=sum(key in book.removed_keys for key in book.lines),
        restored=0,
        bytes_before=sizes[0],
        bytes_after=sizes[1],
    )


def _restore_lost_rows(place: DatasetDirs, book: DatasetReader) -> int:
    """Take in the rows of shards that history lost, as by a revert: rows go by tombstones alone."""
    tip = head_commit(place.repository)
    if not tip:
        return 0
    known = _read_compacted_head(place)
    words = ["log", "--full-history", "--raw", "-z", "--no-abbrev", "--no-renames", "--diff-filter=D", "--format=", tip]
    words += ["--not", known] if known and git_output(place.repository, "rev-parse", "-q", "--verify", known) else []
    listed = git_output(place.repository, *words, "--", PENDING)
    there = {path.name for path in shard_files(place.tracked_dir)}
    fields = listed.replace("\n", "\0").split("\0")
    lost = {
        facts.split()[2]
        for facts, path in itertools.pairwise(fields)
        if facts.startswith(":") and path.endswith(".jsonl") and path.rpartition("/")[2] not in there
    }
    before = len(book.lines)
    found = read_blobs(read_blob_contents(place.repository, sorted(lost)))
    for version in found.lines.values():
        book.add_line(version.line)
    return len(book.lines) - before


def _read_compacted_head(place: DatasetDirs) -> str:
    try:
        return (place.state_dir / "compacted").read_text().strip()
    except OSError:
        return ""


def _remember_head(place: DatasetDirs) -> None:
    files.replace_file(place.state_dir / "compacted", head_commit(place.repository).encode() + b"\n", durable=False)


def _generation_row(texts: Mapping[str, bytes]) -> bytes:
    """The mark that the base files belong together, made of what they hold."""
    digest = hashlib.sha256()
    for name in sorted(texts):
        digest.update(name.encode() + b"\0" + texts[name] + b"\0")
    rows = {name: text.count(b"\n") for name, text in sorted(texts.items())}
    return encode_row({"kind": "generation", "id": f"generation-{digest.hexdigest()[:12]}", "rows": rows})


def is_generation(place: DatasetDirs) -> bool:
    """Whether the base files are what the last compaction left."""
    texts = {path.name: path.read_bytes() for path in base_files(place.tracked_dir) if path.exists()}
    mark = place.tracked_dir / GENERATION
    written = mark.read_bytes().strip() if mark.exists() else b""
    return written == _generation_row(texts) or (not written and not any(texts.values()))


def _row_time(row: Row) -> str:
    return str(row.get("timestamp") or row.get("started_at") or "")
