"""Compaction: fold shards into base files with each row once, sorted, without removed rows.

On the default branch shards go into the base files. On any other branch they go into one new shard,
because two branches that change one file conflict. The result depends on the rows alone, not on
their order or on how often it runs. A killed compaction leaves rows twice, which readers ignore.
"""

import hashlib
import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from flightlog.dataset import layout
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
from flightlog.store.git.repository import (
    current_branch,
    default_branch,
    git_output,
    read_blob_contents,
    tree_files,
)
from flightlog.store.output_files import write_output_files


class Compaction(Struct, frozen=True):
    """Counts of a compaction, or of its dry run."""

    branch: str
    target: str
    shards: int
    rows: dict[str, int]
    duplicate_rows: int
    superseded_rows: int
    deleted_rows: int
    restored_rows: int
    bytes_before: int
    bytes_after: int
    quarantined_files: tuple[str, ...] = ()
    dry_run: bool = False
    commit: str | None = None  # None: not requested, "": nothing to commit


def compact_dataset(
    dirs: layout.DatasetDirs, redactor: JsonRedactor, *, default: str = "", dry_run: bool = False
) -> Compaction:
    """Fold shards into the base files on the default branch, into one shard elsewhere."""
    branch = current_branch(dirs.repository)
    if branch == (default or default_branch(dirs.repository)):
        return _compact_into_base(dirs, redactor, branch, dry_run=dry_run)
    return _compact_into_shard(dirs, redactor, branch, default, dry_run=dry_run)


def compact_and_commit(
    dirs: layout.DatasetDirs, redactor: JsonRedactor, *, default: str = ""
) -> Compaction:
    """Fold shards and, on the default branch, commit the base files as a merge.

    The merge commit keeps git from merging the same rows again elsewhere.
    """
    branch = current_branch(dirs.repository)
    if branch != (default or default_branch(dirs.repository)):
        return replace(compact_dataset(dirs, redactor, default=default), commit="")
    committed = tree_files(dirs.repository, "HEAD", layout.TRACKED)
    shards = _repository_paths(dirs, shard_files(dirs.tracked_dir))
    new = [path for path in shards if path not in committed]
    files.ensure_dir(dirs.state_dir)
    index = dirs.state_dir / f"index-{files.process_tag()}"
    try:
        side = refs.commit_side_branch(dirs.repository, new, "Training rows", index)
        compaction = _compact_into_base(dirs, redactor, branch, dry_run=False)
        present = [path for path in dirs.root.glob("*") if path.name in layout.SETTINGS]
        present += [*dirs.tracked_dir.glob("*.jsonl"), *dirs.pending_dir.glob("*.jsonl")]
        present.append(dirs.pending_dir / layout.KEPT_OPEN)
        paths = {*committed, *_repository_paths(dirs, present)}
        commit = refs.merge_side_branch(dirs.repository, side, paths, "Compact rows", index)
    finally:
        files.remove_files([index])
    _remember_head(dirs)
    return replace(compaction, commit=commit)


def _repository_paths(dirs: layout.DatasetDirs, paths: Iterable[Path]) -> list[str]:
    return [str(path.relative_to(dirs.repository.top)) for path in paths]


def base_texts(dataset: DatasetReader) -> dict[str, list[bytes]]:
    """Return the lines of every base file, sorted by time and content."""
    lines: dict[str, list[tuple[str, bytes]]] = defaultdict(list)
    for key, line in dataset.live_lines().items():
        row = dataset.rows[key]
        kind = str(row.get("kind", ""))
        lines[BASES.get(kind, OTHER)].append(
            (_row_time(row), base_line(line, kind) if kind in BASES else line)
        )
    names = [*BASES.values(), *([OTHER] if OTHER in lines else [])]
    return {name: [line for _, line in sorted(lines[name])] for name in names}


def merge_base_files(name: str, versions: Iterable[bytes]) -> bytes:
    """Merge versions of the base file `name`: every row once, sorted."""
    dataset = read_blobs({f"{number}/{name}": body for number, body in enumerate(versions)})
    return b"".join(line + b"\n" for line in base_texts(dataset).get(name, []))


def _compact_into_base(
    dirs: layout.DatasetDirs, redactor: JsonRedactor, branch: str, *, dry_run: bool
) -> Compaction:
    shards = shard_files(dirs.tracked_dir)
    before = layout.total_bytes(dirs)
    dataset = read_files([*base_files(dirs.tracked_dir), *shards])
    restored = _restore_lost_rows(dirs, dataset)
    texts = base_texts(dataset)
    for lines in texts.values():
        redactor.collect_values(lines)
    clean = {name: redactor.redact_to_clean(lines) for name, lines in texts.items()}
    after = sum(len(body.text.encode()) for body in clean.values())
    copies: list[Path] = []
    if not dry_run:
        layout.prepare_dataset(dirs, redactor)
        copies = fold_shards(dirs, dataset, clean, redactor, shards)
        _remember_head(dirs)
    report = _compaction_report(dataset, branch, "base", shards=len(shards), sizes=(before, after))
    return replace(
        report, restored_rows=restored, quarantined_files=tuple(map(str, copies)), dry_run=dry_run
    )


def fold_shards(
    dirs: layout.DatasetDirs,
    dataset: DatasetReader,
    clean: Mapping[str, Clean],
    redactor: JsonRedactor,
    shards: Iterable[Path],
) -> list[Path]:
    """Write the base files, and only then remove the shards whose rows are in them.

    Return copies of damaged base files. Damaged shards stay.
    """
    damaged = sorted({Path(damage.path) for damage in dataset.damage})
    bases = [path for path in damaged if path.parent == dirs.tracked_dir]
    copies = [files.set_aside(path, dirs.root / "damaged") for path in bases]
    files.remove_files([dirs.tracked_dir / layout.EMPTY_BASES])
    pages = [OutputFile(name, Tier.TRACKED, body) for name, body in clean.items()]
    generation = _generation_row({name: body.text.encode() for name, body in clean.items()})
    pages.append(OutputFile(GENERATION, Tier.TRACKED, redactor.redact_to_clean([generation])))
    write_output_files(dirs.tracked_dir, pages)
    files.remove_files(path for path in shards if path not in damaged)
    return copies


def _compact_into_shard(
    dirs: layout.DatasetDirs, redactor: JsonRedactor, branch: str, default: str, *, dry_run: bool
) -> Compaction:
    before = layout.total_bytes(dirs)
    if not dry_run:
        purge_shards(dirs, redactor)
    base = default or default_branch(dirs.repository)
    heads = (f"refs/heads/{base}", f"refs/remotes/origin/{base}")
    paths = (path for ref in heads for path in tree_files(dirs.repository, ref, layout.PENDING))
    theirs = {path.rpartition("/")[2] for path in paths}
    chosen = {
        path.name: path
        for path in shard_files(dirs.tracked_dir)
        # Shards with tombstones keep their name: an extraction finds tombstones by it.
        if path.name not in theirs
        and shard_session(path.name) != GONE
        and not read_files([path]).damage
    }
    names = choose_foldable((name, path.stat().st_size) for name, path in chosen.items())
    dataset = read_files([chosen[name] for name in names])
    lines = sorted(
        (_row_time(dataset.rows[key]), version.line) for key, version in dataset.lines.items()
    )
    number = free_number(chosen[name].read_bytes()[:100] for name in names)
    body = indent_lines((line for _, line in lines), number)
    removed = sum(chosen[name].stat().st_size for name in names)
    if names and not dry_run:
        layout.write_bodies(dirs, [name_shard(FOLDED, body, max(names)[:10])], redactor)
        files.remove_files(chosen[name] for name in names)
    after = before - removed + len(body)
    return replace(
        _compaction_report(dataset, branch, "shard", shards=len(names), sizes=(before, after)),
        dry_run=dry_run,
    )


def purge_shards(dirs: layout.DatasetDirs, redactor: JsonRedactor) -> None:
    """Rewrite shards that hold removed rows or words, without them.

    A new shard starts at a column that no other has, so that git does not take it for a rename.
    """
    rules = read_dataset(dirs.tracked_dir).forgotten
    for path in shard_files(dirs.tracked_dir):
        dataset = read_files([path])
        rows = [rules.strip_row(row) for row in dataset.rows.values() if not rules.covers_row(row)]
        if dataset.damage or rows == list(dataset.rows.values()):
            continue
        others = shard_files(dirs.tracked_dir)
        number = free_number(
            shard.read_bytes()[:100] for shard in (others if len(others) < COLUMNS else [path])
        )
        body = indent_lines(sorted(map(encode_row, rows)), number)
        bodies = [name_shard(shard_session(path.name), body, path.name[:10])] if rows else []
        layout.write_bodies(dirs, bodies, redactor)
        files.remove_files([path])


def _compaction_report(
    dataset: DatasetReader, branch: str, into: str, *, shards: int, sizes: tuple[int, int]
) -> Compaction:
    return Compaction(
        branch=branch,
        target=into,
        shards=shards,
        rows=dict(sorted(dataset.count_rows().items())),
        duplicate_rows=sum(dataset.repeats.values()),
        superseded_rows=dataset.older,
        deleted_rows=sum(key in dataset.removed_keys for key in dataset.lines),
        restored_rows=0,
        bytes_before=sizes[0],
        bytes_after=sizes[1],
    )


def _restore_lost_rows(dirs: layout.DatasetDirs, dataset: DatasetReader) -> int:
    """Add the rows of shards that history lost, as by a revert: only tombstones remove rows."""
    tip = head_commit(dirs.repository)
    if not tip:
        return 0
    try:
        last = (dirs.state_dir / "compacted").read_text().strip()
    except OSError:
        last = ""
    options = ("--full-history", "--raw", "-z", "--no-abbrev", "--no-renames", "--diff-filter=D")
    is_known = last and git_output(dirs.repository, "rev-parse", "-q", "--verify", last)
    tips = [tip, "--not", last] if is_known else [tip]
    listed = git_output(dirs.repository, "log", *options, "--format=", *tips, "--", layout.PENDING)
    present = {path.name for path in shard_files(dirs.tracked_dir)}
    raw = itertools.pairwise(listed.replace("\n", "\0").split("\0"))
    rows = (
        (facts, path) for facts, path in raw if facts.startswith(":") and path.endswith(".jsonl")
    )
    lost = {facts.split()[2] for facts, path in rows if path.rpartition("/")[2] not in present}
    before = len(dataset.lines)
    for version in read_blobs(read_blob_contents(dirs.repository, sorted(lost))).lines.values():
        dataset.add_line(version.line)
    return len(dataset.lines) - before


def _remember_head(dirs: layout.DatasetDirs) -> None:
    path = dirs.state_dir / "compacted"
    files.replace_file(path, head_commit(dirs.repository).encode() + b"\n", durable=False)


def _generation_row(texts: Mapping[str, bytes]) -> bytes:
    """Return the row that says which contents of the base files belong together."""
    digest = hashlib.sha256()
    for name in sorted(texts):
        digest.update(name.encode() + b"\0" + texts[name] + b"\0")
    rows = {name: text.count(b"\n") for name, text in sorted(texts.items())}
    return encode_row(
        {"kind": "generation", "id": f"generation-{digest.hexdigest()[:12]}", "rows": rows}
    )


def is_generation(dirs: layout.DatasetDirs) -> bool:
    """Return whether the base files are what the last compaction left."""
    texts = {path.name: path.read_bytes() for path in base_files(dirs.tracked_dir) if path.exists()}
    mark = dirs.tracked_dir / GENERATION
    row = mark.read_bytes().strip() if mark.exists() else b""
    return row == _generation_row(texts) or (not row and not any(texts.values()))


def _row_time(row: Row) -> str:
    return str(row.get("timestamp") or row.get("started_at") or "")
