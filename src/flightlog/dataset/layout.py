"""The directories of a repository's dataset, and the files that configure git for it.

    .git-ml/.gitignore, .gitattributes      only rows are tracked; union merge as a fallback
    .git-ml/tracked/*.jsonl                 base files: five empty ones at first, rows after a `compact`
    .git-ml/tracked/pending/*.jsonl         shards, written on every branch
    .git/flightlog/dataset/                 state of this clone, not part of the content

Only `compact` on the default branch writes rows into base files. Until then git does not see them
(`tracked/.gitignore`, which ignores itself): if the commit that starts a dataset had them, reverting
it on one branch would conflict with a compaction on another. `pending/.gitkeep` exists from the
start: git's rename detection turns a directory that becomes empty into conflicts. On a branch
without a dataset only shards are written: files with fixed names would block the checkout of a
branch that has them.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from flightlog.dataset import reader
from flightlog.dataset.rows import BASES, COUNTED, Row, encode_row
from flightlog.model.output_files import OutputFile, Tier
from flightlog.privacy import tiers
from flightlog.privacy.json_redactor import JsonRedactor
from flightlog.store.files import create_file, ensure_contained, remove_files
from flightlog.store.git.repository import Repository
from flightlog.store.output_files import write_output_files

ROOT = ".git-ml"
TRACKED = f"{ROOT}/tracked"
PENDING = f"{TRACKED}/pending"
SETTINGS = (".gitignore", ".gitattributes")
KEPT_OPEN = ".gitkeep"
EMPTY_BASES = ".gitignore"  # in `tracked/` until the first compaction
CACHED = {"chat": "chats", "session": "sessions", "action": "actions"}


class DatasetDirs(Struct, frozen=True):
    """The dataset of one work tree."""

    repository: Repository

    def __post_init__(self) -> None:
        """Refuse a dataset that a symbolic link puts outside the repository."""
        for path in (self.root, self.tracked_dir, self.pending_dir):
            ensure_contained(self.repository.top, path)

    @property
    def root(self) -> Path:
        """Return the directory of the dataset."""
        return self.repository.top / ROOT

    @property
    def tracked_dir(self) -> Path:
        """Return the directory that git tracks."""
        return self.repository.top / TRACKED

    @property
    def pending_dir(self) -> Path:
        """Return the directory of the shards."""
        return self.repository.top / PENDING

    @property
    def state_dir(self) -> Path:
        """Return the directory of this clone's state."""
        return self.repository.common / "flightlog" / "dataset"


def prepare_dataset(dirs: DatasetDirs, redactor: JsonRedactor) -> list[Path]:
    """Create the missing files and return them. From now on this clone collects rows."""
    if not (dirs.state_dir / "collecting").exists():
        create_file(dirs.state_dir / "collecting", b"")
    layout = tiers.layout_of("dataset")
    wanted = {
        ".gitignore": tiers.render_gitignore(layout, root=""),
        ".gitattributes": tiers.render_gitattributes(layout, root=""),
        "tracked/pending/.gitkeep": "",
    }
    bases = [dirs.tracked_dir / reader.GENERATION, *reader.base_files(dirs.tracked_dir)]
    if any(path.exists() and path.stat().st_size for path in bases):
        remove_files([dirs.tracked_dir / EMPTY_BASES])  # rows that another tool appended
    else:
        wanted |= {f"tracked/{BASES[kind]}": "" for kind in COUNTED}
        wanted[f"tracked/{EMPTY_BASES}"] = f"/*.jsonl\n/{EMPTY_BASES}\n"
    missing = {name: text for name, text in wanted.items() if not (dirs.root / name).exists()}
    clean = redactor.redactor.redact_as_clean
    pages = [OutputFile(name, Tier.TRACKED, clean(text)) for name, text in missing.items()]
    return write_output_files(dirs.root, pages)


def write_shard(
    dirs: DatasetDirs, session: str, rows: Sequence[Row], number: int, redactor: JsonRedactor
) -> Path | None:
    """Write redacted rows as one shard, redacting once more and leaving out removed rows.

    `number` counts the shards of a session. Return None if the shard exists or no row is left.
    """
    forgotten = reader.read_tombstones(dirs.tracked_dir)
    rows = [forgotten.strip_row(row) for row in rows if not forgotten.covers_row(row)]
    if not rows:
        return None
    clean = redactor.redact_rows(list(rows), reader.shard_column(number, session))
    day = max(map(reader.day_of, rows), default="")
    name = reader.name_shard(session, clean.text.encode("utf-8", "replace"), day).name
    written = write_output_files(
        dirs.tracked_dir, [OutputFile(f"pending/{name}", Tier.TRACKED, clean)]
    )
    return written[0] if written else None


def write_bodies(
    dirs: DatasetDirs, bodies: Iterable[tuple[str, bytes]], redactor: JsonRedactor
) -> list[Path]:
    """Write finished shards; one that still needs redaction gets another name."""
    pages = []
    for name, body in bodies:
        clean = redactor.redact_to_clean(line for line in body.split(b"\n") if line.strip())
        text = clean.text.encode("utf-8", "replace")
        final = (
            name
            if text == body
            else reader.name_shard(reader.shard_session(name), text, name[:10]).name
        )
        pages.append(OutputFile(f"pending/{final}", Tier.TRACKED, clean))
    return write_output_files(dirs.tracked_dir, pages)


def cache_pages(rows: Iterable[Row]) -> list[OutputFile]:
    """Return the source document's private file for each row."""
    pages = []
    for row in rows:
        folder = CACHED.get(row["kind"])
        name = "".join(char if char.isalnum() or char in "._-" else "-" for char in str(row["id"]))[
            :120
        ]
        day = "" if folder == "sessions" else f"{str(row.get('timestamp', ''))[:10]}/"
        if folder:
            text = encode_row({**row, "made_by": "flightlog"}).decode() + "\n"
            pages.append(OutputFile(f"{folder}/{day}{name}.json", Tier.PRIVATE, text))
    return pages


def total_bytes(dirs: DatasetDirs) -> int:
    """Return the size of the tracked files."""
    files = [*reader.base_files(dirs.tracked_dir), *dirs.pending_dir.glob("*.jsonl")]
    return sum(path.stat().st_size for path in files if path.exists())
